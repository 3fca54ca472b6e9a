//! One run to make, what is told while it goes on, and how it ended.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::serving::Plan;
use crate::track::TrackOptions;
use snug_compare::attribution::AllocatorCode;
use snug_compare::results::Settings;
use snug_inspect::program::Variables;
use snug_process::proc::Pid;
use snug_process::system::Ending;

/// One run to make.
pub struct Request<'a> {
    pub label: &'a str,
    pub round: u32,
    pub program: &'a [OsString],
    pub environment: &'a Variables,
    pub target: TrackOptions,
    pub settings: &'a Settings,
    /// How to drive a server; None: the program ends by itself.
    pub plan: Option<&'a Plan>,
    /// What is live is read, too.
    pub ask_allocator: bool,
    /// Where the allocator's code is, if it is to be seen which share of CPU time it takes.
    pub profile: Option<&'a AllocatorCode>,
    /// The loader was seen to accept the library for this program.
    pub probed: bool,
    /// Where the program's output goes, without its ending.
    pub log: PathBuf,
}

/// How the measured part of a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// The program ended; of a server, in this phase, before it was told to.
    Ended(Ending, Option<&'static str>),
    /// The server went through all phases and was then told to stop; None: it had to be killed.
    Served(Option<Ending>),
    /// A phase failed.
    Failed(String),
}

/// What is told while a run goes on.
pub struct Moment<'a> {
    pub time_s: f64,
    pub rss_bytes: u64,
    /// The phase of a server.
    pub phase: Option<&'static str>,
    /// The program waits for connections, and will hardly end by itself as was said. Told once in a run.
    pub waits: bool,
    /// Process groups that are not measured: the load's, and perf's.
    pub load_groups: &'a [Pid],
}
