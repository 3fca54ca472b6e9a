//! Watches made up for tests.

use crate::assemble::{Assembled, ByAge, LiveSource, Measure};
use crate::growth_check::OtherMeasures;
use crate::report::{Findings, LeakReport, Remarks};
use crate::size_growth::{BlockSize, GrowingSize};
use crate::verdict::{assess, Series};
use snug_inspect::kinds::Kind;
use snug_live::record::{RecordedProcess, Recording};
use snug_profile::keeping::KeepingLine;
use snug_profile::sites::Frame;

/// Of one process, with 10 requests at each moment.
pub struct Watch {
    pub series: Series,
    pub kind: Kind,
    pub live_source: LiveSource,
    /// Samples and counters tell a line that keeps, and two sizes of blocks.
    pub sampled: bool,
    /// Series of one worker over its age, and how many were replaced at the age of 60 s.
    pub by_age: Option<(Series, usize)>,
    pub remarks: Remarks,
    pub other_measures: OtherMeasures,
}

impl Watch {
    pub fn of(series: Series) -> Watch {
        Watch {
            series,
            kind: Kind::Snug,
            live_source: LiveSource::Counted,
            sampled: true,
            by_age: None,
            remarks: Remarks::default(),
            other_measures: OtherMeasures::default(),
        }
    }

    pub fn report(self) -> LeakReport {
        let readings = self.series.time_s.len();
        let total = assess(&self.series, 0.05);
        let by_age = self.by_age.map(|(series, lives)| ByAge { series, lives, age_s: 60.0 });
        let judged_by_age = by_age.as_ref().map(|by_age| assess(&by_age.series, 0.05));
        let assembled = Assembled {
            measure: Measure::Rss,
            live_source: self.live_source,
            processes: vec![1; readings],
            moments: (0..readings).collect(),
            total: self.series,
            by_age,
        };
        let process = RecordedProcess { kind: Some(self.kind), ..RecordedProcess::example() };
        let recording = Recording { processes: vec![process], ..Recording::default() };
        let keeping = KeepingLine {
            bytes_per_s: 1.0,
            bytes_per_s_interval: (0.5, 1.5),
            samples: 16,
            line: Frame::new("keeps", "a.rb", 3),
            callers: vec![Frame::new("serve", "a.rb", 7)],
        };
        let growing = |size, share| GrowingSize { size, bytes_per_s: share, share };
        let sizes = vec![growing(BlockSize::Class { bytes: 64 }, 0.9), growing(BlockSize::Large, 0.1)];
        LeakReport::new(Findings {
            subject: "ruby app.rb".into(),
            recording: &recording,
            assembled: &assembled,
            total,
            by_age: judged_by_age,
            requests: (0..readings).map(|moment| 10.0 * moment as f64).collect(),
            request_unit: "request",
            load: None,
            remarks: self.remarks,
            lines: if self.sampled { vec![keeping] } else { Vec::new() },
            sizes: if self.sampled { sizes } else { Vec::new() },
            other_measures: self.other_measures,
        })
    }
}

/// So many readings over so many seconds of a program that uses this at each moment, and 20 MB beside.
pub fn drawn(readings: u32, span_s: f64, used: impl Fn(f64) -> f64) -> Series {
    let step_s = span_s / f64::from(readings - 1);
    let time_s: Vec<f64> = (0..readings).map(|reading| f64::from(reading) * step_s).collect();
    let used: Vec<f64> = time_s.iter().map(|time_s| used(*time_s)).collect();
    let memory = used.iter().map(|used| used + 20e6).collect();
    Series { time_s, memory, live: used.clone(), heap: used.clone(), used }
}

/// 600 readings, one per second, of a program that grows evenly by so many bytes.
pub fn line(growth: f64) -> Series {
    drawn(600, 599.0, |time_s| 100e6 + growth * time_s / 599.0)
}

/// Leaks 60 MB in ten minutes, in malloc or else in what it maps itself, and what is live does something `beside`.
pub fn leaking(in_malloc: bool, beside: fn(f64) -> f64) -> Series {
    let mut series = drawn(600, 599.0, |_| 0.0);
    for (moment, time_s) in series.time_s.iter().enumerate() {
        let x = time_s / 599.0;
        let (kept, mapped) = if in_malloc { (60e6 * x, 0.0) } else { (0.0, 60e6 * x) };
        let (live, mapped) = (50e6 + kept + beside(x), 80e6 + mapped);
        series.live[moment] = live;
        series.heap[moment] = 1.1 * live;
        series.used[moment] = live + mapped;
        series.memory[moment] = 1.1 * live + mapped + 20e6;
    }
    series
}

/// Neither grows, and the allocator holds what it does at each moment.
pub fn steady(live: Vec<f64>, heap: Vec<f64>) -> Series {
    let level = vec![100e6; live.len()];
    let time_s = (0..live.len()).map(|moment| moment as f64).collect();
    Series { time_s, memory: level.clone(), used: level, live, heap }
}
