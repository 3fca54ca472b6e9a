//! snug as the allocator of a Rust program:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: snug_alloc::Snug = snug_alloc::Snug;
//!
//! fn main() {
//!     let words = vec![String::from("some"), String::from("words")];
//!     assert!(snug_alloc::stats().live_allocated_bytes > 0);
//!     drop(words);
//! }
//! ```
//!
//! Free memory goes back to the system while the program allocates and frees. In a program that only waits, call [`purge`],
//! or set `SNUG=background:1` for a helper thread that does it. C code in the program keeps its own malloc.
//! Settings come from the variable `SNUG`, as for the library (`SNUG=help` lists them).

#![no_std]
#![warn(missing_docs)]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_int, c_void, CStr};

extern "C" {
    fn snug_malloc(size_bytes: usize) -> *mut c_void;
    fn snug_calloc(count: usize, each_bytes: usize) -> *mut c_void;
    fn snug_realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void;
    fn snug_free_sized(block: *mut c_void, size_bytes: usize);
    fn snug_mallocx(size_bytes: usize, flags: c_int) -> *mut c_void;
    fn snug_rallocx(block: *mut c_void, size_bytes: usize, flags: c_int) -> *mut c_void;
    fn snug_sdallocx(block: *mut c_void, size_bytes: usize, flags: c_int);
    fn snug_stats(stats: *mut Stats, stats_size_bytes: usize) -> c_int;
    fn snug_purge() -> usize;
    fn snug_enter_sandbox();
    fn snug_version() -> *const c_char;
}

/// What every block is aligned to, in bytes.
const ALIGNED_BYTES: usize = 16;
const FLAG_ZERO: c_int = 0x40;

/// jemalloc's flag of an alignment.
fn flags_of(layout: Layout) -> c_int {
    layout.align().trailing_zeros() as c_int
}

/// The allocator. Blocks are freed by their size, and one freed by another size than it was allocated with ends the program
/// with a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snug;

// SAFETY: the functions called are malloc(3)'s and jemalloc(3)'s, with their promises: blocks don't overlap, have the size
// and the alignment asked for, keep their content where they are resized, and NULL says that there is no memory. They never
// unwind. They may be called by any thread, and while a thread starts or ends.
unsafe impl GlobalAlloc for Snug {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED_BYTES {
            snug_malloc(layout.size()).cast()
        } else {
            snug_mallocx(layout.size(), flags_of(layout)).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= ALIGNED_BYTES {
            snug_free_sized(block.cast(), layout.size());
        } else {
            snug_sdallocx(block.cast(), layout.size(), flags_of(layout));
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED_BYTES {
            snug_calloc(1, layout.size()).cast()
        } else {
            snug_mallocx(layout.size(), flags_of(layout) | FLAG_ZERO).cast()
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED_BYTES {
            snug_realloc(block.cast(), new_size).cast()
        } else {
            snug_rallocx(block.cast(), new_size, flags_of(layout)).cast()
        }
    }
}

/// A moment's account of the heap: `struct snug_stats` of snug.h. In bytes unless named otherwise.
#[repr(C)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What the program asked for and has not freed; sampled for small blocks.
    pub live_requested_bytes: u64,
    /// The same with rounding to size classes and pages; exact when idle.
    pub live_allocated_bytes: u64,
    /// Freed blocks kept by threads for reuse.
    pub cached_bytes: u64,
    /// Free blocks in partly used slabs, without pages given back.
    pub slab_free_bytes: u64,
    /// Free pages that still hold memory.
    pub dirty_bytes: u64,
    /// snug's own tables.
    pub metadata_bytes: u64,
    /// Estimate of what is resident: an upper bound.
    pub resident_bytes: u64,
    /// Heap in use or free, and large mappings; not the reserved address space.
    pub mapped_bytes: u64,
    /// Given back to the system so far.
    pub purged_bytes: u64,
    /// Thread caches: a count.
    pub caches: u64,
    /// Arenas in use: a count.
    pub arenas: u64,
}

/// An account of snug's heap in this process, whether or not it is the global allocator.
pub fn stats() -> Stats {
    let mut stats = Stats::default();
    // SAFETY: it writes no more than the size it is told.
    unsafe { snug_stats(&mut stats, core::mem::size_of::<Stats>()) };
    stats
}

/// Gives every free page back to the system and empties the caches of idle threads. Returns the bytes given back.
pub fn purge() -> usize {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { snug_purge() }
}

/// Call this before the program enters a seccomp sandbox: from then on snug makes only the system calls that any malloc
/// makes, for good. Without it a filter that kills may end the program at a call of snug's.
pub fn enter_sandbox() {
    // SAFETY: as above.
    unsafe { snug_enter_sandbox() }
}

/// snug's version, as "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: a string that ends in NUL and lives as long as the program.
    unsafe { CStr::from_ptr(snug_version()) }.to_str().unwrap_or_default()
}
