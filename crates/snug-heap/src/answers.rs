//! An allocator's answers about itself, left in the process by the asker (`core/asker/answers.h`), which is preloaded
//! with it. Pure but for the clock.

use std::time::Duration;

use serde::Serialize;

use crate::read_error::ReadError;
use snug_process::system;

/// The symbol by which the answers are found.
pub const SYMBOL: &str = "snug_answers";

/// `struct snug_answers`: the magic, then three numbers.
pub const BYTES: usize = 40;
const MAGIC: &[u8; 16] = b"snug answers 1\n\0";
/// Twice the longest pause between two answers.
const FRESH: Duration = Duration::from_secs(10);

/// What an allocator holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HeapSize {
    /// Blocks that the program may use, with their rounding; never more than is held, as some were never touched.
    pub live_bytes: u64,
    /// Resident memory of the heaps.
    pub held_bytes: u64,
}

impl HeapSize {
    /// Share of what is held that is not live, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        self.held_bytes.saturating_sub(self.live_bytes) as f64 / self.held_bytes.max(1) as f64
    }
}

/// The answer in these bytes. Ok(None): there is none yet, or none since long; Err: this is not the asker's.
pub fn parse(bytes: &[u8]) -> Result<Option<HeapSize>, ReadError> {
    let numbers = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() == BYTES);
    let numbers = numbers.ok_or(ReadError::NotThere("there are no answers of an allocator"))?;
    let number = |index: usize| u64::from_ne_bytes(numbers[8 * index..][..8].try_into().expect("8 bytes"));
    let (answered_at, live_bytes, resident_bytes) = (Duration::from_nanos(number(0)), number(1), number(2));
    let is_fresh = !answered_at.is_zero() && system::monotonic_time().saturating_sub(answered_at) < FRESH;
    Ok(is_fresh.then_some(HeapSize { live_bytes, held_bytes: resident_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;

    fn bytes(answered_at: Duration, live_bytes: u64, resident_bytes: u64) -> Vec<u8> {
        let numbers = [answered_at.as_nanos() as u64, live_bytes, resident_bytes];
        MAGIC.iter().copied().chain(numbers.into_iter().flat_map(u64::to_ne_bytes)).collect()
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        let header = include_str!("../../../core/asker/answers.h");
        let fields: Vec<&str> = header
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .map(|line| line.split(';').next().unwrap_or(line))
            .collect();
        let numbers = ["uint64_t answered_at_ns", "uint64_t live_bytes", "uint64_t resident_bytes"];
        assert_eq!(fields, [&["char magic[16]"], &numbers[..]].concat());
        assert!(header.contains(r#"SNUG_ANSWERS_MAGIC "snug answers 1\n""#));
        assert_eq!(BYTES, MAGIC.len() + 8 * numbers.len());
    }

    #[test]
    fn an_answer_is_good_while_it_is_fresh() {
        let now = system::monotonic_time();
        let heap = HeapSize { live_bytes: 70, held_bytes: 100 };
        assert_eq!(parse(&bytes(now, 70, 100)), Ok(Some(heap)));
        assert_eq!(parse(&bytes(Duration::ZERO, 0, 0)), Ok(None), "never asked");
        assert_eq!(parse(&bytes(now.saturating_sub(2 * FRESH), 70, 100)), Ok(None), "the thread has gone");
    }

    #[test]
    fn other_memory_is_no_answer() {
        assert!(parse(&[0; BYTES]).is_err());
        assert!(parse(&bytes(FRESH, 1, 2)[..BYTES - 1]).is_err());
    }

    #[test]
    fn any_numbers_are_an_answer_or_none() {
        let mut random = Random::new(62);
        for _ in 0..1000 {
            let mut bytes = random.hostile_bytes(BYTES, &[]);
            assert!(parse(&bytes).is_err());
            bytes[..MAGIC.len()].copy_from_slice(MAGIC);
            assert!(parse(&bytes).is_ok());
        }
    }
}
