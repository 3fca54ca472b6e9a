//! The reading of a process at one moment. Plain data.

use snug_heap::counters::Account;
use snug_heap::glibc_heap::HeapSize;
use snug_heap::sharing::ForkHooks;
use snug_inspect::identity::Identity;
use snug_inspect::kinds::Kind;
use snug_process::proc::{Pid, Stat};

/// One process at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub pid: Pid,
    pub parent: Pid,
    /// How many processes that are shown stand above it.
    pub depth: usize,
    pub role: String,
    /// The application that its title names; empty if it names none.
    pub app: String,
    pub command: String,
    pub identity: Identity,
    pub rss_bytes: u64,
    /// None: not read yet, or not permitted.
    pub pss_bytes: Option<u64>,
    /// Known with PSS.
    pub swap_bytes: Option<u64>,
    /// What hooks did before a fork. Known with PSS.
    pub hooks: Option<ForkHooks>,
    /// CPU time per time, in cores; None at the first reading.
    pub cpu_cores: Option<f64>,
    pub faults_per_s: Option<f64>,
    pub threads: u64,
    /// What the kernel counted since it started.
    pub stat: Stat,
    /// None for other allocators than snug.
    pub heap: Option<HeapReading>,
    /// For glibc, if estimates are wanted and one could be made.
    pub glibc_heap: Option<HeapSize>,
    /// RSS of the last readings, the oldest first.
    pub rss_history: Vec<u64>,
    pub live_history: Vec<u64>,
}

/// The heap of a process under snug.
#[derive(Debug, Clone, PartialEq)]
pub struct HeapReading {
    pub account: Account,
    /// Bytes and blocks that left the slabs, per second; None at the first reading.
    pub taken_bytes_per_s: Option<f64>,
    pub taken_blocks_per_s: Option<f64>,
}

impl HeapReading {
    /// `before` was read so many seconds earlier.
    pub fn new(account: Account, before: Option<&HeapReading>, elapsed_s: f64) -> HeapReading {
        let (blocks, bytes) = account.taken();
        let rates = before.filter(|_| elapsed_s > 0.0).map(|before| {
            let (blocks_before, bytes_before) = before.account.taken();
            let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / elapsed_s;
            (per_s(blocks, blocks_before), per_s(bytes, bytes_before))
        });
        HeapReading {
            account,
            taken_blocks_per_s: rates.map(|(blocks, _)| blocks),
            taken_bytes_per_s: rates.map(|(_, bytes)| bytes),
        }
    }
}

impl Reading {
    /// The role for people, with the application.
    pub fn role_text(&self) -> String {
        match self.app.as_str() {
            "" => self.role.clone(),
            app => format!("{} [{app}]", self.role),
        }
    }

    /// Whether the process runs under snug and its counters can be read.
    pub fn live_bytes(&self) -> Option<u64> {
        self.heap.as_ref().map(|heap| heap.account.live_bytes())
    }

    /// The allocator's kind.
    pub fn kind(&self) -> Option<Kind> {
        self.identity.allocator.as_ref().map(|used| used.kind)
    }
}
