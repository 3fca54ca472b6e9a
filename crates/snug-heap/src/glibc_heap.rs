//! Live bytes in the heaps of glibc's malloc, estimated from outside without stopping the process.
//!
//! glibc keeps no counters, but its chunks lie one behind the other, and each says how long it is and whether the one
//! before it is in use (malloc/malloc.c, "Chunk layout"). So a walk finds what is live: through the brk heap, through
//! the heaps of the other arenas (aligned to 64 MiB, malloc/arena.c), and over the blocks that were mapped one by one.
//! It is an estimate: blocks count with their rounding, freed ones in the threads' caches and fast bins count as live
//! until glibc merges them.

use std::io;
use std::ops::Range;

pub use crate::answers::HeapSize;
use crate::remote;
use snug_process::maps::{self, Region};
use snug_process::proc::{Pid, ProcFilesystem, Processes};
use snug_process::smaps::PageMap;

/// Walks that may meet a chunk in the middle of a change.
const TRIES: usize = 3;

/// Why nothing can be said of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel does not let us read its memory.
    Refused,
    /// Many of its pages are in swap.
    Swapped,
    /// Its chunks do not lead to the ends of its heaps: they changed while they were read, or are not glibc's.
    Unsound,
}

/// Estimates what is live in a process of this user. None if that can't be said.
pub fn estimate_process(pid: Pid) -> Option<HeapSize> {
    examine(pid).ok()
}

/// The same, or why not.
pub fn examine(pid: Pid) -> Result<HeapSize, Obstacle> {
    examine_ranges(pid).map(|(size, _)| size)
}

/// The same, with the addresses of its heaps and of the blocks that were mapped one by one.
pub fn examine_ranges(pid: Pid) -> Result<(HeapSize, Vec<Range<u64>>), Obstacle> {
    let mut memory = ProcessMemory::open(pid).map_err(|error| obstacle(&error))?;
    let mut source = ProcFilesystem::new();
    let mut maps = Vec::new();
    let found = (0..TRIES).find_map(|_| {
        source.read(pid, "maps", &mut maps).ok()?;
        memory.obstacle = None;
        let mut ranges = Vec::new();
        let size = estimate(&mut memory, &maps::parse_regions(&maps), &mut ranges)?;
        Some((size, ranges))
    });
    found.ok_or(memory.obstacle.unwrap_or(Obstacle::Unsound))
}

/// What an error of reading means.
fn obstacle(error: &io::Error) -> Obstacle {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Obstacle::Refused,
        _ => Obstacle::Unsound,
    }
}

/// The memory of a process.
trait Memory {
    /// Fills `buffer` from `address` on.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Reads the first 16 bytes of pages; zeros for those that are gone meanwhile.
    fn page_heads(&mut self, pages: &[u64]) -> Vec<[u64; 2]>;
    /// Which pages of a range are in memory. Fails where many are in swap: to read them would bring them back.
    fn present(&mut self, start: u64, end: u64) -> io::Result<Vec<bool>>;
    fn page_bytes(&self) -> u64;
}

/// HEAP_MAX_SIZE of 64-bit systems: heaps of arenas are aligned to it.
const HEAP_ALIGN: u64 = 64 << 20;
/// The smallest chunk: MINSIZE.
const LEAST_CHUNK: u64 = 32;
/// In a chunk's size: the chunk before it is in use; it was mapped by itself; all flags.
const PREVIOUS_IN_USE: u64 = 1;
const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// Sizes that `heap_info` has had: the chunks of an arena's later heaps begin behind it.
const HEAP_INFO_BYTES: [u64; 3] = [48, 32, 64];
/// Sizes that `malloc_state` has had or could have: the chunks of an arena's first heap begin behind it.
const STATE_BYTES: std::ops::RangeInclusive<u64> = 2160..=2320;
const STATE_BYTES_USUAL: u64 = 2200;
/// How much of a heap is read at a time.
const WINDOW_BYTES: u64 = 64 << 10;
/// More writable memory than this is not searched: what a Java or Go program reserves.
const MOST_BYTES: u64 = 256 << 30;
/// So many pages are looked at at a time.
const BATCH_PAGES: u64 = 1 << 16;
/// More pages in swap than this, of those looked at together, are many.
const SWAPPED_MAX: usize = 256;

/// Estimates what is live in a process whose anonymous writable memory is `regions`, in order of their addresses.
/// None if the memory can't be read, is not glibc's, or is in the middle of a change. Adds to `ranges` where that is.
fn estimate(memory: &mut impl Memory, regions: &[Region], ranges: &mut Vec<Range<u64>>) -> Option<HeapSize> {
    let total: u64 = regions.iter().map(|region| region.end - region.start).sum();
    if total > MOST_BYTES {
        return None;
    }
    let mut estimate = HeapSize::default();
    let mut found = false;
    for region in regions {
        let heaps = match region.is_brk {
            true => {
                vec![ChunkRange { start: region.start, end: region.end, first_chunks: vec![region.start] }]
            }
            false => arena_heaps(memory, region, regions),
        };
        let mut rest = region.start;
        for heap in heaps {
            estimate.add_mapped(memory, rest, heap.start, ranges)?;
            estimate.live_bytes +=
                heap.first_chunks.iter().find_map(|first| walk(memory, *first, heap.end))?;
            estimate.held_bytes += held_bytes(memory, heap.start, heap.end)?;
            ranges.push(heap.start..heap.end);
            found = true;
            rest = heap.end;
        }
        estimate.add_mapped(memory, rest, region.end, ranges)?;
    }
    // Of blocks that lie in an arena it is not known which pages were touched.
    estimate.live_bytes = estimate.live_bytes.min(estimate.held_bytes);
    found.then_some(estimate)
}

/// Memory in which chunks follow each other up to `end`. They begin at one of `first_chunks`, the likeliest first.
struct ChunkRange {
    start: u64,
    end: u64,
    first_chunks: Vec<u64>,
}

/// Heaps of arenas other than the first one: `heap_info` lies at aligned addresses.
fn arena_heaps(memory: &mut impl Memory, region: &Region, regions: &[Region]) -> Vec<ChunkRange> {
    let mut heaps = Vec::new();
    let mut start = region.start.next_multiple_of(HEAP_ALIGN);
    while start + HEAP_INFO_BYTES[0] <= region.end {
        heaps.extend(arena_heap(memory, start, region, regions));
        start += HEAP_ALIGN;
    }
    heaps
}

fn arena_heap(
    memory: &mut impl Memory,
    start: u64,
    region: &Region,
    regions: &[Region],
) -> Option<ChunkRange> {
    let page = memory.page_bytes();
    // Reading what was never touched would leave a page there.
    if memory.present(start, start + page).ok()? != [true] {
        return None;
    }
    let mut info = [0; 32];
    memory.read(start, &mut info).ok()?;
    let [arena, previous, size, accessible] = words(&info);
    let home = arena & !(HEAP_ALIGN - 1);
    let sound = size % page == 0
        && (page..=accessible).contains(&size)
        && accessible <= HEAP_ALIGN
        && size <= region.end - start
        && arena - home <= HEAP_INFO_BYTES[2]
        && regions.iter().any(|region| (region.start..region.end).contains(&arena));
    let first_chunks: Vec<u64> = match (home == start, previous) {
        _ if !sound => return None,
        (true, 0) => {
            let aligned = |size: u64| (arena + size).next_multiple_of(16);
            // That of 2.27 and later first.
            let others = STATE_BYTES.step_by(16).filter(|size| aligned(*size) != aligned(STATE_BYTES_USUAL));
            std::iter::once(STATE_BYTES_USUAL).chain(others).map(aligned).collect()
        }
        (false, previous) if previous % HEAP_ALIGN == 0 && previous != 0 => {
            HEAP_INFO_BYTES.iter().map(|bytes| start + bytes).collect()
        }
        _ => return None,
    };
    Some(ChunkRange { start, end: start + size, first_chunks })
}

/// Adds up the chunks from `first` on. None if they do not lead to `end`, as those of a heap do.
fn walk(memory: &mut impl Memory, first: u64, end: u64) -> Option<u64> {
    let mut window = CopiedPart { memory, start: 0, bytes: Vec::new(), end };
    let (mut chunk, mut live_bytes) = (first, 0);
    let mut size = window.size_field(chunk)? & !FLAGS;
    loop {
        let left = end - chunk;
        if size == left {
            // The top, which is free.
            return Some(live_bytes);
        }
        if size < LEAST_CHUNK || size % 16 != 0 || size > left {
            // A fence of two words ends a heap that did not go on in place; anything else is no heap.
            return (size < LEAST_CHUNK && left <= 2 * LEAST_CHUNK).then_some(live_bytes);
        }
        chunk += size;
        let next = window.size_field(chunk)?;
        if next & PREVIOUS_IN_USE != 0 {
            // The block reaches into the first word of the next chunk.
            live_bytes += size - 8;
        }
        size = next & !FLAGS;
    }
}

/// A part of a heap, copied.
struct CopiedPart<'a, M> {
    memory: &'a mut M,
    start: u64,
    bytes: Vec<u8>,
    /// Nothing is read from here on.
    end: u64,
}

impl<M: Memory> CopiedPart<'_, M> {
    /// The size and flags of a chunk.
    fn size_field(&mut self, chunk: u64) -> Option<u64> {
        let field = chunk.checked_add(8)?;
        if field + 8 > self.end {
            return None;
        }
        if field < self.start || field + 8 > self.start + self.bytes.len() as u64 {
            let length = WINDOW_BYTES.min(self.end - field);
            let mut bytes = vec![0; length as usize];
            self.memory.read(field, &mut bytes).ok()?;
            (self.start, self.bytes) = (field, bytes);
        }
        let at = (field - self.start) as usize;
        Some(u64::from_le_bytes(self.bytes[at..at + 8].try_into().ok()?))
    }
}

impl HeapSize {
    /// Finds the chunks in a range that were mapped by themselves: they begin with a page. None if it can't be read.
    fn add_mapped(
        &mut self,
        memory: &mut impl Memory,
        start: u64,
        end: u64,
        ranges: &mut Vec<Range<u64>>,
    ) -> Option<()> {
        let page = memory.page_bytes();
        let mut next = start;
        while next < end {
            let batch_end = end.min(next + BATCH_PAGES * page);
            let present = memory.present(next, batch_end).ok()?;
            let pages: Vec<u64> = (next..batch_end)
                .step_by(page as usize)
                .zip(present)
                .filter_map(|(address, present)| present.then_some(address))
                .collect();
            let heads = memory.page_heads(&pages);
            next = batch_end;
            let mut free_from = 0;
            for (address, [previous, size]) in pages.into_iter().zip(heads) {
                let bytes = size & !FLAGS;
                let is_chunk = size & FLAGS == IS_MAPPED
                    && previous == 0
                    && bytes % page == 0
                    && (page..=end - address).contains(&bytes);
                if address >= free_from && is_chunk {
                    free_from = address + bytes;
                    let held = held_bytes(memory, address, free_from)?;
                    self.live_bytes += held.min(bytes - 16);
                    self.held_bytes += held;
                    ranges.push(address..free_from);
                }
            }
            next = next.max(free_from);
        }
        Some(())
    }
}

fn held_bytes(memory: &mut impl Memory, start: u64, end: u64) -> Option<u64> {
    let page = memory.page_bytes();
    let mut bytes = 0;
    for batch in (start..end).step_by((BATCH_PAGES * page) as usize) {
        let present = memory.present(batch, end.min(batch + BATCH_PAGES * page)).ok()?;
        bytes += present.into_iter().filter(|present| *present).count() as u64 * page;
    }
    Some(bytes)
}

fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    std::array::from_fn(|index| {
        u64::from_le_bytes(std::array::from_fn(|byte| bytes.get(index * 8 + byte).copied().unwrap_or(0)))
    })
}

/// The memory of another process of this user.
struct ProcessMemory {
    pid: Pid,
    pages: PageMap,
    /// Why the last reading failed, if it was not for a change.
    obstacle: Option<Obstacle>,
}

impl ProcessMemory {
    /// Fails if it is somebody else's, or if a security module forbids it.
    fn open(pid: Pid) -> io::Result<ProcessMemory> {
        Ok(ProcessMemory { pid, pages: PageMap::open(pid)?, obstacle: None })
    }
}

impl Memory for ProcessMemory {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        remote::read_into(self.pid, address, buffer).inspect_err(|error| {
            self.obstacle = Some(obstacle(error)).filter(|obstacle| *obstacle != Obstacle::Unsound);
        })
    }

    fn page_heads(&mut self, pages: &[u64]) -> Vec<[u64; 2]> {
        let mut heads = vec![0; pages.len() * 16];
        if remote::read_pieces(self.pid, pages, 16, &mut heads).is_err() {
            for (page, head) in pages.iter().zip(heads.chunks_exact_mut(16)) {
                if self.read(*page, head).is_err() {
                    head.fill(0);
                }
            }
        }
        heads.chunks_exact(16).map(words).collect()
    }

    fn present(&mut self, start: u64, end: u64) -> io::Result<Vec<bool>> {
        let states = self.pages.states(start, end)?;
        if states.iter().filter(|state| state.swapped).count() > SWAPPED_MAX {
            self.obstacle = Some(Obstacle::Swapped);
            return Err(io::Error::other("many pages are in swap"));
        }
        Ok(states.into_iter().map(|state| state.present).collect())
    }

    fn page_bytes(&self) -> u64 {
        self.pages.page_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};
    use std::collections::BTreeMap;

    const PAGE: u64 = 4096;
    /// Where an arena's first heap lies, and its first chunk.
    const ARENA_HEAP: u64 = 5 * HEAP_ALIGN;
    const FIRST: u64 = ARENA_HEAP + (48 + 2200u64).next_multiple_of(16);

    /// Words that were written; all others are zero.
    #[derive(Default)]
    struct FakeMemory {
        words: BTreeMap<u64, u64>,
    }

    impl FakeMemory {
        /// Writes the size fields of chunks that follow each other: size and flags.
        fn chunks(&mut self, first: u64, sizes: &[u64]) {
            let mut chunk = first;
            for size in sizes {
                self.words.insert(chunk + 8, *size);
                chunk += size & !FLAGS;
            }
        }

        /// An arena's first heap of two pages: chunks in use, free, in use, and the top.
        fn arena(&mut self) {
            let head = [ARENA_HEAP + 48, 0, 2 * PAGE, 4 * PAGE];
            self.words.extend((0..).map(|index| ARENA_HEAP + 8 * index).zip(head));
            self.chunks(FIRST, &[160 | 5, 320 | 5, 480 | 4, (ARENA_HEAP + 2 * PAGE - FIRST - 960) | 5]);
        }
    }

    impl Memory for FakeMemory {
        fn read(&mut self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(0);
            for (at, word) in self.words.range(address..address + buffer.len() as u64) {
                let at = (at - address) as usize;
                buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            Ok(())
        }

        fn page_heads(&mut self, pages: &[u64]) -> Vec<[u64; 2]> {
            let word = |address: u64| self.words.get(&address).copied().unwrap_or(0);
            pages.iter().map(|page| [word(*page), word(page + 8)]).collect()
        }

        /// Pages on which something was written.
        fn present(&mut self, start: u64, end: u64) -> io::Result<Vec<bool>> {
            let pages = (start..end).step_by(PAGE as usize);
            Ok(pages.map(|page| self.words.range(page..page + PAGE).next().is_some()).collect())
        }

        fn page_bytes(&self) -> u64 {
            PAGE
        }
    }

    fn region(start: u64, pages: u64, is_brk: bool) -> Region {
        Region { start, end: start + pages * PAGE, is_brk }
    }

    #[test]
    fn chunks_in_use_are_live_and_the_top_is_not() {
        let mut memory = FakeMemory::default();
        memory.chunks(0x10000, &[0x290 | 1, 0x500 | 1, 0x870 | 1, 0x1000]);
        let estimate = estimate(&mut memory, &[region(0x10000, 2, true)], &mut Vec::new()).unwrap();
        // Of each its size but for one word; the third says that it is in use through the top's flag, which is clear.
        assert_eq!(estimate, HeapSize { live_bytes: 0x290 + 0x500 - 16, held_bytes: 2 * PAGE });
    }

    #[test]
    fn heaps_of_arenas_are_found_in_the_middle_of_a_region() {
        let mut memory = FakeMemory::default();
        memory.arena();
        let regions = [region(ARENA_HEAP - 3 * PAGE, 8, false)];
        let estimate = estimate(&mut memory, &regions, &mut Vec::new()).unwrap();
        assert_eq!(estimate.live_bytes, 160 - 8 + 480 - 8);
        assert_eq!(estimate.held_bytes, PAGE, "the page that holds something");
    }

    #[test]
    fn mapped_blocks_are_live_in_whole_and_what_only_looks_alike_is_not() {
        let mut memory = FakeMemory::default();
        memory.arena();
        let block = ARENA_HEAP + 3 * PAGE;
        memory.words.insert(block + 8, (2 * PAGE) | IS_MAPPED);
        memory.words.insert(block + PAGE + 8, PAGE | IS_MAPPED); // inside the first
        memory.words.insert(block + 2 * PAGE + 8, (9 * PAGE) | IS_MAPPED); // longer than the region
        memory.words.insert(block + 3 * PAGE + 8, PAGE | 3); // not a mapped chunk's flags
        let without = estimate(&mut FakeMemory::default(), &[region(block, 4, false)], &mut Vec::new());
        assert_eq!(without, None, "nothing of glibc's");
        let estimate = estimate(&mut memory, &[region(ARENA_HEAP, 7, false)], &mut Vec::new()).unwrap();
        assert_eq!(estimate.live_bytes, 160 - 8 + 480 - 8 + 2 * PAGE - 16);
        assert_eq!(estimate.held_bytes, 3 * PAGE);
    }

    #[test]
    fn blocks_that_were_never_touched_hold_nothing() {
        let mut memory = FakeMemory::default();
        memory.arena();
        let block = ARENA_HEAP + 3 * PAGE;
        memory.words.insert(block + 8, (100 * PAGE) | IS_MAPPED);
        let estimate = estimate(&mut memory, &[region(ARENA_HEAP, 110, false)], &mut Vec::new()).unwrap();
        assert_eq!(estimate.held_bytes, 2 * PAGE);
        assert_eq!(estimate.live_bytes, 160 - 8 + 480 - 8 + PAGE, "one page of a hundred");
        assert!(estimate.live_bytes <= estimate.held_bytes);
    }

    #[test]
    fn a_heap_in_the_middle_of_a_change_gives_nothing() {
        let mut memory = FakeMemory::default();
        memory.chunks(0x10000, &[0x290 | 1, 0x10000 | 1]);
        assert_eq!(
            estimate(&mut memory, &[region(0x10000, 2, true)], &mut Vec::new()),
            None,
            "a chunk reaches beyond the end"
        );
        memory.chunks(0x10000, &[0x290 | 1, 0x18 | 1]);
        assert_eq!(
            estimate(&mut memory, &[region(0x10000, 2, true)], &mut Vec::new()),
            None,
            "a fence in the middle"
        );
    }

    #[test]
    fn sizes_that_are_no_sizes_end_the_walk() {
        for size in [0, 8, u64::MAX, u64::MAX - 63, 1 << 63, 40, 3 * PAGE] {
            let mut memory = FakeMemory::default();
            memory.words.extend([(0x10008, 64 | 1), (0x10048, size)]);
            assert_eq!(
                estimate(&mut memory, &[region(0x10000, 2, true)], &mut Vec::new()),
                None,
                "{size:#x}"
            );
        }
    }

    #[test]
    fn later_heaps_of_an_arena_begin_behind_their_shorter_head() {
        for head_bytes in [32, 48] {
            let mut memory = FakeMemory::default();
            memory.arena();
            let start = ARENA_HEAP + HEAP_ALIGN;
            let head = [ARENA_HEAP + 48, ARENA_HEAP, PAGE, PAGE];
            memory.words.extend((0..).map(|index| start + 8 * index).zip(head));
            memory.chunks(start + head_bytes, &[128 | 5, (PAGE - head_bytes - 128) | 5]);
            let regions = [region(ARENA_HEAP, 2, false), region(start, 1, false)];
            let estimate = estimate(&mut memory, &regions, &mut Vec::new()).unwrap();
            assert_eq!(estimate.live_bytes, 160 - 8 + 480 - 8 + 128 - 8, "{head_bytes}");
        }
    }

    #[test]
    fn an_old_heap_ends_with_a_fence() {
        let mut memory = FakeMemory::default();
        let first = 2 * PAGE - 32;
        memory.chunks(0x10000, &[first | 1, 0x10 | 1, 0x10 | 1]);
        let estimate = estimate(&mut memory, &[region(0x10000, 2, true)], &mut Vec::new()).unwrap();
        assert_eq!(estimate.live_bytes, first - 8);
    }

    #[test]
    fn refusals_are_told_from_heaps_that_change() {
        let error = |kind| obstacle(&io::Error::from(kind));
        assert_eq!(error(io::ErrorKind::PermissionDenied), Obstacle::Refused);
        assert_eq!(error(io::ErrorKind::UnexpectedEof), Obstacle::Unsound);
        assert!(matches!(examine(Pid::MAX), Err(Obstacle::Unsound)), "there is no such process");
    }

    #[test]
    fn reserved_memory_is_not_searched() {
        let reserved = Region { start: 0, end: MOST_BYTES + PAGE, is_brk: false };
        assert_eq!(estimate(&mut FakeMemory::default(), &[reserved], &mut Vec::new()), None);
    }

    #[test]
    fn chunks_of_who_means_harm_are_walked_to_an_end() {
        must_end(|| {
            let mut random = Random::new(64);
            let regions = [
                region(0x10000, 3, true),
                region(ARENA_HEAP - 2 * PAGE, 5, false),
                region(ARENA_HEAP + HEAP_ALIGN, 2, false),
            ];
            let places: Vec<Range<u64>> = regions.iter().map(|region| region.start..region.end).collect();
            let mut found = 0;
            for _ in 0..1000 {
                let mut memory = FakeMemory::default();
                for (index, place) in places.iter().enumerate() {
                    // Chunks that lead to the end, or nearly so.
                    let mut chunk = if index == 1 { FIRST } else { place.start };
                    while chunk < place.end {
                        let size = 32 + 16 * random.below(40);
                        let size = if place.end - chunk < 1000 { place.end - chunk } else { size };
                        memory.words.insert(chunk + 8, size | random.below(8));
                        chunk += size;
                    }
                }
                memory.words.extend([(ARENA_HEAP, ARENA_HEAP + 48), (ARENA_HEAP + 8, 0)]);
                memory.words.extend([(ARENA_HEAP + 16, 3 * PAGE), (ARENA_HEAP + 24, 3 * PAGE)]);
                for _ in 0..random.below(8) {
                    let place = &places[random.below(3) as usize];
                    let at = place.start + 8 * random.below((place.end - place.start) / 8);
                    memory.words.insert(at, random.hostile_word(&places));
                }
                let mut ranges = Vec::new();
                let Some(size) = estimate(&mut memory, &regions, &mut ranges) else { continue };
                found += 1;
                assert!(size.live_bytes <= size.held_bytes && size.held_bytes <= 10 * PAGE, "{size:?}");
                assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:x?}");
            }
            assert!(found > 100, "{found}");
        });
    }
}
