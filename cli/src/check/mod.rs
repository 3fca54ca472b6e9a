//! `snug check`: says which allocator processes really use and what is wrong.
//!
//! `inspect` looks up `facts` of processes, `judge` decides from them, `report` is what was found, `text` and `json`
//! write it, `changes` says what to paste. What does not run is looked at from its files: `subject` takes units and
//! images, `entry` follows a command to the program that stays, `loading` tells what that would load, `root` and
//! `archive` are file systems to look into.

mod archive;
mod changes;
mod entry;
pub mod facts;
pub mod inspect;
mod json;
pub mod judge;
mod loading;
mod place;
pub mod report;
mod root;
mod subject;
mod text;
mod unit;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use self::inspect::{Hidden, Inspector};
use self::report::{ProcessReport, Report, Severity, FORMAT, FORMAT_VERSION};
use self::subject::UnitSubject;
use crate::allocator::{closest, known_names, Kind, ROWS};
use crate::arguments::CheckArguments;
use crate::children::{Children, Waited};
use crate::failure::{Context, Failure, Result, FAILED, INTERRUPTED, UNKNOWN, USAGE};
use crate::proc::Pid;
use crate::program::{self, Program};
use crate::{library, machine, system, terminal, tree, VERSION};

/// Time between two looks at a program that was started to be looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Writes a report in one format.
pub trait Writer {
    fn write(&self, report: &Report, out: &mut dyn Write) -> io::Result<()>;
}

/// Runs the command.
pub fn run(arguments: &CheckArguments) -> Result<()> {
    let expected = arguments.expect.as_deref().map(parse_expected).transpose()?;
    let huge_pages = machine::describe().transparent_huge_pages;
    let mut inspector = Inspector::new(huge_pages.clone());
    let mut processes = match &arguments.image {
        Some(image) => subject::image(image, &arguments.program, &huge_pages)?,
        None if arguments.program.is_empty() => named(&mut inspector, arguments, &huge_pages)?,
        None => started_program(&mut inspector, arguments)?,
    };
    set_depths(&mut processes);
    let mut report = Report {
        format: FORMAT,
        format_version: FORMAT_VERSION,
        snug_version: VERSION,
        expected,
        expectation_met: None,
        transparent_huge_pages: huge_pages,
        processes,
        changes: Vec::new(),
    };
    report.expectation_met = expected.map(|_| report.unexpected().is_empty());
    if arguments.lines || report.expectation_met == Some(false) {
        let kind = expected.unwrap_or(Kind::Snug);
        report.changes = changes::changes(&report, kind, library_or_usual(kind).as_deref());
    }
    let mut stdout = anstream::stdout().lock();
    let writer: &dyn Writer = if arguments.json {
        &json::JsonWriter
    } else {
        &text::TextWriter { colours: terminal::stdout_colours() }
    };
    writer.write(&report, &mut stdout).cannot(|| "write to stdout".into())?;
    answer(&report)
}

/// The library of an allocator on this machine, or where it would be once installed.
fn library_or_usual(kind: Kind) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from("/usr/local/lib").join(kind.row()?.file_names.first()?));
    library::find_by_kind(kind).ok().map(|library| library.path).or_else(usual)
}

/// The exit code, as a failure where it is not 0. What it means stands in the report already.
fn answer(report: &Report) -> Result<()> {
    let bad = match report.expectation_met {
        Some(met) => !met,
        None => report.worst() == Some(Severity::Error),
    };
    if bad {
        return Err(Failure::already_told(FAILED));
    }
    Ok(())
}

fn parse_expected(name: &str) -> Result<Kind> {
    Kind::from_name(name).ok_or_else(|| {
        let hint =
            closest(name, ROWS.iter().map(|row| row.name)).map(|name| format!("did you mean {name}? "));
        Failure::new(format!("--expect: unknown allocator '{name}'"))
            .advise(format!("{}known are {}, musl", hint.unwrap_or_default(), known_names()))
            .exit_code(USAGE)
    })
}

/// Looks at processes and units that are named.
fn named(
    inspector: &mut Inspector,
    arguments: &CheckArguments,
    huge_pages: &str,
) -> Result<Vec<ProcessReport>> {
    let units = arguments.processes.iter().filter_map(|name| name.strip_prefix("unit:"));
    let units = units.chain(arguments.unit.iter().map(String::as_str));
    let mut reports = Vec::new();
    let mut roots = Vec::new();
    for unit in units {
        match subject::unit(inspector, unit, huge_pages)? {
            UnitSubject::Running(pids) => roots.extend(pids),
            UnitSubject::Stopped(stopped) => {
                anstream::eprintln!(
                    "snug: {} does not run: this is what its file would start",
                    unit::full_name(unit)
                );
                reports.extend(stopped);
            }
        }
    }
    let all = inspector.processes();
    for name in arguments.processes.iter().filter(|name| !name.starts_with("unit:")) {
        roots.extend(tree::find_roots(inspector, &all, name)?);
    }
    if !roots.is_empty() {
        reports.extend(existing_processes(inspector, &all, &roots)?);
    }
    Ok(reports)
}

/// Looks at processes that run already, and all below them.
fn existing_processes(
    inspector: &mut Inspector,
    all: &[(Pid, Pid, String)],
    roots: &[Pid],
) -> Result<Vec<ProcessReport>> {
    let parents: BTreeMap<Pid, Pid> = all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
    let own = std::process::id() as Pid;
    let chosen =
        tree::descendants(&parents, roots).into_iter().filter(|pid| *pid != own || roots.contains(pid));
    let mut reports = Vec::new();
    let mut forbidden = Vec::new();
    for pid in chosen {
        match inspector.facts(pid) {
            Ok(facts) => reports.push(judge::judge(&facts)),
            Err(Hidden::NotPermitted) => forbidden.push(pid),
            // Ended meanwhile, a zombie or a kernel thread: none of them has an allocator.
            Err(Hidden::Gone) => {}
        }
    }
    if !forbidden.is_empty() {
        let list: Vec<String> = forbidden.iter().map(Pid::to_string).collect();
        let failure = Failure::new(format!("not permitted to look at process {}", list.join(", ")))
            .advise("run snug check as the user that owns it, or as root");
        if reports.is_empty() {
            return Err(failure.exit_code(UNKNOWN));
        }
        anstream::eprintln!("snug: warning: {failure}");
    }
    if reports.is_empty() {
        return Err(Failure::new("the process has ended or is a kernel thread").exit_code(UNKNOWN));
    }
    Ok(reports)
}

fn set_depths(processes: &mut [ProcessReport]) {
    for index in 0..processes.len() {
        let parent = processes[index].parent;
        let above = processes[..index].iter().find(|process| process.pid == parent && parent > 0);
        processes[index].depth = above.map_or(0, |process| process.depth + 1);
    }
}

/// Starts the program, looks at it and its children until the time is over or it ends, and stops it.
fn started_program(inspector: &mut Inspector, arguments: &CheckArguments) -> Result<Vec<ProcessReport>> {
    let program = program::find(&arguments.program[0], &std::env::var("PATH").unwrap_or_default())?;
    let mut children = Children::new()?;
    let mut command = Command::new(&arguments.program[0]);
    command.args(&arguments.program[1..]).stdin(Stdio::null()).stdout(Stdio::from(io::stderr()));
    system::isolate(&mut command);
    let root = command.spawn().cannot(|| format!("run {}", arguments.program[0]))?.id() as Pid;
    let own = std::process::id() as Pid;
    let start = Instant::now();
    let mut seen: BTreeMap<Pid, (usize, ProcessReport)> = BTreeMap::new();
    let mut interrupted = false;
    while start.elapsed().as_secs_f64() < arguments.for_s && !interrupted {
        let parents: BTreeMap<Pid, Pid> =
            inspector.processes().into_iter().map(|(pid, parent, _)| (pid, parent)).collect();
        for pid in tree::descendants(&parents, &[own]).into_iter().filter(|pid| *pid != own) {
            if let Ok(facts) = inspector.facts(pid) {
                let mut report = judge::judge(&facts);
                // Nobody defines malloc yet: the loader is still at work.
                if report.allocator.is_some() {
                    let (position, parent) = seen
                        .get(&pid)
                        .map_or((seen.len(), report.parent), |(position, old)| (*position, old.parent));
                    // An orphan is shown below the process that started it.
                    report.parent = parent;
                    seen.insert(pid, (position, report));
                }
            }
        }
        let mut root_ended = false;
        while let Waited::Ended(reaped) = children.reap() {
            root_ended |= reaped.pid == root;
        }
        if root_ended {
            break;
        }
        interrupted = children.wait_for_signal(LOOK_EVERY);
    }
    stop(&mut children, inspector, own);
    if interrupted {
        return Err(Failure::new("interrupted").exit_code(INTERRUPTED));
    }
    let mut reports: Vec<(usize, ProcessReport)> = seen.into_values().collect();
    reports.sort_by_key(|(position, _)| *position);
    let reports: Vec<ProcessReport> = reports.into_iter().map(|(_, report)| report).collect();
    if reports.is_empty() {
        return Ok(vec![before_start(inspector, &program, arguments)?]);
    }
    Ok(reports)
}

/// What the loader says about a program that ended before it could be looked at.
fn before_start(
    inspector: &mut Inspector,
    program: &Program,
    arguments: &CheckArguments,
) -> Result<ProcessReport> {
    let listed = program::list_libraries(program, &BTreeMap::new())?;
    let paths: Vec<PathBuf> = listed.libraries;
    let command = arguments.program.join(" ");
    let facts = inspect::facts_before_start(
        inspector,
        &program.image,
        program.elf.clone(),
        program.setuid,
        &command,
        &paths,
    );
    Ok(judge::judge(&facts))
}

/// Ends everything below this process.
fn stop(children: &mut Children, inspector: &mut Inspector, own: Pid) {
    children.stop_all(&mut |_| {}, &mut || {
        let all = inspector.processes();
        let parents: BTreeMap<Pid, Pid> = all.into_iter().map(|(pid, parent, _)| (pid, parent)).collect();
        tree::descendants(&parents, &[own]).into_iter().filter(|pid| *pid != own).collect()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_expectations_are_named() {
        let failure = parse_expected("jemaloc").unwrap_err();
        assert!(failure.advice.unwrap().contains("did you mean jemalloc?"));
    }
}
