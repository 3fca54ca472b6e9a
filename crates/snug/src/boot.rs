//! `snug boot`: what a program of Ruby or Python requires as it starts, and what that costs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::checked::refuse_unknown_option;
use snug_base::failure::{Context, Failure, Result, FAILED, USAGE};
use snug_base::{json, progress, terminal, time};
use snug_boot::recorder::{self, BootPlan};
use snug_boot::report::BootReport;
use snug_boot::{difference, text};
use snug_compare::condition::{self, Scope};
use snug_compare::dimension;
use snug_profile::difference as saved_profile;

/// Show what each required library costs in memory and time as a program starts
#[derive(Debug, Args)]
#[command(
    override_usage = "snug boot [OPTIONS] [--] PROGRAM [ARGS]...\n       snug boot --diff OLD NEW [OPTIONS]\n       \
                      snug boot --diff OLD [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  snug boot -- bundle exec rails runner 1
  snug boot -- python3 -c 'import app'
  snug boot --cut-off 2MB --objects -- bundle exec rails runner 1
  snug boot --json -- bundle exec rails runner 1 > main.json
  snug boot --diff main.json --fail-if 'new.live > 1.05x' -- bundle exec rails runner 1
  snug boot --for 20s -- bundle exec puma

The program runs under snug, with a hook that Ruby and Python load before it (by RUBYOPT and PYTHONPATH). At each file that \
its first thread requires, the hook waits while snug reads malloc's live bytes and RSS from outside; the times leave that \
waiting out. A file's cost includes all that it requires itself, and counts against whichever file requires it first; the \
others are named beside it. A library's cost is the sum of its files, each without what it requires. Memory freed \
meanwhile is subtracted, so a cost may be negative.

If there are several processes, snug measures the first that loads the hook, and what it executes. Python then allocates through \
malloc alone (PYTHONMALLOC=malloc, unless you set it), since its own small blocks can't be seen from outside; Ruby's slots \
appear only in RSS.

In --fail-if, the program is called boot, or with --diff old and new; each has files, live, rss (at the end, \
after a garbage collection if it ended by itself) and time.

Exit codes: 0 shown; 1 the program failed; 2 the arguments or a file are invalid; 3 it can't be measured; 4 a condition of \
--fail-if holds; 125, 126, 127 as `snug run`."
)]
pub(crate) struct BootArguments {
    /// Add up files and libraries that cost less memory than this
    #[arg(long, value_name = "SIZE", default_value = "300kB", value_parser = dimension::bytes)]
    pub cut_off: f64,
    /// Also count live objects at the end, by the library that allocated them; the counting itself
    /// then adds to the memory and time shown
    #[arg(long)]
    pub objects: bool,
    /// End the program this long after Ruby or Python began, as a server never ends by itself [default: when it ends]
    #[arg(long = "for", value_name = "TIME", value_parser = measuring_time)]
    pub time: Option<Duration>,
    /// Show which libraries cost more than in a file that --json wrote: in a second file, or now
    #[arg(long, value_name = "FILE", num_args = 1..=2, value_hint = clap::ValueHint::FilePath)]
    pub diff: Vec<PathBuf>,
    /// Exit with 4 if this is true, such as "boot.live > 200 MB" or "new.live > 1.05x", which is 1.05 times that of old; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
    /// Write JSON; what the program writes goes to stderr then
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments; options of snug come before it
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, value_hint = clap::ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

fn measuring_time(text: &str) -> std::result::Result<Duration, String> {
    time::time_between(text, 0.1, 86_400.0)
}

/// Runs the command.
pub(crate) fn run(arguments: &BootArguments) -> Result<()> {
    let conditions = condition::parse_all(&arguments.fail_if, &scopes(arguments, None, None))?;
    let files = arguments.diff.iter().map(|path| load(path)).collect::<Result<Vec<_>>>()?;
    let (old, saved) = match (files.as_slice(), arguments.program.is_empty()) {
        ([], true) => return Err(usage("a program to measure is missing")),
        ([_], true) => return Err(usage("--diff takes two files, or one and a program")),
        ([_, _], false) => return Err(usage("--diff takes two files or a program, not both")),
        ([old, new], true) => (Some(old), Some(new.clone())),
        (old, false) => (old.first(), None),
        _ => return Err(usage("--diff takes two files")),
    };
    let (new, is_failed) = match saved {
        Some(new) => (new, false),
        None => measure(arguments)?,
    };
    write(arguments, old, &new)?;
    condition::check(&conditions, &scopes(arguments, old, Some(&new)))?;
    if is_failed {
        return Err(Failure::already_told(FAILED));
    }
    Ok(())
}

fn usage(text: &str) -> Failure {
    Failure::usage(text, "write it as `snug boot -- PROGRAM`, or `snug boot --diff OLD NEW`")
}

/// Measures, and tells how the program ended if not well. Returns whether it failed.
fn measure(arguments: &BootArguments) -> Result<(BootReport, bool)> {
    refuse_unknown_option::<BootArguments>("boot", &arguments.program)?;
    let plan = BootPlan {
        program: &arguments.program,
        with_objects: arguments.objects,
        keeps_stdout: arguments.json,
        time: arguments.time,
    };
    let measured =
        progress::during("measuring what it requires", arguments.time, || recorder::measure(&plan))?;
    if let Some(failure) = &measured.failure {
        terminal::note(&format!("the program {failure}"));
    }
    if !measured.is_whole {
        terminal::note(
            "it did not end by itself, so it is not known what its last garbage collection would free, nor which other \
             files require a file",
        );
    }
    Ok((measured.report, measured.failure.is_some()))
}

/// What conditions may speak of; before the first run there are no values.
fn scopes(arguments: &BootArguments, old: Option<&BootReport>, new: Option<&BootReport>) -> Vec<Scope> {
    let scope = |label: &str, report: Option<&BootReport>| Scope {
        label: label.into(),
        names: BootReport::QUANTITIES,
        quantities: report.map(BootReport::quantities).unwrap_or_default(),
        baseline: (label == "new").then_some(0),
        ..Scope::default()
    };
    match arguments.diff.is_empty() {
        true => vec![scope("boot", new)],
        false => vec![scope("old", old), scope("new", new)],
    }
}

fn load(path: &Path) -> Result<BootReport> {
    let text = std::fs::read_to_string(path)
        .cannot(|| format!("read {}", path.display()))
        .map_err(|failure| failure.exit_code(USAGE))?;
    saved_profile::parse(&text, json::BOOT).map_err(|problem| {
        Failure::usage(format!("{} {problem}", path.display()), "give files that `snug boot --json` wrote")
    })
}

fn write(arguments: &BootArguments, old: Option<&BootReport>, new: &BootReport) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    let colours = terminal::stdout_colours();
    let written = match old.map(|old| difference::difference(old, new)) {
        Some(found) if arguments.json => json::write(json::BOOT_DIFF, &found, &mut stdout),
        Some(found) => text::write_difference(&found, arguments.cut_off, colours, &mut stdout),
        None if arguments.json => json::write(json::BOOT, new, &mut stdout),
        None => text::write(new, arguments.cut_off, colours, &mut stdout),
    };
    written.cannot(|| "write to stdout".into())
}
