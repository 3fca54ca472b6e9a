//! Which allocator a process uses, and what is live in it: by snug's page of counters, or by a walk of glibc's heaps.

use crate::allocator::inspect::Inspector;
use crate::allocator::kinds::Kind;
use crate::allocator::memory::{Heaps, Identity};
use crate::allocator::watch::Allocators;
use crate::heap::glibc_heap;
use crate::process::proc::Pid;

/// Allocators of real processes.
pub struct RealHeaps {
    inspector: Inspector,
    /// Arenas that the last page of counters had: as many are read at once.
    arenas: u32,
}

impl RealHeaps {
    pub fn new() -> RealHeaps {
        RealHeaps { inspector: Inspector::new(String::new()), arenas: 1 }
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
            let estimate = glibc_heap::estimate_process(pid)?;
            return Some((estimate.live_bytes, estimate.held_bytes));
        }
        let account = self.inspector.account(pid, identity.counters_at?, self.arenas).ok()?;
        self.arenas = account.head.arena_count;
        Some((account.live_bytes(), account.resident_bytes()))
    }
}
