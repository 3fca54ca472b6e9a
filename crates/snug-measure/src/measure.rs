//! Runs the program once under one allocator and measures it. The only file that starts, waits for and stops
//! measured processes.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid as NixPid;

use crate::log::Log;
use crate::perf::Perf;
use crate::phases::{with_ending, Drive, Step};
use crate::request::{Moment, Request, RunEnd};
use crate::sample::{Collected, Sampler};
use crate::serving::{Load, Plan};
use crate::track::Tracker;
use crate::{outcome, reported};
use snug_base::failure::{Context, Failure, Result, INTERRUPTED};
use snug_base::{file, machine};
use snug_compare::attribution::AllocatorCode;
use snug_compare::results::{Evidence, Latency, Loaded, Overhead, Phase, ProcessSeen, Run};
use snug_compare::window::{self, Window};
use snug_inspect::inspector::Inspector;
use snug_process::cgroup::Group;
use snug_process::children::{Children, Waited};
use snug_process::guard::Guard;
use snug_process::listening;
use snug_process::pace::Pace;
use snug_process::proc::{Pid, ProcFilesystem};
use snug_process::system::{self, Ending, Reaped};

/// Processes listed in the results of a run.
const PROCESSES_KEPT: usize = 100;
/// Reading RSS gets this part of what measuring may cost; PSS, which is dearer, the rest.
const RSS_SHARE: f64 = 1.0 / 3.0;
/// What perf may take to write its samples.
const PERF_ENDS_WITHIN: Duration = Duration::from_secs(20);
/// A program without phases that runs for so long and listens is taken for a server.
const SERVER_AFTER_S: f64 = 5.0;

/// Runs programs, one at a time, and leaves nothing of them behind.
pub struct Supervisor {
    children: Children,
    guard: Guard,
}

/// Everything reaped in a run, added up.
#[derive(Default)]
struct Usage {
    user: Duration,
    system: Duration,
    minor_faults: u64,
    major_faults: u64,
    /// CPU time of the load, which is not the program's.
    load: Duration,
}

impl Usage {
    fn add(&mut self, reaped: &Reaped) {
        self.user += reaped.user;
        self.system += reaped.system;
        self.minor_faults += reaped.minor_faults;
        self.major_faults += reaped.major_faults;
    }
}

/// One run on its way.
struct Following<'a> {
    root: Pid,
    start: Instant,
    sampler: Sampler<ProcFilesystem>,
    usage: Usage,
    drive: Option<Drive<'a>>,
    rss_pace: Pace,
    detail_pace: Pace,
    /// CPU time of this thread for which both paces have been told.
    charged: Duration,
    logs: Vec<Log>,
    group: Option<Group>,
    cache_peak_bytes: u64,
    /// What samples CPU time, if it is to be; or why it can't.
    perf: Option<std::result::Result<Perf, String>>,
    /// Whether it is still to be found out if the program is a server.
    may_wait: bool,
}

impl Supervisor {
    /// Call once, before any thread starts.
    pub fn new() -> Result<Supervisor> {
        let guard = Guard::start();
        Ok(Supervisor { children: Children::new()?, guard })
    }

    /// Runs the program to its end, or a server through its phases. `progress` is told of each sample. An `Err` means
    /// that nothing further can be run; a run that failed is an `Ok` that says so.
    pub fn run(&mut self, request: &Request, progress: &mut dyn FnMut(Moment)) -> Result<Run> {
        let started_at = machine::now_utc();
        let drive = request.plan.map(|plan| Drive::begin(plan, &request.log)).transpose()?;
        let (own_before, thread_before) = (system::own_cpu(), system::thread_cpu());
        let busy_before_s = machine::busy_cpu_s();
        let mut following = Following::begin(request, drive, thread_before)?;
        let start = following.start;
        let followed = self.follow(&mut following, progress);
        let wall_s = start.elapsed().as_secs_f64();
        let perf_may_take = if followed.is_ok() { PERF_ENDS_WITHIN } else { Duration::ZERO };
        self.wait_for_perf(&mut following, perf_may_take);
        let followed = followed.and_then(|followed| self.stop_server(&mut following, request.plan, followed));
        let outlived = self.stop_leftovers(&mut following);
        self.guard.watch(&[]);
        following.close_logs(&request.log)?;
        let followed = followed?;
        let own_s = (system::own_cpu() - own_before).as_secs_f64();
        let measuring_s = (system::thread_cpu() - thread_before).as_secs_f64();
        let all_s = start.elapsed().as_secs_f64();
        let busy_s = machine::busy_cpu_s() - busy_before_s;
        let Following { sampler, usage, drive, group, cache_peak_bytes, perf, .. } = following;
        let (phases, latency, notes) =
            drive.map_or_else(Default::default, |drive| (drive.phases, drive.latency, drive.notes));
        let load = sampler.processes.load();
        let mut run = describe(request, started_at, wall_s, &usage, sampler.finish(), phases, latency);
        let peak = group.as_ref().and_then(Group::peak_bytes);
        let cache = peak.map(|_| ("cgroup_cache_peak_bytes".to_string(), cache_peak_bytes as f64));
        run.memory.extend(
            peak.map(|bytes| ("cgroup_peak_bytes".to_string(), bytes as f64)).into_iter().chain(cache),
        );
        run.overhead.cpu_s = measuring_s;
        run.overhead.share_of_one_core = measuring_s / all_s.max(1e-9);
        let ours_s = (usage.user + usage.system + usage.load).as_secs_f64() + own_s;
        run.other_busy_cores = ((busy_s - ours_s) / all_s.max(1e-9)).max(0.0);
        if let Some((code, perf)) = request.profile.zip(perf) {
            // Processes of a tree may have other allocators than its first one.
            let found = run.evidence.found.iter().map(|path| AllocatorCode::library(Path::new(path)));
            let codes: Vec<AllocatorCode> = std::iter::once(code.clone()).chain(found).collect();
            let seen: HashSet<Pid> = run.processes.iter().map(|process| process.pid).collect();
            let only = request.target.only.is_some();
            // Without --only those count, too, that ended before they were looked at.
            let own = std::process::id() as Pid;
            let is_measured = |pid| if only { seen.contains(&pid) } else { pid != own };
            match perf.and_then(|perf| perf.read(&codes, load, &is_measured)) {
                Ok(samples) => run.cpu_samples = Some(samples),
                Err(why) => run.notes.push(format!("CPU time was not sampled: {why}")),
            }
        }
        run.notes.extend(notes);
        run.notes.extend(outcome::leftovers(request, &followed, &outlived));
        run.notes.extend(outcome::unseen(request, &run));
        if let RunEnd::Ended(Ending::Exited(code), _) | RunEnd::Served(Some(Ending::Exited(code))) = followed
        {
            run.exit_code = Some(code);
        }
        run.failure = outcome::failure(request, &followed, &run);
        keep_largest(&mut run.processes);
        Ok(run)
    }

    /// Samples until the root process has ended, or the server's phases are over.
    fn follow(&mut self, following: &mut Following, progress: &mut dyn FnMut(Moment)) -> Result<RunEnd> {
        loop {
            if let Some(ending) = self.reap(following) {
                return Ok(RunEnd::Ended(ending, following.drive.as_ref().map(Drive::phase)));
            }
            let mut next_s = following.sample_if_due(progress);
            let now_s = following.now_s();
            let step = following.drive.as_mut().map(|drive| drive.step(now_s)).transpose()?;
            let load = following.drive.as_ref().and_then(Drive::load_process);
            self.guard.watch(&load.into_iter().chain([following.root]).collect::<Vec<_>>());
            if let Some(group) = load {
                following.sampler.processes.leave_out(group);
            }
            following.sample_cpu();
            match step {
                None => {}
                Some(Step::Wait(wait_s)) => next_s = next_s.min(now_s + wait_s),
                Some(Step::NextPhase) => {
                    following.sample_now();
                    continue;
                }
                Some(Step::Over) => {
                    following.sample_now();
                    following.sample_if_due(progress);
                    return Ok(RunEnd::Served(None));
                }
                Some(Step::Failed(why)) => return Ok(RunEnd::Failed(why)),
            }
            if self.children.wait_for_signal(Duration::from_secs_f64((next_s - following.now_s()).max(0.0))) {
                return Err(interrupted());
            }
        }
    }

    /// Ends the sampling of CPU time, if it goes on: after this long at once.
    fn wait_for_perf(&mut self, following: &mut Following, time: Duration) {
        let begin = Instant::now();
        while let Some(perf) = following.perf().filter(|perf| perf.is_running()) {
            if begin.elapsed() < time {
                perf.stop();
            } else {
                perf.kill();
            }
            self.children.wait_for_signal(Duration::from_millis(20));
            self.reap(following);
        }
    }

    /// Takes the status of all children that have ended. Returns the root's.
    fn reap(&mut self, following: &mut Following) -> Option<Ending> {
        let mut ending = None;
        while let Waited::Ended(reaped) = self.children.reap() {
            following.ended(&reaped);
            if reaped.pid == following.root {
                ending = Some(reaped.ending);
            }
        }
        ending
    }

    /// Asks the server to end, which may take it as long as the plan allows.
    fn stop_server(
        &mut self,
        following: &mut Following,
        plan: Option<&Plan>,
        followed: RunEnd,
    ) -> Result<RunEnd> {
        let (Some(plan), false) = (plan, matches!(followed, RunEnd::Ended(..))) else {
            return Ok(followed);
        };
        let root = NixPid::from_raw(following.root);
        // It may have ended since it was last looked at.
        let _ = signal::kill(root, Signal::SIGTERM);
        let begin = Instant::now();
        while begin.elapsed() < plan.grace {
            if let Some(ending) = self.reap(following) {
                return Ok(if matches!(followed, RunEnd::Served(_)) {
                    RunEnd::Served(Some(ending))
                } else {
                    followed
                });
            }
            if self.children.wait_for_signal(Duration::from_millis(20)) {
                return Err(interrupted());
            }
        }
        let _ = signal::killpg(root, Signal::SIGKILL);
        Ok(followed)
    }

    /// Ends every process that is left of the tree. Returns the commands of those that had to be told.
    fn stop_leftovers(&mut self, following: &mut Following) -> Vec<String> {
        let mut commands: BTreeMap<Pid, String> = BTreeMap::new();
        let Following { sampler, usage, start, .. } = following;
        let told = self.children.stop_all(&mut |reaped| usage.add(reaped), &mut || {
            let alive = sampler.processes.alive(start.elapsed().as_secs_f64());
            commands.extend(alive.iter().cloned());
            alive.into_iter().map(|(pid, _)| pid).collect()
        });
        told.iter().filter_map(|pid| Some(commands.get(pid)?.chars().take(60).collect())).collect()
    }
}

impl<'a> Following<'a> {
    /// Starts the program, and what is to look at it. `charged`: CPU time of this thread so far.
    fn begin(request: &Request, drive: Option<Drive<'a>>, charged: Duration) -> Result<Following<'a>> {
        let (page_size_bytes, ticks_per_s) = (machine::page_size_bytes(), machine::ticks_per_second());
        let (source, own) = (ProcFilesystem::new(), std::process::id() as Pid);
        let mut processes = Tracker::new(source, own, request.target.clone(), page_size_bytes, ticks_per_s);
        let perf = request.profile.map(|_| Perf::attach(&request.log).map_err(|error| error.to_string()));
        if let Some(Ok(perf)) = &perf {
            processes.leave_out(perf.pid);
        }
        processes.look_around();
        let mut sampler = Sampler::new(processes, page_size_bytes, ticks_per_s);
        if request.ask_allocator {
            sampler = sampler.with_live(Box::new(Inspector::new(String::new())));
        }
        let settings = request.settings;
        let pace = |milliseconds: u64, share| {
            Pace::new(milliseconds as f64 / 1000.0, settings.overhead_limit * share)
        };
        let group = Group::create(&format!("snug-compare-{}", std::process::id())).ok();
        let start = Instant::now();
        let root = spawn(request, group.as_ref())?;
        Ok(Following {
            root,
            start,
            sampler,
            usage: Usage::default(),
            drive,
            rss_pace: pace(settings.interval_ms, RSS_SHARE),
            detail_pace: pace(settings.detail_interval_ms, 1.0 - RSS_SHARE),
            charged,
            logs: logs(request),
            group,
            cache_peak_bytes: 0,
            perf,
            may_wait: request.plan.is_none(),
        })
    }

    fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Accounts for a process that has ended.
    fn ended(&mut self, reaped: &Reaped) {
        if let Some(perf) = self.perf().filter(|perf| perf.pid == reaped.pid) {
            perf.ended(reaped.ending);
        }
        if self.sampler.processes.is_load(reaped.pid) {
            self.usage.load += reaped.user + reaped.system;
        } else {
            self.usage.add(reaped);
        }
        if let Some(drive) = &mut self.drive {
            drive.ended(reaped.pid, reaped.ending);
        }
    }

    fn perf(&mut self) -> Option<&mut Perf> {
        self.perf.as_mut().and_then(|perf| perf.as_mut().ok())
    }

    /// Samples CPU time under load; of a program without phases always.
    fn sample_cpu(&mut self) {
        let wanted = self.drive.as_ref().is_none_or(|drive| drive.phase() == "load");
        if let Some(perf) = self.perf() {
            perf.sample(wanted);
        }
    }

    /// Makes both kinds of sample due.
    fn sample_now(&mut self) {
        let now_s = self.now_s();
        self.sampler.processes.refresh_all();
        self.rss_pace.next_s = now_s;
        self.detail_pace.next_s = now_s;
    }

    /// Takes the samples that are due. Returns when the next one is.
    fn sample_if_due(&mut self, progress: &mut dyn FnMut(Moment)) -> f64 {
        let now_s = self.now_s();
        let next_s = self.rss_pace.next_s.min(self.detail_pace.next_s);
        if now_s < next_s {
            return next_s;
        }
        // What went into starting processes, waiting for them and reading them after the last samples.
        let beside_s = self.cost_s();
        self.rss_pace.charge(beside_s * RSS_SHARE);
        self.detail_pace.charge(beside_s * (1.0 - RSS_SHARE));
        if now_s >= self.rss_pace.next_s {
            let rss_bytes = self.sampler.sample(now_s);
            let waits = self.waits_for_connections(now_s);
            progress(Moment {
                time_s: now_s,
                rss_bytes,
                phase: self.drive.as_ref().map(Drive::phase),
                waits,
                load_groups: self.sampler.processes.load_groups(),
            });
            let cost_s = self.cost_s();
            self.rss_pace.looked(now_s, cost_s);
        }
        let now_s = self.now_s();
        if now_s >= self.detail_pace.next_s {
            self.sampler.sample_details(now_s);
            let cache_bytes = self.group.as_ref().and_then(Group::cache_bytes).unwrap_or(0);
            self.cache_peak_bytes = self.cache_peak_bytes.max(cache_bytes);
            self.logs.iter_mut().for_each(Log::trim);
            let cost_s = self.cost_s();
            self.detail_pace.looked(now_s, cost_s);
        }
        self.rss_pace.next_s.min(self.detail_pace.next_s)
    }

    /// Whether a program that was to end by itself is a server; true once at most.
    fn waits_for_connections(&mut self, now_s: f64) -> bool {
        if !self.may_wait || now_s < SERVER_AFTER_S {
            return false;
        }
        self.may_wait = false;
        // Its children are not asked: tables of connections are long, and who opens the socket keeps it.
        listening::listens(self.root)
    }

    /// To be called when nothing writes any more: cuts the logs, whose path this is, to what is kept of them.
    fn close_logs(&mut self, path: &Path) -> Result<()> {
        for log in self.logs.drain(..) {
            log.close().cannot(|| format!("write the log {}", path.display()))?;
        }
        self.drive.as_mut().map_or(Ok(()), Drive::close_logs)
    }

    /// CPU seconds of this thread since this was called last.
    fn cost_s(&mut self) -> f64 {
        let before = std::mem::replace(&mut self.charged, system::thread_cpu());
        (self.charged - before).as_secs_f64()
    }
}

fn interrupted() -> Failure {
    Failure::new("interrupted").exit_code(INTERRUPTED)
}

/// What the program writes, once it has been started.
fn logs(request: &Request) -> Vec<Log> {
    let log = |ending: &str| Log::open(&with_ending(&request.log, ending)).ok();
    ["stdout", "stderr"].into_iter().filter_map(log).collect()
}

fn spawn(request: &Request, group: Option<&Group>) -> Result<Pid> {
    let output = |ending: &str| -> Result<File> {
        let path = with_ending(&request.log, ending);
        file::create(&path).cannot(|| format!("write {}", path.display()))
    };
    let mut command = Command::new(&request.program[0]);
    command.args(&request.program[1..]).envs(request.environment);
    command.stdin(Stdio::null()).stdout(output("stdout")?).stderr(output("stderr")?);
    system::isolate(&mut command);
    if let Some(file) = group.and_then(|group| File::options().write(true).open(group.processes_file()).ok())
    {
        system::join_group(&mut command, file);
    }
    let child = command.spawn().cannot(|| format!("run {}", request.program[0].to_string_lossy()))?;
    Ok(child.id() as Pid)
}

/// Puts the measurements into the data model.
fn describe(
    request: &Request,
    started_at: String,
    wall_s: f64,
    usage: &Usage,
    collected: Collected,
    phases: Vec<Phase>,
    latency: Option<Latency>,
) -> Run {
    let whole_tree = request.target.only.is_none();
    let count = |loaded: Loaded| {
        collected.processes.iter().filter(|process| process.allocator_loaded == loaded).count() as u32
    };
    let mut notes = Vec::new();
    if collected.unreadable > 0 {
        notes.push("some processes could not be read in detail (setuid or another user's)".to_string());
    }
    // Starting up and shutting down are no part of what a server needs.
    let served = phases.iter().find(|phase| phase.name == "boot").map_or(0.0, |boot| boot.end_s);
    let window = Window { start_s: served, end_s: wall_s };
    let mut own = reported::OwnMetrics::default();
    // Without a load command its output is that of an earlier comparison, if there is any.
    let has_command = request.plan.is_some_and(|plan| matches!(plan.load, Some(Load::Command(_))));
    for ending in ["stdout", "load.stdout"].iter().take(if has_command { 2 } else { 1 }) {
        let output = std::fs::read(with_ending(&request.log, ending)).unwrap_or_default();
        own.read(&output);
    }
    let failure = own
        .uncounted_errors()
        .map(|errors| format!("the program reported errors={errors}, which is not a finite number"));
    let (metrics, left_out) = own.finish();
    notes.extend(left_out);
    let mean_gap_ms = |times: &[f64]| wall_s * 1000.0 / times.len().max(1) as f64;
    Run {
        allocator: request.label.to_string(),
        round: request.round,
        started_at,
        failure,
        exit_code: None,
        wall_s,
        cpu_user_s: if whole_tree { usage.user.as_secs_f64() } else { collected.user_s },
        cpu_system_s: if whole_tree { usage.system.as_secs_f64() } else { collected.system_s },
        minor_faults: if whole_tree { usage.minor_faults } else { collected.minor_faults },
        major_faults: if whole_tree { usage.major_faults } else { collected.major_faults },
        memory: window::memory(&collected.samples, &collected.details, window),
        metrics,
        cpu_samples: None,
        latency,
        phases: if request.plan.is_some() { phases } else { whole_run(wall_s) },
        evidence: Evidence {
            probe: request.probed,
            processes_loaded: count(Loaded::Yes),
            processes_too_short: count(Loaded::TooShort),
            processes_unreadable: count(Loaded::Unreadable),
            found: collected.found,
        },
        overhead: Overhead {
            mean_interval_ms: mean_gap_ms(&collected.samples.time_s),
            mean_detail_interval_ms: mean_gap_ms(&collected.details.time_s),
            ..Overhead::default()
        },
        other_busy_cores: 0.0,
        processes_seen: collected.processes.len() as u32,
        processes: collected.processes,
        samples: collected.samples,
        details: collected.details,
        notes,
        log: request.log.display().to_string(),
    }
}

/// A program that ends by itself has one phase.
fn whole_run(wall_s: f64) -> Vec<Phase> {
    vec![Phase { name: "run".into(), start_s: 0.0, end_s: wall_s }]
}

/// Programs that start thousands of processes would drown the results: the largest say most.
fn keep_largest(processes: &mut Vec<ProcessSeen>) {
    if processes.len() > PROCESSES_KEPT {
        processes.sort_by_key(|process| std::cmp::Reverse(process.rss_peak_bytes));
        processes.truncate(PROCESSES_KEPT);
        processes.sort_by(|left, right| left.first_s.total_cmp(&right.first_s));
    }
}
