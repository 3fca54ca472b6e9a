//! The command line: one enum of subcommands, with everything that `--help` says.

mod leak;
mod live;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::allocator::kinds::closest;
use crate::base::failure::{Failure, Result};
use crate::base::time::time;
pub(crate) use crate::commands::arguments::leak::{AdviseArguments, LeakArguments, LeakFailure};
pub(crate) use crate::commands::arguments::live::{PurgeArguments, SetArguments, StatsArguments};
use crate::commands::exporter::arguments::ExporterArguments;
use crate::commands::top::arguments::TopArguments;
use crate::drive::serving::ServerArguments;
use crate::show::output::OutputArguments;

/// snug: which memory allocator runs, what it costs, and which is best for your program.
#[derive(Debug, Parser)]
#[command(
    name = "snug",
    version = crate::VERSION,
    about = "Says and changes which memory allocator a program uses, and what that does to its memory",
    after_help = "Examples:\n  snug run -- bundle exec puma\n  snug check puma\n  \
        snug compare --runs 3 -- ruby script.rb\n  snug report a.json b.json\n\nEach command has its own --help with more.",
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
    Purge(PurgeArguments),
    Set(SetArguments),
    Exporter(ExporterArguments),
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

The library libsnug.so is looked for beside this program, in ../lib and in ../lib/snug, unless SNUG_LIBRARY names it. \
It is put in front of what LD_PRELOAD holds already. Signals and the exit code are the program's own: snug becomes it.

Exit codes of snug itself: 125 the library is missing or can't be loaded into this program; 126 the program can't be \
executed; 127 it was not found."
)]
pub(crate) struct RunArguments {
    /// Programs that this one starts do not inherit snug
    #[arg(long)]
    pub this_only: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Say which allocator processes really use, and what is wrong
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
program's file, or the first word of its title) and everything below them. With --, the program is started, looked at for the time of --for \
or until it ends, and stopped; its output goes to stderr.

A unit is checked by its processes, or, if none runs, by what its file would start. An image is an archive written by \
`docker image save` or by OCI tools, an OCI layout, an unpacked root file system (name the program with -- then), or \
the name of an image that docker has. Nothing of it is run: its entry command is followed through shells and scripts \
to the program that stays, and what that would load is told from the files. PIDs of containers are looked at through \
their own root; the paths shown are those inside.

Where processes do not use what --expect says, lines to paste follow: for a Dockerfile, Kubernetes, systemd, a \
Procfile and the shell, as far as they fit.

Exit codes: 0 nothing is wrong; 1 a process uses another allocator than --expect, or something is wrong; 2 the request \
makes no sense; 3 no such process, or it can't be told (it may not be looked at, or \
a shell starts it); 126, 127 the program can't be run; 130 Ctrl-C."
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
    /// A systemd unit, running or not; may be repeated. A name, or the path of a unit's file
    #[arg(long, value_name = "UNIT", conflicts_with = "program")]
    pub unit: Vec<String>,
    /// An image: an archive, a directory, or a name that docker knows
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["processes", "unit"])]
    pub image: Option<String>,
    /// Also write the lines to paste that put snug (or what --expect says) into use
    #[arg(long)]
    pub lines: bool,
    /// For a NAME, processes of all users; root looks at all of them anyway
    #[arg(long)]
    pub all_users: bool,
    /// Processes, by identifier or by name
    #[arg(value_name = "PID|NAME|unit:UNIT", required_unless_present_any = ["program", "unit", "image"],
          conflicts_with = "program")]
    pub processes: Vec<String>,
    /// A program to start and look at; with --image, what it is to start
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

The program is run to its end, or, with --ready, started, put under load, left idle and stopped, as often as --runs says, under each allocator in turn, with an empty stdin. Its output \
goes to files in OUT/logs. Lines 'snug-metric: NAME=VALUE' on its stdout become columns. A run fails if the program fails, if it \
prints 'snug-metric: errors=N' with N above 0, if a request fails, if a measured process did not load the allocator, or if \
nothing shows that any did.

Memory is that of all processes the program starts, daemons included: RSS is read every --interval-ms, PSS and USS a \
tenth as often, and both more rarely if reading would cost more than 0.8 % of one core. With --only, CPU time and page faults too are \
those of the matching processes, as last sampled.

Exit codes: 0 all runs went well; 1 a run failed, or --fail-if can't be decided; 2 the request makes no sense, or an \
allocator is missing or can't be loaded; 4 a condition of --fail-if holds; 126, 127 the program can't be run; 130 interrupted."
)]
pub(crate) struct CompareArguments {
    /// Runs under each allocator
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Allocators: names or paths of libraries, separated by commas, each with :VARIABLE=VALUE as wanted;
    /// may be repeated
    ///
    /// Names: glibc (what the program uses by itself), jemalloc, tcmalloc, mimalloc, snmalloc, rpmalloc, snug. A path
    /// must hold a slash. Settings follow after a colon and may be several:
    /// glibc:MALLOC_ARENA_MAX=2:MALLOC_TOP_PAD_=0. A comma belongs to the value if what follows it is no allocator:
    /// jemalloc:MALLOC_CONF=narenas:2,tcache:false. snug's options need no variable: snug:purge_cpu_percent:2. Sets
    /// stand for their allocators, as far as installed: popular (the default), all, and those you saved.
    #[arg(long, value_name = "LIST")]
    pub with: Vec<String>,
    /// Save what --with names as a set of this name, for --with NAME; without a program, that is all
    #[arg(long, value_name = "NAME", requires = "with")]
    pub save_set: Option<String>,
    /// Show which allocators are found here, with their versions, and all sets
    #[arg(long)]
    pub list_allocators: bool,
    /// Measure only processes whose command line matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Directory for results: report.html, report.md, runs.csv, compare.json, plots as SVG and PNG, logs [default: a
    /// new one in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write over the results that --out holds already
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Milliseconds between two readings of RSS
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval_ms: u64,
    /// Exit with 4 if this holds, as "snug.rss_mean > 0.8 * glibc.rss_mean"; may be repeated
    #[arg(long, value_name = "CONDITION", long_help = condition_help())]
    pub fail_if: Vec<String>,
    /// Go on with the other runs when one fails
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
        "Exit with 4 if this holds, as \"snug.rss_mean > 0.8 * glibc.rss_mean\"; may be repeated\n\n\
         Names are ALLOCATOR.QUANTITY, the medians of the runs. An allocator whose name has more than letters and digits \
         stands in quotes: \"'glibc:MALLOC_ARENA_MAX=2'.rss_mean\". {} Numbers have the units kB MB GB KiB MiB GiB us \
         ms s %. + - * / ( ) and the word \"and\" are understood. Mistakes are found before the first run.",
        crate::analysis::quantities::help()
    )
}

/// Show saved comparisons again, or set several side by side
#[derive(Debug, Args)]
#[command(
    override_usage = "snug report [OPTIONS] <[NAME=]FILE>...",
    after_help = "Examples:
  snug report results/compare.json --html report.html
  snug report yesterday.json today.json
  snug report laptop=a/compare.json staging=b/compare.json --html report.html --markdown comment.md
  snug report main.json branch.json --fail-if 'branch.snug.rss_mean > 1.05 * main.snug.rss_mean'

FILE is the compare.json of a snug compare, or its directory. Several files are compared with the first, each \
allocator with itself: ratios with 95 % intervals, and \"no difference\" where the interval holds 1. Without NAME= a \
file goes by its own name, or by that of its directory.

Exit codes: 0; 1 a file can't be written, or --fail-if can't be decided; 2 the request makes no sense, or a file is no \
result of this or an older snug compare; 4 a condition of --fail-if holds."
)]
pub(crate) struct ReportArguments {
    /// Exit with 4 if this holds, as "snug.rss_mean > 0.8 * glibc.rss_mean"; may be repeated
    ///
    /// As for `snug compare`. If there are several files, names begin with that of the file:
    /// "today.snug.rss_mean > 1.05 * yesterday.snug.rss_mean".
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
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
