//! The command line of `snug compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use regex_lite::Regex;

use snug_base::failure::{Failure, Result, USAGE};
use snug_compare::quantities;
use snug_compare::until::{self, Goal};
use snug_measure::comparison::ComparePlan;
use snug_measure::serving::{self, ServerArguments};
use snug_report::output::OutputArguments;

/// Run a program under several allocators and compare memory and time
#[derive(Debug, Args)]
#[command(
    override_usage = "snug compare [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug compare -- ruby script.rb
  snug compare --runs 5 --with glibc,glibc:MALLOC_ARENA_MAX=2,jemalloc,snug -- ./server-test.sh
  snug compare --until 5% --with glibc,snug -- ruby script.rb
  snug compare --with glibc --with jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000 -- ./program
  snug compare --with popular,./build/libmine.so -- ./program
  snug compare --only 'puma|ruby' --out results -- ./load-test.sh
  snug compare --ready 3000 --requests 5000 --concurrency 8 --path / --path /search?q=a -- bundle exec puma -p 3000
  snug compare --ready 'line:Listening on' --load ./load.sh --idle 20s -- ./server
  snug compare --fail-if 'snug.rss_mean > 0.8x' --markdown comment.md -- ./load-test.sh

Under each allocator in turn, the program runs to its end as often as --runs says, with an empty stdin. (With \
--ready, it is started, put under load, left idle and stopped.) Its output goes to files in OUT/logs. Lines \
'snug-metric: NAME=VALUE' on its stdout become columns. A run fails if the program fails, if it prints 'snug-metric: \
errors=N' with N above 0, if a request fails, if a measured process did not load the allocator, or if nothing shows \
that any did.

Memory covers all processes that the program starts, daemons included: RSS is read every --interval-ms, PSS and USS a \
tenth as often, and all of them less often if reading would cost more than 0.8 % of one core. With --only, CPU time \
and page faults are also limited to the matching processes, as last sampled.

Exit codes: 0 all runs went well; 1 a run failed, or --fail-if can't be decided; 2 the arguments are invalid, \
or an allocator is missing or can't be loaded; 4 a condition of --fail-if is true; 126, 127 the program can't \
be run; 130 interrupted."
)]
pub(crate) struct CompareArguments {
    /// Runs under each allocator [default: 3; with --until at most 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Run until the 95 % interval of each allocator's ratio is this narrow, such as 5% or requests_per_s:3%
    ///
    /// The ratio is that of mean memory, or of the quantity before the colon, named as in --fail-if. The width is that of
    /// the whole interval: 0.78 to 0.82 is 5 % wide. There are at least 6 runs under each allocator, and at most as many
    /// as --runs says; if the intervals are not so narrow by then, the result says so, and the exit code is 0 all the
    /// same. Intervals are checked only after 6, 7, 8, 10, 12, 15, 18 ... rounds: checking after every round and stopping
    /// at the first narrow one would make them look more precise than they are.
    #[arg(long, value_name = "[QUANTITY:]PERCENT")]
    pub until: Option<Goal>,
    /// Allocators: names, or paths of libraries, separated by commas; each may be followed by :VARIABLE=VALUE; may be
    /// repeated
    ///
    /// Names: glibc (what the program uses anyway), jemalloc, tcmalloc, mimalloc, snmalloc, rpmalloc, snug. A path must
    /// contain a slash. Settings follow, each after a colon: glibc:MALLOC_ARENA_MAX=2:MALLOC_TOP_PAD_=0. A comma is
    /// part of the value unless an allocator follows it: jemalloc:MALLOC_CONF=narenas:2,tcache:false. snug's options
    /// need no variable: snug:purge_cpu_percent:2. A set stands for those of its allocators that are installed: popular
    /// (the default), and all.
    #[arg(long, value_name = "LIST")]
    pub with: Vec<String>,
    /// Show which allocators are installed, with their versions, and all sets
    #[arg(long)]
    pub list_allocators: bool,
    /// Measure only processes whose command line matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Directory for results: report.html, report.md, runs.csv, compare.json, plots, logs [default: a new one in
    /// $XDG_STATE_HOME/snug, or ~/.local/state/snug; the last line names it]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overwrite results that are already in --out
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Milliseconds between readings of RSS
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub interval_ms: u64,
    /// Also measure live bytes, by preloading a small library that asks jemalloc and tcmalloc for them
    ///
    /// snug counts live bytes itself, under glibc they are estimated, and mimalloc does not know them. Memory beyond
    /// live bytes is the allocator's own. In --fail-if they are live_mean, live_peak and live_final.
    #[arg(long)]
    pub ask_allocator: bool,
    /// Also sample with perf which share of CPU time goes into the allocator, its system calls and page faults
    ///
    /// On a busy machine times drift; these shares hardly do. A sample counts once: in a page fault, in a
    /// call that gets memory or gives it back, or in the allocator's code. Servers are sampled under load, other
    /// programs throughout. It takes perf 5.10 or newer, and the right to sample the kernel; runs take a little longer. In
    /// --fail-if it is allocator_cpu_percent.
    #[arg(long)]
    pub profile: bool,
    /// Exit with 4 if this is true, such as "snug.rss_mean > 0.8x"; may be repeated
    #[arg(long, value_name = "CONDITION", long_help = condition_help())]
    pub fail_if: Vec<String>,
    /// Carry on with the other runs when one fails, unless all of the first round do
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub server: ServerArguments,
    /// The program and its arguments
    #[arg(
        required_unless_present = "list_allocators",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// Runs under each allocator, if nothing says how many.
const RUNS: u32 = 3;

impl CompareArguments {
    /// All that the runs are made by.
    pub(crate) fn plan(&self) -> Result<ComparePlan> {
        Ok(ComparePlan {
            program: self.program.clone(),
            rounds: self.runs.unwrap_or(if self.until.is_some() { until::MOST_ROUNDS } else { RUNS }),
            until: self.until.clone(),
            interval_ms: self.interval_ms,
            only: self.only()?,
            ask_allocator: self.ask_allocator,
            profile: self.profile,
            keep_going: self.keep_going,
            serving: serving::plan(&self.server)?,
        })
    }

    /// What command lines of measured processes match.
    pub(crate) fn only(&self) -> Result<Option<Regex>> {
        let parse = |pattern: &String| {
            Regex::new(pattern).map_err(|error| {
                Failure::new(format!("--only {pattern:?} is not a regular expression: {error}"))
                    .exit_code(USAGE)
            })
        };
        self.only.as_ref().map(parse).transpose()
    }
}

fn condition_help() -> String {
    format!(
        "Exit with 4 if this is true, such as \"snug.rss_mean > 500 MB\"; may be repeated\n\n\
         NAME.QUANTITY OPERATOR NUMBER: the median of an allocator's runs, one of < <= > >= == !=, and a number with its \
         unit: kB MB GB KiB MiB GiB us ms s, or x, as in \"snug.rss_mean > 0.8x\", which is 0.8 times that of the \
         baseline: glibc as it is, or else the first allocator. {} Conditions are checked for mistakes before the first \
         run.",
        quantities::help()
    )
}
