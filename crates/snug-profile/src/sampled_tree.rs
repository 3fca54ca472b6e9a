//! A process and all below it, with sampling switched on in those that use snug, also in those that start meanwhile. A
//! server that forks its workers does nothing in its first process.

use std::time::{Duration, Instant};

use crate::sampling::{await_answers, SamplingSwitch};
use snug_base::failure::{Failure, Result, FAILED};
use snug_base::{machine, progress};
use snug_inspect::access;
use snug_inspect::inspector::Inspector;
use snug_live::record::SnugProcess;
use snug_process::follow::{Depth, Follower, Process};
use snug_process::proc::{Pid, ProcFilesystem};

/// How long processes may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// How long a process is asked again what it uses: it may still load its libraries.
const LOOK_AGAIN_S: f64 = 2.0;
/// Time between two looks for answers.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is kept of a process.
struct Member {
    found_s: f64,
    /// Where its page of counters lies.
    page: Option<u64>,
    switch: Option<SamplingSwitch>,
    /// Why it is not sampled.
    left_out: Option<Failure>,
}

/// The processes.
pub struct SampledTree {
    follower: Follower<ProcFilesystem, Member>,
    inspector: Inspector,
    root: Pid,
    root_found: bool,
    /// Nothing below it counts.
    alone: bool,
    mean_bytes: u32,
    begin: Instant,
}

impl SampledTree {
    /// Switches sampling on, and waits for it. Fails if none of the processes can be sampled.
    pub fn begin(root: Pid, alone: bool, mean_bytes: u32) -> Result<SampledTree> {
        let mut tree = SampledTree {
            follower: Follower::new(ProcFilesystem::new()),
            inspector: Inspector::new(machine::describe().transparent_huge_pages),
            root,
            root_found: false,
            alone,
            mean_bytes,
            begin: Instant::now(),
        };
        tree.look();
        if tree.sampled().is_empty() {
            let why = tree.follower.get_mut(root).and_then(|process| process.note.left_out.take());
            return Err(why.unwrap_or_else(|| Failure::new(format!("process {root} has ended"))));
        }
        progress::during(&format!("waiting for {root} to begin"), None, || {
            while !tree.have_begun() && tree.begin.elapsed() < ANSWER_WAIT {
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Ok(tree)
    }

    /// Finds processes that have come or gone, and has the new ones sample.
    pub fn look(&mut self) {
        let SampledTree { follower, root, root_found, alone, .. } = self;
        let now_s = self.begin.elapsed().as_secs_f64();
        let member = || Member { found_s: now_s, page: None, switch: None, left_out: None };
        let news = follower.look(
            now_s,
            |_, _| Depth::State,
            |pid, _, parent| {
                let is_root = pid == *root && !*root_found;
                *root_found |= is_root;
                (is_root || !*alone && parent.is_some()).then(member)
            },
        );
        for pid in news.executed {
            follower.get_mut(pid).into_iter().for_each(|process| process.note = member());
        }
        self.have_begun();
        let is_due = |process: &Process<Member>| {
            let note = &process.note;
            let is_young = note.left_out.is_none() || now_s - note.found_s < LOOK_AGAIN_S;
            !process.stat.has_ended() && note.page.is_none() && is_young
        };
        let due: Vec<Pid> =
            self.follower.iter().filter(|(_, process)| is_due(process)).map(|(pid, _)| pid).collect();
        for pid in due {
            let found = self.switch_on(pid);
            let Some(process) = self.follower.get_mut(pid) else { continue };
            match found {
                Ok((page, switch)) => {
                    process.note.page = Some(page);
                    process.note.switch = Some(switch);
                    process.note.left_out = None;
                }
                Err(failure) => process.note.left_out = Some(failure),
            }
        }
    }

    /// Returns where its page of counters lies.
    fn switch_on(&mut self, pid: Pid) -> Result<(u64, SamplingSwitch)> {
        let found = access::look_at_with(&mut self.inspector, pid)?;
        let page = found.counters_at.ok_or_else(|| not_snug(pid, &found.allocator_text))?;
        let mut switches = self.follower.iter().filter_map(|(_, process)| process.note.switch.as_ref());
        let others_are_ours = switches.any(|switch| switch.is_ours);
        Ok((page, SamplingSwitch::on(pid, self.mean_bytes, others_are_ours)?))
    }

    /// Whether all have answered.
    fn have_begun(&self) -> bool {
        let switches = self.follower.iter().filter_map(|(_, process)| process.note.switch.as_ref());
        // Each is asked, though one has not answered.
        switches.filter_map(|switch| (!switch.has_begun()).then_some(())).count() == 0
    }

    /// Those that are alive and sample, with their parents, which come first.
    pub fn sampled(&self) -> Vec<(SnugProcess, Pid)> {
        let alive = self.follower.iter().filter(|(_, process)| !process.stat.has_ended());
        let found = alive.filter_map(|(pid, process)| {
            let start_ticks = process.stat.start_ticks;
            Some((SnugProcess { pid, start_ticks, page: process.note.page? }, process.stat.parent))
        });
        let mut found: Vec<(SnugProcess, Pid)> = found.collect();
        found.sort_by_key(|(process, _)| (process.start_ticks, process.pid));
        found
    }

    /// Whether sampling was on before, in any of them.
    pub fn was_on(&self) -> bool {
        let mut switches = self.follower.iter().filter_map(|(_, process)| process.note.switch.as_ref());
        switches.any(|switch| !switch.is_ours)
    }

    /// Whether the first process has not ended.
    pub fn is_root_alive(&self) -> bool {
        self.follower.get(self.root).is_some_and(|process| !process.stat.has_ended())
    }

    /// Why processes that are alive are left out.
    pub fn left_out(&self) -> Vec<&str> {
        let alive = self.follower.iter().filter(|(_, process)| !process.stat.has_ended());
        alive.filter_map(|(_, process)| Some(process.note.left_out.as_ref()?.message.as_str())).collect()
    }

    /// Ends sampling where it began here, also in processes that were forked since the last look; or has it go on.
    pub fn finish(mut self, keep: bool) {
        self.look();
        let notes = self.follower.leave_all().into_values().map(|process| process.note);
        if keep {
            // A process may have ended.
            return notes.filter_map(|note| note.switch).for_each(|switch| _ = switch.keep());
        }
        let requests = notes.filter_map(|note| note.switch?.off().ok()?); // a process may have ended
        await_answers(requests.collect(), ANSWER_WAIT);
    }
}

/// Why a process can't be sampled that uses another allocator.
pub fn not_snug(pid: Pid, allocator: &str) -> Failure {
    Failure::new(format!("process {pid} uses {allocator}, not snug"))
        .advise("snug takes the samples: `snug profile -- PROGRAM` starts a program under it")
        .exit_code(FAILED)
}
