//! The data model of a comparison: what is measured, saved, and read back by every writer and by later commands.
//! Plain data. Names are quantities with their unit; all times are seconds since the run started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use snug_base::machine::Machine;
use snug_inspect::kinds::Kind;
use snug_stats::Estimate;

/// Name of the file format and the version of it that this program writes. Fields may be added within a
/// version; a change of meaning raises it.
pub const FORMAT: &str = "snug-compare";
pub const FORMAT_VERSION: u32 = 1;

/// One call of `snug compare`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    pub format: String,
    pub format_version: u32,
    pub snug_version: String,
    /// UTC, as 2026-11-21T02:03:04Z.
    pub started_at: String,
    /// The command line of this comparison, to repeat it.
    pub invocation: Vec<String>,
    pub directory: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    pub machine: Machine,
    pub settings: Settings,
    pub allocators: Vec<Allocator>,
    pub runs: Vec<Run>,
    pub summary: Summary,
}

/// How it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    pub rounds: u32,
    /// Runs of all allocators together; None: as many as the rounds make.
    #[serde(default)]
    pub planned_runs: Option<usize>,
    /// What `--until` asked for, and whether it was reached; None if the number of rounds was fixed.
    #[serde(default)]
    pub until: Option<Until>,
    /// Resident sizes are read this often, unless that would cost too much.
    pub interval_ms: u64,
    /// Proportional and unique set sizes are read this often, unless that would cost too much.
    pub detail_interval_ms: u64,
    /// Reading of either kind is stretched so that it takes at most this share of one core.
    pub overhead_limit: f64,
    /// Only processes whose command line matches are measured.
    pub only: Option<String>,
    /// How a server was driven; None for a program that ends by itself.
    #[serde(default)]
    pub serving: Option<Serving>,
    /// Why the peak of a control group could not be measured; None if it was.
    #[serde(default)]
    pub no_cgroup_peak: Option<String>,
}

/// How narrow the intervals of one quantity's ratios were to become, and how narrow they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// By its name in `SummaryRow::quantities`.
    pub quantity: String,
    /// How wide intervals may be, in percent of their lower end.
    pub percent: f64,
    /// Rounds at most.
    pub most_rounds: u32,
    /// Rounds that had been made when it was last looked at.
    pub rounds: u32,
    pub reached: bool,
    /// The widest interval, in percent of its lower end, and whose it is; None if somebody has none.
    pub width_percent: Option<f64>,
    pub widest: Option<String>,
}

/// How a server was brought up, put under load and left idle. Texts are as given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Serving {
    /// What says that it serves: a port, a URL, or `line:TEXT`.
    pub ready: String,
    /// The command that makes the load; None for built-in requests, or no load at all.
    pub load_command: Option<String>,
    /// Built-in requests: where to, and how many at a time.
    pub url: Option<String>,
    pub paths: Vec<String>,
    pub concurrency: u32,
    /// How much of the load: requests (or times that the command runs), seconds, or whichever ends first.
    pub warm_count: Option<u64>,
    pub warm_s: Option<f64>,
    pub load_count: Option<u64>,
    pub load_s: Option<f64>,
    pub idle_s: f64,
}

/// One column of the comparison: an allocator with its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Allocator {
    pub label: String,
    pub kind: Kind,
    /// The library that is preloaded; None when the program keeps what it has.
    pub library: Option<String>,
    pub version: Option<String>,
    /// Everything that is set in the program's environment for it.
    pub environment: BTreeMap<String, String>,
    /// Variables that were set already and that it reads.
    pub inherited: BTreeMap<String, String>,
    /// What is wrong with its settings, as far as it can be known.
    #[serde(default)]
    pub complaints: Vec<String>,
}

/// One run of the program under one allocator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub allocator: String,
    pub round: u32,
    pub started_at: String,
    /// None: it went well. Else what went wrong.
    pub failure: Option<String>,
    pub exit_code: Option<i32>,
    pub wall_s: f64,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Quantities by name. Of a server: from the moment it served to the end of the idle phase.
    pub memory: BTreeMap<String, f64>,
    /// What the program and its load reported by `snug-metric: NAME=VALUE`.
    pub metrics: BTreeMap<String, f64>,
    /// Where CPU time went, with `--profile`: under load, of a server. None if nobody asked, or it could not be seen.
    #[serde(default)]
    pub cpu_samples: Option<CpuSamples>,
    /// What clients of the program saw; None when nobody measured it.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Parts of the run: "boot", "warm", "load", "idle" of a server, as far as there were any; else one, "run".
    pub phases: Vec<Phase>,
    /// How many processes were measured, and the largest of them.
    pub processes_seen: u32,
    pub processes: Vec<ProcessSeen>,
    pub samples: Samples,
    pub details: Details,
    pub evidence: Evidence,
    pub overhead: Overhead,
    /// Cores that programs outside of this comparison kept busy meanwhile.
    pub other_busy_cores: f64,
    pub notes: Vec<String>,
    pub log: String,
}

/// Samples of running threads, each in one place or in none of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSamples {
    pub total: u64,
    /// In the allocator's own code.
    pub allocator_code: u64,
    /// In the kernel, for a call that gets memory or gives it back, whoever made it.
    pub memory_calls: u64,
    /// In the kernel, for a page fault.
    pub page_faults: u64,
}

/// Requests that a load made of a server, and how long the answers took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub requests: u64,
    pub failed: u64,
    pub requests_per_s: f64,
    /// In rising order of `percent`.
    pub percentiles: Vec<Percentile>,
}

/// So many percent of the requests were answered within this time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    pub percent: f64,
    pub latency_s: f64,
}

/// A named part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    pub start_s: f64,
    pub end_s: f64,
}

/// A process that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSeen {
    pub pid: i32,
    pub command: String,
    pub first_s: f64,
    pub last_s: f64,
    pub rss_peak_bytes: u64,
    pub cpu_s: f64,
    pub allocator_loaded: Loaded,
}

/// Whether the allocator was seen in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loaded {
    /// The library is mapped.
    Yes,
    /// The process lived long enough to be sure that it is not.
    No,
    /// The process ended before it could be looked at.
    TooShort,
    /// The process may not be read: it is setuid, or another user's.
    Unreadable,
    /// Nothing was to be loaded.
    NotAsked,
}

/// Sums over the measured processes, one element per moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub time_s: Vec<f64>,
    pub rss_bytes: Vec<u64>,
    pub processes: Vec<u32>,
    pub threads: Vec<u32>,
    /// CPU time and page faults since the run started, those of processes that have ended included.
    #[serde(default)]
    pub cpu_s: Vec<f64>,
    #[serde(default)]
    pub page_faults: Vec<u64>,
}

/// Sums of what is dearer to read, one element per moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    pub time_s: Vec<f64>,
    pub rss_bytes: Vec<u64>,
    pub pss_bytes: Vec<u64>,
    pub uss_bytes: Vec<u64>,
    pub lazy_free_bytes: Vec<u64>,
    pub huge_bytes: Vec<u64>,
    pub swap_bytes: Vec<u64>,
    pub processes: Vec<u32>,
    /// Live bytes, with --ask-allocator, and the moments at which all processes told them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live_time_s: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live_bytes: Vec<u64>,
}

/// How it is known that the allocator was in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The dynamic loader listed it for this program before the runs.
    pub probe: bool,
    /// Measured processes in which it was found mapped.
    pub processes_loaded: u32,
    /// Measured processes that ended before they could be looked at.
    pub processes_too_short: u32,
    /// Measured processes that may not be read.
    #[serde(default)]
    pub processes_unreadable: u32,
    /// Allocator libraries found in processes that were to use their own.
    pub found: Vec<String>,
}

/// What the measuring itself cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    pub cpu_s: f64,
    pub share_of_one_core: f64,
    pub mean_interval_ms: f64,
    pub mean_detail_interval_ms: f64,
}

/// What follows from the runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Label of the allocator that ratios refer to.
    pub baseline: String,
    /// Quantity that stands for memory: rss where one process runs, pss where several share pages.
    pub memory_measure: String,
    /// By allocator, in the order asked for; then by quantity. Of a phase: "idle.rss_mean_bytes" and so on.
    pub allocators: Vec<SummaryRow>,
    pub conclusion: String,
    pub warnings: Vec<String>,
}

/// All quantities of one allocator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SummaryRow {
    pub allocator: String,
    pub runs: u32,
    pub failed_runs: u32,
    pub quantities: BTreeMap<String, Estimate>,
}

impl SummaryRow {
    /// The median of each quantity.
    pub fn medians(&self) -> BTreeMap<String, f64> {
        self.quantities.iter().map(|(name, estimate)| (name.clone(), estimate.median)).collect()
    }
}

impl Comparison {
    /// The row of an allocator in the summary.
    pub fn row(&self, label: &str) -> Option<&SummaryRow> {
        self.summary.allocators.iter().find(|row| row.allocator == label)
    }

    /// How many runs there are, and of how many, if it stopped early.
    pub fn stopped_early(&self) -> Option<(usize, usize)> {
        let (made, planned) = (self.runs.len(), self.planned_runs());
        (made < planned).then_some((made, planned))
    }

    /// How many runs there would be had it not stopped early.
    pub fn planned_runs(&self) -> usize {
        self.settings.planned_runs.unwrap_or(self.settings.rounds as usize * self.allocators.len())
    }

    /// The runs of an allocator that went well.
    pub fn good_runs<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.allocator == label && run.failure.is_none())
    }

    /// An estimate by allocator and quantity.
    pub fn estimate(&self, label: &str, quantity: &str) -> Option<&Estimate> {
        self.row(label)?.quantities.get(quantity)
    }
}
