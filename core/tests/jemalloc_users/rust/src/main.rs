//! Blocks from Rust, from libc and from C names that jemalloc lacks cross each other in threads and a child; jemalloc's
//! own statistics must see them all. Prints its version, then "ok unprefixed".
use std::ffi::{c_char, c_int, c_void};
use std::{process, ptr, thread};

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

extern "C" {
    fn malloc(size_bytes: usize) -> *mut c_void;
    fn reallocarray(block: *mut c_void, count: usize, size_bytes: usize) -> *mut c_void;
    fn malloc_usable_size(block: *mut c_void) -> usize;
    fn free(block: *mut c_void);
    fn strdup(text: *const c_char) -> *mut c_char;
    fn open_memstream(text: *mut *mut c_char, size_bytes: *mut usize) -> *mut c_void;
    fn fclose(stream: *mut c_void) -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn fork() -> c_int;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
}

type Sdallocx = extern "C" fn(*mut c_void, usize, c_int);

fn allocated_bytes() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

/// Blocks of all origins, freed by all ways.
fn cross() {
    let sdallocx = unsafe { dlsym(ptr::null_mut(), c"sdallocx".as_ptr()) };
    let sdallocx: Option<Sdallocx> = unsafe { std::mem::transmute(sdallocx) };
    for size_bytes in (1..60_000).step_by(977) {
        unsafe {
            free(strdup(c"a text".as_ptr()).cast());
            let (mut text, mut length) = (ptr::null_mut(), 0);
            fclose(open_memstream(&mut text, &mut length));
            free(text.cast());
            let block = reallocarray(malloc(50), 2, size_bytes);
            assert!(malloc_usable_size(block) >= 2 * size_bytes);
            free(block);
            if let Some(sdallocx) = sdallocx {
                sdallocx(malloc(size_bytes), size_bytes, 0); // the program's jemalloc's, or the preloaded library's name
            }
            let words: Vec<u8> = vec![7; size_bytes];
            free(Box::into_raw(words.into_boxed_slice()).cast());
        }
    }
}

fn main() {
    println!("{}", tikv_jemalloc_ctl::version::read().unwrap());
    let before = allocated_bytes();
    let kept: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 20_000]).collect();
    let copies: Vec<*mut c_char> = (0..1000).map(|_| unsafe { strdup(c"a text".as_ptr()) }).collect();
    let grown = allocated_bytes() - before;
    assert!((20_000_000..30_000_000).contains(&grown), "20 MB grew to {grown} bytes in the program's jemalloc");
    for text in copies {
        unsafe { free(text.cast()) };
    }
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(cross)).collect();
    let mut status = 1;
    unsafe {
        let child = fork();
        if child == 0 {
            cross();
            process::exit(0);
        }
        assert!(waitpid(child, &mut status, 0) == child && status == 0, "the child ended with wait status {status}");
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(kept.len(), 1000);
    println!("ok unprefixed");
}
