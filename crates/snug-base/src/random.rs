//! Numbers drawn from a seed, and hostile memory of processes made of them: for tests.

use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers everywhere and forever.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    #[allow(clippy::should_implement_trait)] // it never ends
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly between 0 and 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between two positive numbers, each doubling equally likely.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed with variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// From 0 to one less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A hostile word: 0, small, huge, of few bits, random, or an address in one of the places, if there are any.
    pub fn hostile_word(&mut self, places: &[Range<u64>]) -> u64 {
        match self.below(8) {
            0 | 1 => 0,
            2 => self.below(256),
            3 => u64::MAX - self.below(8192),
            4 => 1 << self.below(64),
            5 => self.next(),
            _ if places.is_empty() => self.below(1 << 20),
            _ => {
                let place = &places[self.below(places.len() as u64) as usize];
                let address = place.start + self.below(place.end - place.start);
                if self.chance(0.5) {
                    address & !4095
                } else {
                    address
                }
            }
        }
    }

    /// So many bytes of such words.
    pub fn hostile_bytes(&mut self, length: usize, places: &[Range<u64>]) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.hostile_word(places).to_ne_bytes());
        words.flatten().take(length).collect()
    }
}

/// Runs a test that might never end, and fails then.
pub fn must_end(test: impl FnOnce() + Send + 'static) {
    const LIMIT: Duration = Duration::from_secs(120);
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        // Whoever waits may have given up.
        let _ = done.send(());
    });
    match ended.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
        _ => thread.join().expect("it does not panic"),
    }
}

/// Calls a reader of what others write with changed copies of samples: it must neither panic nor take long. That is the
/// same few thousand in every run or, with `SNUG_FUZZ_SECONDS`, others for so long (`make fuzz`).
pub fn fuzz(samples: &[&[u8]], read: fn(&[u8])) {
    let seconds = std::env::var("SNUG_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let begin = Instant::now();
    let first = seconds.map_or(0, |_: u64| u64::from(std::process::id()) << 32);
    let is_over = |count: u64| match seconds {
        Some(seconds) => begin.elapsed() > Duration::from_secs(seconds),
        None => count == 3000,
    };
    for seed in (first..).take_while(|seed| !is_over(seed - first)) {
        let changed = Arc::new(changed(&mut Random::new(seed), samples));
        let input = Arc::clone(&changed);
        let asked = Instant::now();
        let outcome = std::panic::catch_unwind(move || read(&input));
        let text = changed.escape_ascii();
        assert!(outcome.is_ok() && asked.elapsed() < Duration::from_secs(30), "seed {seed}: {text}");
    }
}

/// A copy of a sample with a few pieces lost, doubled, replaced by others or by numbers that mean harm.
fn changed(random: &mut Random, samples: &[&[u8]]) -> Vec<u8> {
    let any = |random: &mut Random| samples[random.below(samples.len() as u64) as usize];
    let piece = |random: &mut Random, bytes: &[u8]| {
        let begin = random.below(bytes.len() as u64 + 1) as usize;
        begin..bytes.len().min(begin + 1 + random.log_between(1.0, 200.0) as usize)
    };
    let mut bytes = any(random).to_vec();
    for _ in 0..=random.below(6) {
        let place = piece(random, &bytes);
        let new = match random.below(8) {
            0 => Vec::new(),
            1 => bytes[place.clone()].repeat(1 + random.below(3) as usize),
            2 => random.hostile_word(&[]).to_string().into_bytes(),
            3 => format!("{:x}", random.hostile_word(&[])).into_bytes(),
            4 => random.hostile_bytes(place.len(), &[]),
            5 => bytes[place.clone()].iter().map(|byte| byte ^ 1 << random.below(8)).collect(),
            6 => {
                let other = any(random);
                other[piece(random, other)].to_vec()
            }
            _ => [&b"\n"[..], b"\0", b"-", b" ", b"\xff", b"9e999", b"\"", b"[", b"{"]
                [random.below(9) as usize]
                .to_vec(),
        };
        bytes.splice(place, new);
    }
    bytes
}
