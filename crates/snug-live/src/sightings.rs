//! Looks at processes for `snug check`: those that run already, once their loaders are through, and those of a program that
//! is started for it, until the time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use snug_base::failure::{Context, Failure, Result, INTERRUPTED, UNKNOWN};
use snug_base::{progress, terminal};
use snug_heap::read_error::ReadError;
use snug_inspect::inspector::{self, Hidden, Inspector};
use snug_inspect::program::{self, Program, Variables};
use snug_inspect::report::{Problem, ProcessReport, Severity, FAILED_ITSELF};
use snug_inspect::{access, judge};
use snug_process::children::{Children, Waited};
use snug_process::proc::{Pid, ProcFilesystem};
use snug_process::system::{self, Ending};
use snug_process::tree;

/// Time between two looks at a program that was started to be looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A process of which nothing defines malloc is looked at again for so long: it may just start.
const LOADING_AT_MOST: Duration = Duration::from_millis(300);

/// What was looked at, and what could not be.
pub struct Found {
    pub processes: Vec<ProcessReport>,
    pub unreadable: Vec<Pid>,
}

impl Found {
    /// All of it.
    pub fn readable(processes: Vec<ProcessReport>) -> Found {
        Found { processes, unreadable: Vec::new() }
    }
}

/// Says which processes could not be looked at.
pub fn not_permitted(pids: &[Pid]) -> Failure {
    let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
    Failure::new(format!("not permitted to look at process {}", list.join(", ")))
        .advise(match nix::unistd::geteuid().is_root() {
            true => access::refusal(&access::ptrace_scope()).1,
            false => "run snug check as the user that owns it, or as root",
        })
        .exit_code(UNKNOWN)
}

/// Looks at processes that run already, and all below them.
pub fn of_existing(inspector: &mut Inspector, all: &[(Pid, Pid, String)], roots: &[Pid]) -> Result<Found> {
    let parents: BTreeMap<Pid, Pid> = all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
    let own = std::process::id() as Pid;
    let chosen =
        tree::descendants(&parents, roots).into_iter().filter(|pid| *pid != own || roots.contains(pid));
    let mut found = Found::readable(Vec::new());
    let believed_at = Instant::now() + LOADING_AT_MOST;
    for pid in chosen {
        match report_when_loaded(inspector, pid, believed_at) {
            Ok(report) => found.processes.push(report),
            Err(Hidden::NotPermitted) => found.unreadable.push(pid),
            // Ended meanwhile, a zombie or a kernel thread: none of them has an allocator.
            Err(Hidden::Gone) => {}
        }
    }
    match (found.processes.is_empty(), found.unreadable.is_empty()) {
        (false, _) => Ok(found),
        (true, false) => Err(not_permitted(&found.unreadable)),
        (true, true) => Err(Failure::new("the process has ended or is a kernel thread").exit_code(UNKNOWN)),
    }
}

/// What there is to say of a process; of one that just starts, or becomes another program, once its loader is through.
fn report_when_loaded(
    inspector: &mut Inspector,
    pid: Pid,
    believed_at: Instant,
) -> std::result::Result<ProcessReport, Hidden> {
    loop {
        let facts = inspector.facts(pid);
        let elf = facts.as_ref().ok().and_then(|facts| facts.executable.elf.as_ref());
        let is_static = elf.is_none_or(|elf| elf.is_static_program());
        // Mapped, but its constructor has not run.
        let is_blank = facts.as_ref().ok().and_then(|facts| facts.counters_error.as_ref());
        let is_blank = is_blank.is_some_and(|error| *error != ReadError::Refused);
        let report = facts.map(|facts| judge::judge(&facts));
        let is_loading = match &report {
            Ok(report) => is_blank || (report.allocator.is_none() && !is_static),
            Err(Hidden::Gone) => inspector.is_alive(pid),
            Err(Hidden::NotPermitted) => false,
        };
        if !is_loading || Instant::now() >= believed_at {
            return report;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Starts the program, looks at it and its children until the time is over or it ends, and stops it.
pub fn of_started(
    inspector: &mut Inspector,
    command_line: &[OsString],
    watch_for: Duration,
) -> Result<Found> {
    let name = &command_line[0];
    let shown = name.to_string_lossy();
    let program = program::find(name)?;
    let mut children = Children::new()?;
    let mut command = Command::new(name);
    command.args(&command_line[1..]).stdin(Stdio::null()).stdout(Stdio::from(io::stderr()));
    system::isolate(&mut command);
    let root = command.spawn().cannot(|| format!("run {shown}"))?.id() as Pid;
    let takes = Some(watch_for);
    let seen = progress::during(&format!("looking at {shown}"), takes, || {
        look_at_children(inspector, &mut children, root, watch_for)
    });
    progress::during(&format!("ending {shown}"), None, || stop(&mut children));
    if seen.interrupted {
        return Err(Failure::new("interrupted").exit_code(INTERRUPTED));
    }
    let mut reports: Vec<(usize, ProcessReport)> = seen.reports.into_values().collect();
    reports.sort_by_key(|(position, _)| *position);
    let mut processes: Vec<ProcessReport> = reports.into_iter().map(|(_, report)| report).collect();
    // Unreadable at one look, perhaps while it became another program, and read at another.
    let is_read = |pid: &Pid| processes.iter().any(|process| process.pid == *pid);
    let unreadable: Vec<Pid> = seen.unreadable.into_iter().filter(|pid| !is_read(pid)).collect();
    if processes.is_empty() && unreadable.is_empty() {
        processes.push(before_start(inspector, &program, command_line)?);
    }
    if processes.is_empty() {
        return Err(not_permitted(&unreadable));
    }
    if let Some(failed) = seen.ending.and_then(Ending::failure) {
        let at = processes.iter().position(|process| process.pid == root).unwrap_or(0);
        processes[at].problems.push(failed_itself(&failed));
    }
    Ok(Found { processes, unreadable })
}

/// What was seen of a program that was started.
#[derive(Default)]
struct Sightings {
    /// The last report about each process, with its place among them: in the order of their first.
    reports: BTreeMap<Pid, (usize, ProcessReport)>,
    unreadable: BTreeSet<Pid>,
    /// How the program ended; None: it was still there.
    ending: Option<Ending>,
    interrupted: bool,
}

/// Looks at all below this process until the time is over, `root` has ended, or a signal asks to stop.
fn look_at_children(
    inspector: &mut Inspector,
    children: &mut Children,
    root: Pid,
    watch_for: Duration,
) -> Sightings {
    let start = Instant::now();
    let mut source = ProcFilesystem::new();
    let mut seen = Sightings::default();
    while start.elapsed() < watch_for && !seen.interrupted {
        for pid in tree::below_own(&mut source) {
            match inspector.facts(pid) {
                Ok(facts) => seen.add(judge::judge(&facts)),
                Err(Hidden::Gone) => {}
                Err(Hidden::NotPermitted) => {
                    seen.unreadable.insert(pid);
                }
            }
        }
        while let Waited::Ended(reaped) = children.reap() {
            if reaped.pid == root {
                seen.ending = Some(reaped.ending);
            }
        }
        if seen.ending.is_some() {
            break;
        }
        seen.interrupted = children.wait_for_signal(LOOK_EVERY);
    }
    seen
}

impl Sightings {
    fn add(&mut self, mut report: ProcessReport) {
        // Nobody defines malloc yet: the loader is still at work.
        if report.allocator.is_none() {
            return;
        }
        let next = self.reports.len();
        let known = self.reports.get(&report.pid);
        let (position, parent) =
            known.map_or((next, report.parent), |(position, old)| (*position, old.parent));
        // An orphan is shown below the process that started it.
        report.parent = parent;
        self.reports.insert(report.pid, (position, report));
    }
}

fn failed_itself(failed: &str) -> Problem {
    Problem {
        id: FAILED_ITSELF,
        severity: Severity::Error,
        message: format!("the program {failed} while it was being checked"),
        fix: "see what it wrote above; name a command that runs on its own".into(),
    }
}

/// What the loader says about a program that ended before it could be looked at.
fn before_start(
    inspector: &mut Inspector,
    program: &Program,
    command_line: &[OsString],
) -> Result<ProcessReport> {
    let listed = program::list_libraries(program, &Variables::new())?;
    let paths: Vec<PathBuf> = listed.libraries;
    let facts = inspector::facts_before_start(
        inspector,
        &program.image,
        program.elf.clone(),
        program.setuid,
        &terminal::texts(command_line),
        &paths,
    );
    Ok(judge::judge(&facts))
}

/// Ends everything below this process.
fn stop(children: &mut Children) {
    let mut source = ProcFilesystem::new();
    children.stop_all(&mut |_| {}, &mut || tree::below_own(&mut source));
}
