//! `snug leak`: runs or watches a program and says whether its memory grows forever, and why. This module starts the
//! program; snug-leak watches and judges it, snug-report writes what came of it.

pub(super) mod arguments;

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use indicatif::ProgressBar;

use crate::leak::arguments::{LeakArguments, LeakFailure};
use snug_base::failure::{Context, Failure, Result, FAILED, UNKNOWN, USAGE};
use snug_base::time::duration;
use snug_base::{json, progress, terminal};
use snug_inspect::asker::{self, Asker};
use snug_inspect::program::{self, Program, Variables};
use snug_leak::load::LoadDriver;
use snug_leak::report::LeakReport;
use snug_leak::session::Session;
use snug_leak::verdict::Verdict;
use snug_live::record::Recording;
use snug_measure::plan::{self, Candidate};
use snug_measure::settings;
use snug_process::children::Children;
use snug_process::proc::Pid;
use snug_process::system;
use snug_process::tree;
use snug_report::{leak_plot, leak_text};

/// Runs the command.
pub(crate) fn run(arguments: &LeakArguments) -> Result<()> {
    refuse_to_ask_a_running_process(arguments)?;
    let environment = arguments.program.first().map(|name| prepare(arguments, name)).transpose()?;
    let load = LoadDriver::of(&arguments.load, arguments.process.is_some())?;
    let mut children = Children::new()?;
    let root = match (&environment, &arguments.process) {
        (Some(environment), _) => start(&arguments.program, environment)?,
        (None, Some(process)) => tree::find_one(process)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let (plan, progress) = (arguments.plan(), WatchProgress::new(arguments.watch_for));
    let tell = |now_s, processes, rss_bytes| progress.update(now_s, processes, rss_bytes);
    let seen = Session::new(&plan, root, environment.is_some(), load, &tell)?.watch(&mut children);
    progress.bar.finish_and_clear();
    let seen = seen?;
    if let Some(after_s) = seen.stopped_s {
        anstream::eprintln!("stopped after {}", duration(after_s));
    }
    seen.remarks.notes.iter().for_each(|note| terminal::note(note));
    if seen.recording.processes.is_empty() {
        return Err(nothing_read(&seen.recording, root));
    }
    let failed = seen.failed;
    let subject = match arguments.process {
        Some(_) => format!("PID {root}: {}", seen.recording.processes[0].command),
        None => terminal::shell_line(&arguments.program),
    };
    let report = seen.judge(subject, arguments.tolerance_percent / 100.0);
    write(arguments, &report)?;
    if failed || arguments.fail_on.iter().any(|failure| failure.includes(report.verdict)) {
        return Err(Failure::already_told(FAILED));
    }
    Ok(())
}

fn nothing_read(recording: &Recording, root: Pid) -> Failure {
    let failure = if recording.forbidden.is_empty() {
        Failure::new("the program ended before its memory could be read")
            .advise("give it more to do, or a smaller --interval")
    } else {
        Failure::new(format!("not permitted to read the memory of process {root}"))
            .advise("run snug leak as the user that owns it, or as root")
    };
    failure.exit_code(UNKNOWN)
}

fn write(arguments: &LeakArguments, report: &LeakReport) -> Result<()> {
    if let Some(path) = &arguments.plot {
        leak_plot::write(report, path)?;
        anstream::eprintln!("plot: {}", path.display());
    }
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.json {
        json::write(json::LEAK, report, &mut stdout)
    } else {
        leak_text::write(report, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())
}

impl LeakFailure {
    /// Where live bytes are not known, growth may be either.
    fn includes(self, verdict: Verdict) -> bool {
        match self {
            LeakFailure::Leak => matches!(verdict, Verdict::Leak | Verdict::Growing),
            LeakFailure::Bloat => matches!(verdict, Verdict::Bloat | Verdict::Growing),
            LeakFailure::Fragmented => verdict == Verdict::Fragmented,
            LeakFailure::Unclear => verdict == Verdict::Unclear,
        }
    }
}

/// Finds the program and the allocator. Returns the variables to set.
fn prepare(arguments: &LeakArguments, name: &OsStr) -> Result<Variables> {
    let program = program::find(name)?;
    // To ask the program's allocator means the one that it has.
    let default = if arguments.ask_allocator { "glibc" } else { "snug" };
    let with = arguments.with.clone().unwrap_or_else(|| default.into());
    let entries = plan::parse_list(&[with])?;
    let [entry] = entries.as_slice() else {
        return Err(Failure::new("--with takes one allocator").exit_code(USAGE));
    };
    let candidate = plan::resolve(entry).map_err(|failure| match arguments.with {
        Some(_) => failure.exit_code(USAGE),
        None => failure,
    })?;
    if let Some(library) = &candidate.library {
        if let Some(obstacle) = program::preload_obstacle(&program, &library.path, &library.elf) {
            return Err(obstacle.exit_code(USAGE));
        }
    }
    let asker = arguments.ask_allocator.then(|| find_asker(&program, &candidate)).transpose()?;
    let existing = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
    let environment = plan::environment(&candidate, asker.as_ref(), existing.as_deref());
    for complaint in settings::refused(&candidate, &environment)? {
        terminal::note(&format!("{}: {complaint}", candidate.label));
    }
    Ok(environment)
}

/// Finds the asker, and says when it is of no use.
fn find_asker(program: &Program, candidate: &Candidate) -> Result<Asker> {
    let asker = Asker::find()?;
    if let Some(obstacle) = asker.obstacle(program) {
        return Err(obstacle.exit_code(USAGE));
    }
    if let Some(note) = asker::no_use(candidate.kind) {
        terminal::note(&note);
    }
    Ok(asker)
}

/// Nothing can be preloaded into what runs already.
fn refuse_to_ask_a_running_process(arguments: &LeakArguments) -> Result<()> {
    let Some(process) = arguments.process.as_deref().filter(|_| arguments.ask_allocator) else {
        return Ok(());
    };
    let asker = Asker::find()?;
    Err(Failure::usage(
        format!("the allocator of {process} can't be asked: it runs already"),
        format!(
            "start it with LD_PRELOAD={} (and behind that the allocator, if it is preloaded, too); then snug leak {process} \
             finds the answers without this option",
            asker.path().display()
        ),
    ))
}

/// Starts the program; what it writes goes to stderr.
fn start(arguments: &[OsString], environment: &Variables) -> Result<Pid> {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).envs(environment).stdin(Stdio::null()).stdout(Stdio::from(io::stderr()));
    system::isolate(&mut command);
    let child = command.spawn().cannot(|| format!("run {}", arguments[0].to_string_lossy()))?;
    Ok(child.id() as Pid)
}

/// The bar on a terminal, or else one line at the beginning.
struct WatchProgress {
    bar: ProgressBar,
    is_terminal: bool,
}

impl WatchProgress {
    fn new(watch_for: Duration) -> WatchProgress {
        let bar = progress::bar(Some(watch_for.as_secs().max(1)), "{bar:20} {wide_msg}");
        let is_terminal = progress::is_shown();
        if !is_terminal {
            anstream::eprintln!(
                "watching for {}; Ctrl-C ends it with the verdict so far",
                duration(watch_for.as_secs_f64())
            );
        }
        WatchProgress { bar, is_terminal }
    }

    fn update(&self, now_s: f64, processes: usize, rss_bytes: u64) {
        if self.is_terminal {
            self.bar.set_position(now_s as u64);
            self.bar.set_message(format!(
                "{}, {}, {} (Ctrl-C: verdict so far)",
                duration(now_s),
                terminal::counted(processes, "process"),
                terminal::bytes(rss_bytes as f64)
            ));
        }
    }
}
