//! Memory that interpreters map for objects of their own, which malloc never sees: Ruby's slots, Python's arenas, the heap
//! of V8, which runs JavaScript.
//!
//! No symbol leads there, and offsets differ from version to version. But all divide their memory into pages of a fixed
//! size that begin with a header, and what the header holds can be checked against the place where it lies:
//!
//! - a heap page of Ruby (gc.c, `struct heap_page_body`) begins with the address of its `struct heap_page`, which holds the
//!   address of the first slot: just behind the header (3.0 to 3.4);
//! - Ruby's transient heap (transient_heap.c, until 3.2) is 1024 blocks of 32 KiB, of which each begins with the address of
//!   another one;
//! - a pool of Python (Objects/obmalloc.c, `struct pool_header`) says its size class, and how far blocks of that size may
//!   begin, which follows from the class (3.9 to 3.15, of 16 KiB since 3.10);
//! - a segment of the mimalloc that Python carries (mimalloc/types.h, `mi_segment_t`), for all objects of builds without the
//!   global lock, and where PYTHONMALLOC=mimalloc, says in its fifth word how long it is, and later in how many slices,
//!   of which its head takes one (tried: 3.13.0, 3.14.10, 3.15.2);
//! - a chunk of V8 (src/heap/memory-chunk.h) says where it lies, how long it is, and where its objects begin: in its first
//!   words (tried: Node 20 and 22), or in a block that its second word leads to (Node 24).

use std::ops::Range;

use crate::remote;
use snug_process::proc::Pid;
use snug_process::smaps::PageMap;

/// The smallest that systems have.
const PAGE_BYTES: u64 = 4096;
const RUBY_PAGE_BYTES: u64 = 16 << 10;
/// Since 3.2.
const RUBY_LONG_PAGE_BYTES: u64 = 64 << 10;
/// Of `struct heap_page`: the address of the first slot is among its first words.
const RUBY_HEAD_BYTES: usize = 96;
/// Slots are aligned to their size, which is at most this.
const RUBY_FIRST_SLOT_MAX: u64 = 1024;
/// Of all slots until 3.0, of the smallest since.
const RUBY_SLOT_BYTES: u64 = 40;

const TRANSIENT_BLOCK_BYTES: u64 = 32 << 10;
const TRANSIENT_BLOCKS: usize = 1024;

pub(crate) const PYTHON_POOL_BYTES: u64 = 16 << 10;
/// Until 3.9.
const PYTHON_SHORT_POOL_BYTES: u64 = 4 << 10;
pub(crate) const PYTHON_HEADER_BYTES: usize = 48;
const PYTHON_CLASSES: u32 = 32;
const PYTHON_ALIGNMENT: u32 = 16;

/// Segments begin at multiples of this, and are as long, but for those of large objects.
const MIMALLOC_SEGMENT_BYTES: u64 = 32 << 20;
const MIMALLOC_SLICE_BYTES: u64 = 64 << 10;
const MIMALLOC_HEAD_BYTES: usize = 312;

/// Chunks begin at multiples of this, and are as long, but for those of large objects.
const V8_CHUNK_BYTES: u64 = 256 << 10;
const V8_HEAD_BYTES: usize = 96;
/// Objects begin behind the chunk's own header.
const V8_HEADER_MAX: u64 = 8 << 10;

/// A page of Ruby's slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RubyPage {
    /// Where it lies.
    pub place: Range<u64>,
    /// Where Ruby keeps marks and more about it.
    pub structure: u64,
    /// Where its slots lie.
    pub slots: Range<u64>,
    /// How long each slot is.
    pub slot_bytes: u64,
}

/// The pages of Ruby's slots in these ranges, ascending.
pub fn ruby_slots(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<RubyPage> {
    let heads = heads(pid, pages, ranges, RUBY_PAGE_BYTES, 8);
    let pointed: Vec<(u64, u64)> = heads
        .into_iter()
        .map(|(page, head)| (page, word(&head, 0)))
        .filter(|(_, at)| *at % 8 == 0 && *at != 0 && ranges.iter().any(|range| range.contains(at)))
        .collect();
    let places: Vec<u64> = pointed.iter().map(|(_, at)| *at).collect();
    let structures = read_all(pid, &places, RUBY_HEAD_BYTES).into_iter().zip(pointed);
    let mut found: Vec<RubyPage> =
        structures.filter_map(|(head, (page, structure))| ruby_page(&head, page, structure)).collect();
    found.sort_unstable_by_key(|page| page.place.start);
    // What looks like a page inside of another one is an accident.
    let mut end = 0;
    found.retain(|page| {
        let follows = page.place.start >= end;
        end = if follows { page.place.end } else { end };
        follows
    });
    found
}

/// The same as ranges.
pub fn ruby_pages(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    joined(ruby_slots(pid, pages, ranges).into_iter().map(|page| page.place))
}

/// The page, if the `struct heap_page` that begins like this is of one that lies there: its slots fill it.
fn ruby_page(head: &[u8], page: u64, structure: u64) -> Option<RubyPage> {
    let first_slot = page + 8..=page + RUBY_FIRST_SLOT_MAX;
    let mut words = (1..RUBY_HEAD_BYTES / 8).map(|index| word(head, index));
    let first = words.find(|word| first_slot.contains(word))?;
    // Since 3.1 the size of slots comes first, before that their number.
    let count = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let sizes = [(count(0), count(2)), (RUBY_SLOT_BYTES, count(0))];
    let (slot_bytes, end, page_bytes) = sizes.into_iter().find_map(|(slot_bytes, slots)| {
        let end = first + slot_bytes * slots;
        let fills = |bytes: &u64| (page + bytes).checked_sub(end).is_some_and(|left| left < slot_bytes);
        let page_bytes = [RUBY_PAGE_BYTES, RUBY_LONG_PAGE_BYTES].into_iter().find(fills)?;
        (slot_bytes >= RUBY_SLOT_BYTES && page % page_bytes == 0).then_some((slot_bytes, end, page_bytes))
    })?;
    Some(RubyPage { place: page..page + page_bytes, structure, slots: first..end, slot_bytes })
}

/// Ruby's transient heap, if it is in these ranges.
pub fn ruby_transient_heap(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let long =
        |range: &&Range<u64>| range.end - range.start >= TRANSIENT_BLOCK_BYTES * TRANSIENT_BLOCKS as u64;
    let long: Vec<Range<u64>> = ranges.iter().filter(long).cloned().collect();
    let heads = heads(pid, pages, &long, TRANSIENT_BLOCK_BYTES, 16);
    let blocks: Vec<(u64, u64)> = heads.into_iter().map(|(block, head)| (block, word(&head, 1))).collect();
    transient_heap(&blocks).into_iter().collect()
}

/// Finds the heap among what could be its blocks: where each lies, and which other one it names. Ascending.
fn transient_heap(blocks: &[(u64, u64)]) -> Option<Range<u64>> {
    let bytes = TRANSIENT_BLOCK_BYTES * TRANSIENT_BLOCKS as u64;
    let windows = blocks
        .windows(TRANSIENT_BLOCKS)
        .filter(|window| window[TRANSIENT_BLOCKS - 1].0 - window[0].0 < bytes);
    let mut heaps =
        windows.map(|window| (window[0].0..window[0].0 + bytes, window)).filter(|(heap, window)| {
            let names_block = |next: u64| next % TRANSIENT_BLOCK_BYTES == 0 && heap.contains(&next);
            let naming = window.iter().filter(|(_, next)| names_block(*next)).count();
            naming >= TRANSIENT_BLOCKS / 2 && window.iter().all(|(_, next)| *next == 0 || names_block(*next))
        });
    heaps.next().map(|(heap, _)| heap)
}

/// The pools of Python's small objects in these ranges.
pub fn python_pools(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    for pool_bytes in [PYTHON_POOL_BYTES, PYTHON_SHORT_POOL_BYTES] {
        let heads = heads(pid, pages, ranges, pool_bytes, PYTHON_HEADER_BYTES);
        let found: Vec<u64> = heads
            .into_iter()
            .filter(|(_, head)| is_python_pool(head, pool_bytes))
            .map(|(page, _)| page)
            .collect();
        if !found.is_empty() {
            return joined(found.into_iter().map(|page| page..page + pool_bytes));
        }
    }
    Vec::new()
}

pub(crate) fn is_python_pool(header: &[u8], pool_bytes: u64) -> bool {
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (blocks, class, next, last) = (number(0), number(36), number(40), number(44));
    if class >= PYTHON_CLASSES {
        return false;
    }
    let (block_bytes, pool_bytes) = ((class + 1) * PYTHON_ALIGNMENT, pool_bytes as u32);
    last == pool_bytes - block_bytes && next <= pool_bytes + block_bytes && blocks <= pool_bytes / block_bytes
}

/// The segments of Python's mimalloc in these ranges.
pub fn python_segments(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let heads = heads(pid, pages, ranges, MIMALLOC_SEGMENT_BYTES, MIMALLOC_HEAD_BYTES);
    let segments = heads.iter().filter_map(|(start, head)| {
        let inside = ranges.iter().find(|range| range.contains(start))?;
        Some(*start..start.saturating_add(mimalloc_segment_bytes(head)?).min(inside.end))
    });
    segments.collect()
}

/// How long the segment is that begins like this.
fn mimalloc_segment_bytes(head: &[u8]) -> Option<u64> {
    let words: Vec<u64> = (0..MIMALLOC_HEAD_BYTES / 8).map(|index| word(head, index)).collect();
    let bytes = words[4];
    let slices = bytes / MIMALLOC_SLICE_BYTES;
    let is_whole = bytes > 0 && bytes % MIMALLOC_SLICE_BYTES == 0;
    // Between the two are masks of what is in memory.
    (is_whole && words[24..].windows(2).any(|pair| pair == [slices, 1])).then_some(bytes)
}

/// The chunks of V8's heap in these ranges.
pub fn v8_chunks(pid: Pid, pages: &PageMap, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let heads = heads(pid, pages, ranges, V8_CHUNK_BYTES, V8_HEAD_BYTES);
    let places: Vec<u64> = heads.iter().map(|(_, head)| word(head, 1)).collect();
    let described = read_all(pid, &places, V8_HEAD_BYTES);
    let chunks = heads.iter().zip(&described).filter_map(|((start, head), elsewhere)| {
        let bytes =
            [head, elsewhere].into_iter().find_map(|description| v8_chunk_bytes(description, *start))?;
        let inside = ranges.iter().find(|range| range.contains(start))?;
        Some(*start..start.saturating_add(bytes).min(inside.end))
    });
    chunks.collect()
}

/// How long the chunk is that is described here. None: it is not the one that begins at `start`.
fn v8_chunk_bytes(description: &[u8], start: u64) -> Option<u64> {
    let words: Vec<u64> = (0..V8_HEAD_BYTES / 8).map(|index| word(description, index)).collect();
    let pairs = words.windows(2).filter(|pair| pair[0] == start && pair[1] > 0 && pair[1] % PAGE_BYTES == 0);
    pairs.map(|pair| pair[1]).find(|bytes| {
        let is_in = |first: u64, last: u64| words.iter().any(|word| (first..=last).contains(word));
        let end = start.saturating_add(*bytes);
        is_in(start + 1, start.saturating_add(V8_HEADER_MAX))
            && is_in(end.saturating_sub(PAGE_BYTES) + 1, end)
    })
}

/// The first bytes of what lies in memory at multiples of `step` in these ranges, with its address.
fn heads(pid: Pid, pages: &PageMap, ranges: &[Range<u64>], step: u64, length: usize) -> Vec<(u64, Vec<u8>)> {
    let mut places = Vec::new();
    for range in ranges {
        // A range that has gone meanwhile has nothing.
        let _ = pages.each_present(range.start, range.end, |page| {
            places
                .extend((page..page + pages.page_bytes()).step_by(step as usize).filter(|at| at % step == 0));
        });
    }
    let read = read_all(pid, &places, length);
    places.into_iter().zip(read).collect()
}

/// Reads pieces; zeros where one can't be read.
fn read_all(pid: Pid, places: &[u64], length: usize) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; places.len() * length];
    if remote::read_pieces(pid, places, length, &mut buffer).is_err() {
        for (place, piece) in places.iter().zip(buffer.chunks_exact_mut(length)) {
            if remote::read_into(pid, *place, piece).is_err() {
                piece.fill(0);
            }
        }
    }
    buffer.chunks_exact(length).map(<[u8]>::to_vec).collect()
}

/// Those that touch each other become one. Ascending.
fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match found.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => found.push(range),
        }
    }
    found
}

fn word(bytes: &[u8], index: usize) -> u64 {
    remote::word(bytes, index * 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};

    #[test]
    fn a_pool_must_fit_its_class() {
        let header = |class: u32, last: u32| {
            let mut header = vec![0; PYTHON_HEADER_BYTES];
            header[36..40].copy_from_slice(&class.to_le_bytes());
            header[40..44].copy_from_slice(&64u32.to_le_bytes());
            header[44..48].copy_from_slice(&last.to_le_bytes());
            header
        };
        assert!(is_python_pool(&header(3, 16_384 - 64), PYTHON_POOL_BYTES));
        assert!(!is_python_pool(&header(3, 16_384 - 80), PYTHON_POOL_BYTES));
        assert!(!is_python_pool(&header(3, 16_384 - 64), PYTHON_SHORT_POOL_BYTES));
        assert!(is_python_pool(&header(31, 4096 - 512), PYTHON_SHORT_POOL_BYTES));
        assert!(!is_python_pool(&header(32, 4096 - 528), PYTHON_SHORT_POOL_BYTES));
        assert!(!is_python_pool(&[0; PYTHON_HEADER_BYTES], PYTHON_POOL_BYTES));
    }

    #[test]
    fn a_page_of_slots_must_know_its_place() {
        const PAGE: u64 = 0x10000;
        let mut head = vec![0; RUBY_HEAD_BYTES];
        head[..2].copy_from_slice(&408u16.to_le_bytes());
        assert_eq!(ruby_page(&head, PAGE, 8), None);
        head[24..32].copy_from_slice(&(PAGE + 40).to_le_bytes());
        let of =
            |head: &[u8]| ruby_page(head, PAGE, 8).map(|page| (page.place.end, page.slots, page.slot_bytes));
        let until_3_0 = Some((PAGE + RUBY_PAGE_BYTES, PAGE + 40..PAGE + 40 + 408 * 40, 40));
        assert_eq!(of(&head), until_3_0);
        assert_eq!(ruby_page(&head, 0x14000, 8), None);
        for (bytes, count, page_bytes) in [
            (40u16, 408u16, RUBY_PAGE_BYTES),
            (160, 409, RUBY_LONG_PAGE_BYTES),
            (640, 102, RUBY_LONG_PAGE_BYTES),
        ] {
            head[..2].copy_from_slice(&bytes.to_le_bytes());
            head[2..4].copy_from_slice(&count.to_le_bytes());
            let (bytes, count) = (u64::from(bytes), u64::from(count));
            assert_eq!(of(&head), Some((PAGE + page_bytes, PAGE + 40..PAGE + 40 + bytes * count, bytes)));
            head[2..4].copy_from_slice(&(count as u16 - 40).to_le_bytes());
            assert_eq!(of(&head), None, "half a page");
        }
    }

    #[test]
    fn blocks_of_a_transient_heap_name_each_other() {
        const BASE: u64 = 64 << 20;
        let at = |index: u64| BASE + index * TRANSIENT_BLOCK_BYTES;
        let mut blocks: Vec<(u64, u64)> = (0..1030).map(|index| (at(index), at(index.max(1) - 1))).collect();
        (blocks[0].1, blocks[1].1, blocks[2].1, blocks[3].1) = (7, 0, 0, at(9));
        blocks.iter_mut().skip(1025).for_each(|block| block.1 = 11);
        assert_eq!(transient_heap(&blocks), Some(at(1)..at(1025)));
        blocks.remove(500);
        assert_eq!(transient_heap(&blocks), None);
        assert_eq!(transient_heap(&[]), None);
    }

    #[test]
    fn a_chunk_of_v8_must_know_its_place() {
        const START: u64 = 0x5b_0fc0_0000;
        let described = |words: &[u64]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.resize(V8_HEAD_BYTES, 0);
            bytes
        };
        let of_20 =
            [0x40000, 10, 0x12d0_7bf0, START + 0x1148, START + 0x40000, 0x3eeb8, 0, 0x40000, 0x12ce_8198];
        let of_20 = [of_20.as_slice(), &[0x56_6a2f, START, 0x40000]].concat();
        let of_22 = [10, START, 0x40000, 0x55fa_0074_5e90, START + 0x1140, START + 0x40000, 0x3eec0, 0];
        let large =
            [0x7f74_2166_6ab0, START, 0x2f3000, 0x2f_2b50, 0, 16, 0x2f3000, START + 0x2f_2b60, 0, START + 16];
        for (words, bytes) in [(&of_20[..], 0x40000), (&of_22, 0x40000), (&large, 0x2f3000)] {
            assert_eq!(v8_chunk_bytes(&described(words), START), Some(bytes), "{words:x?}");
            assert_eq!(v8_chunk_bytes(&described(words), START + V8_CHUNK_BYTES), None, "{words:x?}");
        }
        assert_eq!(v8_chunk_bytes(&described(&[START, 0x40000]), START), None, "no objects");
        assert_eq!(v8_chunk_bytes(&described(&[START, 0x40001, START + 16, START + 0x40001]), START), None);
        assert_eq!(v8_chunk_bytes(&described(&[u64::MAX; 12]), u64::MAX), None);
        assert_eq!(v8_chunk_bytes(&described(&[]), 0), None);
    }

    #[test]
    fn a_segment_of_mimalloc_knows_its_length() {
        let described = |bytes: u64, at: usize, slices: u64| {
            let mut words = [0u64; MIMALLOC_HEAD_BYTES / 8];
            (words[1], words[2], words[3], words[4]) = (1, 0x6_0001_0100, 0x101, bytes);
            (words[at], words[at + 1]) = (slices, 1);
            mimalloc_segment_bytes(&words.map(u64::to_le_bytes).concat())
        };
        for at in [28, 31] {
            assert_eq!(described(0x200_0000, at, 0x200), Some(0x200_0000), "3.13, 3.15");
            assert_eq!(described(0x281_0000, at, 0x281), Some(0x281_0000));
            assert_eq!(described(0x200_0000, at, 0x201), None);
        }
        assert_eq!(described(0x200_0001, 31, 0x200), None);
        assert_eq!(described(0, 31, 0), None);
        assert_eq!(mimalloc_segment_bytes(&[0xff; MIMALLOC_HEAD_BYTES]), None);
    }

    #[test]
    fn neighbours_become_one_range() {
        assert_eq!(
            joined([0..0x4000, 0x4000..0x8000, 0x10000..0x14000].into_iter()),
            [0..0x8000, 0x10000..0x14000]
        );
    }

    #[test]
    fn memory_of_who_means_harm_is_searched_to_an_end() {
        must_end(|| {
            const BYTES: usize = 1 << 20;
            let pid = std::process::id() as Pid;
            let pages = PageMap::open(pid).unwrap();
            let mut random = Random::new(63);
            let mut memory = vec![0u8; BYTES + RUBY_LONG_PAGE_BYTES as usize];
            let start = (memory.as_ptr() as u64).next_multiple_of(RUBY_LONG_PAGE_BYTES);
            let range = start..start + BYTES as u64;
            let skipped = (start - memory.as_ptr() as u64) as usize;
            for _ in 0..20 {
                let bytes = random.hostile_bytes(BYTES, std::slice::from_ref(&range));
                memory[skipped..][..BYTES].copy_from_slice(&bytes);
                let ranges = [range.clone(), start + 1..start + 2];
                let all = [ruby_pages, python_pools, v8_chunks].map(|find| find(pid, &pages, &ranges));
                for found in all.concat() {
                    assert!(found.start < found.end && range.contains(&found.start), "{found:x?}");
                }
                assert!(ruby_transient_heap(pid, &pages, &ranges).is_empty(), "too short");
            }
            let heap = start..start + 2 * TRANSIENT_BLOCKS as u64 * TRANSIENT_BLOCK_BYTES;
            let starts = heap.clone().step_by(TRANSIENT_BLOCK_BYTES as usize);
            let blocks: Vec<_> =
                starts.map(|block| (block, random.hostile_word(std::slice::from_ref(&heap)))).collect();
            transient_heap(&blocks);
            for _ in 0..10_000 {
                is_python_pool(&random.hostile_bytes(PYTHON_HEADER_BYTES, &[]), PYTHON_SHORT_POOL_BYTES);
                ruby_page(&random.hostile_bytes(RUBY_HEAD_BYTES, std::slice::from_ref(&range)), start, 8);
                v8_chunk_bytes(&random.hostile_bytes(V8_HEAD_BYTES, std::slice::from_ref(&range)), start);
            }
        });
    }
}
