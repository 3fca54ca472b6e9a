//! Live bytes of the processes of a run, for `snug compare --ask-allocator`.

use std::collections::HashMap;

use snug_inspect::identity::{Allocators, Identity};
use snug_process::proc::Pid;

/// Reads live bytes, and remembers which allocator each process uses.
pub struct LiveReader {
    allocators: Box<dyn Allocators>,
    known: HashMap<Pid, Identity>,
    arenas: u32,
}

impl LiveReader {
    pub fn new(allocators: Box<dyn Allocators>) -> LiveReader {
        LiveReader { allocators, known: HashMap::new(), arenas: 1 }
    }

    /// Bytes that are live in a process; None: it does not tell.
    pub fn read(&mut self, pid: Pid) -> Option<u64> {
        let LiveReader { allocators, known, arenas } = self;
        if let Some(heap) = known.get(&pid).and_then(|identity| allocators.heap(pid, identity, arenas)) {
            return Some(heap.live_bytes);
        }
        // It is new, still starts, or became another program.
        let identity = known.entry(pid).insert_entry(allocators.identify(pid)?).into_mut();
        allocators.heap(pid, identity, arenas).map(|heap| heap.live_bytes)
    }
}
