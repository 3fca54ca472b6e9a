//! `snug check`: says which allocator processes really use and what is wrong.
//!
//! `inspect` looks up `facts`, `judge` decides from them, `report` is what was found, `text` and `json` write it.

mod facts;
mod inspect;
mod json;
mod judge;
mod report;
mod text;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use self::inspect::{Hidden, Inspector};
use self::report::{ProcessReport, Report, Severity, FORMAT, FORMAT_VERSION};
use crate::allocator::{closest, known_names, Kind, ROWS};
use crate::arguments::CheckArguments;
use crate::children::{Children, Waited};
use crate::failure::{Context, Failure, Result, FAILED, INTERRUPTED, UNKNOWN, USAGE};
use crate::proc::Pid;
use crate::program::{self, Program};
use crate::{machine, system, terminal, VERSION};

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
    let mut processes = if arguments.program.is_empty() {
        existing_processes(&mut inspector, &arguments.processes)?
    } else {
        started_program(&mut inspector, arguments)?
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
    };
    report.expectation_met = expected.map(|_| report.unexpected().is_empty());
    let mut stdout = anstream::stdout().lock();
    let writer: &dyn Writer = if arguments.json {
        &json::JsonWriter
    } else {
        &text::TextWriter { colours: terminal::stdout_colours() }
    };
    writer.write(&report, &mut stdout).cannot(|| "write to stdout".into())?;
    answer(&report)
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

/// Looks at processes that run already.
fn existing_processes(inspector: &mut Inspector, wanted: &[String]) -> Result<Vec<ProcessReport>> {
    let all = inspector.processes();
    let mut roots = Vec::new();
    for name in wanted {
        roots.extend(find_roots(inspector, &all, name)?);
    }
    let parents: BTreeMap<Pid, Pid> = all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
    let own = std::process::id() as Pid;
    let chosen = descendants(&parents, &roots).into_iter().filter(|pid| *pid != own || roots.contains(pid));
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

/// The processes that a PID or a name stands for.
fn find_roots(inspector: &mut Inspector, all: &[(Pid, Pid, String)], wanted: &str) -> Result<Vec<Pid>> {
    if let Ok(pid) = wanted.parse::<Pid>() {
        if all.iter().any(|(other, _, _)| *other == pid) {
            return Ok(vec![pid]);
        }
        return Err(Failure::new(format!("there is no process {pid}")).exit_code(UNKNOWN));
    }
    let own = ancestors(all, std::process::id() as Pid);
    let mut found = Vec::new();
    for (pid, _, name) in all {
        if own.contains(pid) {
            continue;
        }
        let executable = inspector.executable(*pid).unwrap_or_default();
        if name_matches(wanted, name, &executable, &inspector.arguments(*pid)) {
            found.push(*pid);
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!("no process is called '{wanted}'"))
            .advise("give its PID, the name of its program, or `-- PROGRAM` to start it")
            .exit_code(UNKNOWN));
    }
    Ok(found)
}

/// Whether a process goes by this name: its own name, its program's file, the first word of its title, or the
/// script that an interpreter runs.
fn name_matches(wanted: &str, name: &str, executable: &str, arguments: &[String]) -> bool {
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    let title = arguments.first().and_then(|first| first.split([' ', ':']).next()).unwrap_or_default();
    // The first argument that is no option is an interpreter's script.
    let script = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    name == wanted
        || file(executable) == wanted
        || file(title) == wanted
        || script.is_some_and(|script| file(script) == wanted)
}

/// This process and all above it: `snug check puma` is not itself a puma, nor is the shell that runs it.
fn ancestors(all: &[(Pid, Pid, String)], own: Pid) -> HashSet<Pid> {
    let mut ancestors = HashSet::new();
    let mut at = own;
    while ancestors.insert(at) {
        match all.iter().find(|(pid, _, _)| *pid == at) {
            Some((_, parent, _)) => at = *parent,
            None => break,
        }
    }
    ancestors
}

/// The roots and everything below them, parents before children.
fn descendants(parents: &BTreeMap<Pid, Pid>, roots: &[Pid]) -> Vec<Pid> {
    let wanted: HashSet<Pid> = roots.iter().copied().collect();
    let is_below_another = |pid: Pid| {
        let mut at = pid;
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if wanted.contains(parent) => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    let mut order = Vec::new();
    let mut stack: Vec<Pid> = roots.iter().copied().filter(|root| !is_below_another(*root)).rev().collect();
    stack.dedup();
    while let Some(pid) = stack.pop() {
        if order.contains(&pid) {
            continue;
        }
        order.push(pid);
        let children = parents.iter().filter(|(_, parent)| **parent == pid).map(|(child, _)| *child);
        let mut children: Vec<Pid> = children.collect();
        children.sort_unstable_by(|left, right| right.cmp(left));
        stack.extend(children);
    }
    order
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
        for pid in descendants(&parents, &[own]).into_iter().filter(|pid| *pid != own) {
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
        descendants(&parents, &[own]).into_iter().filter(|pid| *pid != own).collect()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes() {
        let arguments = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let ruby = "/usr/bin/ruby3.1";
        assert!(name_matches("puma", "ruby", ruby, &arguments(&["puma 5.6.5 (tcp://0.0.0.0:9292)"])));
        assert!(name_matches("puma", "ruby", ruby, &arguments(&["puma: cluster worker 0: 123"])));
        assert!(name_matches("puma", "ruby", ruby, &arguments(&["ruby", "-W0", "/usr/bin/puma", "-t", "5"])));
        assert!(name_matches("ruby3.1", "x", ruby, &[]));
        assert!(!name_matches("puma", "vim", "/usr/bin/vim", &arguments(&["vim", "puma.rb"])));
    }

    #[test]
    fn trees_come_parents_first_and_once() {
        let parents = BTreeMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(descendants(&parents, &[11, 10, 20]), [10, 11, 12, 20]);
        assert_eq!(descendants(&parents, &[12]), [12]);
    }

    #[test]
    fn misspelt_expectations_are_named() {
        let failure = parse_expected("jemaloc").unwrap_err();
        assert!(failure.advice.unwrap().contains("did you mean jemalloc?"));
    }
}
