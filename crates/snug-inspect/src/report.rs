//! The report of `snug check`, as plain data for its writers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::deploy::Snippet;
use crate::kinds::Kind;
use crate::linkage::Linkage;
use crate::options::{ConfKey, OptionSource};
pub use crate::problem::{Problem, Severity};
use snug_base::file::file_name;
use snug_heap::counters::Counters;
use snug_heap::sharing::ForkHooks;
use snug_process::place::Place;
use snug_process::proc::Pid;

/// Problems that decide: a program that was started and failed by itself, and a shell that starts others.
pub const FAILED_ITSELF: &str = "failed";
pub const SHELL: &str = "shell";

/// The answer of one call.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// The allocator that every process was expected to use.
    pub expected: Option<Kind>,
    /// Whether they do; None if nothing was expected, or if it can't be told.
    pub expectation_met: Option<bool>,
    pub transparent_huge_pages: String,
    pub processes: Vec<ProcessReport>,
    /// Processes that belong to someone else and could not be looked at.
    pub unreadable: Vec<Pid>,
    /// Lines to paste, where something is to be changed.
    pub changes: Vec<Snippet>,
}

/// One process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessReport {
    pub pid: Pid,
    pub parent: Pid,
    /// How many processes of the answer are above it.
    pub depth: usize,
    pub command: String,
    /// The same, as its arguments one by one.
    #[serde(skip)]
    pub arguments: Vec<String>,
    pub place: Place,
    pub executable: String,
    /// What kind of program it is, and what follows for a preload.
    pub linkage: Linkage,
    pub allocator: Option<AllocatorUsed>,
    /// Settings in effect: name and value.
    pub settings: BTreeMap<String, String>,
    /// Whether the settings were read from the running allocator or taken from its environment.
    pub settings_source: SettingsSource,
    /// Where each comes from, as far as that is known: of snug's settings.
    pub settings_from: BTreeMap<String, OptionSource>,
    /// The keys of MALLOC_CONF, and of /etc/malloc.conf, and what snug makes of each. Empty under other allocators.
    pub malloc_conf: Vec<ConfKey>,
    pub counters: Option<Counters>,
    /// It shares memory with its parent since that forked it: it has executed no other program.
    pub is_forked: bool,
    /// What hooks did before that, in the process that forks, too.
    pub hooks: Option<ForkHooks>,
    pub problems: Vec<Problem>,
}

/// The allocator that serves a process's malloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllocatorUsed {
    pub kind: Kind,
    pub version: Option<String>,
    pub how: How,
    /// The file it is in.
    pub file: String,
}

/// How an allocator came into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Preloaded,
    LinkedDynamically,
    LinkedStatically,
    /// It is the C library's own.
    CLibrary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsSource {
    /// Read from the counters that the allocator itself keeps.
    Allocator,
    /// The variables that it reads when it starts.
    Environment,
    Unknown,
}

impl How {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            How::Preloaded => "preloaded",
            How::LinkedDynamically => "linked",
            How::LinkedStatically => "linked statically",
            How::CLibrary => "C library",
        }
    }
}

impl ProcessReport {
    /// The allocator's name and version for people.
    pub fn allocator_text(&self) -> String {
        match &self.allocator {
            None => "unknown".into(),
            Some(used) => match (&used.version, used.kind) {
                (Some(version), _) => format!("{} {version}", used.kind.name()),
                (None, Kind::Other) => {
                    let file = file_name(&used.file);
                    format!("another ({file})")
                }
                (None, _) => used.kind.name().to_string(),
            },
        }
    }

    fn has_problem(&self, id: &str) -> bool {
        self.problems.iter().any(|problem| problem.id == id)
    }

    /// Why it does not do its work, as the end of a sentence; None if nothing speaks against that.
    pub fn failure(&self) -> Option<&'static str> {
        if self.has_problem("missing-library") || self.has_problem("glibc-too-old") {
            return Some("does not start");
        }
        self.has_problem(FAILED_ITSELF).then_some("failed")
    }

    /// Whether it is a shell, and what it starts can't be told. A preloaded library is handed on.
    pub fn hides_others(&self) -> bool {
        let preloaded = self.allocator.as_ref().is_some_and(|used| used.how == How::Preloaded);
        self.has_problem(SHELL) && !preloaded
    }

    /// Whether it uses this allocator.
    pub fn uses(&self, kind: Kind) -> bool {
        self.allocator.as_ref().is_some_and(|used| used.kind == kind)
    }
}

impl CheckReport {
    /// The worst of all problems; None if there are none.
    pub fn worst(&self) -> Option<Severity> {
        self.processes.iter().flat_map(|process| &process.problems).map(|problem| problem.severity).max()
    }

    /// Processes that use another allocator than expected, or fail.
    pub fn unexpected(&self) -> Vec<&ProcessReport> {
        let Some(kind) = self.expected else { return Vec::new() };
        let is_wrong = |process: &&ProcessReport| {
            process.failure().is_some() || (!process.uses(kind) && !process.hides_others())
        };
        self.processes.iter().filter(is_wrong).collect()
    }

    /// Why it can't be told whether all is as expected, as the end of a sentence; None if it can.
    pub fn doubt(&self) -> Option<String> {
        let shown: Vec<String> = self.unreadable.iter().take(5).map(Pid::to_string).collect();
        let more = if self.unreadable.len() > 5 { ", ..." } else { "" };
        match self.unreadable.len() {
            0 => {}
            1 => return Some(format!("process {} belongs to another user", shown[0])),
            count => {
                return Some(format!("{count} processes belong to other users: {}{more}", shown.join(", ")))
            }
        }
        let shell = self.processes.iter().find(|process| process.hides_others())?;
        Some(format!("what {} starts is unknown until it runs", shell.command))
    }

    /// Whether all is as expected; None if nothing is expected, or if it can't be told.
    pub fn is_as_expected(&self) -> Option<bool> {
        self.expected?;
        if !self.unexpected().is_empty() {
            return Some(false);
        }
        self.doubt().is_none().then_some(true)
    }
}
