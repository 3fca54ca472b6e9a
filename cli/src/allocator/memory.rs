//! Reads the memory of a program's processes again and again, each by itself. Reads through `Processes` and `Heaps`;
//! starts and stops nothing, and decides nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::allocator::kinds::Kind;
use crate::process::proc::{self, Pid, Processes, Stat};
use crate::process::tree;

/// What is known of an allocator from outside. The real one reads counters and walks heaps; tests make them up.
pub trait Heaps {
    /// The allocator of a process, and where its counters are if it keeps any that can be read. None: not known yet.
    fn identify(&mut self, pid: Pid) -> Option<Identity>;
    /// Live bytes, and bytes of memory that the allocator holds; None if they can't be read.
    fn read(&mut self, pid: Pid, identity: &Identity) -> Option<(u64, u64)>;
}

/// An allocator in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub kind: Kind,
    pub counters_at: Option<u64>,
}

impl Identity {
    /// Its live bytes can be counted or estimated.
    fn tells_live_bytes(&self) -> bool {
        self.counters_at.is_some() || self.kind == Kind::Glibc
    }
}

/// Which processes are watched.
#[derive(Debug, Clone, Copy)]
pub struct Roots {
    /// This process and everything below it.
    pub root: Pid,
    /// The tool itself: what it inherits belongs to the program, too. None when it did not start the program.
    pub own: Option<Pid>,
}

/// One reading of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    pub rss: u64,
    pub pss: u64,
    /// Anonymous memory, the free part that the kernel may take not counted.
    pub anonymous: u64,
    /// Marked as free: resident until the kernel wants it.
    pub lazy_free: u64,
    pub swap: u64,
    /// Resident pages of shared mappings that no file backs, and of files in memory (tmpfs).
    pub shared: u64,
    /// Live bytes and memory of the allocator, where they can be read.
    pub heap: Option<(u64, u64)>,
}

/// One process of the program.
#[derive(Debug, Clone)]
pub struct Process {
    /// Only to tell processes apart in tests: numbers come again.
    #[cfg(test)]
    pub pid: Pid,
    pub command: String,
    pub identity: Option<Identity>,
    /// It was there when the watch began.
    pub from_the_start: bool,
    pub ended: bool,
    /// By number of the moment.
    pub readings: Vec<(usize, Reading)>,
    /// When it started, by the kernel's count: tells it from a later process with its number.
    pub start_ticks: u64,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Watched {
    pub time_s: Vec<f64>,
    pub processes: Vec<Process>,
    /// Processes that could not be read for lack of permission, and at how many moments.
    pub forbidden: BTreeMap<Pid, usize>,
}

impl Watched {
    /// Says which processes a good part of the watch says nothing about; None if it is about all. A short command that
    /// changes its user does not matter.
    pub fn unread_text(&self) -> Option<String> {
        let matters = |moments: &usize| *moments as f64 >= UNREAD_SHARE * self.time_s.len() as f64;
        let unread = self.forbidden.iter().filter(|(_, moments)| matters(moments));
        let unread: Vec<String> = unread.map(|(pid, _)| pid.to_string()).collect();
        let shown = unread.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if unread.len() > 5 { ", ..." } else { "" };
        match unread.len() {
            0 => None,
            1 => Some(format!("process {shown} belongs to someone else and could not be read")),
            count => Some(format!(
                "{count} processes belong to someone else and could not be read (PID {shown}{more})"
            )),
        }
    }
}

/// Follows the processes.
pub struct Watcher<P, H> {
    source: P,
    heaps: H,
    roots: Roots,
    /// Process groups that are not the program's: the load's, and that of counting requests.
    left_out: HashSet<Pid>,
    /// Place in `watched.processes` of every process of the program that is alive; None for others.
    known: HashMap<Pid, Option<usize>>,
    pub watched: Watched,
    buffer: Vec<u8>,
}

/// A process that could not be read matters from this share of all moments.
const UNREAD_SHARE: f64 = 0.1;
/// Times after its first reading at which a process is asked again what it is: it may exec.
const LOOK_AGAIN_S: f64 = 2.0;

impl<P: Processes, H: Heaps> Watcher<P, H> {
    /// Takes note of the processes that exist, so that only new ones can be the tool's orphans.
    pub fn new(source: P, heaps: H, roots: Roots) -> Watcher<P, H> {
        let mut watcher = Watcher {
            source,
            heaps,
            roots,
            left_out: HashSet::new(),
            known: HashMap::new(),
            watched: Watched::default(),
            buffer: Vec::new(),
        };
        if roots.own.is_some() {
            let existing = watcher.source.pids().unwrap_or_default();
            watcher
                .known
                .extend(existing.into_iter().filter(|pid| *pid != roots.root).map(|pid| (pid, None)));
        }
        watcher
    }

    /// Processes of this group are none of the program's.
    pub fn leave_out(&mut self, group: Pid) {
        self.left_out.insert(group);
    }

    /// Reads every process once. Returns the number of processes and the sum of their resident sizes in bytes.
    pub fn read(&mut self, now_s: f64) -> (usize, u64) {
        self.find_processes();
        let moment = self.watched.time_s.len();
        self.watched.time_s.push(now_s);
        let (mut count, mut rss) = (0, 0);
        for (pid, index) in self.alive() {
            if let Some(reading) = self.read_process(pid, index, now_s) {
                self.watched.processes[index].readings.push((moment, reading));
                count += 1;
                rss += reading.rss;
            }
        }
        (count, rss)
    }

    /// Ends the watch.
    pub fn finish(mut self) -> Watched {
        self.watched.processes.retain(|process| !process.readings.is_empty());
        self.watched
    }

    fn alive(&self) -> Vec<(Pid, usize)> {
        let mut alive: Vec<(Pid, usize)> =
            self.known.iter().filter_map(|(pid, index)| Some((*pid, (*index)?))).collect();
        alive.sort_unstable_by_key(|(_, index)| *index);
        alive
    }

    fn stat(&mut self, pid: Pid) -> Option<Stat> {
        self.source.read(pid, "stat", &mut self.buffer).ok()?;
        proc::parse_stat(&self.buffer)
    }

    /// Finds processes that have come or gone.
    fn find_processes(&mut self) {
        let Ok(pids) = self.source.pids() else { return };
        let exists: HashSet<Pid> = pids.iter().copied().collect();
        let gone: Vec<Pid> = self.known.keys().copied().filter(|pid| !exists.contains(pid)).collect();
        for pid in gone {
            self.end(pid);
            self.known.remove(&pid);
        }
        let new: Vec<Pid> = pids.into_iter().filter(|pid| !self.known.contains_key(pid)).collect();
        let mut new: Vec<(Pid, Stat)> =
            new.into_iter().filter_map(|pid| Some((pid, self.stat(pid)?))).collect();
        tree::parents_first(&mut new);
        for (pid, stat) in new {
            let index = self.is_inside(pid, &stat).then_some(self.watched.processes.len());
            self.known.insert(pid, index);
            if index.is_none() {
                self.source.forget(pid);
                continue;
            }
            self.watched.processes.push(Process {
                #[cfg(test)]
                pid,
                command: stat.name,
                identity: None,
                from_the_start: self.watched.time_s.is_empty(),
                ended: false,
                readings: Vec::new(),
                start_ticks: stat.start_ticks,
            });
        }
    }

    fn is_inside(&self, pid: Pid, stat: &Stat) -> bool {
        if self.left_out.contains(&stat.group) || Some(pid) == self.roots.own {
            return false;
        }
        let below = matches!(self.known.get(&stat.parent), Some(Some(_)));
        pid == self.roots.root || below || Some(stat.parent) == self.roots.own
    }

    fn end(&mut self, pid: Pid) {
        self.source.forget(pid);
        if let Some(Some(index)) = self.known.get(&pid) {
            self.watched.processes[*index].ended = true;
        }
    }

    /// None if it has ended or can't be read.
    fn read_process(&mut self, pid: Pid, index: usize, now_s: f64) -> Option<Reading> {
        let stat = self.stat(pid);
        let is_same = |stat: &Stat| stat.start_ticks == self.watched.processes[index].start_ticks;
        let alive = stat.as_ref().is_some_and(|stat| is_same(stat) && !stat.has_ended());
        if !alive {
            self.watched.processes[index].ended = true;
            return None;
        }
        match self.source.read(pid, "smaps_rollup", &mut self.buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                *self.watched.forbidden.entry(pid).or_default() += 1;
                return None;
            }
            Err(_) => return None,
            Ok(()) => {}
        }
        let rollup = proc::parse_smaps_rollup(&self.buffer)?;
        let status = self.source.read(pid, "status", &mut self.buffer);
        let shared = status.ok().and_then(|()| proc::parse_shared_bytes(&self.buffer)).unwrap_or(0);
        let first_s =
            self.watched.processes[index].readings.first().map(|(first, _)| self.watched.time_s[*first]);
        let young = first_s.is_none_or(|first_s| now_s - first_s < LOOK_AGAIN_S);
        let changed = young && self.refresh_command(pid, index);
        // The first readings may see a program that still loads its libraries: asked again ever more rarely.
        let process = &self.watched.processes[index];
        let without_counters =
            process.identity.as_ref().is_none_or(|identity| identity.counters_at.is_none());
        let loading = young && without_counters && process.readings.len().is_power_of_two();
        if changed || loading || process.identity.is_none() {
            self.identify(pid, index);
        }
        let heap = match &self.watched.processes[index].identity {
            Some(identity) => match self.heaps.read(pid, identity) {
                None if identity.tells_live_bytes() => {
                    // Another program may have taken its place.
                    self.identify(pid, index);
                    let identity = self.watched.processes[index].identity.as_ref()?;
                    self.heaps.read(pid, identity)
                }
                heap => heap,
            },
            None => None,
        };
        Some(Reading {
            rss: rollup.rss_bytes,
            pss: rollup.pss_bytes,
            anonymous: rollup.anonymous_bytes.saturating_sub(rollup.lazy_free_bytes),
            lazy_free: rollup.lazy_free_bytes,
            swap: rollup.swap_bytes,
            shared,
            heap,
        })
    }

    /// Reads the command line again. True if it is another one: the process has become another program.
    fn refresh_command(&mut self, pid: Pid, index: usize) -> bool {
        if self.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return false;
        }
        let command = proc::parse_command_line(&self.buffer);
        if command.is_empty() || command == self.watched.processes[index].command {
            return false;
        }
        self.watched.processes[index].command = command;
        true
    }

    fn identify(&mut self, pid: Pid, index: usize) {
        let identity = self.heaps.identify(pid);
        if identity.is_some() {
            self.watched.processes[index].identity = identity;
        }
    }
}

#[cfg(test)]
impl Process {
    /// A process without readings.
    pub fn example() -> Process {
        Process {
            pid: 10,
            command: "worker".into(),
            identity: None,
            from_the_start: true,
            ended: false,
            readings: Vec::new(),
            start_ticks: 55,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::proc::FakeProcesses;

    /// Every process has snug, whose numbers are what its PID says.
    #[derive(Default)]
    struct FakeHeaps {
        /// How often it was asked.
        identified: u32,
        broken: bool,
    }

    impl Heaps for FakeHeaps {
        fn identify(&mut self, _pid: Pid) -> Option<Identity> {
            self.identified += 1;
            Some(Identity { kind: Kind::Snug, counters_at: Some(0x1000) })
        }

        fn read(&mut self, pid: Pid, _identity: &Identity) -> Option<(u64, u64)> {
            (!self.broken).then_some((pid as u64, 2 * pid as u64))
        }
    }

    fn watcher(own: Option<Pid>) -> Watcher<FakeProcesses, FakeHeaps> {
        let mut processes = FakeProcesses::default();
        processes.set(1, 0, "init", 100);
        processes.set(5, 1, "snug", 100);
        processes.set(6, 5, "older", 100);
        processes.set(10, 5, "master", 100);
        Watcher::new(processes, FakeHeaps::default(), Roots { root: 10, own })
    }

    fn pids(watcher: &Watcher<FakeProcesses, FakeHeaps>) -> Vec<Pid> {
        watcher.watched.processes.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn the_tree_with_its_orphans_is_followed() {
        let mut watcher = watcher(Some(5));
        watcher.source.set(9, 10, "worker", 50);
        assert_eq!(watcher.read(0.0), (2, 150 * 4096));
        watcher.source.set(20, 5, "daemon", 10);
        watcher.read(1.0);
        assert_eq!(
            pids(&watcher),
            [10, 9, 20],
            "what the tool inherits is the program's, but not what it had"
        );
        watcher.source.remove(9);
        assert_eq!(watcher.read(2.0).0, 2);
        let watched = watcher.finish();
        assert!(watched.processes[1].ended && watched.processes[1].readings.len() == 2);
        assert!(watched.processes[0].from_the_start && !watched.processes[2].from_the_start);
        assert_eq!(watched.processes[0].readings[0].1.heap, Some((10, 20)));
    }

    #[test]
    fn a_process_that_was_not_started_here_has_no_orphans_of_ours() {
        let mut watcher = watcher(None);
        watcher.source.set(11, 10, "worker", 50);
        watcher.source.set(20, 5, "other", 10);
        watcher.read(0.0);
        assert_eq!(pids(&watcher), [10, 11]);
    }

    #[test]
    fn the_load_is_left_out() {
        let mut watcher = watcher(Some(5));
        // The made-up processes lead groups of their own.
        watcher.source.set(30, 5, "load", 10);
        watcher.leave_out(30);
        watcher.read(0.0);
        assert_eq!(pids(&watcher), [10]);
    }

    #[test]
    fn another_program_in_its_place_is_asked_anew() {
        let mut watcher = watcher(Some(5));
        watcher.read(0.0);
        watcher.read(1.0);
        assert_eq!(watcher.heaps.identified, 1);
        watcher.source.set(10, 5, "exec", 100);
        watcher.read(1.5);
        assert_eq!(watcher.heaps.identified, 2);
        watcher.read(10.0);
        watcher.heaps.broken = true;
        watcher.read(11.0);
        assert_eq!(watcher.heaps.identified, 3, "its counters were gone");
        assert_eq!(watcher.watched.processes[0].readings.last().unwrap().1.heap, None);
    }

    #[test]
    fn a_number_that_comes_again_is_another_process() {
        let mut watcher = watcher(Some(5));
        watcher.read(0.0);
        let stat = "10 (other) S 5 10 10 0 -1 0 7 0 1 0 2 1 0 0 20 0 3 0 99 1000000 100 0\n";
        watcher.source.files.insert((10, "stat"), stat.into());
        assert_eq!(watcher.read(1.0).0, 0);
        assert!(watcher.watched.processes[0].ended);
    }
}
