//! Follows a process tree: which processes belong to it, how much memory they hold, and whether the allocator is
//! mapped in them. Reads through `Processes`; decides nothing about when to look (see `Pace`) and spawns nothing.
//!
//! Every process below this one belongs to the tree. That includes daemons: this process is the one that inherits
//! orphans, so whoever is double-forked appears again as its direct child.

use std::collections::HashMap;
use std::path::PathBuf;

use regex_lite::Regex;

use super::results::{Details, Loaded, ProcessSeen, Samples};
use crate::allocator::Kind;
use crate::proc::{self, Mapping, Pid, Processes, Stat};

/// A process without its C library after this long will not load anything any more.
const LOADING_TAKES_AT_MOST_S: f64 = 1.0;
/// Command lines of processes younger than this are read again each time: they may be about to exec.
const YOUNG_S: f64 = 1.0;

/// What to look for in the tree.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Measure only processes whose command line matches.
    pub only: Option<Regex>,
    /// The library that must be mapped in each of them, without links in its path.
    pub library: Option<PathBuf>,
}

/// A process of the tree.
struct Tracked {
    command: String,
    command_since_s: f64,
    measured: bool,
    ever_measured: bool,
    first_s: f64,
    last_s: f64,
    stat: Stat,
    rss_peak_pages: u64,
    /// None: not decided yet.
    loaded: Option<Loaded>,
}

/// Collects the samples of one run.
pub struct Sampler<P: Processes> {
    source: P,
    own: Pid,
    target: Target,
    page_size_bytes: u64,
    ticks_per_s: f64,
    /// Every process that exists; None for those outside of the tree.
    known: HashMap<Pid, Option<Tracked>>,
    ended: Vec<(ProcessSeen, Stat)>,
    found: Vec<String>,
    unreadable: u32,
    pub samples: Samples,
    pub details: Details,
    buffer: Vec<u8>,
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
    /// `own` is the root whose descendants are followed.
    pub fn new(source: P, own: Pid, target: Target, page_size_bytes: u64, ticks_per_s: f64) -> Sampler<P> {
        Sampler {
            source,
            own,
            target,
            page_size_bytes,
            ticks_per_s,
            known: HashMap::new(),
            ended: Vec::new(),
            found: Vec::new(),
            unreadable: 0,
            samples: Samples::default(),
            details: Details::default(),
            buffer: Vec::new(),
        }
    }

    /// Takes note of the processes that exist before the program starts, which makes the first sample quick.
    pub fn look_around(&mut self) {
        self.refresh_tree(0.0);
    }

    /// Reads resident sizes. Returns their sum in bytes.
    pub fn sample(&mut self, now_s: f64) -> u64 {
        self.refresh_tree(now_s);
        let (mut rss_pages, mut processes, mut threads) = (0, 0, 0);
        for pid in self.tree() {
            if !self.update(pid, now_s) {
                continue;
            }
            self.look_for_allocator(pid, now_s);
            let Some(Some(tracked)) = self.known.get(&pid) else { continue };
            if tracked.measured && tracked.stat.rss_pages > 0 {
                rss_pages += tracked.stat.rss_pages;
                processes += 1;
                threads += tracked.stat.threads as u32;
            }
        }
        let rss_bytes = rss_pages * self.page_size_bytes;
        self.samples.time_s.push(rounded(now_s));
        self.samples.rss_bytes.push(rss_bytes);
        self.samples.processes.push(processes);
        self.samples.threads.push(threads);
        rss_bytes
    }

    /// Reads proportional and unique set sizes of the processes that the last `sample` saw.
    pub fn sample_details(&mut self, now_s: f64) {
        let mut sum = proc::Rollup::default();
        let mut processes = 0;
        for pid in self.tree() {
            self.refresh_command(pid, now_s);
            let Some(Some(tracked)) = self.known.get(&pid) else { continue };
            if !tracked.measured {
                continue;
            }
            let read = self.source.read(pid, "smaps_rollup", &mut self.buffer);
            if read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
                self.unreadable += 1;
                continue;
            }
            let Some(rollup) = proc::parse_smaps_rollup(&self.buffer) else { continue };
            sum.rss_bytes += rollup.rss_bytes;
            sum.pss_bytes += rollup.pss_bytes;
            sum.uss_bytes += rollup.uss_bytes;
            sum.lazy_free_bytes += rollup.lazy_free_bytes;
            sum.huge_bytes += rollup.huge_bytes;
            sum.swap_bytes += rollup.swap_bytes;
            processes += 1;
        }
        if processes == 0 {
            return;
        }
        let details = &mut self.details;
        details.time_s.push(rounded(now_s));
        details.rss_bytes.push(sum.rss_bytes);
        details.pss_bytes.push(sum.pss_bytes);
        details.uss_bytes.push(sum.uss_bytes);
        details.lazy_free_bytes.push(sum.lazy_free_bytes);
        details.huge_bytes.push(sum.huge_bytes);
        details.swap_bytes.push(sum.swap_bytes);
        details.processes.push(processes);
    }

    /// Processes of the tree that are alive, with their commands; for stopping them.
    pub fn alive(&mut self, now_s: f64) -> Vec<(Pid, String)> {
        self.refresh_tree(now_s);
        let mut alive = Vec::new();
        for pid in self.tree() {
            if self.update(pid, now_s) {
                if let Some(Some(tracked)) = self.known.get(&pid) {
                    alive.push((pid, tracked.command.clone()));
                }
            }
        }
        alive
    }

    /// Ends the run.
    pub fn finish(mut self) -> Collected {
        for pid in self.tree() {
            self.end(pid);
        }
        let mut collected = Collected {
            samples: self.samples,
            details: self.details,
            processes: Vec::new(),
            user_s: 0.0,
            system_s: 0.0,
            minor_faults: 0,
            major_faults: 0,
            found: self.found,
            unreadable: self.unreadable,
        };
        for (seen, stat) in self.ended {
            collected.user_s += stat.user_ticks as f64 / self.ticks_per_s;
            collected.system_s += stat.system_ticks as f64 / self.ticks_per_s;
            collected.minor_faults += stat.minor_faults;
            collected.major_faults += stat.major_faults;
            collected.processes.push(seen);
        }
        collected.processes.sort_by(|left, right| left.first_s.total_cmp(&right.first_s));
        collected
    }

    fn tree(&self) -> Vec<Pid> {
        self.known.iter().filter(|(_, tracked)| tracked.is_some()).map(|(pid, _)| *pid).collect()
    }

    /// Finds processes that have come or gone. A process that was outside of the tree once stays so.
    fn refresh_tree(&mut self, now_s: f64) {
        let Ok(pids) = self.source.pids() else { return };
        let exists: std::collections::HashSet<Pid> = pids.iter().copied().collect();
        let gone: Vec<Pid> = self.known.keys().filter(|pid| !exists.contains(pid)).copied().collect();
        for pid in gone {
            self.end(pid);
        }
        let mut unknown: Vec<(Pid, Stat)> = Vec::new();
        for pid in pids {
            if pid == self.own || self.known.contains_key(&pid) {
                continue;
            }
            if self.source.read(pid, "stat", &mut self.buffer).is_ok() {
                unknown.extend(proc::parse_stat(&self.buffer).map(|stat| (pid, stat)));
            }
        }
        // A parent may come later in the list than its child: go round until nothing more is settled.
        loop {
            let before = unknown.len();
            let waiting: std::collections::HashSet<Pid> = unknown.iter().map(|(pid, _)| *pid).collect();
            unknown.retain(|(pid, stat)| {
                let inside = stat.parent == self.own || matches!(self.known.get(&stat.parent), Some(Some(_)));
                if !inside && waiting.contains(&stat.parent) {
                    return true;
                }
                let tracked = inside.then(|| Tracked::new(stat.clone(), now_s));
                if tracked.is_none() {
                    self.source.forget(*pid);
                }
                self.known.insert(*pid, tracked);
                false
            });
            if unknown.is_empty() || unknown.len() == before {
                break;
            }
        }
        for (pid, _) in unknown {
            self.known.insert(pid, None);
            self.source.forget(pid);
        }
    }

    /// Reads a process of the tree again. False if it is gone or only its exit status is left.
    fn update(&mut self, pid: Pid, now_s: f64) -> bool {
        let stat = match self.source.read(pid, "stat", &mut self.buffer) {
            Ok(()) => proc::parse_stat(&self.buffer),
            Err(_) => None,
        };
        let Some(stat) = stat else {
            self.end(pid);
            return false;
        };
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return false };
        let ending = matches!(stat.state, 'Z' | 'X' | 'x');
        tracked.rss_peak_pages = tracked.rss_peak_pages.max(stat.rss_pages);
        tracked.stat = stat;
        if ending {
            return false;
        }
        tracked.last_s = now_s;
        if tracked.command.is_empty() || now_s - tracked.first_s < YOUNG_S {
            self.refresh_command(pid, now_s);
        }
        true
    }

    /// Reads the command line again and decides anew whether the process is measured.
    fn refresh_command(&mut self, pid: Pid, now_s: f64) {
        if self.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return;
        }
        let command = proc::parse_command_line(&self.buffer);
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return };
        if command.is_empty() || command == tracked.command {
            return;
        }
        tracked.command = command;
        tracked.command_since_s = now_s;
        tracked.loaded = None;
        tracked.measured = self.target.only.as_ref().is_none_or(|only| only.is_match(&tracked.command));
        tracked.ever_measured |= tracked.measured;
    }

    /// Decides from the mappings whether the allocator is loaded. The loader maps preloaded libraries before
    /// the C library: when that is there and ours is not, it never will be.
    fn look_for_allocator(&mut self, pid: Pid, now_s: f64) {
        let Some(Some(tracked)) = self.known.get(&pid) else { return };
        if !tracked.measured || tracked.loaded.is_some() {
            return;
        }
        if self.source.read(pid, "maps", &mut self.buffer).is_err() {
            return;
        }
        let maps = proc::parse_maps(&self.buffer);
        if maps.is_empty() {
            return;
        }
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return };
        let age_s = now_s - tracked.command_since_s;
        let has_c_library = maps.iter().any(|mapping| {
            Kind::from_file_name(&mapping.path).is_some_and(Kind::is_c_library) && mapping.executable
        });
        match &self.target.library {
            Some(library) => {
                let library = library.to_string_lossy();
                if maps.iter().any(|mapping| mapping.path == library) {
                    tracked.loaded = Some(Loaded::Yes);
                } else if has_c_library || age_s > LOADING_TAKES_AT_MOST_S {
                    tracked.loaded = Some(Loaded::No);
                }
            }
            None if age_s > LOADING_TAKES_AT_MOST_S / 4.0 => {
                tracked.loaded = Some(Loaded::NotAsked);
                for name in allocator_files(&maps) {
                    if !self.found.contains(&name) {
                        self.found.push(name);
                    }
                }
            }
            None => {}
        }
    }

    /// Takes note of a process that has ended.
    fn end(&mut self, pid: Pid) {
        self.source.forget(pid);
        let Some(Some(tracked)) = self.known.remove(&pid) else { return };
        if !tracked.ever_measured {
            return;
        }
        let ticks = tracked.stat.user_ticks + tracked.stat.system_ticks;
        let unseen = if self.target.library.is_some() { Loaded::TooShort } else { Loaded::NotAsked };
        let seen = ProcessSeen {
            pid,
            command: tracked.command.chars().take(200).collect(),
            first_s: tracked.first_s,
            last_s: tracked.last_s,
            rss_peak_bytes: tracked.rss_peak_pages * self.page_size_bytes,
            cpu_s: ticks as f64 / self.ticks_per_s,
            allocator_loaded: tracked.loaded.unwrap_or(unseen),
        };
        self.ended.push((seen, tracked.stat));
    }
}

impl Tracked {
    fn new(stat: Stat, now_s: f64) -> Tracked {
        Tracked {
            command: String::new(),
            command_since_s: now_s,
            measured: false,
            ever_measured: false,
            first_s: now_s,
            last_s: now_s,
            stat,
            rss_peak_pages: 0,
            loaded: None,
        }
    }
}

/// Tenths of milliseconds are as exact as the readings are, and short when saved.
fn rounded(time_s: f64) -> f64 {
    (time_s * 1e4).round() / 1e4
}

/// Files of known allocators, other than the C library, that are mapped.
fn allocator_files(maps: &[Mapping]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for mapping in maps {
        let kind = Kind::from_file_name(&mapping.path);
        if kind.is_some_and(|kind| !kind.is_c_library()) && !files.contains(&mapping.path) {
            files.push(mapping.path.clone());
        }
    }
    files
}

/// When to look next: at first every few milliseconds, so that short programs are seen, then at a regular
/// interval, and never so often that looking costs more than its share of a core.
#[derive(Debug, Clone)]
pub struct Pace {
    interval_s: f64,
    share: f64,
    gap_s: f64,
    pub next_s: f64,
}

impl Pace {
    /// The first gap: a program that ends within it is seen once.
    const FIRST_GAP_S: f64 = 0.001;
    /// And each further one is longer by this factor, up to the interval.
    const GROWTH: f64 = 1.5;
    /// Even at a high cost, look this often.
    const LONGEST_GAP_S: f64 = 5.0;

    /// A pace of one look per `interval_s` at a cost of at most `share` of a core.
    pub fn new(interval_s: f64, share: f64) -> Pace {
        Pace { interval_s, share, gap_s: Pace::FIRST_GAP_S.min(interval_s), next_s: 0.0 }
    }

    /// Sets the time of the next look after one that cost so much CPU time.
    pub fn looked(&mut self, now_s: f64, cost_s: f64) {
        if self.gap_s < self.interval_s {
            self.gap_s = (self.gap_s * Pace::GROWTH).min(self.interval_s);
            self.next_s = now_s + self.gap_s;
            return;
        }
        let affordable_s = (cost_s / self.share).min(Pace::LONGEST_GAP_S);
        self.next_s = now_s + self.interval_s.max(affordable_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::FakeProcesses;

    const OWN: Pid = 100;

    fn sampler(target: Target, processes: FakeProcesses) -> Sampler<FakeProcesses> {
        Sampler::new(processes, OWN, target, 4096, 100.0)
    }

    fn tree() -> FakeProcesses {
        let mut processes = FakeProcesses::default();
        processes.set(1, 0, "init", 50);
        processes.set(OWN, 1, "snug", 50);
        processes.set(101, OWN, "server", 1000);
        // The child has the lower number, as after the numbers wrapped around.
        processes.set(90, 101, "worker", 200);
        processes.set(300, 1, "stranger", 5000);
        processes
    }

    #[test]
    fn sums_over_descendants_only() {
        let mut sampler = sampler(Target::default(), tree());
        assert_eq!(sampler.sample(0.0), 1200 * 4096);
        sampler.sample_details(0.0);
        assert_eq!(sampler.samples.processes, [2]);
        assert_eq!(sampler.samples.threads, [6]);
        assert_eq!(sampler.details.pss_bytes, [1200 * 2048]);
    }

    #[test]
    fn daemons_come_back_as_direct_children() {
        let mut sampler = sampler(Target::default(), tree());
        sampler.sample(0.0);
        sampler.source.set(400, OWN, "daemon", 10);
        sampler.source.remove(101);
        assert_eq!(sampler.sample(0.1), 210 * 4096);
        let collected = sampler.finish();
        assert_eq!(collected.processes.len(), 3);
        assert!((collected.user_s - 0.6).abs() < 1e-9);
    }

    #[test]
    fn only_matching_processes_count_and_exec_changes_that() {
        let target = Target { only: Some(Regex::new("^worker").unwrap()), ..Target::default() };
        let mut sampler = sampler(target, tree());
        assert_eq!(sampler.sample(0.0), 200 * 4096);
        sampler.source.set(101, OWN, "worker2", 1000);
        assert_eq!(sampler.sample(0.1), 1200 * 4096);
    }

    #[test]
    fn allocators_are_looked_for_in_the_mappings() {
        let target = Target { library: Some("/l/libjemalloc.so.2".into()), ..Target::default() };
        let mut processes = tree();
        let mapped = b"10-20 r-xp 0 fe:00 1 /l/libjemalloc.so.2\n20-30 r-xp 0 fe:00 2 /l/libc.so.6\n";
        processes.files.insert((101, "maps"), mapped.to_vec());
        processes.files.insert((90, "maps"), b"20-30 r-xp 0 fe:00 2 /l/libc.so.6\n".to_vec());
        processes.set(102, OWN, "starting", 10);
        processes.files.insert((102, "maps"), b"20-30 r-xp 0 fe:00 2 /l/ld-linux-x86-64.so.2\n".to_vec());
        let mut sampler = sampler(target, processes);
        sampler.sample(0.0);
        let collected = sampler.finish();
        let loaded = |pid| collected.processes.iter().find(|p| p.pid == pid).unwrap().allocator_loaded;
        assert_eq!((loaded(101), loaded(90), loaded(102)), (Loaded::Yes, Loaded::No, Loaded::TooShort));
    }

    #[test]
    fn zombies_hold_no_memory() {
        let mut sampler = sampler(Target::default(), tree());
        sampler.sample(0.0);
        let zombie = String::from_utf8(sampler.source.files[&(90, "stat")].clone()).unwrap();
        sampler.source.files.insert((90, "stat"), zombie.replace(") S", ") Z").into_bytes());
        assert_eq!(sampler.sample(0.1), 1000 * 4096);
    }

    #[test]
    fn pace_starts_fast_and_respects_its_share() {
        let mut pace = Pace::new(0.05, 0.005);
        let mut now = 0.0;
        let mut looks = 0;
        while now < 0.1 {
            pace.looked(now, 0.0001);
            now = pace.next_s;
            looks += 1;
        }
        assert!(looks >= 6, "{looks}");
        pace.looked(1.0, 0.0001);
        assert!((pace.next_s - 1.05).abs() < 1e-9);
        pace.looked(2.0, 0.001);
        assert!((pace.next_s - 2.2).abs() < 1e-9);
        pace.looked(3.0, 1.0);
        assert!((pace.next_s - 8.0).abs() < 1e-9);
    }
}
