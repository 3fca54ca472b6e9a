//! Records the memory of a program's processes, each by itself, moment by moment. Reads through `Follower` and
//! `Allocators`; starts and stops nothing, and decides nothing.

use std::collections::{BTreeMap, HashSet};

use snug_heap::glibc_heap::HeapSize;
use snug_inspect::identity::{Allocators, Identity};
use snug_inspect::kinds::Kind;
use snug_process::follow::{Depth, Follower};
use snug_process::proc::{self, Pid, Processes};

/// Which processes are watched.
#[derive(Debug, Clone, Copy)]
pub struct Roots {
    /// This process and everything below it.
    pub root: Pid,
    /// The tool itself: what it inherits belongs to the program, too. None when it did not start the program.
    pub own: Option<Pid>,
}

impl Roots {
    /// All that the tool starts from now on, without the tool.
    pub fn started_by(own: Pid) -> Roots {
        Roots { root: own, own: Some(own) }
    }
}

/// The memory of one process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    pub rss_bytes: u64,
    pub pss_bytes: u64,
    /// Anonymous memory, the free part that the kernel may take not counted.
    pub anonymous_bytes: u64,
    /// Marked as free: resident until the kernel wants it.
    pub lazy_free_bytes: u64,
    pub swap_bytes: u64,
    /// Resident pages of shared mappings that no file backs, and of files in memory (tmpfs).
    pub shared_bytes: u64,
    /// What is live and what the allocator holds, where that can be read.
    pub heap: Option<HeapSize>,
}

/// One process of the program.
#[derive(Debug, Clone)]
pub struct RecordedProcess {
    /// Only to tell processes apart in tests: PIDs come again.
    pub pid: Pid,
    pub command: String,
    /// Its allocator, once that is known.
    pub kind: Option<Kind>,
    /// It was there when the recording began.
    pub from_the_start: bool,
    pub ended: bool,
    /// By number of the moment.
    pub readings: Vec<(usize, Footprint)>,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Recording {
    pub time_s: Vec<f64>,
    pub processes: Vec<RecordedProcess>,
    /// Processes that could not be read for lack of permission, and at how many moments.
    pub forbidden: BTreeMap<Pid, usize>,
}

impl Recording {
    /// Says which processes a good part of the recording says nothing about; None if it is about all. A short command that
    /// changes its user does not matter.
    pub fn unread_text(&self) -> Option<String> {
        let matters = |moments: &usize| *moments as f64 >= UNREAD_SHARE * self.time_s.len() as f64;
        let unread = self.forbidden.iter().filter(|(_, moments)| matters(moments));
        let unread: Vec<String> = unread.map(|(pid, _)| pid.to_string()).collect();
        let shown = unread.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if unread.len() > 5 { ", ..." } else { "" };
        match unread.len() {
            0 => None,
            1 => Some(format!("process {shown} belongs to another user and could not be read")),
            count => Some(format!(
                "{count} processes belong to other users and could not be read (PID {shown}{more})"
            )),
        }
    }
}

/// A process under snug that is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnugProcess {
    pub pid: Pid,
    /// In clock ticks: tells it from one that has its PID later.
    pub start_ticks: u64,
    /// Address of its page of counters.
    pub page: u64,
}

/// What is kept of a process of the program that is alive.
struct Alive {
    /// Its place in `recording.processes`.
    index: usize,
    identity: Option<Identity>,
}

/// Records the processes of a program.
pub struct Recorder<P, A> {
    processes: Follower<P, Alive>,
    allocators: A,
    roots: Roots,
    /// The root was found: a later process with its PID is another one.
    root_found: bool,
    /// Process groups that are not the program's: the load's, and that of counting requests.
    left_out: HashSet<Pid>,
    /// Arenas that the last page of counters had: as many are read at once.
    pub arenas: u32,
    pub recording: Recording,
    buffer: Vec<u8>,
}

/// A process that could not be read matters from this share of all moments.
const UNREAD_SHARE: f64 = 0.1;
/// Seconds after its first reading in which a process is asked again what it is: it may still load its libraries.
const LOOK_AGAIN_S: f64 = 2.0;

impl<P: Processes, A: Allocators> Recorder<P, A> {
    /// Takes note of the processes that exist, so that only new ones can be the tool's orphans.
    pub fn new(source: P, allocators: A, roots: Roots) -> Recorder<P, A> {
        let mut recorder = Recorder {
            processes: Follower::new(source),
            allocators,
            roots,
            root_found: false,
            left_out: HashSet::new(),
            arenas: 1,
            recording: Recording::default(),
            buffer: Vec::new(),
        };
        if roots.own.is_some() {
            recorder.look(0.0, false);
        }
        recorder
    }

    /// Processes of this group are none of the program's.
    pub fn leave_out(&mut self, group: Pid) {
        self.left_out.insert(group);
    }

    /// Reads every process once. Returns the number of processes and the sum of their resident sizes in bytes.
    pub fn read(&mut self, now_s: f64) -> (usize, u64) {
        self.look(now_s, true);
        let moment = self.recording.time_s.len();
        self.recording.time_s.push(now_s);
        let mut alive: Vec<(usize, Pid)> =
            self.processes.iter().map(|(pid, process)| (process.note.index, pid)).collect();
        alive.sort_unstable();
        let (mut count, mut rss_bytes) = (0, 0);
        for (index, pid) in alive {
            if let Some(footprint) = self.read_process(pid, index, now_s) {
                self.recording.processes[index].readings.push((moment, footprint));
                count += 1;
                rss_bytes += footprint.rss_bytes;
            }
        }
        (count, rss_bytes)
    }

    /// The processes under snug that are alive.
    pub fn under_snug(&self) -> Vec<SnugProcess> {
        let found = self.processes.iter().filter_map(|(pid, process)| {
            let page = process.note.identity.as_ref()?.counters_at?;
            Some(SnugProcess { pid, start_ticks: process.stat.start_ticks, page })
        });
        found.collect()
    }

    /// Ends the recording.
    pub fn finish(mut self) -> Recording {
        self.recording.processes.retain(|process| !process.readings.is_empty());
        self.recording
    }

    /// Finds processes that have come or gone. `orphans`: new children of the tool are the program's.
    fn look(&mut self, now_s: f64, orphans: bool) {
        let Recorder { processes, roots, root_found, left_out, recording, .. } = self;
        let news = processes.look(
            now_s,
            |_, _| Depth::State,
            |pid, stat, parent| {
                let is_root = pid == roots.root && !*root_found;
                *root_found |= is_root;
                let is_orphan = orphans && Some(stat.parent) == roots.own;
                let is_inside = is_root || parent.is_some() || is_orphan;
                if !is_inside || left_out.contains(&stat.group) || Some(pid) == roots.own {
                    return None;
                }
                recording.processes.push(RecordedProcess {
                    pid,
                    command: stat.name.clone(),
                    kind: None,
                    from_the_start: recording.time_s.is_empty(),
                    ended: false,
                    readings: Vec::new(),
                });
                Some(Alive { index: recording.processes.len() - 1, identity: None })
            },
        );
        for (_, process) in news.gone {
            recording.processes[process.note.index].ended = true;
        }
        for pid in news.executed {
            if let Some(process) = processes.get_mut(pid) {
                process.note.identity = None;
            }
        }
    }

    /// None if it has ended or can't be read.
    fn read_process(&mut self, pid: Pid, index: usize, now_s: f64) -> Option<Footprint> {
        if self.processes.get(pid)?.stat.has_ended() {
            self.recording.processes[index].ended = true;
            return None;
        }
        match self.processes.source.read(pid, "smaps_rollup", &mut self.buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                *self.recording.forbidden.entry(pid).or_default() += 1;
                return None;
            }
            Err(_) => return None,
            Ok(()) => {}
        }
        let rollup = proc::parse_smaps_rollup(&self.buffer)?;
        let status = self.processes.source.read(pid, "status", &mut self.buffer);
        let shared = status.ok().and_then(|()| proc::parse_shared_bytes(&self.buffer));
        let readings = &self.recording.processes[index].readings;
        let first_s = readings.first().map(|(first, _)| self.recording.time_s[*first]);
        let is_young = first_s.is_none_or(|first_s| now_s - first_s < LOOK_AGAIN_S);
        // The first readings may see a program that still loads its libraries: asked again ever more rarely.
        let is_due = is_young && readings.len().is_power_of_two();
        let identity = self.processes.get(pid)?.note.identity.as_ref();
        let is_unknown = identity.is_none();
        if is_young || is_unknown {
            self.refresh_command(pid, index);
        }
        if is_unknown || is_due && self.counters_at(pid).is_none() {
            self.identify(pid, index);
        }
        let mut heap = self.read_heap(pid);
        if heap.is_none() && self.may_be_another(pid) {
            self.identify(pid, index);
            heap = self.read_heap(pid);
        }
        Some(Footprint {
            rss_bytes: rollup.rss_bytes,
            pss_bytes: rollup.pss_bytes,
            anonymous_bytes: rollup.anonymous_bytes.saturating_sub(rollup.lazy_free_bytes),
            lazy_free_bytes: rollup.lazy_free_bytes,
            swap_bytes: rollup.swap_bytes,
            shared_bytes: shared.unwrap_or(0),
            heap,
        })
    }

    fn refresh_command(&mut self, pid: Pid, index: usize) {
        if self.processes.source.read(pid, "cmdline", &mut self.buffer).is_ok() {
            let command = proc::parse_command_line(&self.buffer);
            if !command.is_empty() {
                self.recording.processes[index].command = command;
            }
        }
    }

    fn identify(&mut self, pid: Pid, index: usize) {
        let identity = self.allocators.identify(pid).filter(|identity| identity.allocator.is_some());
        if let (Some(process), Some(identity)) = (self.processes.get_mut(pid), identity) {
            self.recording.processes[index].kind = identity.kind();
            process.note.identity = Some(identity);
        }
    }

    fn identity(&self, pid: Pid) -> Option<&Identity> {
        self.processes.get(pid)?.note.identity.as_ref()
    }

    fn counters_at(&self, pid: Pid) -> Option<u64> {
        self.identity(pid)?.counters_at
    }

    /// Another program may have taken the place of this one, whose live bytes could be counted, estimated or asked for.
    fn may_be_another(&mut self, pid: Pid) -> bool {
        let Some(identity) = self.identity(pid) else { return false };
        let answers_at = identity.answers_at;
        match identity.kind() {
            Some(Kind::Glibc) => true,
            Some(Kind::Snug) => identity.counters_at.is_some(),
            _ => answers_at.is_some_and(|address| self.allocators.answer(pid, address).is_err()),
        }
    }

    fn read_heap(&mut self, pid: Pid) -> Option<HeapSize> {
        let identity = self.processes.get(pid)?.note.identity.as_ref()?;
        self.allocators.heap(pid, identity, &mut self.arenas)
    }
}

#[cfg(any(test, feature = "testing"))]
impl RecordedProcess {
    /// A process without readings.
    pub fn example() -> RecordedProcess {
        RecordedProcess {
            pid: 10,
            command: "worker".into(),
            kind: None,
            from_the_start: true,
            ended: false,
            readings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_heap::read_error::ReadError;
    use snug_inspect::identity::fake::FakeAllocators;
    use snug_process::fake::FakeProcesses;

    fn recorder(own: Option<Pid>) -> Recorder<FakeProcesses, FakeAllocators> {
        recorder_of(Roots { root: 10, own })
    }

    fn recorder_of(roots: Roots) -> Recorder<FakeProcesses, FakeAllocators> {
        let mut processes = FakeProcesses::default();
        processes.set(1, 0, "init", 100);
        processes.set(5, 1, "snug", 100);
        processes.set(6, 5, "older", 100);
        processes.set(10, 5, "master", 100);
        Recorder::new(processes, FakeAllocators { otherwise: Kind::Snug, ..FakeAllocators::default() }, roots)
    }

    fn pids(recorder: &Recorder<FakeProcesses, FakeAllocators>) -> Vec<Pid> {
        recorder.recording.processes.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn the_tree_with_its_orphans_is_followed() {
        let mut recorder = recorder(Some(5));
        recorder.processes.source.set(9, 10, "worker", 50);
        assert_eq!(recorder.read(0.0), (2, 150 * 4096));
        recorder.processes.source.set(20, 5, "daemon", 10);
        recorder.read(1.0);
        assert_eq!(
            pids(&recorder),
            [10, 9, 20],
            "what the tool inherits is the program's, but not what it had"
        );
        recorder.processes.source.remove(9);
        assert_eq!(recorder.read(2.0).0, 2);
        let recording = recorder.finish();
        assert!(recording.processes[1].ended && recording.processes[1].readings.len() == 2);
        assert!(recording.processes[0].from_the_start && !recording.processes[2].from_the_start);
        assert_eq!(
            recording.processes[0].readings[0].1.heap,
            Some(HeapSize { live_bytes: 5000, held_bytes: 8000 })
        );
    }

    #[test]
    fn what_the_tool_starts_is_followed_without_the_tool() {
        let mut recorder = recorder_of(Roots::started_by(5));
        assert_eq!(recorder.read(0.0), (0, 0));
        recorder.processes.source.set(11, 5, "program", 50);
        recorder.processes.source.set(12, 11, "worker", 50);
        assert_eq!(recorder.read(1.0), (2, 100 * 4096));
        assert_eq!(pids(&recorder), [11, 12]);
    }

    #[test]
    fn a_process_that_was_not_started_here_has_no_orphans_of_ours() {
        let mut recorder = recorder(None);
        recorder.processes.source.set(11, 10, "worker", 50);
        recorder.processes.source.set(20, 5, "other", 10);
        recorder.read(0.0);
        assert_eq!(pids(&recorder), [10, 11]);
    }

    #[test]
    fn the_load_is_left_out() {
        let mut recorder = recorder(Some(5));
        // The made-up processes lead groups of their own.
        recorder.processes.source.set(30, 5, "load", 10);
        recorder.leave_out(30);
        recorder.read(0.0);
        assert_eq!(pids(&recorder), [10]);
    }

    #[test]
    fn another_program_in_its_place_is_asked_anew() {
        let mut recorder = recorder(Some(5));
        recorder.read(0.0);
        recorder.read(1.0);
        assert_eq!(recorder.allocators.identified, 1);
        recorder.processes.source.set(10, 5, "exec", 100);
        recorder.read(1.5);
        assert_eq!(recorder.allocators.identified, 2);
        recorder.read(10.0);
        recorder.allocators.broken = true;
        recorder.read(11.0);
        assert_eq!(recorder.allocators.identified, 3, "its counters were gone");
        assert_eq!(recorder.recording.processes[0].readings.last().unwrap().1.heap, None);
    }

    #[test]
    fn an_allocator_that_is_asked_tells_its_live_bytes() {
        let mut recorder = recorder(Some(5));
        recorder.allocators.otherwise = Kind::Jemalloc;
        let heap = HeapSize { live_bytes: 30, held_bytes: 40 };
        let answers = [Ok(None), Ok(Some(heap)), Err(ReadError::NotThere("another program"))];
        for (time_s, answer) in [0.0, 10.0, 20.0].into_iter().zip(answers) {
            recorder.allocators.answer = Some(answer);
            recorder.read(time_s);
        }
        let readings = &recorder.recording.processes[0].readings;
        let heaps: Vec<_> = readings.iter().map(|(_, reading)| reading.heap).collect();
        assert_eq!(heaps, [None, Some(heap), None]);
        assert_eq!(recorder.allocators.identified, 2, "no answer yet is no other program");
    }

    #[test]
    fn a_pid_that_comes_again_is_another_process() {
        let mut recorder = recorder(Some(5));
        recorder.read(0.0);
        recorder.processes.source.restart(10, 1, "stranger", 99);
        assert_eq!(recorder.read(1.0).0, 0, "with the PID of the root it is not the root");
        assert!(recorder.recording.processes[0].ended);
        // And what has the PID of a stranger may be the program's.
        recorder.processes.source.restart(6, 5, "daemon", 100);
        assert_eq!(recorder.read(2.0).0, 1);
        assert_eq!(pids(&recorder), [10, 6]);
    }

    #[test]
    fn a_program_that_executes_itself_is_asked_anew() {
        let mut recorder = recorder(Some(5));
        recorder.read(0.0);
        recorder.read(10.0);
        assert_eq!(recorder.allocators.identified, 1);
        recorder.processes.source.exec(10, "master");
        recorder.allocators.kinds.insert(10, Kind::Glibc);
        recorder.read(20.0);
        assert_eq!(recorder.allocators.identified, 2);
        let process = &recorder.recording.processes[0];
        assert_eq!(process.kind, Some(Kind::Glibc));
        assert_eq!(process.readings.last().unwrap().1.heap.unwrap().live_bytes, 70);
    }
}
