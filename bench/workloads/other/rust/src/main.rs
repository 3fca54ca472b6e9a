//! What a Rust server does with memory, for docs/how-to/other-languages.md: threads make requests' bodies of many sizes,
//! parse them into maps of strings, and keep some in a cache that all share, from which others leave. Seeded; the same work
//! each time, then quiet for 3 s. With the feature `snug` its allocator is the crate snug-alloc.
//!
//!   rust-server [REQUESTS]

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[cfg(feature = "snug")]
#[global_allocator]
static ALLOCATOR: snug_alloc::Snug = snug_alloc::Snug;

const THREADS: u64 = 8;
const CACHED: usize = 4000;

type Page = HashMap<String, String>;

/// Marsaglia's xorshift, which is enough to scatter sizes.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// A body of lines "key=value", as it would come in.
fn body(random: &mut Random) -> String {
    let mut text = String::new();
    for line in 0..5 + random.below(60) {
        let value = "v".repeat(10 + random.below(400));
        text.push_str(&format!("key{line}={value}\n"));
    }
    text
}

fn parse(text: &str) -> Page {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Serves this many requests and returns how many values there were.
fn serve(thread: u64, requests: usize, cache: &Mutex<Vec<Option<Page>>>) -> usize {
    let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread + 1));
    let mut values = 0;
    for _ in 0..requests {
        let text = body(&mut random);
        let page = parse(&text);
        values += page.len();
        let place = random.below(CACHED);
        if random.below(3) == 0 {
            // What leaves is freed after the lock, often by another thread than the one that made it.
            let left = cache.lock().unwrap()[place].replace(page);
            drop(left);
        }
    }
    values
}

fn main() {
    let requests = std::env::args().nth(1).map_or(Ok(240_000), |text| text.parse());
    let requests: usize = requests.expect("REQUESTS is a number");
    let cache = Mutex::new((0..CACHED).map(|_| None).collect::<Vec<Option<Page>>>());
    let begin = Instant::now();
    let values: usize = std::thread::scope(|scope| {
        let share = requests / THREADS as usize;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let cache = &cache;
                    move || serve(thread, share, cache)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let seconds = begin.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(3));
    println!("snug-metric: requests_per_s={:.0}", requests as f64 / seconds);
    println!("snug-metric: values={values}");
    #[cfg(feature = "snug")]
    println!("snug-alloc {}", snug_alloc::version());
}
