//! Sizes of blocks of which more and more are live, from the counters of processes under snug. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use snug_heap::counters::Account;
use snug_process::proc::Pid;

/// A process that was read fewer times says nothing.
const READINGS: f64 = 5.0;
/// Sizes are shown from this share of all growth.
const SHOWN_SHARE: f64 = 0.05;

/// A size of blocks, and how fast live ones add up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GrowingSize {
    pub size: BlockSize,
    pub bytes_per_s: f64,
    /// Of all sizes that grow, from 0 to 1.
    pub share: f64,
}

/// How the library keeps a block, which depends on its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BlockSize {
    Class {
        bytes: u64,
    },
    /// Whole pages, more than any class has.
    Pages,
    /// With a mapping of its own.
    Large,
}

impl BlockSize {
    /// As people read it.
    pub fn text(self) -> String {
        match self {
            BlockSize::Class { bytes } => format!("{bytes} bytes"),
            BlockSize::Pages => "32 KiB to 1 MiB".into(),
            BlockSize::Large => "1 MiB and more".into(),
        }
    }
}

/// Sums for the slope of a line through points (t, y) by least squares.
#[derive(Debug, Clone, Copy, Default)]
struct Slope {
    /// How long this was read.
    read_s: f64,
    count: f64,
    t: f64,
    y: f64,
    tt: f64,
    ty: f64,
}

impl Slope {
    fn add(&mut self, t: f64, y: f64) {
        self.count += 1.0;
        self.t += t;
        self.y += y;
        self.tt += t * t;
        self.ty += t * y;
    }

    fn value(&self) -> f64 {
        let spread = self.count * self.tt - self.t * self.t;
        if self.count < READINGS || spread <= 0.0 {
            return 0.0;
        }
        (self.count * self.ty - self.t * self.y) / spread
    }
}

/// A PID, and when the process started in clock ticks: PIDs come again.
type StartedProcess = (Pid, u64);

/// What readings of processes say about each size.
#[derive(Debug, Default)]
pub struct SizeGrowth {
    slopes: BTreeMap<(StartedProcess, BlockSize), Slope>,
    /// The last moment of a reading, the time since the one before it, and since the first.
    at_s: Option<f64>,
    since_last_s: f64,
    read_s: f64,
}

impl SizeGrowth {
    /// Notes a reading of a process at a moment, in seconds on a clock that only goes forward. Processes that are read
    /// together have the same moment.
    pub fn note(&mut self, process: StartedProcess, at_s: f64, account: &Account) {
        let last_s = self.at_s.replace(at_s);
        if last_s != Some(at_s) {
            self.since_last_s = last_s.map_or(0.0, |last_s| at_s - last_s);
            self.read_s += self.since_last_s;
        }
        let mut add = |size, live: u64| {
            let slope = self.slopes.entry((process, size)).or_default();
            slope.read_s += self.since_last_s;
            slope.add(at_s, live as f64);
        };
        for class in &account.classes {
            add(BlockSize::Class { bytes: class.size_bytes }, class.outstanding_bytes());
        }
        add(BlockSize::Pages, account.head.run_bytes);
        add(BlockSize::Large, account.head.large_bytes);
    }

    /// By how much each size grows or shrinks. Each process counts by the share of the time in which it was read: of
    /// workers that are replaced, only some are there at a time.
    fn rates(&self) -> BTreeMap<BlockSize, f64> {
        let mut rates: BTreeMap<BlockSize, f64> = BTreeMap::new();
        for ((_, size), slope) in self.slopes.iter().filter(|(_, slope)| slope.read_s > 0.0) {
            *rates.entry(*size).or_default() += slope.value() * slope.read_s / self.read_s;
        }
        rates
    }

    /// By how much all sizes together grow, in bytes per second. None: there were too few readings.
    pub fn in_all(&self) -> Option<f64> {
        let is_known = self.slopes.values().any(|slope| slope.count >= READINGS);
        is_known.then(|| self.rates().values().sum())
    }

    /// The sizes that grow, the fastest first.
    pub fn growing(&self) -> Vec<GrowingSize> {
        let rates = self.rates();
        let all: f64 = rates.values().filter(|rate| **rate > 0.0).sum();
        let mut growing: Vec<GrowingSize> = rates
            .into_iter()
            .filter(|(_, rate)| *rate > SHOWN_SHARE * all)
            .map(|(size, bytes_per_s)| GrowingSize { size, bytes_per_s, share: bytes_per_s / all })
            .collect();
        growing.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
        growing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_heap::counters::{Class, Counters};
    use std::ops::Range;

    fn account(blocks: [u64; 2], run_bytes: u64, large_bytes: u64) -> Account {
        let class =
            |size_bytes, outstanding_blocks| Class { size_bytes, outstanding_blocks, ..Class::default() };
        Account {
            head: Counters { run_bytes, large_bytes, ..Counters::default() },
            classes: vec![class(16, blocks[0]), class(48, blocks[1])],
        }
    }

    #[test]
    fn sizes_that_grow_are_named_with_their_range_and_rate() {
        let mut growth = SizeGrowth::default();
        for second in 0..10 {
            let wave = if second % 2 == 0 { 0 } else { 7 };
            growth.note((1, 0), second as f64, &account([1000 + wave, 100 * second], 4096, second << 20));
            growth.note((2, 0), second as f64, &account([500, 100 * second], 8192 - second, 0));
            if second < 2 {
                growth.note((3, 0), second as f64, &account([9_999_999 * second, 0], 0, 0));
            }
        }
        let growing = growth.growing();
        assert_eq!(growing.len(), 1, "{growing:?}");
        assert_eq!(growing[0].size, BlockSize::Large);
        let wave = growth.slopes[&((1, 0), BlockSize::Class { bytes: 16 })].value();
        let rates: f64 = 2.0 * 4800.0 + f64::from(1 << 20) + wave;
        assert!((growing[0].share - f64::from(1 << 20) / rates).abs() < 1e-9, "{growing:?}");
    }

    #[test]
    fn of_two_classes_the_larger_growth_comes_first() {
        let mut growth = SizeGrowth::default();
        for second in 0..10 {
            growth.note((1, 0), second as f64, &account([300 * second, 200 * second], 0, 0));
        }
        let growing = growth.growing();
        let found: Vec<String> = growing.iter().map(|growing| growing.size.text()).collect();
        assert_eq!(found, ["48 bytes", "16 bytes"]);
        assert!(
            (growing[0].bytes_per_s - 9600.0).abs() < 1e-6 && (growing[1].bytes_per_s - 4800.0).abs() < 1e-6
        );
    }

    /// The only size that grows, in bytes per second.
    fn rate(growth: &SizeGrowth) -> f64 {
        let growing = growth.growing();
        assert_eq!(growing.len(), 1, "{growing:?}");
        growing[0].bytes_per_s
    }

    /// Processes that keep so many bytes a second each, and are read each second of `time_s`.
    fn watch(growth: &mut SizeGrowth, processes: &[StartedProcess], bytes_per_s: u64, time_s: Range<u64>) {
        for second in time_s.clone() {
            for process in processes {
                growth.note(
                    *process,
                    second as f64,
                    &account([0, 0], bytes_per_s * (second - time_s.start), 0),
                );
            }
        }
    }

    #[test]
    fn of_workers_that_are_replaced_only_those_count_that_are_there_together() {
        let mut one_by_one = SizeGrowth::default();
        (0..10).for_each(|n: u64| watch(&mut one_by_one, &[(n as Pid, n)], 100, 10 * n..10 * n + 10));
        assert!((rate(&one_by_one) - 100.0).abs() < 1e-6, "{}", rate(&one_by_one));
        let mut four = SizeGrowth::default();
        for n in 0..12u64 {
            let workers = [4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3].map(|worker| (worker as Pid, worker));
            watch(&mut four, &workers, 20_000, 300 * n..300 * (n + 1));
        }
        assert!((rate(&four) - 80_000.0).abs() < 1e-3, "{}", rate(&four));
        let mut beside = SizeGrowth::default();
        watch(&mut beside, &[(1, 0), (2, 0)], 100, 0..100);
        assert!((rate(&beside) - 200.0).abs() < 1e-6, "{}", rate(&beside));
    }

    #[test]
    fn a_pid_that_comes_again_is_another_process() {
        let mut growth = SizeGrowth::default();
        (0..10).for_each(|start| watch(&mut growth, &[(7, start)], 100, 10 * start..10 * start + 10));
        assert!((rate(&growth) - 100.0).abs() < 1e-6, "{}", rate(&growth));
    }

    #[test]
    fn readings_at_one_moment_tell_no_rate() {
        let mut growth = SizeGrowth::default();
        assert!(growth.growing().is_empty());
        (0..10).for_each(|n| growth.note((1, 0), 5.0, &account([n, 0], 0, 0)));
        assert!(growth.growing().is_empty());
    }
}
