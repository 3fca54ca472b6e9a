//! Reads many processes again and again at little cost: `/proc` for all, the page of counters for those under snug.
//! Knows nothing of how readings are shown. `choice` says which processes, `reading` what is known of each.
//!
//! What a reading costs: one line of `/proc/PID/stat` and one copy of a few KB per process. The allocator of a process
//! is looked for once, and again after an exec. PSS makes the kernel walk all pages of a process, and hooks show among
//! its mappings, so both are read as often as a share of one core pays for, the oldest first. So are, if they are
//! wanted, estimates of what is live under glibc, which read its whole heap.

mod choice;
mod reading;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

pub use crate::watch::reading::HeapReading;
pub use crate::watch::reading::Reading;
use snug_base::machine;
use snug_heap::glibc_heap::HeapSize;
use snug_heap::sharing::ForkHooks;
use snug_inspect::identity::{Allocators, Identity};
use snug_inspect::kinds::Kind;
use snug_process::follow::{Depth, Follower, Process};
use snug_process::proc::{self, Pid, Processes};
use snug_process::{role, system, tree};

/// Share of one core that reading PSS may take.
const PSS_SHARE: f64 = 0.005;
/// The same for estimates under glibc; how old they are at least before the next; and from which RSS on there are none.
const ESTIMATE_SHARE: f64 = 0.02;
const ESTIMATE_EVERY_S: f64 = 5.0;
const ESTIMATE_BELOW_BYTES: u64 = 500_000_000;
/// CPU time that estimates may use at once: a first look, or what was saved up.
const ESTIMATE_BUDGET_S: f64 = 0.2;
/// Processes that are not shown are looked at again after so many readings: they may have grown.
const LOOK_AGAIN_AFTER: u64 = 5;
/// How many readings a history keeps.
const HISTORY: usize = 120;

/// What is remembered of a process between readings.
#[derive(Default)]
struct Known {
    role: String,
    app: String,
    command: String,
    identity: Option<Identity>,
    pss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    pss_at_s: Option<f64>,
    hooks: Option<ForkHooks>,
    heap: Option<HeapReading>,
    glibc_heap: Option<HeapSize>,
    glibc_heap_at_s: Option<f64>,
    shown: bool,
    /// Whether it goes by one of the chosen names; None: to be looked at.
    named: Option<bool>,
    rss_history: VecDeque<u64>,
    live_history: VecDeque<u64>,
}

/// Which processes to watch. Nothing chosen: those of this user that are worth it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// These and everything below them.
    pub pids: Vec<Pid>,
    /// Every process of these names, whenever it starts, and everything below them.
    pub names: Vec<String>,
    /// Those of this user that are worth it, instead of one's own.
    pub user: Option<u32>,
    /// All in this directory of the control groups, and below it.
    pub cgroup: Option<PathBuf>,
}

/// Watches processes.
pub struct Watcher<P: Processes, A: Allocators> {
    processes: Follower<P, Known>,
    allocators: A,
    choice: Choice,
    own: Pid,
    /// Whose processes are worth showing; None: everybody's.
    user: Option<u32>,
    page_size_bytes: u64,
    ticks_per_s: f64,
    readings: u64,
    /// Seconds of CPU time that PSS may still use.
    pss_budget_s: f64,
    /// The same for estimates; None: they are not wanted.
    estimate_budget_s: Option<f64>,
    last_s: Option<f64>,
    buffer: Vec<u8>,
}

impl<P: Processes, A: Allocators> Watcher<P, A> {
    pub fn new(source: P, allocators: A, choice: Choice) -> Watcher<P, A> {
        Watcher {
            processes: Follower::new(source),
            allocators,
            own: std::process::id() as Pid,
            user: choice.user.or_else(tree::own_user),
            choice,
            page_size_bytes: machine::page_size_bytes(),
            ticks_per_s: machine::ticks_per_second(),
            readings: 0,
            pss_budget_s: 0.05,
            estimate_budget_s: None,
            last_s: None,
            buffer: Vec::new(),
        }
    }

    /// The same, with estimates of what is live under glibc.
    pub fn with_estimates(self) -> Watcher<P, A> {
        Watcher { estimate_budget_s: Some(ESTIMATE_BUDGET_S), ..self }
    }

    /// Reads all processes once. `now_s` is a clock that only goes forward.
    pub fn read(&mut self, now_s: f64) -> Vec<Reading> {
        self.look(now_s);
        for pid in self.chosen() {
            self.update_heap(pid, now_s);
        }
        self.update_pss(now_s);
        self.update_estimates(now_s);
        self.readings += 1;
        self.last_s = Some(now_s);
        self.result()
    }

    /// Reads the state of those that are new, shown, or due for another look.
    fn look(&mut self, now_s: f64) {
        let readings = self.readings;
        let news = self.processes.look(
            now_s,
            |pid, process| match process.note.shown || is_due(readings, pid) {
                true => Depth::State,
                false => Depth::Nothing,
            },
            |_, _, _| Some(Known::default()),
        );
        for pid in news.executed.into_iter().chain(news.renamed) {
            if let Some(process) = self.processes.get_mut(pid) {
                let known = &mut process.note;
                (known.identity, known.heap, known.glibc_heap, known.named) = (None, None, None, None);
            }
        }
        let ended = self.processes.iter().filter(|(_, process)| process.stat.has_ended());
        for pid in ended.map(|(pid, _)| pid).collect::<Vec<Pid>>() {
            self.processes.leave(pid);
        }
        // Thousands of open files would meet the limit of this process.
        let hidden = self.processes.iter().filter(|(_, process)| !process.note.shown);
        for pid in hidden.map(|(pid, _)| pid).collect::<Vec<Pid>>() {
            self.processes.source.forget(pid);
        }
    }

    fn arguments(&mut self, pid: Pid) -> Vec<String> {
        if self.processes.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&self.buffer);
        text.split('\0').filter(|word| !word.is_empty()).map(String::from).collect()
    }

    /// Finds out which allocator a process uses and what it does.
    fn identify(&mut self, pid: Pid) {
        let identity = self.allocators.identify(pid);
        if let Some(process) = self.processes.get_mut(pid) {
            process.note.identity = identity;
        }
    }

    /// Reads the counters of one process that is shown.
    fn update_heap(&mut self, pid: Pid, now_s: f64) {
        let due = is_due(self.readings, pid);
        let Some(process) = self.processes.get(pid) else { return };
        let undecided = process.note.identity.as_ref().is_none_or(|identity| {
            // A young process may still be loading its libraries, and what could not be read may be readable by now.
            identity.allocator.is_none() && !identity.not_permitted
                || identity.counters_error.is_some() && due
        });
        // Servers change their titles while they run, at little cost to us if we look now and then.
        let arguments = (process.note.role.is_empty() || due).then(|| self.arguments(pid));
        if undecided {
            self.identify(pid);
        }
        let Some(process) = self.processes.get_mut(pid) else { return };
        let known = &mut process.note;
        if let Some(arguments) = arguments {
            known.role = role::role(&arguments, &process.stat.name);
            known.app = role::app(&arguments);
            known.command = arguments.join(" ");
        }
        let address = known.identity.as_ref().and_then(|identity| identity.counters_at);
        let arenas = known.heap.as_ref().map_or(1, |heap| heap.account.head.arena_count);
        let account = address.map(|address| self.allocators.account(pid, address, arenas));
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        match account {
            Some(Ok(account)) => known.heap = Some(HeapReading::new(account, known.heap.as_ref(), elapsed_s)),
            // It has ended, or another program has taken its place.
            Some(Err(_)) => {
                known.heap = None;
                known.identity = None;
            }
            None => known.heap = None,
        }
        push(&mut known.rss_history, process.stat.rss_pages * self.page_size_bytes);
        if let Some(heap) = &known.heap {
            push(&mut known.live_history, heap.account.live_bytes());
        }
    }

    /// Those that are shown and of whom `is_wanted`, the one that has waited longest first: when it was looked at, by
    /// `last_s`.
    fn waiting(
        &self,
        is_wanted: impl Fn(&Process<Known>) -> bool,
        last_s: impl Fn(&Known) -> Option<f64>,
    ) -> Vec<(Option<f64>, Pid)> {
        let shown = self.processes.iter().filter(|(_, process)| process.note.shown && is_wanted(process));
        let mut waiting: Vec<(Option<f64>, Pid)> =
            shown.map(|(pid, process)| (last_s(&process.note), pid)).collect();
        let order = |last_s: Option<f64>| last_s.unwrap_or(f64::NEG_INFINITY);
        waiting.sort_by(|left, right| order(left.0).total_cmp(&order(right.0)));
        waiting
    }

    /// Reads PSS of the processes that have waited longest, as far as the budget goes; new ones in any case.
    fn update_pss(&mut self, now_s: f64) {
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        self.pss_budget_s = (self.pss_budget_s + elapsed_s * PSS_SHARE).min(0.1);
        for (read_at_s, pid) in self.waiting(|_| true, |known| known.pss_at_s) {
            if self.pss_budget_s <= 0.0 && read_at_s.is_some() {
                break;
            }
            let before = system::own_cpu();
            let read = self.processes.source.read(pid, "smaps_rollup", &mut self.buffer);
            let rollup = read.ok().and_then(|()| proc::parse_smaps_rollup(&self.buffer));
            if let Some(process) = self.processes.get_mut(pid) {
                process.note.pss_bytes = rollup.map(|rollup| rollup.pss_bytes);
                process.note.swap_bytes = rollup.map(|rollup| rollup.swap_bytes);
                process.note.pss_at_s = Some(now_s);
                process.note.hooks = self.allocators.hooks(pid);
            }
            self.pss_budget_s -=
                system::own_cpu().saturating_sub(before).max(Duration::from_micros(20)).as_secs_f64();
        }
    }

    /// Walks glibc's heaps in the processes that have waited longest, as far as the budget goes.
    fn update_estimates(&mut self, now_s: f64) {
        let Some(budget_s) = self.estimate_budget_s else { return };
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        let mut budget_s = (budget_s + elapsed_s * ESTIMATE_SHARE).min(ESTIMATE_BUDGET_S);
        let is_wanted = |process: &Process<Known>| {
            let is_old = |last_s| now_s - last_s >= ESTIMATE_EVERY_S;
            may_be_estimated(process, self.page_size_bytes) && process.note.glibc_heap_at_s.is_none_or(is_old)
        };
        for (_, pid) in self.waiting(is_wanted, |known| known.glibc_heap_at_s) {
            if budget_s <= 0.0 {
                break;
            }
            let before = system::own_cpu();
            let estimate = self.allocators.estimate(pid);
            if let Some(process) = self.processes.get_mut(pid) {
                (process.note.glibc_heap, process.note.glibc_heap_at_s) = (estimate, Some(now_s));
            }
            budget_s -= system::own_cpu().saturating_sub(before).as_secs_f64();
        }
        self.estimate_budget_s = Some(budget_s);
    }

    fn result(&self) -> Vec<Reading> {
        let shown = || self.processes.iter().filter(|(_, process)| process.note.shown);
        let pids: Vec<Pid> = shown().map(|(pid, _)| pid).collect();
        let parents: BTreeMap<Pid, Pid> = shown().map(|(pid, process)| (pid, process.stat.parent)).collect();
        let mut readings: Vec<Reading> = Vec::new();
        for pid in tree::descendants(&parents, &pids) {
            let Some(process) = self.processes.get(pid) else { continue };
            let above = readings.iter().find(|reading| reading.pid == process.stat.parent);
            let depth = above.map_or(0, |above| above.depth + 1);
            readings.push(self.reading(pid, process, depth));
        }
        readings
    }

    fn reading(&self, pid: Pid, process: &Process<Known>, depth: usize) -> Reading {
        let Process { stat, note: known, .. } = process;
        // Rates are between this reading of its state and the one before.
        let before = process.before.as_ref().filter(|(then_s, _)| *then_s < process.read_s);
        let per_s =
            |now: u64, then: u64, then_s: f64| now.saturating_sub(then) as f64 / (process.read_s - then_s);
        Reading {
            pid,
            parent: stat.parent,
            depth,
            role: known.role.clone(),
            app: known.app.clone(),
            command: known.command.clone(),
            identity: known.identity.clone().unwrap_or_default(),
            rss_bytes: stat.rss_pages * self.page_size_bytes,
            pss_bytes: known.pss_bytes,
            swap_bytes: known.swap_bytes,
            hooks: known.hooks.clone(),
            cpu_cores: before
                .map(|(then_s, then)| per_s(stat.ticks(), then.ticks(), *then_s) / self.ticks_per_s),
            faults_per_s: before.map(|(then_s, then)| per_s(stat.minor_faults, then.minor_faults, *then_s)),
            threads: stat.threads,
            stat: stat.clone(),
            heap: known.heap.clone(),
            glibc_heap: known.glibc_heap.filter(|_| may_be_estimated(process, self.page_size_bytes)),
            rss_history: known.rss_history.iter().copied().collect(),
            live_history: known.live_history.iter().copied().collect(),
        }
    }
}

/// Whether a process is due for another look at what seldom changes.
fn is_due(readings: u64, pid: Pid) -> bool {
    (readings + pid as u64) % LOOK_AGAIN_AFTER == 0
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// Whether it uses glibc and is not too large for a walk over its heaps.
fn may_be_estimated(process: &Process<Known>, page_size_bytes: u64) -> bool {
    let kind = process.note.identity.as_ref().and_then(Identity::kind);
    kind == Some(Kind::Glibc) && process.stat.rss_pages * page_size_bytes < ESTIMATE_BELOW_BYTES
}

#[cfg(test)]
mod tests;
