//! The command line: one enum of subcommands, with everything that `--help` says.

mod install;
mod leak;
mod live;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::allocator::kinds::closest;
use crate::base::failure::{Failure, Result};
use crate::base::time::time;
pub(crate) use crate::commands::arguments::install::InstallArguments;
pub(crate) use crate::commands::arguments::leak::{AdviseArguments, LeakArguments, LeakFailure};
pub(crate) use crate::commands::arguments::live::{
    ProfileArguments, ProfileView, PurgeArguments, SetArguments, StatsArguments,
};
use crate::commands::canary::arguments::CanaryArguments;
use crate::commands::exporter::arguments::ExporterArguments;
use crate::commands::top::arguments::TopArguments;
use crate::drive::serving::ServerArguments;
use crate::show::output::OutputArguments;

/// snug: which memory allocator a program uses, what it costs, and which one suits it best.
#[derive(Debug, Parser)]
#[command(
    name = "snug",
    version = crate::VERSION,
    about = "Show and change which memory allocator programs use, and measure what that does to their memory",
    after_help = "Examples:\n  snug run -- bundle exec puma\n  snug check puma\n  \
        snug compare --runs 3 -- ruby script.rb\n  snug report a.json b.json\n\n`snug COMMAND --help` has \
        more.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    Run(RunArguments),
    Check(CheckArguments),
    Compare(CompareArguments),
    Report(ReportArguments),
    Advise(AdviseArguments),
    Leak(LeakArguments),
    Top(TopArguments),
    Stats(StatsArguments),
    Profile(ProfileArguments),
    Purge(PurgeArguments),
    Set(SetArguments),
    Exporter(ExporterArguments),
    Install(InstallArguments),
    Canary(CanaryArguments),
    #[command(hide = true)]
    Generate(GenerateArguments),
}

/// Run a program under snug
#[derive(Debug, Args)]
#[command(
    override_usage = "snug run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug run -- bundle exec puma
  snug run --this-only -- celery -A app worker
  SNUG=verbose:1 snug run -- ruby -e 1

libsnug.so is searched for next to this program, in ../lib and in ../lib/snug, unless SNUG_LIBRARY names it. \
It is put before anything already in LD_PRELOAD. snug then becomes the program, so signals and the exit code \
are the program's own.

Exit codes of snug itself: 125 the library is missing or can't be loaded into this program; 126 the program can't be \
executed; 127 it was not found."
)]
pub(crate) struct RunArguments {
    /// Don't pass snug on to programs that this one executes
    #[arg(long)]
    pub this_only: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Show which allocator processes really use, and what is wrong
#[derive(Debug, Args)]
#[command(
    override_usage = "snug check [OPTIONS] <PID|NAME|unit:UNIT>...\n       \
        snug check [OPTIONS] --image IMAGE [-- PROGRAM [ARGS]...]\n       snug check [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  snug check 4711
  snug check puma --expect snug
  snug check --expect snug -- bundle exec puma
  snug check --json sidekiq | jq '.processes[].allocator'
  snug check --expect jemalloc unit:puma.service
  snug check --expect snug --image shop.tar

For a PID, that process and everything below it; for a NAME, every process of yours with that name (its command, its \
program's file, or the first word of its title) and everything below them. With --, the program is started, \
checked for the time that --for gives or until it ends, and stopped; its output goes to stderr.

A unit is checked by its processes or, if none is running, by what its file would start. An image is an \
archive written by `docker image save` or by OCI tools, an OCI layout, an unpacked root file system (name the \
program with -- then), or the name of an image that docker knows. Nothing in it is run: its entry command is \
followed through shells and scripts to the program that stays, and the files show what that would load. \
Processes in containers are checked through the container's own root, so the paths shown are those inside.

If processes do not use what --expect says, lines to paste follow: for a Dockerfile, Kubernetes, systemd, a \
Procfile and the shell, whichever apply.

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
    /// How long to look at a program started with --
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub watch_for: Duration,
    /// A systemd unit, running or not: its name, or the path of its file; may be repeated
    #[arg(long, value_name = "UNIT", conflicts_with = "program")]
    pub unit: Vec<String>,
    /// An image: an archive, a directory, or a name that docker knows
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["processes", "unit"])]
    pub image: Option<String>,
    /// Also write the lines to paste that enable snug (or what --expect says)
    #[arg(long)]
    pub lines: bool,
    /// For a NAME, include processes of all users; root always does
    #[arg(long)]
    pub all_users: bool,
    /// Processes, by identifier or by name
    #[arg(value_name = "PID|NAME|unit:UNIT", required_unless_present_any = ["program", "unit", "image"],
          conflicts_with = "program")]
    pub processes: Vec<String>,
    /// A program to start and check; with --image, the program to start in it
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Run a program under several allocators and compare memory and time
#[derive(Debug, Args)]
#[command(
    override_usage = "snug compare [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug compare -- ruby script.rb
  snug compare --runs 5 --with glibc,glibc:MALLOC_ARENA_MAX=2,jemalloc,snug -- ./server-test.sh
  snug compare --with glibc --with jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000 -- ./program
  snug compare --with popular,./build/libmine.so --save-set mine; snug compare --with mine -- ./program
  snug compare --only 'puma|ruby' --out results -- ./load-test.sh
  snug compare --ready 3000 --requests 5000 --concurrency 8 --path / --path /search?q=a -- bundle exec puma -p 3000
  snug compare --ready 'line:Listening on' --load 'wrk -d 30 http://localhost:3000/' --idle 20s -- ./server
  snug compare --fail-if 'snug.rss_mean > 0.8 * glibc.rss_mean' --markdown comment.md -- ./load-test.sh

The program runs to its end (with --ready it is started, put under load, left idle and stopped) as often as \
--runs says, under each allocator in turn, with an empty stdin. Its output \
goes to files in OUT/logs. Lines 'snug-metric: NAME=VALUE' on its stdout become columns. A run fails if the program fails, if it \
prints 'snug-metric: errors=N' with N above 0, if a request fails, if a measured process did not load the allocator, or if \
nothing shows that any did.

Memory covers all processes that the program starts, daemons included: RSS is read every --interval-ms, PSS \
and USS a tenth as often, and both more rarely if reading would cost more than 0.8 % of one core. With \
--only, CPU time and page faults are also limited to the matching processes, as last sampled.

Exit codes: 0 all runs went well; 1 a run failed, or --fail-if can't be decided; 2 the arguments are invalid, \
or an allocator is missing or can't be loaded; 4 a condition of --fail-if is true; 126, 127 the program can't \
be run; 130 interrupted."
)]
pub(crate) struct CompareArguments {
    /// Runs under each allocator
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Allocators: names or paths of libraries, separated by commas, each with :VARIABLE=VALUE as wanted;
    /// may be repeated
    ///
    /// Names: glibc (what the program uses anyway), jemalloc, tcmalloc, mimalloc, snmalloc, rpmalloc, snug. A
    /// path must contain a slash. One or more settings follow, each after a colon:
    /// glibc:MALLOC_ARENA_MAX=2:MALLOC_TOP_PAD_=0. A comma is part of the value unless an allocator follows
    /// it: jemalloc:MALLOC_CONF=narenas:2,tcache:false. snug's options need no variable:
    /// snug:purge_cpu_percent:2. A set stands for those of its allocators that are installed: popular (the
    /// default), all, and the sets you saved.
    #[arg(long, value_name = "LIST")]
    pub with: Vec<String>,
    /// Save the allocators of --with as a set of this name, for --with NAME; without a program, do nothing else
    #[arg(long, value_name = "NAME", requires = "with")]
    pub save_set: Option<String>,
    /// Show which allocators are installed, with their versions, and all sets
    #[arg(long)]
    pub list_allocators: bool,
    /// Measure only processes whose command line matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Directory for results: report.html, report.md, runs.csv, compare.json, plots as SVG and PNG, logs [default: a
    /// new one in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overwrite results that are already in --out
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Milliseconds between two readings of RSS
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval_ms: u64,
    /// Also measure live bytes: a small library, preloaded too, asks jemalloc and tcmalloc for them
    ///
    /// snug counts them by itself, and under glibc they are estimated. mimalloc has no such figure. Memory and live
    /// memory together say how much of it is the allocator's: live_mean, live_peak and live_final in --fail-if.
    #[arg(long)]
    pub ask_allocator: bool,
    /// Exit with 4 if this is true, such as "snug.rss_mean > 0.8 * glibc.rss_mean"; may be repeated
    #[arg(long, value_name = "CONDITION", long_help = condition_help())]
    pub fail_if: Vec<String>,
    /// Continue with the other runs when one fails
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub server: ServerArguments,
    /// The program and its arguments
    #[arg(required_unless_present_any = ["list_allocators", "save_set"], trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Refuses a program whose name is an option: one that was misspelt, and taken for the program.
pub(crate) fn refuse_unknown_option(command: &str, program: &[String]) -> Result<()> {
    let Some(word) = program.first().filter(|word| word.len() > 1 && word.starts_with('-')) else {
        return Ok(());
    };
    // Who writes -- means it.
    let mut before = std::env::args().take_while(|argument| argument != word);
    if before.any(|argument| argument == "--") {
        return Ok(());
    }
    let all = Arguments::command();
    let options = all.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let names: Vec<&str> = options.filter_map(clap::Arg::get_long).collect();
    let written = word.split('=').next().unwrap_or(word).trim_start_matches('-');
    let guess = closest(written, names.iter().copied());
    let guess = guess.map_or_else(String::new, |name| format!("did you mean --{name}? "));
    let message = format!("unknown option {word}");
    Err(Failure::usage(
        message,
        format!("{guess}`snug {command} --help` lists the options; they stand before the program"),
    ))
}

fn condition_help() -> String {
    format!(
        "Exit with 4 if this is true, such as \"snug.rss_mean > 0.8 * glibc.rss_mean\"; may be repeated\n\n\
         Names are ALLOCATOR.QUANTITY, the medians of the runs. Quote an allocator whose name has more than \
         letters and digits: \"'glibc:MALLOC_ARENA_MAX=2'.rss_mean\". {} Numbers may have the units kB MB GB \
         KiB MiB GiB us ms s %; + - * / ( ) and the word \"and\" work. Conditions are checked for mistakes \
         before the first run.",
        crate::analysis::quantities::help()
    )
}

/// Show saved comparisons again, or compare several with each other
#[derive(Debug, Args)]
#[command(
    override_usage = "snug report [OPTIONS] <[NAME=]FILE>...",
    after_help = "Examples:
  snug report results/compare.json --html report.html
  snug report yesterday.json today.json
  snug report laptop=a/compare.json staging=b/compare.json --html report.html --markdown comment.md
  snug report main.json branch.json --fail-if 'branch.snug.rss_mean > 1.05 * main.snug.rss_mean'
  snug report --overview=memory,throughput --baseline jemalloc puma/ sidekiq/ celery/

FILE is the compare.json of a snug compare, or its directory. Several files are compared with the first, each \
allocator with itself: ratios with 95 % intervals, and \"no difference\" where the interval holds 1. Without NAME= a \
file goes by its own name, or by that of its directory.

Exit codes: 0; 1 a file can't be written, or --fail-if can't be decided; 2 the arguments are invalid, or a \
file is no result of this or an older snug compare; 4 a condition of --fail-if is true."
)]
pub(crate) struct ReportArguments {
    /// Exit with 4 if this is true, such as "snug.rss_mean > 0.8 * glibc.rss_mean"; may be repeated
    ///
    /// As for `snug compare`. If there are several files, names begin with that of the file:
    /// "today.snug.rss_mean > 1.05 * yesterday.snug.rss_mean".
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
    /// One table of all files, with a row for each allocator and a column for each file: for comparisons of
    /// different programs
    ///
    /// For each QUANTITY there is a table: memory (mean RSS, or PSS where processes fork), idle (what is left
    /// after idling), throughput, p99, or a name as in --fail-if. Its last column is the geometric mean of the
    /// ratios to --baseline.
    #[arg(long, value_name = "QUANTITY", value_delimiter = ',', num_args = 0..=1, require_equals = true,
          default_missing_value = "memory", conflicts_with_all = ["html", "csv", "json", "out"])]
    pub overview: Vec<String>,
    /// With --overview, the allocator that the others are compared with [default: that of the first file]
    #[arg(long, value_name = "ALLOCATOR", requires = "overview")]
    pub baseline: Option<String>,
    /// Saved comparisons; the others are compared with the first
    #[arg(required = true, value_name = "[NAME=]FILE")]
    pub files: Vec<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    /// Write the report in all formats, and each plot as SVG and PNG, into this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

/// Write shell completions or man pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug generate completions bash > /etc/bash_completion.d/snug
  snug generate man --out /usr/share/man/man1")]
pub(crate) struct GenerateArguments {
    #[command(subcommand)]
    pub what: Generated,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// Completions for a shell, on stdout
    Completions { shell: Shell },
    /// The man page of snug on stdout, or those of all commands in a directory
    Man {
        /// Write snug.1, snug-run.1 and so on into this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_are_written_in_one_way_everywhere() {
        let parsed = |text: &str| time(text).map(|time| time.as_millis());
        assert_eq!(
            ["2", "2s", "0.5", "500ms", "1m 30s", "1m30s"].map(parsed),
            [2000, 2000, 500, 500, 90_000, 90_000].map(Ok)
        );
        assert!(["-1", "NaN", "inf", "soon", "", "2 x"].map(parsed).iter().all(|parsed| parsed.is_err()));
        // Every option with a time takes both, whatever its command.
        for command in Arguments::command().get_subcommands() {
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                assert!(
                    !names.iter().any(|name| name.as_str() == "SECONDS"),
                    "{argument} of {}",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
