//! A verdict about a program's memory, from series of readings. Pure.

use serde::Serialize;

use crate::trend::{self, Direction, Doubt, Trend};
use snug_stats::median;

/// Memory of the allocator above this many times the live bytes is far above.
const FRAGMENTED_RATIO: f64 = 1.5;
/// And it must be worth a word: bytes, and share of the program's memory.
const FRAGMENTED_BYTES: f64 = 4e6;
const FRAGMENTED_SHARE: f64 = 0.1;
/// Live bytes that explain less than this share of the growth of memory are not its cause.
const EXPLAINED: f64 = 1.0 / 3.0;
/// How many margins the interval of memory may reach up where live bytes are steady.
const NOISY_MARGINS: f64 = 3.0;
/// Growth that is no growth, in bytes: some pages here and there.
const LEAST_MARGIN_BYTES: f64 = 96.0 * 1024.0;

/// What a program's memory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Live bytes grow: the program keeps ever more.
    Leak,
    /// Memory grows, and live bytes are not known: a leak or bloat.
    Growing,
    /// Memory grows, live bytes do not: the allocator keeps ever more.
    Bloat,
    /// Neither grows, but the allocator holds far more than is live.
    Fragmented,
    /// Neither grows.
    Plateau,
    /// Not enough data.
    Unclear,
}

impl Verdict {
    /// The verdict in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Leak => "Leak",
            Verdict::Growing => "Growing",
            Verdict::Bloat => "Bloat",
            Verdict::Fragmented => "Fragmented",
            Verdict::Plateau => "Plateau",
            Verdict::Unclear => "Not enough data",
        }
    }
}

/// The series that a verdict is made from, all over the same moments, in bytes.
#[derive(Debug, Clone, Default)]
pub struct Series {
    pub time_s: Vec<f64>,
    /// What is in use: live blocks of the allocator and what the program maps by itself. Empty if not known.
    pub used: Vec<f64>,
    /// Resident and swapped-out memory of the program.
    pub memory: Vec<f64>,
    /// Live blocks of the allocator alone, and the memory that it holds for them. Empty if not known.
    pub live: Vec<f64>,
    pub heap: Vec<f64>,
}

impl Series {
    /// What is live and what the allocator holds for it, at the end: medians of the last third. None if not known.
    pub fn heap_at_end(&self) -> Option<(f64, f64)> {
        let at_end = |values: &[f64]| median(&values[values.len() * 2 / 3..]);
        let is_known = !self.live.is_empty() && !self.heap.is_empty();
        is_known.then(|| (at_end(&self.live), at_end(&self.heap)))
    }
}

/// Over what growth is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedOver {
    Time,
    Requests,
}

/// A verdict and what it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct Assessment {
    pub verdict: Verdict,
    pub over: JudgedOver,
    /// Trend of what is in use; None if that is not known.
    pub used: Option<Trend>,
    pub memory: Trend,
    /// Memory of the allocator divided by live bytes, at the end.
    pub heap_ratio: Option<f64>,
    /// What the allocator holds beyond live bytes, at the end.
    pub excess_bytes: Option<f64>,
    /// Why there is no other verdict.
    pub doubt: Option<Doubt>,
}

/// Judges what was read. `tolerance` is the growth over the watch, as a share of the level, that is no growth.
pub fn assess(series: &Series, tolerance: f64) -> Assessment {
    assess_over(JudgedOver::Time, &series.time_s, series, tolerance)
}

/// Judges what was read of a program whose requests were counted, so many at each moment. What grows with each request may
/// seem to settle, or to come and go, as requests do: what is unclear over time is judged over requests.
pub fn assess_with_requests(series: &Series, requests: &[f64], tolerance: f64) -> Assessment {
    let over_time = assess(series, tolerance);
    if over_time.verdict != Verdict::Unclear || !trend::suffices(requests) {
        return over_time;
    }
    let over_requests = assess_over(JudgedOver::Requests, requests, series, tolerance);
    match over_requests.verdict {
        Verdict::Leak | Verdict::Bloat | Verdict::Growing => over_requests,
        _ => over_time,
    }
}

/// `x` is what goes on: seconds, or requests so far.
fn assess_over(over: JudgedOver, x: &[f64], series: &Series, tolerance: f64) -> Assessment {
    let span_s = series.time_s.last().zip(series.time_s.first()).map_or(0.0, |(last, first)| last - first);
    let trend = |values: &[f64]| {
        let trend = trend::classify(x, values, tolerance, LEAST_MARGIN_BYTES);
        match over {
            JudgedOver::Time => trend,
            JudgedOver::Requests => Trend { settled_after_s: None, span_s, ..trend },
        }
    };
    let memory = trend(&series.memory);
    let used = (!series.used.is_empty()).then(|| trend(&series.used));
    let heap = series.heap_at_end();
    let heap_ratio = heap.map(|(live, held)| held / live.max(1.0));
    let excess_bytes = heap.map(|(live, held)| held - live);
    let far_above = heap_ratio.is_some_and(|ratio| ratio >= FRAGMENTED_RATIO)
        && excess_bytes.is_some_and(|bytes| bytes >= FRAGMENTED_BYTES.max(FRAGMENTED_SHARE * memory.level));
    let (verdict, doubt) = decide(used.as_ref(), &memory, far_above);
    Assessment { verdict, over, used, memory, heap_ratio, excess_bytes, doubt }
}

fn decide(used: Option<&Trend>, memory: &Trend, far_above: bool) -> (Verdict, Option<Doubt>) {
    use Direction::{Growing, Steady, Unclear};
    let Some(used) = used else {
        return match memory.direction {
            Growing => (Verdict::Growing, None),
            Steady => (Verdict::Plateau, None),
            Unclear(doubt) => (Verdict::Unclear, Some(doubt)),
        };
    };
    // Where live bytes are steady, memory may be noisier: it can't run away for long.
    let memory_direction = match memory.direction {
        Unclear(Doubt::Noise | Doubt::Steps)
            if memory.growth < memory.margin && memory.interval.1 < NOISY_MARGINS * memory.margin =>
        {
            Steady
        }
        direction => direction,
    };
    match (used.direction, memory_direction) {
        (Growing, Growing) if used.interval.1 < EXPLAINED * memory.interval.0 => (Verdict::Bloat, None),
        (Growing, _) => (Verdict::Leak, None),
        (Steady, Growing) => (Verdict::Bloat, None),
        (Unclear(_), Growing)
            if used.growth < EXPLAINED * memory.growth
                && used.interval.1 < memory.interval.0.max(used.margin) =>
        {
            (Verdict::Bloat, None)
        }
        (Steady, Steady) if far_above => (Verdict::Fragmented, None),
        (Steady, Steady) => (Verdict::Plateau, None),
        (Unclear(doubt), _) | (Steady, Unclear(doubt)) => (Verdict::Unclear, Some(doubt)),
    }
}
