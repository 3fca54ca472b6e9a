//! The command line: one enum of subcommands, with everything that `--help` says.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// snug: which memory allocator runs, what it costs, and which is best for your program.
#[derive(Debug, Parser)]
#[command(
    name = "snug",
    version = crate::VERSION,
    about = "Says and changes which memory allocator a program uses, and what that does to its memory",
    after_help = "Examples:\n  snug run -- bundle exec puma\n  snug check puma\n  \
        snug compare --runs 3 -- ruby script.rb\n\nEach command has its own --help with more.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Subcommands,
}

#[derive(Debug, Subcommand)]
pub enum Subcommands {
    Run(RunArguments),
    Check(CheckArguments),
    Compare(CompareArguments),
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
pub struct RunArguments {
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
    override_usage = "snug check [OPTIONS] <PID|NAME>...\n       snug check [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  snug check 4711
  snug check puma --expect snug
  snug check --expect snug -- bundle exec puma
  snug check --json sidekiq | jq '.processes[].allocator'

For a PID, that process and everything below it; for a NAME, every process of that name (its command, its program's \
file, or the first word of its title) and everything below them. With --, the program is started, looked at for --for \
seconds or until it ends, and stopped; its output goes to stderr.

Exit codes: 0 nothing is wrong; 1 a process uses another allocator than --expect, or something is wrong; 2 the request \
makes no sense; 3 no such process, or it may not be looked at; 126, 127 the program can't be run."
)]
pub struct CheckArguments {
    /// Fail unless every process uses this allocator: snug, jemalloc, tcmalloc, mimalloc, snmalloc, glibc or musl
    #[arg(long, value_name = "ALLOCATOR")]
    pub expect: Option<String>,
    /// Write the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// How long to look at a program started with --, in seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 2.0)]
    pub for_s: f64,
    /// Processes, by identifier or by name
    #[arg(value_name = "PID|NAME", required_unless_present = "program", conflicts_with = "program")]
    pub processes: Vec<String>,
    /// A program to start and look at
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
  snug compare --only 'puma|ruby' --out results -- ./load-test.sh

The program is run to its end, as often as --runs says, under each allocator in turn, with an empty stdin. Its output \
goes to files in OUT/logs. Lines 'snug-metric: NAME=VALUE' on its stdout become columns. A run fails if the program fails, if it \
prints 'snug-metric: errors=N' with N above 0, or if a measured process did not load the allocator.

Memory is that of all processes the program starts, daemons included: RSS is read every --interval-ms, PSS and USS a \
tenth as often, and both more rarely if reading would cost more than 1.5 % of one core. With --only, CPU time and page faults too are \
those of the matching processes, as last sampled.

Exit codes: 0 all runs went well; 1 a run failed; 2 the request makes no sense, or an allocator is missing or can't be \
loaded; 126, 127 the program can't be run; 130 interrupted."
)]
pub struct CompareArguments {
    /// Runs under each allocator
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Allocators: names or paths of libraries, separated by commas, each with :VARIABLE=VALUE as wanted;
    /// may be repeated
    ///
    /// Names: glibc (what the program uses by itself), jemalloc, tcmalloc, mimalloc, snmalloc, snug. A path must hold
    /// a slash. Settings follow after a colon and may be several: glibc:MALLOC_ARENA_MAX=2:MALLOC_TOP_PAD_=0. A comma
    /// belongs to the value if what follows it is no allocator: jemalloc:MALLOC_CONF=narenas:2,tcache:false.
    /// Without --with: glibc, glibc:MALLOC_ARENA_MAX=2, and of jemalloc, tcmalloc, mimalloc, snug those installed.
    #[arg(long, value_name = "LIST")]
    pub with: Vec<String>,
    /// Measure only processes whose command line matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Directory for results: compare.json, memory.svg, memory.png, logs [default: a new one in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Milliseconds between two readings of RSS
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval_ms: u64,
    /// Also write the results as JSON to this file; '-' is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Go on with the other runs when one fails
    #[arg(long)]
    pub keep_going: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Write shell completions or man pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug generate completions bash > /etc/bash_completion.d/snug
  snug generate man --out /usr/share/man/man1")]
pub struct GenerateArguments {
    #[command(subcommand)]
    pub what: Generated,
}

#[derive(Debug, Subcommand)]
pub enum Generated {
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
pub enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
