//! `snug check`: says which allocator processes really use and what is wrong. This module finds the processes, or the
//! subjects that are no processes, and the exit code; snug-live looks at them, snug-inspect judges, snug-report writes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use snug_base::failure::{Context, Failure, Result, FAILED, UNKNOWN, USAGE};
use snug_base::time::time;
use snug_base::{json, machine, progress, terminal};
use snug_inspect::inspector::Inspector;
use snug_inspect::kinds::{closest, known_names, AllocatorRow, Kind, ROWS};
use snug_inspect::packages::{self, Package};
use snug_inspect::report::{CheckReport, ProcessReport, Severity};
use snug_inspect::subject::{self, UnitSubject};
use snug_inspect::{changes, library, unit};
use snug_live::sightings::{self, Found};
use snug_process::command_line::process_named as process;
use snug_process::proc::{need_processes, ProcFilesystem, Processes};
use snug_process::tree;
use snug_report::check_text::CheckText;

/// Show which allocator processes really use, and what is wrong
#[derive(Debug, Args)]
#[command(
    override_usage = "snug check [OPTIONS] <PID|NAME|unit:UNIT>...\n       \
        snug check [OPTIONS] --image DIR -- PROGRAM [ARGS]...\n       snug check [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  snug check 4711
  snug check puma --expect snug
  snug check --expect snug -- bundle exec puma
  snug check --json sidekiq | jq '.processes[].allocator'
  snug check --expect jemalloc unit:puma.service
  snug check --expect snug --image rootfs -- env LD_PRELOAD=/usr/lib/snug/libsnug.so puma

For a PID, that process and everything below it; for a NAME, every process of yours with that name (its command, its \
program's file, the first word of its title, or the script or module that an interpreter runs) and everything below them. With --, the program is started, \
checked for the time that --for gives or until it ends, and stopped; its output goes to stderr.

For a unit, its processes are checked or, if none is running, what its file would start. An image is a \
directory with its root file system; name the command with --, and variables of its Dockerfile with env. Nothing in it \
is run: snug follows the command through shells and scripts to the program that stays, and reads from the files what that would load. Processes in containers are \
checked through the container's own root, so the paths shown are those inside.

If processes do not use what --expect says, the answer ends with lines to paste; with --lines, with those for a \
Dockerfile, Kubernetes, systemd, a Procfile and a shell, whichever apply.

Exit codes: 0 nothing is wrong; 1 a process uses another allocator than --expect, or something is wrong; 2 \
the arguments are invalid; 3 no such process, or the answer is unknown (no permission, or a shell starts it); \
126, 127 the program can't be run; 130 Ctrl-C."
)]
pub(crate) struct CheckArguments {
    /// Fail unless every process uses this allocator: snug, jemalloc, tcmalloc, mimalloc, snmalloc, rpmalloc, glibc
    /// or musl
    #[arg(long, value_name = "ALLOCATOR")]
    pub expect: Option<String>,
    /// Write the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// How long to watch a program started with --
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub watch_for: Duration,
    /// A systemd unit, running or not: its name, or the path of its file; may be repeated
    #[arg(long, value_name = "UNIT", conflicts_with = "program")]
    pub unit: Vec<String>,
    /// The root file system of an image, in a directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["processes", "unit"])]
    pub image: Option<String>,
    /// Write the lines to paste that enable snug (or what --expect says), for every way of deploying
    #[arg(long)]
    pub lines: bool,
    /// For a NAME, include processes of all users; root always does
    #[arg(long)]
    pub all_users: bool,
    /// Processes, by PID or by name
    #[arg(value_name = "PID|NAME|unit:UNIT", value_parser = process, required_unless_present_any = ["program", "unit", "image"],
          conflicts_with = "program")]
    pub processes: Vec<String>,
    /// A program to start and check; with --image, the program to start in it
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> Result<()> {
    let expected = arguments.expect.as_deref().map(parse_expected).transpose()?;
    let huge_pages = machine::describe().transparent_huge_pages;
    let found = look(arguments, &huge_pages)?;
    if !found.unreadable.is_empty() {
        anstream::eprintln!("snug: warning: {}", sightings::not_permitted(&found.unreadable));
    }
    let report = report_on(found, expected, huge_pages, arguments.lines);
    write(&report, arguments)?;
    answer(&report)
}

/// Looks at what the arguments name: an image, processes and units, or a program to start.
fn look(arguments: &CheckArguments, huge_pages: &str) -> Result<Found> {
    let mut inspector = Inspector::new(huge_pages.into()).counting_huge_pages();
    match &arguments.image {
        Some(image) => {
            Ok(Found::readable(subject::image(image, &terminal::texts(&arguments.program), huge_pages)?))
        }
        None if arguments.program.is_empty() => named(&mut inspector, arguments, huge_pages),
        None => sightings::of_started(&mut inspector, &arguments.program, arguments.watch_for),
    }
}

/// The report, with lines to paste if they are wanted or the expectation is not met.
fn report_on(found: Found, expected: Option<Kind>, huge_pages: String, lines: bool) -> CheckReport {
    let Found { mut processes, unreadable } = found;
    set_depths(&mut processes);
    let mut report = CheckReport {
        expected,
        expectation_met: None,
        transparent_huge_pages: huge_pages,
        processes,
        unreadable,
        changes: Vec::new(),
    };
    report.expectation_met = report.is_as_expected();
    if lines || report.expectation_met == Some(false) {
        let kind = expected.unwrap_or(Kind::Snug);
        let (library, package) = library_or_usual(kind);
        report.changes = changes::changes(&report, kind, library.as_deref(), package.as_ref());
    }
    report
}

fn write(report: &CheckReport, arguments: &CheckArguments) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.json {
        json::write_indented(json::CHECK, report, &mut stdout)
    } else {
        let colours = terminal::stdout_colours();
        CheckText { colours, all_lines: arguments.lines }.write(report, &mut stdout)
    };
    written.cannot(|| "write to stdout".into())
}

/// The library of an allocator on this machine, or where it would be once installed, and the package that has it. None
/// for a C library's own.
fn library_or_usual(kind: Kind) -> (Option<PathBuf>, Option<Package>) {
    let Some(row) = kind.row().filter(|_| !kind.is_c_library()) else { return (None, None) };
    match library::find_by_kind(kind) {
        Ok(library) => {
            let package = library.package();
            (Some(library.path), package)
        }
        Err(_) => once_installed(row),
    }
}

/// Where a library would be that is not here, and the package that has it: not each release has the same file.
fn once_installed(row: &AllocatorRow) -> (Option<PathBuf>, Option<Package>) {
    let package = packages::package(row);
    let built = || Some(Path::new("/usr/local/lib").join(row.file_names.first()?));
    (package.as_ref().map(Package::path).or_else(built), package)
}

/// The exit code, as a failure where it is not 0. What it means stands in the report already.
fn answer(report: &CheckReport) -> Result<()> {
    let code = match (report.expected, report.expectation_met) {
        (Some(_), Some(true)) => return Ok(()),
        (Some(_), Some(false)) => FAILED,
        (Some(_), None) => UNKNOWN,
        (None, _) if report.worst() == Some(Severity::Error) => FAILED,
        (None, _) => return Ok(()),
    };
    Err(Failure::already_told(code))
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
fn named(inspector: &mut Inspector, arguments: &CheckArguments, huge_pages: &str) -> Result<Found> {
    let units = arguments.processes.iter().filter_map(|name| name.strip_prefix("unit:"));
    let units = units.chain(arguments.unit.iter().map(String::as_str));
    let mut found = Found::readable(Vec::new());
    let mut roots = Vec::new();
    for unit in units {
        match subject::unit(inspector, unit, huge_pages)? {
            UnitSubject::Running(pids) => roots.extend(pids),
            UnitSubject::Stopped(stopped) => {
                anstream::eprintln!(
                    "snug: {} does not run: this is what its file would start",
                    unit::full_name(unit)
                );
                found.processes.extend(stopped);
            }
        }
    }
    need_processes()?;
    let mut source = ProcFilesystem::new();
    let all = source.all();
    let whose = if arguments.all_users { None } else { tree::own_user() };
    for name in arguments.processes.iter().filter(|name| !name.starts_with("unit:")) {
        roots.extend(tree::find_roots(&mut source, &all, name, whose)?);
    }
    if !roots.is_empty() {
        let existing = progress::during("looking at processes", None, || {
            sightings::of_existing(inspector, &all, &roots)
        })?;
        found.processes.extend(existing.processes);
        found.unreadable = existing.unreadable;
    }
    Ok(found)
}

fn set_depths(processes: &mut [ProcessReport]) {
    for index in 0..processes.len() {
        let parent = processes[index].parent;
        let above = processes[..index].iter().find(|process| process.pid == parent && parent > 0);
        processes[index].depth = above.map_or(0, |process| process.depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_here_is_named_as_its_package_has_it() {
        for row in ROWS.iter().filter(|row| row.install.starts_with("apt")) {
            let (library, package) = once_installed(row);
            let (library, package) = (library.unwrap(), package.unwrap());
            assert!(library.ends_with(&package.soname), "{library:?} of {package:?}");
        }
        assert_eq!(library_or_usual(Kind::Glibc), (None, None));
    }

    #[test]
    fn misspelt_expectations_are_named() {
        let failure = parse_expected("jemaloc").unwrap_err();
        assert!(failure.advice.unwrap().contains("did you mean jemalloc?"));
    }
}
