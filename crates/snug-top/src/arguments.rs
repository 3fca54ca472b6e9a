//! The command line of `snug top`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use snug_base::time::time_between;
use snug_process::command_line::process_named as process;

/// Watch the memory of processes live
#[derive(Debug, Args)]
#[command(
    override_usage = "snug top [OPTIONS] [PID|NAME]...",
    after_help = "Examples:
  snug top
  snug top 4711
  snug top --name puma --sort live
  snug top --once puma

For a PID, that process and everything below it; for a NAME, every process of that name and everything below them; \
without either, the processes of this user (root: of all users) that hold 8 MB or more or that use an allocator of \
their own. Press ? for the keys.

RSS is the memory that the process holds; PSS is the same with shared pages divided among those that share them. The \
other columns are snug's own counters, which other allocators don't have: live is what the program has allocated and \
not freed, cached is what threads keep ready, dirty is free and not yet given back, and fragmentation is the share of \
the heap that is not live. The allocation rate counts what leaves the shared slabs; what a thread's cache serves \
again is not counted. Under glibc, live and fragmentation are estimated from the chunks in its heaps and marked with \
~, at most every 5 seconds, in processes below 500 MB. Reading PSS may cost half a percent of one core, estimates 2 \
percent.

Exit codes: 0 quit; 2 the arguments are invalid, or stdout is not a terminal; 3 no such process; 130 interrupted."
)]
pub struct TopArguments {
    /// Processes of this name; may be repeated
    #[arg(long, value_name = "NAME", value_parser = process)]
    pub name: Vec<String>,
    /// Time between readings
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Sort by this column, largest first
    #[arg(long, value_name = "COLUMN", default_value = "rss")]
    pub sort: SortColumn,
    /// Print one table and exit
    #[arg(long)]
    pub once: bool,
    /// Processes, by PID or by name
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub processes: Vec<String>,
}

/// A column by which `snug top` sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortColumn {
    Pid,
    Role,
    Rss,
    Pss,
    Live,
    Cached,
    Dirty,
    Fragmentation,
    Rate,
    Cpu,
}

fn interval(text: &str) -> Result<Duration, String> {
    time_between(text, 0.1, 3600.0)
}
