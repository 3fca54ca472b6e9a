//! Memory that processes share since a fork: prepared by hooks, and left so by their workers.

use serde::Serialize;

use crate::hooks::{self, HooksPage, HooksState};
use snug_process::proc;

/// What hooks did before a fork, seen from one process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForkHooks {
    /// The same in all processes that share it, and in no other.
    pub group: u64,
    /// Whether this is the process that was prepared, and not a worker.
    pub is_prepared: bool,
    /// What the hooks wrote.
    #[serde(flatten)]
    pub state: HooksState,
    /// Of a worker: how much of what was shared it has copied since, estimated. None: the kernel does not say.
    pub copied_bytes: Option<u64>,
}

impl ForkHooks {
    /// `status` and `rollup` are those of the process in which the page lies.
    pub fn new(page: HooksPage, status: &[u8], rollup: Option<proc::Rollup>) -> ForkHooks {
        let is_prepared = hooks::is_prepared(&page.state, status);
        let copied = |rollup: proc::Rollup| page.state.copied_bytes(rollup.shared_dirty_bytes);
        ForkHooks {
            group: page.inode,
            is_prepared,
            copied_bytes: rollup.filter(|_| !is_prepared).map(copied),
            state: page.state,
        }
    }
}
