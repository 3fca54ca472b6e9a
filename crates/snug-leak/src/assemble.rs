//! Series that can be judged, from readings of single processes: the sum over all processes, and, where processes are
//! replaced again and again, what one of them does as it gets older. Pure.

use std::collections::HashSet;

use crate::verdict::Series;
use snug_heap::glibc_heap::HeapSize;
use snug_inspect::kinds::Kind;
use snug_live::record::{Footprint, RecordedProcess, Recording};
use snug_stats::median;

/// With this many processes at a time or more, pages that they share would be counted twice in RSS.
const SEVERAL_PROCESSES: f64 = 1.5;
/// Processes whose live bytes are not known may hold this share of all anonymous memory; it counts as used.
const UNKNOWN_SHARE: f64 = 0.1;
/// Processes below this share of the largest one's memory say nothing about workers.
const SMALL_SHARE: f64 = 0.25;
/// Lives that must have begun and ended during the watch before workers are taken to be replaced.
const FEWEST_LIVES: usize = 3;

/// Which number stands for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    Rss,
    Pss,
}

/// Where live bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LiveSource {
    /// The allocator counts them.
    Counted,
    /// From the chunks in glibc's heaps: see `glibc_heap`.
    Estimated,
    Unknown,
}

/// The series of a watch.
#[derive(Debug)]
pub struct Assembled {
    pub measure: Measure,
    pub live_source: LiveSource,
    pub total: Series,
    /// Processes at each moment of `total`.
    pub processes: Vec<usize>,
    /// Number of the moment in the watch that each element of `total` is from.
    pub moments: Vec<usize>,
    pub by_age: Option<ByAge>,
}

/// What a process that will be replaced does as it gets older.
#[derive(Debug)]
pub struct ByAge {
    /// Over the age of a process, in seconds; means over all that reached it.
    pub series: Series,
    /// Processes that began and ended during the watch.
    pub lives: usize,
    /// Their middle age at the end, in seconds.
    pub age_s: f64,
}

/// Puts the readings together.
pub fn assemble(recording: &Recording) -> Assembled {
    let processes = without_gaps(recording);
    let mut by_moment: Vec<Vec<&Footprint>> = vec![Vec::new(); recording.time_s.len()];
    for (moment, reading) in processes.iter().flat_map(|process| &process.readings) {
        by_moment[*moment].push(reading);
    }
    let moments: Vec<usize> = (0..by_moment.len()).filter(|moment| !by_moment[*moment].is_empty()).collect();
    let readings: usize = by_moment.iter().map(Vec::len).sum();
    let several = readings as f64 >= SEVERAL_PROCESSES * moments.len() as f64;
    let measure = if several { Measure::Pss } else { Measure::Rss };
    let live_source = live_source(&processes);
    let known = live_source != LiveSource::Unknown;
    let mut total = Series::default();
    for moment in &moments {
        let point =
            by_moment[*moment].iter().fold(Point::default(), |sum, reading| sum.with(reading, measure));
        point.add_to(&mut total, recording.time_s[*moment], known);
    }
    Assembled {
        measure,
        live_source,
        total,
        processes: moments.iter().map(|moment| by_moment[*moment].len()).collect(),
        moments,
        by_age: by_age(&processes, &recording.time_s, measure, known),
    }
}

/// The processes without the moments at which one of them did not tell its live bytes, but does at others: a sum must
/// not jump. If that are more than half of all moments, without the live bytes instead.
fn without_gaps(recording: &Recording) -> Vec<RecordedProcess> {
    let mut processes = recording.processes.clone();
    let tells =
        |process: &RecordedProcess| process.readings.iter().any(|(_, reading)| reading.heap.is_some());
    let gaps: HashSet<usize> = processes
        .iter()
        .filter(|process| tells(process))
        .flat_map(|process| &process.readings)
        .filter(|(_, reading)| reading.heap.is_none())
        .map(|(moment, _)| *moment)
        .collect();
    let too_many = 2 * gaps.len() > recording.time_s.len();
    for process in &mut processes {
        if too_many {
            process.readings.iter_mut().for_each(|(_, reading)| reading.heap = None);
        } else {
            process.readings.retain(|(moment, _)| !gaps.contains(moment));
        }
    }
    processes
}

/// By what most of the memory says.
fn live_source(processes: &[RecordedProcess]) -> LiveSource {
    let anonymous = |choose: &dyn Fn(&RecordedProcess, &Footprint) -> bool| -> f64 {
        let readings =
            processes.iter().flat_map(|process| process.readings.iter().map(move |(_, r)| (process, r)));
        readings
            .filter(|(process, reading)| choose(process, reading))
            .map(|(_, r)| r.anonymous_bytes as f64)
            .sum()
    };
    let is_glibc = |process: &RecordedProcess| process.kind == Some(Kind::Glibc);
    let unknown = anonymous(&|_, reading| reading.heap.is_none());
    let known = anonymous(&|_, reading| reading.heap.is_some());
    let estimated = anonymous(&|process, reading| reading.heap.is_some() && is_glibc(process));
    if known == 0.0 || unknown >= UNKNOWN_SHARE * (known + unknown) {
        LiveSource::Unknown
    } else if estimated > 0.5 * known {
        LiveSource::Estimated
    } else {
        LiveSource::Counted
    }
}

/// Sums over processes at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    used: f64,
    memory: f64,
    live: f64,
    heap: f64,
}

impl Point {
    fn with(self, reading: &Footprint, measure: Measure) -> Point {
        let resident = match measure {
            Measure::Rss => reading.rss_bytes,
            Measure::Pss => reading.pss_bytes,
        };
        let memory = (resident + reading.swap_bytes).saturating_sub(reading.lazy_free_bytes);
        let own = reading.anonymous_bytes + reading.swap_bytes;
        // What the allocator holds is an upper bound; the rest the program maps by itself, and may all be in use.
        let (used, live, heap) = match reading.heap {
            Some(HeapSize { live_bytes, held_bytes }) => {
                (live_bytes + own.saturating_sub(held_bytes), live_bytes, held_bytes.min(own))
            }
            None => (own, 0, 0),
        };
        Point {
            used: self.used + used as f64,
            memory: self.memory + memory as f64,
            live: self.live + live as f64,
            heap: self.heap + heap as f64,
        }
    }

    fn add_to(self, series: &mut Series, time_s: f64, known: bool) {
        series.time_s.push(time_s);
        series.memory.push(self.memory);
        if known {
            series.used.push(self.used);
            series.live.push(self.live);
            series.heap.push(self.heap);
        }
    }

    fn minus(self, other: Point) -> Point {
        self.plus(other, -1.0)
    }

    fn plus(self, other: Point, times: f64) -> Point {
        Point {
            used: self.used + other.used * times,
            memory: self.memory + other.memory * times,
            live: self.live + other.live * times,
            heap: self.heap + other.heap * times,
        }
    }
}

/// The course of a life, by the mean of what changes from each reading to the next. Steps rather than values: when
/// some of the processes have ended, the mean of the others must not jump.
fn by_age(processes: &[RecordedProcess], time_s: &[f64], measure: Measure, known: bool) -> Option<ByAge> {
    let peak = |process: &RecordedProcess| {
        process.readings.iter().map(|(_, reading)| reading.anonymous_bytes).max().unwrap_or(0)
    };
    let largest = processes.iter().map(peak).max()? as f64;
    let born: Vec<&RecordedProcess> = processes
        .iter()
        .filter(|process| !process.from_the_start && peak(process) as f64 >= SMALL_SHARE * largest)
        .collect();
    let life_s = |process: &RecordedProcess| {
        let time = |reading: Option<&(usize, Footprint)>| reading.map_or(0.0, |(moment, _)| time_s[*moment]);
        time(process.readings.last()) - time(process.readings.first())
    };
    let lives: Vec<f64> =
        born.iter().filter(|process| process.ended).map(|process| life_s(process)).collect();
    if lives.len() < FEWEST_LIVES {
        return None;
    }
    let points: Vec<Vec<Point>> = born
        .iter()
        .map(|process| {
            process.readings.iter().map(|(_, reading)| Point::default().with(reading, measure)).collect()
        })
        .collect();
    let interval_s = median(&time_s.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>());
    let mean = |points: &[Point]| {
        points.iter().fold(Point::default(), |sum, point| sum.plus(*point, 1.0 / points.len() as f64))
    };
    let firsts: Vec<Point> = points.iter().filter_map(|points| points.first().copied()).collect();
    let mut series = Series::default();
    let mut at = mean(&firsts);
    at.add_to(&mut series, 0.0, known);
    for age in 1.. {
        let steps: Vec<Point> = points
            .iter()
            .filter(|p| p.len() > age)
            .map(|points| points[age].minus(points[age - 1]))
            .collect();
        if steps.len() < FEWEST_LIVES {
            break;
        }
        at = at.plus(mean(&steps), 1.0);
        at.add_to(&mut series, age as f64 * interval_s, known);
    }
    Some(ByAge { series, lives: lives.len(), age_s: median(&lives) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(live: u64, heap: u64, anonymous: u64) -> Footprint {
        Footprint {
            rss_bytes: anonymous + 10,
            pss_bytes: anonymous + 5,
            anonymous_bytes: anonymous,
            heap: Some(HeapSize { live_bytes: live, held_bytes: heap }),
            ..Footprint::default()
        }
    }

    fn process(from_the_start: bool, ended: bool, readings: Vec<(usize, Footprint)>) -> RecordedProcess {
        RecordedProcess { from_the_start, ended, readings, ..RecordedProcess::example() }
    }

    fn moments(count: usize) -> Vec<f64> {
        (0..count).map(|moment| moment as f64).collect()
    }

    #[test]
    fn what_a_program_maps_itself_is_used() {
        let readings = vec![(0, reading(100, 150, 400)), (1, reading(100, 150, 120))];
        let recording = Recording {
            time_s: moments(2),
            processes: vec![process(true, false, readings)],
            ..Recording::default()
        };
        let assembled = assemble(&recording);
        assert_eq!((assembled.measure, assembled.live_source), (Measure::Rss, LiveSource::Counted));
        assert_eq!(assembled.total.used, [350.0, 100.0]);
        assert_eq!(assembled.total.heap, [150.0, 120.0], "an upper bound is cut");
        assert_eq!(assembled.total.memory, [410.0, 130.0]);
    }

    #[test]
    fn without_counters_there_is_memory_only() {
        let unknown = Footprint { heap: None, swap_bytes: 7, lazy_free_bytes: 2, ..reading(0, 0, 400) };
        let processes =
            vec![process(true, false, vec![(0, unknown)]), process(true, false, vec![(0, unknown)])];
        let assembled = assemble(&Recording { time_s: moments(1), processes, ..Recording::default() });
        assert_eq!((assembled.measure, assembled.live_source), (Measure::Pss, LiveSource::Unknown));
        assert_eq!(assembled.total.memory, [820.0], "swapped-out pages count, free ones do not");
        assert!(assembled.total.used.is_empty());
    }

    #[test]
    fn moments_without_live_bytes_are_left_out_unless_they_are_many() {
        let gap = Footprint { heap: None, ..reading(0, 0, 400) };
        let recording = |second: Footprint, third: Footprint| {
            let readings = vec![(0, reading(100, 150, 400)), (1, second), (2, third)];
            Recording {
                time_s: moments(3),
                processes: vec![process(true, false, readings)],
                ..Recording::default()
            }
        };
        let assembled = assemble(&recording(gap, reading(100, 150, 400)));
        assert_eq!((assembled.moments, assembled.total.used), (vec![0, 2], vec![350.0, 350.0]));
        let assembled = assemble(&recording(gap, gap));
        assert_eq!((assembled.live_source, assembled.total.memory.len()), (LiveSource::Unknown, 3));
    }

    #[test]
    fn a_small_helper_under_glibc_does_not_make_all_an_estimate() {
        let of = |kind, anonymous| RecordedProcess {
            kind: Some(kind),
            ..process(true, false, vec![(0, reading(10, 20, anonymous))])
        };
        let source = |processes| {
            assemble(&Recording { time_s: moments(1), processes, ..Recording::default() }).live_source
        };
        assert_eq!(source(vec![of(Kind::Snug, 2000), of(Kind::Glibc, 20)]), LiveSource::Counted);
        assert_eq!(source(vec![of(Kind::Snug, 20), of(Kind::Glibc, 2000)]), LiveSource::Estimated);
    }

    #[test]
    fn workers_that_are_replaced_are_seen_by_age() {
        // Four workers one after the other, each growing by 10 per reading from another start.
        let worker = |begin: usize, start: u64| {
            let readings = (0..10).map(|age| (begin + age, reading(start + 10 * age as u64, 2000, 1000)));
            process(false, begin < 30, readings.collect())
        };
        let processes = (0..4).map(|index| worker(index * 10, 100 + 50 * index as u64)).collect();
        let recording = Recording { time_s: moments(40), processes, ..Recording::default() };
        let by_age = assemble(&recording).by_age.unwrap();
        assert_eq!((by_age.lives, by_age.age_s), (3, 9.0));
        let expected: Vec<f64> = (0..10).map(|age| 175.0 + 10.0 * age as f64).collect();
        assert_eq!(by_age.series.used, expected);
        assert_eq!(by_age.series.time_s[9], 9.0);
    }
}
