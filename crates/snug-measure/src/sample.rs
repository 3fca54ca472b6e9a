//! Collects the samples of one run: how much memory the processes that are tracked hold together, moment by moment, and
//! at its end what they used in all. Decides nothing about when to look (see `pace`).

use crate::live::LiveReader;
use crate::track::Tracker;
use snug_compare::results::{Details, ProcessSeen, Samples};
use snug_inspect::identity::Allocators;
use snug_process::proc::{Processes, Rollup};

/// Collects the samples of one run.
pub struct Sampler<P: Processes> {
    pub processes: Tracker<P>,
    page_size_bytes: u64,
    ticks_per_s: f64,
    samples: Samples,
    details: Details,
    /// None: nobody wants to know what is live.
    live: Option<LiveReader>,
}

/// What is left when a run is over.
pub struct Collected {
    pub samples: Samples,
    pub details: Details,
    pub processes: Vec<ProcessSeen>,
    /// Sums over the measured processes: CPU seconds, minor and major faults.
    pub user_s: f64,
    pub system_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Allocators found in processes that were to use their own.
    pub found: Vec<String>,
    /// Times a process could not be read in detail, as setuid ones can't.
    pub unreadable: u32,
}

impl<P: Processes> Sampler<P> {
    pub fn new(processes: Tracker<P>, page_size_bytes: u64, ticks_per_s: f64) -> Sampler<P> {
        let (samples, details) = (Samples::default(), Details::default());
        Sampler { processes, page_size_bytes, ticks_per_s, samples, details, live: None }
    }

    /// The same, which also reads what is live.
    pub fn with_live(self, allocators: Box<dyn Allocators>) -> Sampler<P> {
        Sampler { live: Some(LiveReader::new(allocators)), ..self }
    }

    /// Reads resident sizes. Returns their sum in bytes.
    pub fn sample(&mut self, now_s: f64) -> u64 {
        let (mut rss_pages, mut processes, mut threads) = (0, 0, 0);
        self.processes.read(now_s, &mut |stat| {
            rss_pages += stat.rss_pages;
            processes += 1;
            threads += stat.threads as u32;
        });
        let rss_bytes = rss_pages * self.page_size_bytes;
        self.samples.time_s.push(rounded(now_s));
        self.samples.rss_bytes.push(rss_bytes);
        self.samples.processes.push(processes);
        self.samples.threads.push(threads);
        let (cpu_s, faults) = self.processes.used_so_far();
        self.samples.cpu_s.push(cpu_s);
        self.samples.page_faults.push(faults);
        rss_bytes
    }

    /// Reads proportional and unique set sizes of the processes that the last `sample` saw.
    pub fn sample_details(&mut self, now_s: f64) {
        let mut sum = Rollup::default();
        let (mut processes, live) = (0, &mut self.live);
        let mut live_bytes = live.as_ref().map(|_| 0);
        self.processes.read_details(now_s, &mut |pid, rollup| {
            live_bytes =
                live_bytes.zip(live.as_mut().and_then(|live| live.read(pid))).map(|(sum, own)| sum + own);
            sum.rss_bytes += rollup.rss_bytes;
            sum.pss_bytes += rollup.pss_bytes;
            sum.uss_bytes += rollup.uss_bytes;
            sum.lazy_free_bytes += rollup.lazy_free_bytes;
            sum.huge_bytes += rollup.huge_bytes;
            sum.swap_bytes += rollup.swap_bytes;
            processes += 1;
        });
        if processes == 0 {
            return;
        }
        let details = &mut self.details;
        if let Some(bytes) = live_bytes {
            details.live_time_s.push(rounded(now_s));
            details.live_bytes.push(bytes);
        }
        details.time_s.push(rounded(now_s));
        details.rss_bytes.push(sum.rss_bytes);
        details.pss_bytes.push(sum.pss_bytes);
        details.uss_bytes.push(sum.uss_bytes);
        details.lazy_free_bytes.push(sum.lazy_free_bytes);
        details.huge_bytes.push(sum.huge_bytes);
        details.swap_bytes.push(sum.swap_bytes);
        details.processes.push(processes);
    }

    /// Ends the run.
    pub fn finish(self) -> Collected {
        let ended = self.processes.finish();
        let mut collected = Collected {
            samples: self.samples,
            details: self.details,
            processes: Vec::new(),
            user_s: 0.0,
            system_s: 0.0,
            minor_faults: 0,
            major_faults: 0,
            found: ended.found,
            unreadable: ended.unreadable,
        };
        for (seen, stat) in ended.processes {
            collected.user_s += stat.user_ticks as f64 / self.ticks_per_s;
            collected.system_s += stat.system_ticks as f64 / self.ticks_per_s;
            collected.minor_faults += stat.minor_faults;
            collected.major_faults += stat.major_faults;
            collected.processes.push(seen);
        }
        collected.processes.sort_by(|left, right| left.first_s.total_cmp(&right.first_s));
        collected
    }
}

/// Tenths of milliseconds are as exact as the readings are, and short when saved.
fn rounded(time_s: f64) -> f64 {
    (time_s * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::TrackOptions;
    use snug_inspect::identity::fake::FakeAllocators;
    use snug_inspect::kinds::Kind;
    use snug_process::fake::FakeProcesses;

    #[test]
    fn sums_over_processes() {
        let mut processes = FakeProcesses::default();
        processes.set(100, 1, "snug", 50);
        processes.set(101, 100, "server", 1000);
        processes.set(102, 101, "worker", 200);
        let tracker = Tracker::new(processes, 100, TrackOptions::default(), 4096, 100.0);
        let mut sampler = Sampler::new(tracker, 4096, 100.0);
        assert_eq!(sampler.sample(0.00004), 1200 * 4096);
        sampler.sample_details(0.1);
        let Collected { samples, details, processes, user_s, system_s, minor_faults, major_faults, .. } =
            sampler.finish();
        assert_eq!((samples.time_s, samples.rss_bytes), (vec![0.0], vec![1200 * 4096]));
        assert_eq!((samples.processes, samples.threads), (vec![2], vec![6]));
        assert_eq!((samples.cpu_s, samples.page_faults), (vec![0.6], vec![16]));
        assert_eq!((details.pss_bytes, details.processes), (vec![1200 * 2048], vec![2]));
        assert_eq!(processes.len(), 2);
        assert!((user_s - 0.4).abs() < 1e-9 && (system_s - 0.2).abs() < 1e-9);
        assert_eq!((minor_faults, major_faults), (14, 2));
    }

    #[test]
    fn live_bytes_are_told_while_all_processes_tell_them() {
        let mut processes = FakeProcesses::default();
        processes.set(100, 1, "snug", 50);
        processes.set(101, 100, "server", 1000);
        let allocators =
            FakeAllocators { kinds: [(102, Kind::Mimalloc)].into(), ..FakeAllocators::default() };
        let tracker = Tracker::new(processes, 100, TrackOptions::default(), 4096, 100.0);
        let mut sampler = Sampler::new(tracker, 4096, 100.0).with_live(Box::new(allocators));
        sampler.sample(0.0);
        sampler.sample_details(0.0);
        sampler.processes.source().set(102, 101, "worker", 200);
        sampler.sample(1.0);
        sampler.sample_details(1.0);
        let details = sampler.finish().details;
        assert_eq!((details.live_time_s, details.live_bytes), (vec![0.0], vec![70]));
        assert_eq!(details.time_s, [0.0, 1.0]);
    }

    #[test]
    fn nothing_to_read_is_no_detail() {
        let tracker = Tracker::new(FakeProcesses::default(), 100, TrackOptions::default(), 4096, 100.0);
        let mut sampler = Sampler::new(tracker, 4096, 100.0);
        sampler.sample_details(0.1);
        assert!(sampler.finish().details.time_s.is_empty());
    }
}
