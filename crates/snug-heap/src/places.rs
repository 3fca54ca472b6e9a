//! Addresses of snug's blocks, and of what describes them, in a process, by its page of counters.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use crate::counters::{self, PlacesLayout, GUARD_SLOTS_OFFSET, PLACES_OFFSET, RETAINED};
use crate::remote::word;
use crate::{profile, remote};
use snug_process::proc::Pid;

/// Addresses of a heap. Not all of them hold memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapPlaces {
    /// Where slabs and runs begin.
    pub zone_address: u64,
    /// Live blocks with a mapping of their own.
    pub large: Vec<Range<u64>>,
    /// Mappings that are kept for such blocks.
    pub retained: Vec<Range<u64>>,
    /// Slots of sampled guards.
    pub guarded: Option<Range<u64>>,
    /// Tables.
    pub metadata: Vec<Range<u64>>,
}

/// How often a table is read that is moved meanwhile.
const TRIES: usize = 8;
/// As many rows as large blocks in a terabyte want, each at least 1 MiB. A table that says so is none.
const ROWS_MAX: u64 = 1 << 21;
const ROW_BYTES: usize = 24;

/// Reads where the heap is whose page of counters lies at an address. None: the library in the process is older than that,
/// or the heap changed all the time.
pub fn read(pid: Pid, page: u64) -> Option<HeapPlaces> {
    let size = remote::read_memory(pid, page + counters::SIZE_OFFSET as u64, 4).ok()?;
    let size = u32::from_ne_bytes(size.try_into().ok()?) as usize;
    if size < PLACES_OFFSET + size_of::<PlacesLayout>() {
        return None;
    }
    let take = || remote::read_memory(pid, page + PLACES_OFFSET as u64, size_of::<PlacesLayout>()).ok();
    // The library in the process may be older.
    let guarded = remote::read_memory(pid, page + GUARD_SLOTS_OFFSET as u64, 16).ok();
    let guarded =
        guarded.filter(|_| size >= GUARD_SLOTS_OFFSET + 16).map(|slots| (word(&slots, 0), word(&slots, 8)));
    let guarded =
        guarded.filter(|(start, _)| *start != 0).map(|(start, bytes)| start..start.saturating_add(bytes));
    for _ in 0..TRIES {
        let layout = take()?;
        let number = |offset: usize| word(&layout, offset);
        let (table, rows) = (
            number(offset_of!(PlacesLayout, large_table_address)),
            number(offset_of!(PlacesLayout, large_table_rows)).min(ROWS_MAX),
        );
        let large = remote::read_memory(pid, table, rows as usize * ROW_BYTES);
        let retained_at = number(offset_of!(PlacesLayout, large_retained_address));
        let retained = remote::read_memory(pid, retained_at, RETAINED * ROW_BYTES);
        let (Ok(large), Ok(retained), true) = (large, retained, take()? == layout) else { continue };
        let tables = (offset_of!(PlacesLayout, tables)..layout.len())
            .step_by(16)
            .map(|at| number(at)..number(at).saturating_add(number(at + 8)));
        let metadata = std::iter::once(table..table.saturating_add(rows * ROW_BYTES as u64))
            .chain(tables)
            .chain(profile::tables(pid, page))
            .filter(|range| range.start != 0);
        return Some(HeapPlaces {
            zone_address: number(offset_of!(PlacesLayout, heap_address)),
            large: mappings(&large),
            retained: mappings(&retained),
            guarded,
            metadata: metadata.collect(),
        });
    }
    None
}

/// What rows of a table say: address, length, and a word more. Addresses with a mark in their low bits hold no memory.
fn mappings(rows: &[u8]) -> Vec<Range<u64>> {
    let rows = rows.chunks_exact(ROW_BYTES).map(|row| (word(row, 0), word(row, 8)));
    let used = rows.filter(|(start, _)| *start != 0 && start % 4096 == 0);
    used.map(|(start, bytes)| start..start.saturating_add(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};

    #[test]
    fn rows_are_mappings_unless_marked() {
        let words = [0x5000u64, 0x2000, 7, 0, 0, 0, 0x9001, 0x1000, 0];
        let rows: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(mappings(&rows).first(), Some(&(0x5000..0x7000)));
        assert_eq!(mappings(&rows).len(), 1);
    }

    #[test]
    fn places_of_who_means_harm_are_read_to_an_end() {
        must_end(|| {
            let mut random = Random::new(60);
            let memory = random.hostile_bytes(1 << 16, &[]);
            let memory = memory.as_ptr() as u64..memory.as_ptr() as u64 + memory.len() as u64;
            let mut page = vec![0u8; GUARD_SLOTS_OFFSET + 16];
            let size = page.len() as u32;
            page[counters::SIZE_OFFSET..][..4].copy_from_slice(&size.to_ne_bytes());
            let mut found = 0;
            for _ in 0..2000 {
                let tail = random.hostile_bytes(
                    size as usize - counters::PROFILE_ADDRESS_OFFSET,
                    std::slice::from_ref(&memory),
                );
                page[counters::PROFILE_ADDRESS_OFFSET..].copy_from_slice(&tail);
                let mut put = |offset: usize, number: u64| {
                    page[PLACES_OFFSET + offset..][..8].copy_from_slice(&number.to_ne_bytes());
                };
                if random.chance(0.9) {
                    put(offset_of!(PlacesLayout, large_table_address), memory.start);
                    put(offset_of!(PlacesLayout, large_table_rows), random.below(1000));
                    put(offset_of!(PlacesLayout, large_retained_address), memory.start + random.below(1000));
                }
                let Some(places) = read(std::process::id() as Pid, page.as_ptr() as u64) else { continue };
                found += 1;
                let ranges = places.large.iter().chain(&places.retained).chain(&places.guarded);
                for range in ranges.chain(&places.metadata) {
                    assert!(range.start <= range.end, "{range:x?}");
                }
            }
            assert!(found > 500, "{found}");
        });
    }
}
