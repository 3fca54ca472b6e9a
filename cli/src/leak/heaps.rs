//! Which allocator a process uses, and what is live in it: by snug's page of counters, or by a walk of glibc's heaps.

use super::watch::{Heaps, Identity};
use crate::allocator::Kind;
use crate::check::inspect::Inspector;
use crate::glibc_heap::{self, ProcessMemory};
use crate::proc::{self, Pid, ProcFilesystem, Processes};
use crate::watch::Allocators;

/// Walks of glibc's heaps that may meet a chunk in the middle of a change.
const TRIES: usize = 3;

/// Allocators of real processes.
pub struct RealHeaps {
    inspector: Inspector,
    /// Arenas that the last page of counters had: as many are read at once.
    arenas: u32,
    source: ProcFilesystem,
}

impl RealHeaps {
    pub fn new() -> RealHeaps {
        RealHeaps { inspector: Inspector::new(String::new()), arenas: 1, source: ProcFilesystem::new() }
    }

    /// What is live under glibc; None if the heaps change too fast to be walked, or can't be.
    fn walk(&mut self, pid: Pid) -> Option<(u64, u64)> {
        let mut memory = ProcessMemory::open(pid).ok()?;
        let mut maps = Vec::new();
        let estimate = (0..TRIES).find_map(|_| {
            self.source.read(pid, "maps", &mut maps).ok()?;
            glibc_heap::estimate(&mut memory, &proc::parse_regions(&maps))
        })?;
        Some((estimate.live_bytes, estimate.held_bytes))
    }
}

impl Heaps for RealHeaps {
    fn identify(&mut self, pid: Pid) -> Option<Identity> {
        let found = Allocators::identify(&mut self.inspector, pid)?;
        let kind = found.allocator?.kind;
        Some(Identity { kind, counters_at: found.counters_at.filter(|_| kind == Kind::Snug) })
    }

    fn read(&mut self, pid: Pid, identity: &Identity) -> Option<(u64, u64)> {
        if identity.kind == Kind::Glibc {
            return self.walk(pid);
        }
        let account = self.inspector.account(pid, identity.counters_at?, self.arenas).ok()?;
        self.arenas = account.head.arena_count;
        Some((account.live_bytes(), account.resident_bytes()))
    }
}
