//! Runs the program once under one allocator and measures it. The only file that starts, waits for and stops
//! measured processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::results::{Evidence, Loaded, Overhead, Phase, ProcessSeen, Run, Settings};
use super::sample::{Collected, Pace, Sampler, Target};
use super::statistics::time_weighted_mean;
use crate::children::{Children, Waited};
use crate::failure::{Context, Failure, Result, INTERRUPTED};
use crate::machine;
use crate::proc::{Pid, ProcFilesystem};
use crate::system::{self, Ending, Reaped};

/// Processes listed in the results of a run.
const PROCESSES_KEPT: usize = 100;
/// Reading RSS gets this part of what measuring may cost; PSS, which is dearer, the rest.
const RSS_SHARE: f64 = 1.0 / 3.0;
/// Lines of the program's stderr shown when it fails.
const TAIL_LINES: usize = 15;

/// One run to make.
pub struct Request<'a> {
    pub label: &'a str,
    pub round: u32,
    pub program: &'a [String],
    pub environment: &'a BTreeMap<String, String>,
    pub target: Target,
    pub settings: &'a Settings,
    /// The loader was seen to accept the library for this program.
    pub probed: bool,
    /// Where the program's output goes, without its ending.
    pub log: PathBuf,
}

/// Runs programs, one at a time, and leaves nothing of them behind.
pub struct Supervisor {
    children: Children,
}

/// Everything reaped in a run, added up.
#[derive(Default)]
struct Usage {
    user: Duration,
    system: Duration,
    minor_faults: u64,
    major_faults: u64,
}

impl Usage {
    fn add(&mut self, reaped: &Reaped) {
        self.user += reaped.user;
        self.system += reaped.system;
        self.minor_faults += reaped.minor_faults;
        self.major_faults += reaped.major_faults;
    }
}

impl Supervisor {
    /// Call once, before any thread starts.
    pub fn new() -> Result<Supervisor> {
        Ok(Supervisor { children: Children::new()? })
    }

    /// Runs the program to its end. `progress` is told the time and the resident bytes at each sample. An `Err`
    /// means that nothing further can be run; a run that failed is an `Ok` that says so.
    pub fn run(&mut self, request: &Request, progress: &mut dyn FnMut(f64, u64)) -> Result<Run> {
        let started_at = machine::now_utc();
        let own_cpu_before = system::own_cpu();
        let busy_before_s = machine::busy_cpu_s();
        let own = std::process::id() as Pid;
        let mut sampler = Sampler::new(
            ProcFilesystem::new(),
            own,
            request.target.clone(),
            machine::page_size_bytes(),
            machine::ticks_per_second(),
        );
        sampler.look_around();
        let start = Instant::now();
        let root = spawn(request)?;
        let mut usage = Usage::default();
        let ending = self.follow(root, start, request.settings, &mut sampler, &mut usage, progress);
        let wall_s = start.elapsed().as_secs_f64();
        let outlived = self.stop_leftovers(start, &mut sampler, &mut usage);
        let ending = ending?;
        let collected = sampler.finish();
        let own_cpu_s = (system::own_cpu() - own_cpu_before).as_secs_f64();
        let busy_s = machine::busy_cpu_s() - busy_before_s;
        let mut run = describe(request, started_at, wall_s, &usage, collected);
        run.overhead.cpu_s = own_cpu_s;
        run.overhead.share_of_one_core = own_cpu_s / wall_s.max(1e-9);
        let tree_s = (usage.user + usage.system).as_secs_f64();
        run.other_busy_cores = ((busy_s - tree_s - own_cpu_s) / wall_s.max(1e-9)).max(0.0);
        if !outlived.is_empty() {
            run.notes.push(format!(
                "{} of its processes outlived the program and were stopped: {}",
                outlived.len(),
                outlived.join("; ")
            ));
        }
        run.exit_code = match ending {
            Ending::Exited(code) => Some(code),
            Ending::Signalled(_) => None,
        };
        run.failure = judge(request, ending, &run);
        keep_largest(&mut run.processes);
        Ok(run)
    }

    /// Samples until the root process has ended.
    fn follow(
        &mut self,
        root: Pid,
        start: Instant,
        settings: &Settings,
        sampler: &mut Sampler<ProcFilesystem>,
        usage: &mut Usage,
        progress: &mut dyn FnMut(f64, u64),
    ) -> Result<Ending> {
        let mut pace = Pace::new(settings.interval_ms as f64 / 1000.0, settings.overhead_limit * RSS_SHARE);
        let mut detail_pace = Pace::new(
            settings.detail_interval_ms as f64 / 1000.0,
            settings.overhead_limit * (1.0 - RSS_SHARE),
        );
        loop {
            let mut ending = None;
            while let Waited::Ended(reaped) = self.children.reap() {
                usage.add(&reaped);
                if reaped.pid == root {
                    ending = Some(reaped.ending);
                }
            }
            if let Some(ending) = ending {
                return Ok(ending);
            }
            let mut now_s = start.elapsed().as_secs_f64();
            if now_s >= pace.next_s {
                let before = system::own_cpu();
                let rss_bytes = sampler.sample(now_s);
                pace.looked(now_s, (system::own_cpu() - before).as_secs_f64());
                progress(now_s, rss_bytes);
                now_s = start.elapsed().as_secs_f64();
            }
            if now_s >= detail_pace.next_s {
                let before = system::own_cpu();
                sampler.sample_details(now_s);
                detail_pace.looked(now_s, (system::own_cpu() - before).as_secs_f64());
            }
            let next_s = pace.next_s.min(detail_pace.next_s);
            let wait = Duration::from_secs_f64((next_s - start.elapsed().as_secs_f64()).max(0.0));
            if self.children.wait_for_signal(wait) {
                return Err(Failure::new("interrupted").exit_code(INTERRUPTED));
            }
        }
    }

    /// Ends every process that is left of the tree. Returns the commands of those that had to be told.
    fn stop_leftovers(
        &mut self,
        start: Instant,
        sampler: &mut Sampler<ProcFilesystem>,
        usage: &mut Usage,
    ) -> Vec<String> {
        let mut commands: BTreeMap<Pid, String> = BTreeMap::new();
        let told = self.children.stop_all(&mut |reaped| usage.add(reaped), &mut || {
            let alive = sampler.alive(start.elapsed().as_secs_f64());
            commands.extend(alive.iter().cloned());
            alive.into_iter().map(|(pid, _)| pid).collect()
        });
        told.iter().filter_map(|pid| Some(commands.get(pid)?.chars().take(60).collect())).collect()
    }
}

fn spawn(request: &Request) -> Result<Pid> {
    let output = |ending: &str| -> Result<File> {
        let path = request.log.with_file_name(format!("{}.{ending}", file_name(&request.log)));
        File::create(&path).cannot(|| format!("write {}", path.display()))
    };
    let mut command = Command::new(&request.program[0]);
    command.args(&request.program[1..]).envs(request.environment);
    command.stdin(Stdio::null()).stdout(output("stdout")?).stderr(output("stderr")?);
    system::isolate(&mut command);
    let child = command.spawn().cannot(|| format!("run {}", request.program[0]))?;
    Ok(child.id() as Pid)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Puts the measurements into the data model.
fn describe(request: &Request, started_at: String, wall_s: f64, usage: &Usage, collected: Collected) -> Run {
    let whole_tree = request.target.only.is_none();
    let count = |loaded: Loaded| {
        collected.processes.iter().filter(|process| process.allocator_loaded == loaded).count() as u32
    };
    let mut notes = Vec::new();
    if collected.unreadable > 0 {
        notes.push("some processes could not be read in detail (setuid or another user's)".to_string());
    }
    let mean_gap_ms = |times: &[f64]| wall_s * 1000.0 / times.len().max(1) as f64;
    Run {
        allocator: request.label.to_string(),
        round: request.round,
        started_at,
        failure: None,
        exit_code: None,
        wall_s,
        cpu_user_s: if whole_tree { usage.user.as_secs_f64() } else { collected.user_s },
        cpu_system_s: if whole_tree { usage.system.as_secs_f64() } else { collected.system_s },
        minor_faults: if whole_tree { usage.minor_faults } else { collected.minor_faults },
        major_faults: if whole_tree { usage.major_faults } else { collected.major_faults },
        memory: memory(&collected, wall_s),
        metrics: parse_metrics(&std::fs::read(log_path(request, "stdout")).unwrap_or_default()),
        phases: vec![Phase { name: "run".into(), start_s: 0.0, end_s: wall_s }],
        evidence: Evidence {
            probe: request.probed,
            processes_loaded: count(Loaded::Yes),
            processes_too_short: count(Loaded::TooShort),
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

fn log_path(request: &Request, ending: &str) -> PathBuf {
    request.log.with_file_name(format!("{}.{ending}", file_name(&request.log)))
}

/// Mean, peak and final value of each kind of memory, and what else the samples say.
fn memory(collected: &Collected, wall_s: f64) -> BTreeMap<String, f64> {
    let mut memory = BTreeMap::new();
    let samples = &collected.samples;
    // Before the first and after the last measured process there is nothing to average over.
    let first = samples.processes.iter().position(|count| *count > 0);
    let last = samples.processes.iter().rposition(|count| *count > 0);
    if let (Some(first), Some(last)) = (first, last) {
        let times = &samples.time_s[first..=last];
        let end_s = samples.time_s.get(last + 1).copied().unwrap_or(wall_s);
        let processes = &samples.processes[first..=last];
        summarise(&mut memory, "rss", times, &samples.rss_bytes[first..=last], processes, end_s);
        let counts: Vec<u64> = processes.iter().map(|count| u64::from(*count)).collect();
        memory.insert("processes_mean".into(), time_weighted_mean(times, &counts, end_s));
        memory.insert("threads_peak".into(), f64::from(samples.threads.iter().copied().max().unwrap_or(0)));
        let details = &collected.details;
        for (name, values) in [
            ("pss", &details.pss_bytes),
            ("uss", &details.uss_bytes),
            ("lazy_free", &details.lazy_free_bytes),
            ("huge", &details.huge_bytes),
            ("swap", &details.swap_bytes),
        ] {
            summarise(&mut memory, name, &details.time_s, values, &details.processes, end_s);
        }
    }
    memory
}

fn summarise(
    memory: &mut BTreeMap<String, f64>,
    name: &str,
    times: &[f64],
    values: &[u64],
    processes: &[u32],
    end_s: f64,
) {
    let (Some(peak), Some(last)) = (values.iter().max(), final_value(values, processes)) else { return };
    memory.insert(format!("{name}_mean_bytes"), time_weighted_mean(times, values, end_s));
    memory.insert(format!("{name}_peak_bytes"), *peak as f64);
    memory.insert(format!("{name}_final_bytes"), last as f64);
}

/// The last value while the usual number of processes was there: a tree that is shutting down, one process after
/// the other, says nothing about the memory it had at its end.
fn final_value(values: &[u64], processes: &[u32]) -> Option<u64> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for count in processes.iter().filter(|count| **count > 0) {
        *counts.entry(*count).or_default() += 1;
    }
    let usual = counts.iter().max_by_key(|(_, times)| **times).map(|(count, _)| *count)?;
    let index = processes.iter().rposition(|count| *count == usual)?;
    values.get(index).copied()
}

/// Reads lines `snug-metric: NAME=VALUE`. A name that comes again replaces the value before.
fn parse_metrics(output: &[u8]) -> BTreeMap<String, f64> {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("snug-metric:"));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.trim().to_string(), value.trim().parse().ok()?))).collect()
}

/// Programs that start thousands of processes would drown the results: the largest say most.
fn keep_largest(processes: &mut Vec<ProcessSeen>) {
    if processes.len() > PROCESSES_KEPT {
        processes.sort_by_key(|process| std::cmp::Reverse(process.rss_peak_bytes));
        processes.truncate(PROCESSES_KEPT);
        processes.sort_by(|left, right| left.first_s.total_cmp(&right.first_s));
    }
}

/// What was wrong with a run; None if nothing.
fn judge(request: &Request, ending: Ending, run: &Run) -> Option<String> {
    let label = request.label;
    let tail = || {
        let tail = stderr_tail(&std::fs::read(log_path(request, "stderr")).unwrap_or_default());
        let log = log_path(request, "stderr");
        if tail.is_empty() {
            format!("it wrote nothing to stderr; its output is in {}", log.display())
        } else {
            format!("the end of its stderr ({}):\n{tail}", log.display())
        }
    };
    match ending {
        Ending::Exited(0) => {}
        Ending::Exited(code) => return Some(format!("the program exited with code {code}; {}", tail())),
        Ending::Signalled(signal) => {
            let name =
                Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            return Some(format!("the program was killed by {name}; {}", tail()));
        }
    }
    if let Some(errors) = run.metrics.get("errors").filter(|errors| **errors > 0.0) {
        return Some(format!("the program reported {errors} errors; {}", tail()));
    }
    if let Some(process) = run.processes.iter().find(|process| process.allocator_loaded == Loaded::No) {
        return Some(format!(
            "{label} was not loaded in process {} ({}): something removed LD_PRELOAD from its environment, or it is \
             a static program. Measure only the processes that you mean: --only REGEX",
            process.pid, process.command
        ));
    }
    if run.processes.is_empty() {
        let which = match &request.settings.only {
            Some(only) => format!("no process matched --only {only:?}"),
            None => "the program ended before it could be sampled".to_string(),
        };
        return request.settings.only.as_ref().map(|_| which);
    }
    None
}

/// The last lines of what a program wrote.
fn stderr_tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    shown.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_from_output() {
        let output =
            b"hello\nsnug-metric: requests_per_s=51.3\n  snug-metric: p99_ms = 12\nsnug-metric: bad=x\n";
        let metrics = parse_metrics(output);
        assert_eq!(metrics.len(), 2);
        assert_eq!(metrics["requests_per_s"], 51.3);
        assert_eq!(metrics["p99_ms"], 12.0);
    }

    #[test]
    fn final_memory_is_that_of_the_whole_tree() {
        assert_eq!(final_value(&[1, 50, 60, 61, 20, 0], &[1, 4, 4, 4, 2, 0]), Some(61));
        assert_eq!(final_value(&[], &[]), None);
        assert_eq!(final_value(&[0, 0], &[0, 0]), None);
    }

    #[test]
    fn tails_are_short() {
        let many: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let tail = stderr_tail(many.as_bytes());
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with("line 99"));
        assert_eq!(stderr_tail(b""), "");
    }
}
