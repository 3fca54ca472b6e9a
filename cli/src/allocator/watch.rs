//! Reads many processes again and again at little cost: `/proc` for all, the page of counters for those under snug.
//! Knows nothing of how readings are shown. `choice` says which processes, `reading` what is known of each.
//!
//! What a reading costs: one line of `/proc/PID/stat` and one copy of a few KB per process. Which allocator a
//! process uses is found once and again after an exec. PSS makes the kernel walk all pages of a process, so it is
//! read as often as a share of one core pays for, the oldest first. So are, if they are wanted, estimates of what is live
//! under glibc, which read its whole heap.

mod choice;
mod reading;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::allocator::inspect::{Hidden, Inspector};
use crate::allocator::judge;
use crate::allocator::kinds::Kind;
pub use crate::allocator::watch::choice::Choice;
pub use crate::allocator::watch::reading::{Heap, Identity, Reading};
use crate::base::machine;
use crate::heap::counters::Account;
use crate::heap::glibc_heap::{self, Estimate};
use crate::heap::remote;
use crate::process::proc::{self, Pid, Processes, Stat};
use crate::process::{role, system, tree};

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

/// Where allocators are looked up: `Inspector` in truth, made up in tests.
pub trait Allocators {
    /// None: the process has gone or is just starting.
    fn identify(&mut self, pid: Pid) -> Option<Identity>;
    fn account(&mut self, pid: Pid, address: u64, arenas: u32) -> Result<Account, String>;
    /// What is live under glibc.
    fn estimate(&mut self, pid: Pid) -> Option<Estimate>;
    /// The user whose process it is.
    fn owner(&mut self, pid: Pid) -> Option<u32>;
}

impl Allocators for Inspector {
    fn identify(&mut self, pid: Pid) -> Option<Identity> {
        match self.facts(pid) {
            Ok(facts) => {
                let report = judge::judge(&facts);
                Some(Identity {
                    allocator: report.allocator,
                    counters_at: facts.counters_at.filter(|_| facts.counters.is_some()),
                    counters_error: facts.counters_error,
                    problems: report.problems,
                    settings: report.settings,
                    not_permitted: false,
                })
            }
            Err(Hidden::NotPermitted) => Some(Identity { not_permitted: true, ..Identity::default() }),
            Err(Hidden::Gone) => None,
        }
    }

    fn account(&mut self, pid: Pid, address: u64, arenas: u32) -> Result<Account, String> {
        remote::read_account(pid, address, arenas)
    }

    fn estimate(&mut self, pid: Pid) -> Option<Estimate> {
        glibc_heap::estimate_process(pid)
    }

    fn owner(&mut self, pid: Pid) -> Option<u32> {
        tree::owner(pid)
    }
}

/// What is remembered of a process between readings.
struct Watched {
    stat: Stat,
    at_s: f64,
    role: String,
    app: String,
    command: String,
    identity: Option<Identity>,
    pss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    pss_at_s: f64,
    heap: Option<Heap>,
    glibc_heap: Option<Estimate>,
    glibc_heap_at_s: f64,
    cpu_cores: Option<f64>,
    faults_per_s: Option<f64>,
    shown: bool,
    /// Whether it goes by one of the chosen names; None: to be looked at.
    named: Option<bool>,
    rss_history: VecDeque<u64>,
    live_history: VecDeque<u64>,
}

/// Watches processes.
pub struct Watcher<P: Processes, A: Allocators> {
    source: P,
    allocators: A,
    choice: Choice,
    own: Pid,
    /// Whose processes are worth showing; None: everybody's.
    user: Option<u32>,
    page_size_bytes: u64,
    ticks_per_s: f64,
    watched: HashMap<Pid, Watched>,
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
            source,
            allocators,
            own: std::process::id() as Pid,
            user: choice.user.or_else(tree::own_user),
            choice,
            page_size_bytes: machine::page_size_bytes(),
            ticks_per_s: machine::ticks_per_second(),
            watched: HashMap::new(),
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
        let pids = self.source.pids().unwrap_or_default();
        self.forget_all_but(&pids);
        for pid in &pids {
            self.update_stat(*pid, now_s);
        }
        for pid in self.chosen() {
            self.update_heap(pid, now_s);
        }
        self.update_pss(now_s);
        self.update_estimates(now_s);
        self.readings += 1;
        self.last_s = Some(now_s);
        self.result()
    }

    fn forget_all_but(&mut self, pids: &[Pid]) {
        let existing: HashSet<Pid> = pids.iter().copied().collect();
        let gone: Vec<Pid> = self.watched.keys().copied().filter(|pid| !existing.contains(pid)).collect();
        for pid in gone {
            self.source.forget(pid);
            self.watched.remove(&pid);
        }
    }

    /// Reads `stat` of a process that is new, shown, or due for another look.
    fn update_stat(&mut self, pid: Pid, now_s: f64) {
        let known = self.watched.get(&pid);
        let skip =
            known.is_some_and(|known| !known.shown) && (self.readings + pid as u64) % LOOK_AGAIN_AFTER != 0;
        if skip {
            return;
        }
        let shown = known.is_some_and(|known| known.shown);
        let read = self.source.read(pid, "stat", &mut self.buffer);
        if !shown {
            // Thousands of open files would meet the limit of this process.
            self.source.forget(pid);
        }
        let stat = match read.ok().and_then(|()| proc::parse_stat(&self.buffer)) {
            Some(stat) if stat.state != 'Z' && stat.state != 'X' => stat,
            _ => {
                self.source.forget(pid);
                self.watched.remove(&pid);
                return;
            }
        };
        match self.watched.get_mut(&pid) {
            Some(known) if known.stat.start_ticks == stat.start_ticks => {
                let elapsed_s = now_s - known.at_s;
                if elapsed_s > 0.0 {
                    let ticks = |stat: &Stat| (stat.user_ticks + stat.system_ticks) as f64;
                    let spent_s = (ticks(&stat) - ticks(&known.stat)) / self.ticks_per_s;
                    known.cpu_cores = Some((spent_s / elapsed_s).max(0.0));
                    let faults = stat.minor_faults.saturating_sub(known.stat.minor_faults);
                    known.faults_per_s = Some(faults as f64 / elapsed_s);
                }
                if known.stat.name != stat.name {
                    // It executes another program now.
                    known.identity = None;
                    known.heap = None;
                    known.glibc_heap = None;
                    known.named = None;
                }
                known.stat = stat;
                known.at_s = now_s;
            }
            _ => {
                self.source.forget(pid);
                self.watched.insert(pid, Watched::new(stat, now_s));
            }
        }
    }

    fn arguments(&mut self, pid: Pid) -> Vec<String> {
        if self.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&self.buffer);
        text.split('\0').filter(|word| !word.is_empty()).map(String::from).collect()
    }

    /// Finds out which allocator a process uses and what it does.
    fn identify(&mut self, pid: Pid) {
        let identity = self.allocators.identify(pid);
        if let Some(known) = self.watched.get_mut(&pid) {
            known.identity = identity;
        }
    }

    /// Reads the counters of one process that is shown.
    fn update_heap(&mut self, pid: Pid, now_s: f64) {
        let known = &self.watched[&pid];
        let due = (self.readings + pid as u64) % LOOK_AGAIN_AFTER == 0;
        let undecided = known.identity.as_ref().is_none_or(|identity| {
            // A young process may still be loading its libraries, and what could not be read may be readable by now.
            identity.allocator.is_none() && !identity.not_permitted
                || identity.counters_error.is_some() && due
        });
        if undecided {
            self.identify(pid);
        }
        // Servers change their titles while they run, at little cost to us if we look now and then.
        if self.watched[&pid].role.is_empty() || due {
            let arguments = self.arguments(pid);
            let known = self.watched.get_mut(&pid).expect("it is shown");
            known.role = role::role(&arguments, &known.stat.name);
            known.app = role::app(&arguments);
            known.command = arguments.join(" ");
        }
        let known = &self.watched[&pid];
        let address = known.identity.as_ref().and_then(|identity| identity.counters_at);
        let before = known.heap.as_ref();
        let arenas = before.map_or(1, |heap| heap.account.head.arena_count);
        let heap = address.map(|address| self.allocators.account(pid, address, arenas));
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        let known = self.watched.get_mut(&pid).expect("it is shown");
        match heap {
            Some(Ok(account)) => known.heap = Some(Heap::new(account, known.heap.as_ref(), elapsed_s)),
            // It has ended, or another program has taken its place.
            Some(Err(_)) => {
                known.heap = None;
                known.identity = None;
            }
            None => known.heap = None,
        }
        push(&mut known.rss_history, known.stat.rss_pages * self.page_size_bytes);
        if let Some(heap) = &known.heap {
            push(&mut known.live_history, heap.account.live_bytes());
        }
    }

    /// Reads PSS of the processes that have waited longest, as far as the budget goes; new ones in any case.
    fn update_pss(&mut self, now_s: f64) {
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        self.pss_budget_s = (self.pss_budget_s + elapsed_s * PSS_SHARE).min(0.1);
        let mut waiting: Vec<(f64, Pid)> = self
            .watched
            .iter()
            .filter(|(_, known)| known.shown)
            .map(|(pid, known)| (known.pss_at_s, *pid))
            .collect();
        waiting.sort_by(|left, right| left.0.total_cmp(&right.0));
        for (read_at_s, pid) in waiting {
            if self.pss_budget_s <= 0.0 && read_at_s > f64::NEG_INFINITY {
                break;
            }
            let before = system::own_cpu();
            let read = self.source.read(pid, "smaps_rollup", &mut self.buffer);
            let rollup = read.ok().and_then(|()| proc::parse_smaps_rollup(&self.buffer));
            let known = self.watched.get_mut(&pid).expect("it is watched");
            known.pss_bytes = rollup.map(|rollup| rollup.pss_bytes);
            known.swap_bytes = rollup.map(|rollup| rollup.swap_bytes);
            known.pss_at_s = now_s;
            self.pss_budget_s -=
                system::own_cpu().saturating_sub(before).max(Duration::from_micros(20)).as_secs_f64();
        }
    }

    /// Walks glibc's heaps in the processes that have waited longest, as far as the budget goes.
    fn update_estimates(&mut self, now_s: f64) {
        let Some(budget_s) = self.estimate_budget_s else { return };
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        let mut budget_s = (budget_s + elapsed_s * ESTIMATE_SHARE).min(ESTIMATE_BUDGET_S);
        let mut waiting: Vec<(f64, Pid)> = self
            .watched
            .iter()
            .filter(|(_, known)| known.shown && known.may_be_estimated(self.page_size_bytes))
            .filter(|(_, known)| now_s - known.glibc_heap_at_s >= ESTIMATE_EVERY_S)
            .map(|(pid, known)| (known.glibc_heap_at_s, *pid))
            .collect();
        waiting.sort_by(|left, right| left.0.total_cmp(&right.0));
        for (_, pid) in waiting {
            if budget_s <= 0.0 {
                break;
            }
            let before = system::own_cpu();
            let estimate = self.allocators.estimate(pid);
            let known = self.watched.get_mut(&pid).expect("it is watched");
            (known.glibc_heap, known.glibc_heap_at_s) = (estimate, now_s);
            budget_s -= system::own_cpu().saturating_sub(before).as_secs_f64();
        }
        self.estimate_budget_s = Some(budget_s);
    }

    fn result(&self) -> Vec<Reading> {
        let mut pids: Vec<Pid> =
            self.watched.iter().filter(|(_, known)| known.shown).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        let parents: BTreeMap<Pid, Pid> =
            pids.iter().map(|pid| (*pid, self.watched[pid].stat.parent)).collect();
        let order = tree::descendants(&parents, &pids);
        let mut readings: Vec<Reading> = Vec::new();
        for pid in order {
            let known = &self.watched[&pid];
            let above = readings.iter().find(|reading| reading.pid == known.stat.parent);
            let depth = above.map_or(0, |above| above.depth + 1);
            readings.push(Reading {
                pid,
                parent: known.stat.parent,
                depth,
                role: known.role.clone(),
                app: known.app.clone(),
                command: known.command.clone(),
                identity: known.identity.clone().unwrap_or_default(),
                rss_bytes: known.stat.rss_pages * self.page_size_bytes,
                pss_bytes: known.pss_bytes,
                swap_bytes: known.swap_bytes,
                cpu_cores: known.cpu_cores,
                faults_per_s: known.faults_per_s,
                threads: known.stat.threads,
                stat: known.stat.clone(),
                heap: known.heap.clone(),
                glibc_heap: known.glibc_heap.filter(|_| known.may_be_estimated(self.page_size_bytes)),
                rss_history: known.rss_history.iter().copied().collect(),
                live_history: known.live_history.iter().copied().collect(),
            });
        }
        readings
    }
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

impl Watched {
    fn new(stat: Stat, now_s: f64) -> Watched {
        Watched {
            stat,
            at_s: now_s,
            role: String::new(),
            app: String::new(),
            command: String::new(),
            identity: None,
            pss_bytes: None,
            swap_bytes: None,
            pss_at_s: f64::NEG_INFINITY,
            heap: None,
            glibc_heap: None,
            glibc_heap_at_s: f64::NEG_INFINITY,
            cpu_cores: None,
            faults_per_s: None,
            shown: false,
            named: None,
            rss_history: VecDeque::new(),
            live_history: VecDeque::new(),
        }
    }

    /// Whether it uses glibc and is not too large for a walk over its heaps.
    fn may_be_estimated(&self, page_size_bytes: u64) -> bool {
        let kind =
            self.identity.as_ref().and_then(|identity| identity.allocator.as_ref()).map(|used| used.kind);
        kind == Some(Kind::Glibc) && self.stat.rss_pages * page_size_bytes < ESTIMATE_BELOW_BYTES
    }
}

#[cfg(test)]
mod tests;
