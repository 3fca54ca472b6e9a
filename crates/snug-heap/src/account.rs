//! The heap of a process under snug in numbers for people and metrics, from its page of counters. Pure.

#![allow(missing_docs)] // docs/reference/json.md describes the fields

use serde::{Serialize, Serializer};

use crate::counters::{sum, Account, Class};

/// The heap of a process under snug, by its own counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Heap {
    /// What the program asked for and has not freed; of small blocks estimated from samples.
    pub live_requested_bytes: u64,
    /// The blocks that hold it.
    pub live_allocated_bytes: u64,
    /// Freed blocks that threads keep at hand; like free pages and tables None if that was not counted.
    #[serde(serialize_with = "zero_unless_counted")]
    pub cached_bytes: Option<u64>,
    /// Free blocks in slabs that may hold memory.
    pub slab_free_bytes: u64,
    /// Free pages that hold memory.
    #[serde(serialize_with = "zero_unless_counted")]
    pub dirty_bytes: Option<u64>,
    #[serde(serialize_with = "zero_unless_counted")]
    pub metadata_bytes: Option<u64>,
    /// At most this is resident.
    pub resident_bytes: u64,
    /// Share of that which is not live, from 0 to 1.
    pub fragmentation: f64,
    /// Blocks that ever left the slabs, and their bytes; what a thread's cache serves again is not counted.
    pub taken_blocks: u64,
    pub taken_bytes: u64,
    pub purged_bytes: u64,
    pub purges: u64,
    pub idle_purges: u64,
    pub limit_purges: u64,
    pub forks: u64,
    pub thread_caches: u64,
    pub arenas: u32,
    pub large_blocks: u64,
    pub large_bytes: u64,
    /// Whether blocks in caches, free pages and tables were counted: not in a program that has done little. In JSON
    /// they are 0 then, and blocks in caches pass for live.
    pub counted: bool,
    /// Classes of which blocks were ever used.
    pub classes: Vec<Class>,
}

impl Heap {
    /// Adds up what a page of counters says (E2, E3 and E5 of its header).
    pub fn from_account(account: &Account) -> Heap {
        let head = &account.head;
        let outstanding = sum(account.classes.iter().map(Class::outstanding_bytes));
        let in_slabs = sum(account.classes.iter().map(|class| class.slab_bytes));
        let (taken_blocks, taken_bytes) = account.taken();
        let counts = account.tick_counts();
        Heap {
            taken_blocks,
            taken_bytes,
            live_requested_bytes: requested_bytes(account, outstanding),
            live_allocated_bytes: account.live_bytes(),
            cached_bytes: counts.map(|counts| counts.cached_bytes),
            slab_free_bytes: in_slabs.saturating_sub(sum([outstanding, head.slab_purged_bytes])),
            dirty_bytes: counts.map(|counts| counts.dirty_bytes),
            metadata_bytes: counts.map(|counts| counts.metadata_bytes),
            resident_bytes: account.resident_bytes(),
            fragmentation: account.fragmentation(),
            purged_bytes: head.purged_bytes,
            purges: head.purges,
            idle_purges: head.idle_purges,
            limit_purges: head.limit_purges,
            forks: head.forks,
            thread_caches: head.caches,
            arenas: head.arena_count,
            large_blocks: head.large_blocks,
            large_bytes: head.large_bytes,
            counted: counts.is_some(),
            classes: account.classes.iter().filter(|class| class.taken_blocks > 0).copied().collect(),
        }
    }
}

/// As readers of the JSON expect it, which says by `counted` whether it is known.
fn zero_unless_counted<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.unwrap_or(0))
}

/// E3: each class's blocks at the mean size that was asked for; runs and large blocks exactly.
fn requested_bytes(account: &Account, outstanding: u64) -> u64 {
    let head = &account.head;
    let asked: f64 = account
        .classes
        .iter()
        .filter(|class| class.sampled_requests > 0)
        .map(|class| {
            let mean = class.sampled_requested_bytes as f64 / class.sampled_requests as f64;
            class.outstanding_blocks as f64 * mean
        })
        .sum();
    let live = outstanding.saturating_sub(head.cached_bytes) as f64;
    let share = if outstanding > 0 { asked / outstanding as f64 } else { 0.0 };
    sum([(live * share) as u64, head.run_requested_bytes, head.large_requested_bytes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;

    fn account() -> Account {
        let class = |size_bytes, outstanding_blocks, mean: u64| Class {
            size_bytes,
            outstanding_blocks,
            slab_bytes: size_bytes * outstanding_blocks * 2,
            taken_blocks: outstanding_blocks,
            sampled_requests: 10,
            sampled_requested_bytes: 10 * mean,
            ..Class::default()
        };
        let head = Counters {
            cached_bytes: 300,
            cached_at_ns: 1,
            run_bytes: 40_960,
            run_requested_bytes: 40_000,
            heap_top_bytes: 100_000,
            clean_bytes: 20_000,
            metadata_bytes: 4_096,
            ..Counters::default()
        };
        Account { head, classes: vec![class(100, 30, 90), class(200, 0, 150), Class::default()] }
    }

    #[test]
    fn a_heap_adds_up() {
        let heap = Heap::from_account(&account());
        assert_eq!(heap.live_allocated_bytes, 3000 - 300 + 40_960);
        assert_eq!(heap.live_requested_bytes, 2430 + 40_000);
        assert_eq!(heap.slab_free_bytes, 3000);
        assert_eq!(heap.resident_bytes, 100_000 - 20_000 + 4_096);
        assert_eq!(heap.classes.len(), 1, "only classes that were used");
        assert!(heap.counted);
    }

    #[test]
    fn what_was_not_counted_is_unknown() {
        let known = Heap::from_account(&account());
        assert_eq!([known.cached_bytes, known.dirty_bytes, known.metadata_bytes], [300, 0, 4096].map(Some));
        let json = serde_json::to_value(known).unwrap();
        assert!(json["counted"] == true && json["cached_bytes"] == 300, "{json}");
        let idle = Account { head: Counters { cached_at_ns: 0, ..account().head }, ..account() };
        let unknown = Heap::from_account(&idle);
        assert_eq!([unknown.cached_bytes, unknown.dirty_bytes, unknown.metadata_bytes], [None; 3]);
        let json = serde_json::to_value(unknown).unwrap();
        assert_eq!(json["counted"], false);
        for name in ["cached_bytes", "dirty_bytes", "metadata_bytes"] {
            assert_eq!(json[name], 0, "as docs/reference/json.md says");
        }
    }
}
