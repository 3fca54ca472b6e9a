//! The command line of `snug leak`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use snug_base::time::{time, time_between};
use snug_leak::load::LoadArguments;
use snug_leak::session::LeakPlan;
use snug_process::command_line::process_named as process;

/// Find out whether a program leaks and, if not, what its memory does
#[derive(Debug, Args)]
#[command(
    override_usage = "snug leak [OPTIONS] -- PROGRAM [ARGS]...\n       snug leak [OPTIONS] <PID|NAME>",
    after_help = "Examples:
  snug leak --for 20m --url http://localhost:3000/ -- bundle exec puma -p 3000
  snug leak --for 1h --url http://localhost:8000 --path /orders --path '/search?q=a' --concurrency 4 4711
  snug leak --for 20m --load 'python enqueue.py' -- celery -A app worker
  snug leak --for 1h --requests-from 'wc -l < log/production.log' --plot leak.svg 4711
  snug leak --for 5m --fail-on leak -- ./soak-test.sh
  snug leak --for 1h puma
  snug leak --ask-allocator --with jemalloc --for 20m --load ./requests.sh -- ./server

The program is run under snug, which counts live bytes exactly, or watched as it is; under glibc live bytes are \
estimated from the chunks in its heaps. With --ask-allocator, jemalloc and tcmalloc report them: a thread in each \
process asks five times a second. mimalloc does not know them. The program's output goes to stderr. Give it work that \
repeats: its own, requests made by snug (--url), or a command (--load). Ctrl-C ends the watch with the verdict so \
far. The verdict is one of:

  leak        what the program keeps grows without bound: live bytes, or memory that it maps itself
  growing     memory grows, but the allocator does not report live bytes: a leak or bloat
  bloat       memory grows, but what the program keeps does not
  fragmented  steady, but the allocator holds far more than is live
  plateau     steady, from some moment on
  not enough data

For a leak under snug the report adds the block sizes that grow and the lines of code that keep them, from samples of the \
later part of the watch in processes that still run at its end (snug profile --help); --no-lines leaves sampling off.

Growth is what remains after warm-up, waves, bursts and garbage collection have had every chance to explain the \
readings (docs/decisions/0015). Where workers are replaced, the growth of each over its life counts as well.

Exit codes: 0; 1 the verdict is one of --fail-on, or the program failed by itself; 2 the arguments are \
invalid; 3 no such process, or no permission to look at it; 125 libsnug.so is missing; 126, 127 the program \
can't be run."
)]
pub(crate) struct LeakArguments {
    /// How long to watch
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = watching_time)]
    pub watch_for: Duration,
    /// Time between readings [default: 600 readings in all, fewer if they would cost over 1 % of a core]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub load: LoadArguments,
    /// A shell command that prints how many requests have been served so far, for growth per request
    #[arg(long, value_name = "COMMAND")]
    pub requests_from: Option<String>,
    /// Allocator to run the program under, written as for snug compare [default: snug]
    #[arg(long, value_name = "ALLOCATOR", conflicts_with = "process")]
    pub with: Option<String>,
    /// Preload a small library that asks jemalloc or tcmalloc for live bytes; without --with, the program keeps its own
    /// allocator
    #[arg(long)]
    pub ask_allocator: bool,
    /// How much growth over the watch still counts as none, in percent of the level
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = parse_percent)]
    pub tolerance_percent: f64,
    /// Exit with 1 on these verdicts, separated by commas
    #[arg(long, value_name = "VERDICTS", value_delimiter = ',')]
    pub fail_on: Vec<LeakFailure>,
    /// Write a plot of memory over time to this file, as SVG
    #[arg(long, value_name = "FILE", value_parser = parse_picture)]
    pub plot: Option<PathBuf>,
    /// Take no samples in processes under snug, and name no lines
    #[arg(long)]
    pub no_lines: bool,
    /// Write the answer as JSON, with every reading
    #[arg(long)]
    pub json: bool,
    /// A process to watch, with everything below it
    #[arg(value_name = "PID|NAME", value_parser = process, required_unless_present = "program", conflicts_with = "program")]
    pub process: Option<String>,
    /// A program to run and watch
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Verdicts of snug leak that a script may want to fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeakFailure {
    /// leak, and growing
    Leak,
    /// bloat, and growing
    Bloat,
    Fragmented,
    /// not enough data
    Unclear,
}

impl LeakArguments {
    pub(crate) fn plan(&self) -> LeakPlan {
        LeakPlan {
            watch_for: self.watch_for,
            interval: self.interval,
            requests_from: self.requests_from.clone(),
            samples_lines: !self.no_lines,
        }
    }
}

fn watching_time(text: &str) -> Result<Duration, String> {
    time_between(text, 0.1, 366.0 * 86_400.0)
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.trim_end_matches('%').parse().map_err(|_| "it is not a number".to_string())?;
    let fits = percent > 0.0 && percent <= 100.0;
    fits.then_some(percent).ok_or_else(|| "it must be above 0 and at most 100".into())
}

fn parse_picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    let known = ending.is_some_and(|ending| ending == "svg");
    known.then_some(path).ok_or_else(|| "its name must end in .svg".into())
}
