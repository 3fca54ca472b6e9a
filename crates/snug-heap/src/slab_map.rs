//! Free blocks of a process under snug, by the tables of its heap, which core/src/map.h and core/src/slab_record.h
//! describe. They are no promise, so only the tables of this very version are read.

use std::mem::offset_of;

use crate::counters::{PlacesLayout, PLACES_OFFSET};
use crate::page_change::{Granules, GRANULE_BYTES};
use crate::remote;
use snug_base::VERSION;
use snug_process::proc::Pid;

/// Pages of snug, whatever size the system's have.
const PAGE_BYTES: u64 = 4096;
/// In a page's kind: the class; a run begins; what is beside the class.
const KIND_CLASS: u16 = 0xff;
const KIND_RUN: u16 = 0xfe;
/// Of the tables, in the order in which they are registered.
const KINDS: usize = 0;
const OWNERS: usize = 1;
const FREE_BITS: usize = 2;
/// Of a record: its bytes, and where its bits are.
const RECORD_BYTES: u64 = 64;
const RECORD_BITS: usize = 32;

/// Where the tables of a heap lie.
pub struct SlabMap {
    pid: Pid,
    base: u64,
    end: u64,
    kinds: u64,
    owners: u64,
    free_bits: u64,
    records: u64,
    /// Of each class.
    block_bytes: Vec<u64>,
}

impl SlabMap {
    /// None: the library in the process is another version, or its heap can't be read.
    pub fn open(pid: Pid, counters_page: u64) -> Option<SlabMap> {
        let account = remote::read_account(pid, counters_page, 1).ok()?;
        if account.head.snug_version != VERSION {
            return None;
        }
        let bytes = remote::read_memory(
            pid,
            counters_page + PLACES_OFFSET as u64,
            std::mem::size_of::<PlacesLayout>(),
        );
        let bytes = bytes.ok()?;
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let base = number(offset_of!(PlacesLayout, heap_address));
        let tables = offset_of!(PlacesLayout, tables);
        let table = |index: usize| (number(tables + index * 16), number(tables + index * 16 + 8));
        let (kinds, kinds_bytes) = table(KINDS);
        // The records are the table that has one for each page, which has two bytes in that of kinds.
        let count = (bytes.len() - tables) / 16;
        let records = (FREE_BITS + 1..count).map(table).find(|(start, reserved)| {
            *start != 0 && reserved.abs_diff(kinds_bytes / 2 * RECORD_BYTES) <= kinds_bytes
        })?;
        let block_bytes = std::iter::once(0).chain(account.classes.iter().map(|class| class.size_bytes));
        Some(SlabMap {
            pid,
            base,
            end: base.checked_add(account.head.heap_top_bytes)?,
            kinds,
            owners: table(OWNERS).0,
            free_bits: table(FREE_BITS).0,
            records: records.0,
            block_bytes: block_bytes.collect(),
        })
    }

    /// Which granules of the 4 KiB at an address are free. None: it is not in the heap, or that can't be read.
    pub fn free_in(&self, address: u64) -> Option<Granules> {
        if !(self.base..self.end).contains(&address) {
            return None;
        }
        let page = (address - self.base) / PAGE_BYTES;
        let word = self.read::<2>(self.kinds + page * 2)?;
        let kind = u16::from_le_bytes(word) & KIND_CLASS;
        match kind {
            0 => {
                let bits = u64::from_le_bytes(self.read::<8>(self.free_bits + page / 64 * 8)?);
                Some(Granules::all(bits >> (page % 64) & 1 != 0))
            }
            KIND_RUN => Some(Granules::all(false)),
            class => {
                let block_bytes = *self.block_bytes.get(usize::from(class))?;
                let record = u32::from_le_bytes(self.read::<4>(self.owners + page * 4)?);
                let record =
                    self.read::<{ RECORD_BYTES as usize }>(self.records + u64::from(record) * RECORD_BYTES)?;
                let first = u64::from(u32::from_le_bytes(record[..4].try_into().ok()?));
                let into = page.checked_sub(first)? * PAGE_BYTES;
                let is_free = |granule: usize| {
                    let slot = (into as usize + granule * GRANULE_BYTES) / block_bytes as usize;
                    record[RECORD_BITS..].get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 != 0)
                };
                Some(Granules::where_is(is_free))
            }
        }
    }

    fn read<const BYTES: usize>(&self, at: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        remote::read_into(self.pid, at, &mut bytes).ok()?;
        Some(bytes)
    }
}
