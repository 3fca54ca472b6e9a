//! A program whose allocator is snug.

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, GlobalAlloc, Layout};
use std::collections::HashMap;
use std::ffi::c_void;

use snug_alloc::Snug;

#[global_allocator]
static ALLOCATOR: Snug = Snug;

extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
}

/// Fills a block, and says whether it is aligned as asked.
unsafe fn fill(block: *mut u8, layout: Layout, byte: u8) -> bool {
    block.write_bytes(byte, layout.size());
    block as usize % layout.align() == 0
}

#[test]
fn every_alignment_and_size_is_served() {
    for align in (0..=14).map(|shift| 1usize << shift) {
        for size in [1, 7, 16, 100, 1024, 1025, 5000, 32_784, 100_000, 2_000_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                let block = alloc(layout);
                assert!(fill(block, layout, 7));
                let larger = Layout::from_size_align(size * 2, align).unwrap();
                let block = realloc(block, layout, larger.size());
                assert!(std::slice::from_raw_parts(block, size).iter().all(|byte| *byte == 7));
                assert!(fill(block, larger, 8));
                let block = realloc(block, larger, size);
                assert!(fill(block, layout, 9));
                dealloc(block, layout);
                let zeroed = alloc_zeroed(layout);
                assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                assert_eq!(zeroed as usize % align, 0);
                dealloc(zeroed, layout);
            }
        }
    }
}

#[test]
fn no_memory_is_null() {
    let layout = Layout::from_size_align(isize::MAX as usize - 4095, 64).unwrap();
    unsafe { assert!(Snug.alloc(layout).is_null() && Snug.alloc_zeroed(layout).is_null()) }
}

#[test]
fn threads_pass_their_blocks_on() {
    let (sender, receiver) = std::sync::mpsc::channel::<HashMap<usize, String>>();
    let makers: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for round in 0..50 {
                    sender.send((0..500).map(|i| (i, format!("{thread} {round} {i}"))).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let strings: usize =
        receiver.iter().map(|map| map.values().filter(|text| !text.is_empty()).count()).sum();
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    assert_eq!(strings, 4 * 50 * 500);
}

#[test]
fn stats_know_the_programs_blocks_and_not_those_of_malloc() {
    let before = snug_alloc::stats();
    let theirs = unsafe { malloc(50_000_000) };
    let ours = vec![1u8; 200_000_000];
    let grown = snug_alloc::stats().live_allocated_bytes as i64 - before.live_allocated_bytes as i64;
    unsafe { free(theirs) };
    assert!((150_000_000..240_000_000).contains(&grown), "{grown}"); // other tests run beside this one
    drop(ours);
    snug_alloc::purge();
    assert!(snug_alloc::stats().purged_bytes > 0);
    assert_eq!(snug_alloc::version(), env!("CARGO_PKG_VERSION"));
}
