//! The reasons why words of a Ruby process changed since it was forked: marks and ages, new objects, or code.
//!
//! Pages of slots are known by their headers (`interpreters`). What Ruby keeps about each, `struct heap_page`, is marks and
//! lists of free slots. The first word of an object says its type, and what Ruby notes about it (include/ruby/internal/
//! value_type.h and fl_type.h); objects of its interpreter alone have the type `T_IMEMO` (internal/imemo.h). Numbers are those of
//! Ruby 3.0 to 3.4.

use std::collections::HashMap;
use std::ops::Range;

use crate::interpreters::{ruby_slots, RubyPage};
use crate::page_change::{Cause, PART_BYTES};
use crate::remote::{self, word};
use snug_process::proc::Pid;
use snug_process::smaps::PageMap;

/// Of the first word of an object.
const TYPE: u64 = 0x1f;
/// How old it is, until 3.2; later that lies beside marks, but for one bit.
const AGE: u64 = 0x60;
const NONE: u64 = 0;
const IMEMO: u64 = 0x1a;
/// An object that waits for its end, and a place from where one was moved.
const GONE: [u64; 2] = [0x1d, 0x1e];
/// Which kind of `T_IMEMO` it is: a lexical scope, a method, instructions, a call, where a call leads, a constant.
const KIND_SHIFT: u64 = 12;
const KIND: u64 = 0xf;
const KINDS_OF_CODE: [u64; 6] = [1, 6, 7, 11, 12, 13];
/// `struct heap_page` is not longer; if there are several, then as far as the next one at most.
const STRUCTURE_BYTES_MAX: u64 = 2048;

/// The slots of a process.
pub struct RubyHeap {
    pid: Pid,
    pages: Vec<RubyPage>,
    /// What is kept about each page, ascending, and how long that is.
    structures: Vec<u64>,
    structure_bytes: u64,
    /// Whether words lead to objects that are code, as far as was asked.
    code: HashMap<u64, bool>,
}

impl RubyHeap {
    /// Finds slots in these ranges. None: there are none.
    pub fn open(pid: Pid, ranges: &[Range<u64>]) -> Option<RubyHeap> {
        let pages = ruby_slots(pid, &PageMap::open(pid).ok()?, ranges);
        let mut structures: Vec<u64> = pages.iter().map(|page| page.structure).collect();
        structures.sort_unstable();
        let distances = structures.windows(2).map(|two| two[1] - two[0]).filter(|distance| *distance > 0);
        let structure_bytes = distances.min().unwrap_or(STRUCTURE_BYTES_MAX).min(STRUCTURE_BYTES_MAX);
        (!pages.is_empty()).then(|| RubyHeap {
            pid,
            pages,
            structures,
            structure_bytes,
            code: HashMap::new(),
        })
    }

    fn page_of(&self, address: u64) -> Option<&RubyPage> {
        let after = self.pages.partition_point(|page| page.place.start <= address);
        self.pages.get(after.checked_sub(1)?).filter(|page| page.place.contains(&address))
    }

    /// Whether it belongs to what Ruby keeps about a page.
    fn is_beside(&self, address: u64) -> bool {
        let after = self.structures.partition_point(|structure| *structure <= address);
        after > 0 && address - self.structures[after - 1] < self.structure_bytes
    }

    /// The first word of the object in a slot, of which a part may have been read.
    fn head(&self, slot: u64, address: u64, part: &[u8]) -> u64 {
        match slot.checked_sub(address) {
            Some(at) if at + 8 <= part.len() as u64 => word(part, at as usize),
            _ => self.read(slot),
        }
    }

    fn read(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        remote::read_into(self.pid, address, &mut bytes).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// Whether a word leads to an object that is code.
    fn leads_to_code(&mut self, word: u64) -> bool {
        let Some(page) = self.page_of(word).filter(|page| page.slots.contains(&word)) else { return false };
        if (word - page.slots.start) % page.slot_bytes != 0 {
            return false;
        }
        if let Some(known) = self.code.get(&word) {
            return *known;
        }
        let is_code = is_code(self.read(word));
        self.code.insert(word, is_code);
        is_code
    }

    /// Whether no object of this process lies in these 4 KiB.
    fn is_empty(&self, page: &RubyPage, address: u64, part: &[u8]) -> bool {
        let from = address.max(page.slots.start);
        let first = from - (from - page.slots.start) % page.slot_bytes;
        let end = page.slots.end.min(address + PART_BYTES as u64);
        (first..end).step_by(page.slot_bytes as usize).all(|slot| is_free(self.head(slot, address, part)))
    }
}

/// Why the word at an offset of these 4 KiB differs between a process and its worker. None: it is nothing of Ruby's own.
pub fn cause(
    heaps: (&mut RubyHeap, &mut RubyHeap),
    address: u64,
    parts: (&[u8], &[u8]),
    at: usize,
) -> Option<Cause> {
    let (of_parent, own) = heaps;
    let place = address + at as u64;
    if let Some(page) = of_parent.page_of(place) {
        let Some(into) = place.checked_sub(page.slots.start) else { return Some(Cause::Collector) };
        let slot = place - into % page.slot_bytes;
        let heads = (of_parent.head(slot, address, parts.0), own.head(slot, address, parts.1));
        let cause = in_slot(heads, slot == place);
        let is_first = cause == Cause::Holes && of_parent.is_empty(page, address, parts.0);
        return Some(if is_first { Cause::FreePages } else { cause });
    }
    if of_parent.is_beside(place) {
        return Some(Cause::Collector);
    }
    let code = of_parent.leads_to_code(word(parts.0, at)) || own.leads_to_code(word(parts.1, at));
    code.then_some(Cause::Code)
}

/// Why a word in a slot differs, by the first words of what lies there in both.
fn in_slot((before, now): (u64, u64), is_head: bool) -> Cause {
    match (is_free(before), is_free(now)) {
        (_, true) => Cause::Allocator,
        (true, false) => Cause::Holes,
        _ if is_head && (before ^ now) & !AGE == 0 => Cause::Collector,
        _ if is_code(before) && is_code(now) => Cause::Code,
        // Another object in the place of one that was freed.
        _ if before & TYPE != now & TYPE => Cause::Holes,
        _ => Cause::Changed,
    }
}

fn is_free(head: u64) -> bool {
    head & TYPE == NONE || GONE.contains(&(head & TYPE))
}

fn is_code(head: u64) -> bool {
    head & TYPE == IMEMO && KINDS_OF_CODE.contains(&(head >> KIND_SHIFT & KIND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};

    const PAGE_BYTES: usize = 16 << 10;
    const SLOT_BYTES: usize = 40;
    /// Words of the slots of a page, from its second 40 bytes on.
    const FIRST: usize = SLOT_BYTES / 8;

    /// Two pages of slots, what is kept about both, and something else.
    struct Memory(Vec<u64>, usize);

    impl Memory {
        fn new() -> Memory {
            let words = vec![0; 4 * PAGE_BYTES / 8];
            let skipped = (words.as_ptr() as usize).next_multiple_of(PAGE_BYTES) - words.as_ptr() as usize;
            let mut memory = Memory(words, skipped / 8);
            for page in 0..2 {
                let structure = memory.at(2) + page as u64 * 512;
                memory.words()[page * PAGE_BYTES / 8] = structure;
                let first = memory.at(page) + SLOT_BYTES as u64;
                let at = 2 * PAGE_BYTES / 8 + page * 64;
                memory.words()[at] = 408 << 16 | SLOT_BYTES as u64;
                memory.words()[at + 2] = first;
            }
            memory
        }

        fn at(&self, page: usize) -> u64 {
            self.0.as_ptr() as u64 + (self.1 * 8 + page * PAGE_BYTES) as u64
        }

        fn words(&mut self) -> &mut [u64] {
            &mut self.0[self.1..]
        }

        fn heap(&self) -> RubyHeap {
            let range = self.at(0)..self.at(3);
            RubyHeap::open(std::process::id() as Pid, std::slice::from_ref(&range)).unwrap()
        }

        /// The first 4 KiB of a page of both, in which a word is another one, and why.
        fn cause(&self, page: usize, at: usize, before: u64, now: u64) -> Option<Cause> {
            let start = self.1 + page * PAGE_BYTES / 8;
            let bytes = |word: u64| -> Vec<u8> {
                let mut words = self.0[start..start + PART_BYTES / 8].to_vec();
                words[at] = word;
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            };
            let (mut parent, mut child) = (self.heap(), self.heap());
            cause((&mut parent, &mut child), self.at(page), (&bytes(before), &bytes(now)), at * 8)
        }
    }

    #[test]
    fn slots_marks_and_code_are_told_apart() {
        let mut memory = Memory::new();
        let (string, object, call) = (5, 1, IMEMO | 12 << KIND_SHIFT);
        assert_eq!(memory.cause(0, FIRST, 0, string), Some(Cause::FreePages));
        memory.words()[FIRST + 5] = string;
        memory.words()[FIRST + 10] = call;
        for (before, now, why) in [
            (0, string, Cause::Holes),
            (string, 0, Cause::Allocator),
            (string, 0x1d, Cause::Allocator),
            (string, string | 0x20, Cause::Collector),
            (string, string | 0x60, Cause::Collector),
            (string, string | 0x800, Cause::Changed),
            (string, object, Cause::Holes),
            (call, call | 1 << 20, Cause::Code),
            (call, string, Cause::Holes),
        ] {
            assert_eq!(memory.cause(0, FIRST, before, now), Some(why), "{before:x} {now:x}");
        }
        assert_eq!(memory.cause(0, FIRST + 6, 7, 8), Some(Cause::Changed), "what a string holds");
        assert_eq!(memory.cause(0, 0, 7, 8), Some(Cause::Collector));
        assert_eq!(memory.cause(2, 30, 7, 8), Some(Cause::Collector), "beside the first page");
        let (place, inside) =
            (memory.at(0) + ((FIRST + 10) * 8) as u64, memory.at(0) + ((FIRST + 11) * 8) as u64);
        assert_eq!(memory.cause(2, 300, 0, place), Some(Cause::Code));
        assert_eq!(memory.cause(2, 300, place, 0), Some(Cause::Code));
        assert_eq!(memory.cause(2, 300, 0, inside), None);
        assert_eq!(memory.cause(2, 300, 0, place - 40), None, "a string");
    }

    #[test]
    fn slots_of_who_means_harm_lead_to_an_end() {
        must_end(|| {
            let mut random = Random::new(74);
            let mut memory = Memory::new();
            let range = memory.at(0)..memory.at(3);
            for _ in 0..30 {
                let bytes = random.hostile_bytes(2 * PAGE_BYTES, std::slice::from_ref(&range));
                for (to, from) in memory.words()[1..].iter_mut().zip(bytes.chunks_exact(8).skip(1)) {
                    *to = u64::from_le_bytes(from.try_into().unwrap());
                }
                for at in 0..PART_BYTES / 8 {
                    let word = random.hostile_word(std::slice::from_ref(&range));
                    memory.cause(at % 3, at, word, !word);
                }
            }
        });
    }
}
