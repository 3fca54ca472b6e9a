//! The one follower of processes: it tells which came, which ended, and which became another program. Its user says
//! which are followed and how much of each is read, and keeps a note of its own beside each. Knows nothing of memory or
//! allocators.
//!
//! A PID names a process only together with the time at which that process started: the kernel uses PIDs again. Listing
//! `/proc` is most of the cost of a look, so it is left out while no PID was handed out, which `/proc/loadavg` tells in
//! one read.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::proc::{self, Pid, Processes, Stat};
use crate::tree;

/// Processes are listed at least this often: some containers show a `/proc/loadavg` that is seconds old.
const LIST_EVERY_S: f64 = 1.0;

/// How much of a process is read at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Nothing,
    /// Its resident size, at a fifth of the cost of its state.
    Size,
    /// The whole line of `/proc/PID/stat`.
    State,
}

/// A process that is followed.
pub struct Process<T> {
    pub stat: Stat,
    /// When its state was read, on the clock that `look` was given, and the reading before that one.
    pub read_s: f64,
    pub before: Option<(f64, Stat)>,
    /// What the user keeps of it.
    pub note: T,
}

/// What a look has found.
pub struct News<T> {
    /// Those that have ended, with their last state. A PID among them may belong to a new process already.
    pub gone: Vec<(Pid, Process<T>)>,
    /// Those that have executed a program, perhaps the same once more: their stack begins elsewhere or, where that is
    /// not to be known, their name is another one.
    pub executed: Vec<Pid>,
    /// Those that go by another name, by an exec or by themselves.
    pub renamed: Vec<Pid>,
}

/// Follows processes.
pub struct Follower<P, T> {
    pub source: P,
    followed: BTreeMap<Pid, Process<T>>,
    /// When the others started, in clock ticks: they are not read again.
    others: HashMap<Pid, u64>,
    /// The PID that had been given away last when processes were listed.
    newest: Option<Pid>,
    listed_s: f64,
    buffer: Vec<u8>,
}

impl<P: Processes, T> Follower<P, T> {
    pub fn new(source: P) -> Follower<P, T> {
        Follower {
            source,
            followed: BTreeMap::new(),
            others: HashMap::new(),
            newest: None,
            listed_s: f64::NEG_INFINITY,
            buffer: Vec::new(),
        }
    }

    /// Looks once. `now_s` is a clock that only goes forward. `depth` says how much to read of a process that is
    /// followed; it is read more closely when it seems to be another one. `join` decides on a new process, after its
    /// parent: it is told the parent's note, if that one is followed, and returns a note to follow it or None.
    pub fn look(
        &mut self,
        now_s: f64,
        depth: impl Fn(Pid, &Process<T>) -> Depth,
        mut join: impl FnMut(Pid, &Stat, Option<&T>) -> Option<T>,
    ) -> News<T> {
        let mut news = News { gone: Vec::new(), executed: Vec::new(), renamed: Vec::new() };
        let mut new = Vec::new();
        let unsettled = self.list(now_s, &mut news, &mut new);
        let wanted = |(pid, process): (&Pid, &Process<T>)| match unsettled.contains(pid) {
            true => (*pid, Depth::State),
            false => (*pid, depth(*pid, process)),
        };
        let wanted: Vec<(Pid, Depth)> = self.followed.iter().map(wanted).collect();
        for (pid, depth) in wanted {
            if depth == Depth::State || depth == Depth::Size && !self.read_size(pid) {
                self.read_state(pid, now_s, &mut news, &mut new);
            }
        }
        tree::parents_first(&mut new);
        for (pid, stat) in new {
            let parent = self.followed.get(&stat.parent).map(|parent| &parent.note);
            let is_part = stat.name != proc::BLACK_BOX_NAME;
            match is_part.then(|| join(pid, &stat, parent)).flatten() {
                Some(note) => {
                    self.followed.insert(pid, Process { stat, read_s: now_s, before: None, note });
                }
                None => self.remember_other(pid, stat.start_ticks),
            }
        }
        news
    }

    /// Follows a process no longer, nor a later look.
    pub fn leave(&mut self, pid: Pid) {
        if let Some(process) = self.followed.remove(&pid) {
            self.remember_other(pid, process.stat.start_ticks);
        }
    }

    pub fn get(&self, pid: Pid) -> Option<&Process<T>> {
        self.followed.get(&pid)
    }

    pub fn get_mut(&mut self, pid: Pid) -> Option<&mut Process<T>> {
        self.followed.get_mut(&pid)
    }

    /// Those that are followed, by PID.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &Process<T>)> {
        self.followed.iter().map(|(pid, process)| (*pid, process))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Process<T>)> {
        self.followed.iter_mut().map(|(pid, process)| (*pid, process))
    }

    /// Follows nobody any more. Returns who was followed to the last.
    pub fn leave_all(&mut self) -> BTreeMap<Pid, Process<T>> {
        std::mem::take(&mut self.followed)
    }

    fn remember_other(&mut self, pid: Pid, start_ticks: u64) {
        self.source.forget(pid);
        self.others.insert(pid, start_ticks);
    }

    /// Finds processes that have come or gone. Returns those that are followed whose PID may have been given away
    /// again: PIDs rise, and begin again from the lowest. (What goes unseen is a stranger's PID that becomes one of ours
    /// while all PIDs there are, 32768 or more, are given away between two lists.)
    fn list(&mut self, now_s: f64, news: &mut News<T>, new: &mut Vec<(Pid, Stat)>) -> HashSet<Pid> {
        let newest = self.source.newest();
        let is_recent = now_s - self.listed_s < LIST_EVERY_S;
        if newest.is_some() && newest == self.newest && is_recent {
            return HashSet::new();
        }
        let Ok(pids) = self.source.pids() else { return HashSet::new() };
        let before = std::mem::replace(&mut self.newest, newest);
        self.listed_s = now_s;
        let exists: HashSet<Pid> = pids.iter().copied().collect();
        self.others.retain(|pid, _| exists.contains(pid));
        let gone: Vec<Pid> = self.followed.keys().filter(|pid| !exists.contains(pid)).copied().collect();
        for pid in gone {
            self.end(pid, news);
        }
        let may_be_new = |pid: Pid| match (before, newest) {
            (Some(before), Some(newest)) if before <= newest => before < pid && pid <= newest,
            (Some(before), Some(newest)) => before < pid || pid <= newest,
            _ => true,
        };
        for pid in pids {
            let other = self.others.get(&pid).copied();
            if self.followed.contains_key(&pid) || other.is_some() && !may_be_new(pid) {
                continue;
            }
            let Some(stat) = self.stat(pid) else { continue };
            if other == Some(stat.start_ticks) {
                self.source.forget(pid);
            } else {
                new.push((pid, stat));
            }
        }
        self.followed.keys().filter(|pid| may_be_new(**pid)).copied().collect()
    }

    /// Reads the resident size alone. False if there is none: the process has ended.
    fn read_size(&mut self, pid: Pid) -> bool {
        let read = self.source.read(pid, "statm", &mut self.buffer);
        let pages = read.ok().and_then(|()| proc::parse_resident_pages(&self.buffer));
        match (self.followed.get_mut(&pid), pages) {
            (Some(process), Some(pages)) if pages > 0 => {
                process.stat.rss_pages = pages;
                true
            }
            _ => false,
        }
    }

    /// Reads the whole state, and whether it is that of the same process and the same program.
    fn read_state(&mut self, pid: Pid, now_s: f64, news: &mut News<T>, new: &mut Vec<(Pid, Stat)>) {
        let mut stat = self.stat(pid);
        if stat.is_none() {
            // A file that was kept open ends with its process; there may be another one with the same PID.
            self.source.forget(pid);
            stat = self.stat(pid);
        }
        let Some(process) = self.followed.get_mut(&pid) else { return };
        match stat {
            Some(stat) if stat.start_ticks == process.stat.start_ticks => {
                let is_renamed = stat.name != process.stat.name;
                let (before, now) = (process.stat.start_stack, stat.start_stack);
                news.renamed.extend(is_renamed.then_some(pid));
                let has_executed = if before == 0 || now == 0 { is_renamed } else { before != now };
                news.executed.extend(has_executed.then_some(pid));
                process.before = Some((process.read_s, std::mem::replace(&mut process.stat, stat)));
                process.read_s = now_s;
            }
            other => {
                self.end(pid, news);
                new.extend(other.map(|stat| (pid, stat)));
            }
        }
    }

    fn end(&mut self, pid: Pid, news: &mut News<T>) {
        self.source.forget(pid);
        news.gone.extend(self.followed.remove(&pid).map(|process| (pid, process)));
    }

    fn stat(&mut self, pid: Pid) -> Option<Stat> {
        self.source.read(pid, "stat", &mut self.buffer).ok()?;
        proc::parse_stat(&self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeProcesses;

    /// Follows process 10 and all below it, with what they are called.
    fn look(follower: &mut Follower<FakeProcesses, String>, now_s: f64) -> (Vec<Pid>, Vec<Pid>) {
        let news = follower.look(
            now_s,
            |_, _| Depth::State,
            |pid, stat, parent| (pid == 10 || parent.is_some()).then(|| stat.name.clone()),
        );
        (news.gone.iter().map(|(pid, _)| *pid).collect(), news.executed)
    }

    fn follower() -> Follower<FakeProcesses, String> {
        let mut processes = FakeProcesses { newest: Some(20), ..FakeProcesses::default() };
        processes.set(1, 0, "init", 100);
        processes.set(10, 1, "master", 100);
        processes.set(20, 10, "worker", 100);
        // The child has the lower number, as after numbers wrapped around.
        processes.set(5, 20, "helper", 100);
        let mut follower = Follower::new(processes);
        assert_eq!(look(&mut follower, 0.0), (vec![], vec![]));
        follower
    }

    fn pids(follower: &Follower<FakeProcesses, String>) -> Vec<Pid> {
        follower.iter().map(|(pid, _)| pid).collect()
    }

    #[test]
    fn newcomers_join_after_their_parents() {
        let mut follower = follower();
        assert_eq!(pids(&follower), [5, 10, 20]);
        follower.source.remove(20);
        assert_eq!(look(&mut follower, 0.1), (vec![20], vec![]), "noticed when it is read");
    }

    #[test]
    fn processes_are_listed_when_there_may_be_new_ones_and_now_and_then() {
        let mut follower = follower();
        follower.source.set(30, 10, "late", 10);
        look(&mut follower, 0.1);
        assert_eq!(pids(&follower), [5, 10, 20]);
        look(&mut follower, 0.1 + LIST_EVERY_S);
        assert_eq!(pids(&follower), [5, 10, 20, 30], "whatever loadavg says");
        follower.source.set(31, 10, "later", 10);
        follower.source.newest = Some(31);
        look(&mut follower, 0.2 + LIST_EVERY_S);
        assert_eq!(pids(&follower), [5, 10, 20, 30, 31]);
    }

    #[test]
    fn a_pid_that_comes_again_is_another_process() {
        let mut follower = follower();
        // Of one that is followed: a child of another, and a stranger.
        follower.source.restart(20, 10, "worker", 77);
        assert_eq!(look(&mut follower, 0.1).0, [20]);
        assert_eq!(follower.get(20).map(|process| process.stat.start_ticks), Some(77));
        follower.source.restart(20, 1, "worker", 88);
        assert_eq!(look(&mut follower, 0.2).0, [20]);
        assert_eq!(pids(&follower), [5, 10]);
        // Of one that was not: PIDs began again from the lowest, and one of ours has that of a stranger.
        follower.source.newest = Some(19);
        look(&mut follower, 0.3);
        follower.source.restart(20, 10, "worker", 99);
        follower.source.newest = Some(22);
        look(&mut follower, 0.4);
        assert_eq!(pids(&follower), [5, 10, 20]);
        follower.source.restart(1, 10, "wrapped", 111);
        follower.source.newest = Some(3);
        look(&mut follower, 0.5);
        assert_eq!(pids(&follower), [1, 5, 10, 20]);
    }

    #[test]
    fn an_exec_shows_in_the_name_or_in_the_stack() {
        let mut follower = follower();
        follower.source.exec(20, "worker");
        assert_eq!(
            look(&mut follower, 0.1),
            (vec![], vec![20]),
            "a server that restarts itself keeps its name"
        );
        follower.source.set(10, 1, "other", 100);
        assert_eq!(look(&mut follower, 0.2).1, [10]);
        assert!(look(&mut follower, 0.3).1.is_empty());
        follower.source.rename(10, "titled");
        let news = follower.look(0.4, |_, _| Depth::State, |_, _, _| None);
        assert_eq!((news.executed, news.renamed), (vec![], vec![10]), "a title is no exec");
        // Of somebody else's process the kernel tells no more than the name.
        follower.source.set_stat(10, 1, "titled", 100, 55, 0);
        assert!(look(&mut follower, 0.5).1.is_empty());
        follower.source.set_stat(10, 1, "again", 100, 55, 0);
        assert_eq!(look(&mut follower, 0.6).1, [10]);
    }

    #[test]
    fn sizes_alone_are_read_where_they_will_do() {
        let mut follower = follower();
        let size = |follower: &mut Follower<FakeProcesses, String>, now_s| {
            follower.look(now_s, |_, _| Depth::Size, |_, _, _| None).gone.len()
        };
        follower.source.files.insert((20, "statm"), b"9000 500 30 1 0 700 0".to_vec());
        assert_eq!(size(&mut follower, 0.1), 0);
        let process = follower.get(20).unwrap();
        assert_eq!((process.stat.rss_pages, process.read_s), (500, 0.0));
        follower.source.files.insert((20, "statm"), b"0 0 0 0 0 0 0".to_vec());
        size(&mut follower, 0.2);
        assert_eq!(follower.get(20).unwrap().read_s, 0.2, "without memory its state says more");
    }

    #[test]
    fn who_is_left_is_not_found_again() {
        let mut follower = follower();
        follower.leave(20);
        follower.source.newest = None;
        look(&mut follower, 0.1);
        assert_eq!(pids(&follower), [5, 10]);
    }
}
