//! The command line of those commands that look at running processes or change them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::base::time::time_between;

/// Show the memory of a running process and the counters of its heap
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug stats 4711
  snug stats 4711 --classes
  snug stats 4711 --json | jq .heap.live_allocated_bytes

The process is not stopped. Live memory is counted under snug and estimated under glibc, from the chunks in \
its heaps; other allocators do not show it. Both need permission to ptrace: where kernel.yama.ptrace_scope is \
1, root or the capability CAP_SYS_PTRACE. To see many processes, use snug top; to keep their history, snug \
exporter.

Exit codes: 0 shown; 2 the arguments are invalid; 3 no such process, or no permission to look at it.")]
pub(crate) struct StatsArguments {
    /// The process; for a name, the topmost process of that name
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub process: String,
    /// Also show the heap's size classes
    #[arg(long)]
    pub classes: bool,
    /// Write JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Write metrics, as snug exporter has them, and under glibc the estimate
    #[arg(long)]
    pub prometheus: bool,
}

/// Ask running processes under snug to give back all the memory they can
#[derive(Debug, Args)]
#[command(
    override_usage = "snug purge [OPTIONS] <PID|NAME>...",
    after_help = "Examples:
  snug purge 4711
  snug purge puma
  snug purge $(pgrep -f 'puma: cluster worker')

No signal is sent and nothing is stopped: the process does it on its allocator's next slow call, or its \
helper thread does. A sleeping process can't answer; snug gave its free memory back when it fell asleep. A \
process that does not answer in time is not purged later.

Exit codes: 0 every process was purged or is asleep; 1 a process uses another allocator, or did not answer \
though it is running; 2 the arguments are invalid; 3 no such process, or no permission."
)]
pub(crate) struct PurgeArguments {
    /// The processes; for a name, all of this user's
    #[arg(required = true, value_name = "PID|NAME", value_parser = process)]
    pub processes: Vec<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = waiting_time)]
    pub wait: Duration,
    /// Write JSON, one line for each process
    #[arg(long)]
    pub json: bool,
}

/// Change a setting of a running process under snug
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug set 4711 purge_cpu_percent=5
  snug set puma background=off

The options are those of the variable SNUG; `SNUG=help snug run true` lists them. Those that only matter at \
startup can't be set. Children forked from now on inherit the new value; existing ones keep theirs. A \
sleeping process takes the setting when it next runs.

Exit codes: 0 set, or waiting in a sleeping process; 1 the process uses another allocator, or did not answer \
though it is running; 2 no such option or value; 3 no such process, or no permission.")]
pub(crate) struct SetArguments {
    /// The process; for a name, all of this user's
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub process: String,
    /// Options and their values
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    pub pairs: Vec<(String, String)>,
    /// How long to wait for each answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = waiting_time)]
    pub wait: Duration,
    /// Write JSON, one line for each option
    #[arg(long)]
    pub json: bool,
}

/// Show which code allocated the memory of a running process under snug
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug profile 4711
  snug profile puma --for 5m
  snug profile 4711 --view allocated --pprof profile.pb
  snug profile 4711 --for 1m --json | jq '.sites[0]'
  snug profile 4711 --view live --keep --json > old.json
  snug profile 4711 --view live --json > new.json
  snug profile --diff old.json new.json

Without a restart: sampling is switched on in the process, for the time that --for gives or until Ctrl-C, and then off \
again. About one block in every 512 KiB allocated becomes a sample, at most 100 a second, with the stack that asked \
for it: native frames, and the Ruby code that ran (3.0 to 3.4). Numbers are estimates: a line of which few samples \
are behind is uncertain. Files for flame graphs and pprof have function names in them.

To see everything since the start, run the program with SNUG=profile:1, and use --view live.

Exit codes: 0 shown; 1 the process uses another allocator; 2 the arguments or files are invalid; 3 no such \
process, or no permission to look at it.")]
pub(crate) struct ProfileArguments {
    /// The process; for a name, the topmost process of that name
    #[arg(value_name = "PID|NAME", value_parser = process, required_unless_present = "diff")]
    pub process: Option<String>,
    /// Instead of measuring, show which lines grew from one saved profile (--json) to the next
    #[arg(
        long,
        num_args = 2,
        value_names = ["OLD", "NEW"],
        conflicts_with_all = ["process", "watch_for", "view", "mean_bytes", "keep", "pprof", "folded"]
    )]
    pub diff: Vec<PathBuf>,
    /// How long to sample
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = measuring_time)]
    pub watch_for: Duration,
    /// What to show
    #[arg(long, value_enum, default_value_t = ProfileView::Grown)]
    pub view: ProfileView,
    /// Bytes between two samples, on average [default: 524288]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=1_073_741_824))]
    pub mean_bytes: Option<u32>,
    /// Leave sampling on in the process
    #[arg(long)]
    pub keep: bool,
    /// Also write the profile for pprof and speedscope
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Also write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Which blocks a profile shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProfileView {
    /// Allocated during the measurement, and live at its end
    Grown,
    /// Live at the end, since sampling was first switched on
    Live,
    /// Allocated during the measurement, freed or not
    Allocated,
}

fn measuring_time(text: &str) -> Result<Duration, String> {
    time_between(text, 0.1, 86_400.0)
}

fn waiting_time(text: &str) -> Result<Duration, String> {
    time_between(text, 0.0, 3600.0)
}

/// A PID or a name; no number that can't be a PID.
fn process(text: &str) -> Result<String, String> {
    match text.parse::<i64>() {
        Ok(number) if !(1..=i64::from(i32::MAX)).contains(&number) => Err("it is not a PID".into()),
        _ if text.is_empty() => Err("it is empty".into()),
        _ => Ok(text.into()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as KEY=VALUE".into()),
    }
}
