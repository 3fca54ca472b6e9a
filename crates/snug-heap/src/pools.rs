//! Free blocks in a pool of Python's own arenas. Each pool begins with a header (Objects/obmalloc.c, `struct
//! pool_header`), which leads to a list through the free ones.

use crate::interpreters::{is_python_pool, PYTHON_HEADER_BYTES, PYTHON_POOL_BYTES};
use crate::page_change::{Granules, GRANULE_BYTES};
use crate::remote;
use snug_process::proc::Pid;

/// What is free in the 4 KiB at an address, and what belongs to the header. None: it is in no pool, or that is changing.
pub fn free_in(pid: Pid, address: u64) -> Option<(Granules, Granules)> {
    let start = address - address % PYTHON_POOL_BYTES;
    let pool = remote::read_memory(pid, start, PYTHON_POOL_BYTES as usize).ok()?;
    let free = free_granules(&pool, start)?;
    let first = ((address - start) / GRANULE_BYTES as u64) as usize;
    let header = |granule: usize| (first + granule) * GRANULE_BYTES < PYTHON_HEADER_BYTES;
    Some((Granules::where_is(|granule| free[first + granule]), Granules::where_is(header)))
}

/// The same of a whole pool.
fn free_granules(pool: &[u8], start: u64) -> Option<Vec<bool>> {
    if !is_python_pool(&pool[..PYTHON_HEADER_BYTES], PYTHON_POOL_BYTES) {
        return None;
    }
    let number = |at: usize| u32::from_le_bytes(pool[at..at + 4].try_into().expect("four bytes")) as usize;
    let word = |at: usize| u64::from_le_bytes(pool[at..at + 8].try_into().expect("eight bytes"));
    let (block_bytes, untouched) = ((number(36) + 1) * GRANULE_BYTES, number(40));
    let mut free: Vec<bool> =
        (0..pool.len() / GRANULE_BYTES).map(|at| at * GRANULE_BYTES >= untouched).collect();
    let mut next = word(8);
    for _ in 0..pool.len() / block_bytes {
        if next == 0 {
            return Some(free);
        }
        let at = next.checked_sub(start)? as usize;
        if at < PYTHON_HEADER_BYTES || at + block_bytes > pool.len() {
            return None;
        }
        free[at / GRANULE_BYTES..(at + block_bytes) / GRANULE_BYTES].fill(true);
        next = word(at);
    }
    // A list longer than the pool.
    (next == 0).then_some(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};

    const START: u64 = 0x7f00_0000_4000;

    fn pool(first_free: u64) -> Vec<u8> {
        let mut pool = vec![0; PYTHON_POOL_BYTES as usize];
        pool[8..16].copy_from_slice(&first_free.to_le_bytes());
        pool[36..40].copy_from_slice(&3u32.to_le_bytes());
        pool[40..44].copy_from_slice(&(48u32 + 64 * 100).to_le_bytes());
        pool[44..48].copy_from_slice(&(16_384u32 - 64).to_le_bytes());
        pool
    }

    #[test]
    fn the_list_and_what_was_never_used_are_free() {
        let mut memory = pool(START + 48 + 64);
        memory[112..120].copy_from_slice(&(START + 48 + 64 * 5).to_le_bytes());
        let free = free_granules(&memory, START).unwrap();
        let first: Vec<usize> = (0..100).filter(|block| free[3 + block * 4]).collect();
        assert_eq!(first, [1, 5]);
        assert!(free[3 + 4 * 100..].iter().all(|free| *free) && !free[..3].contains(&true));
        assert!(free_granules(&[0; PYTHON_POOL_BYTES as usize], START).is_none());
    }

    #[test]
    fn lists_of_who_means_harm_end() {
        must_end(|| {
            let mut circle = pool(START + 48);
            circle[48..56].copy_from_slice(&(START + 48).to_le_bytes());
            assert!(free_granules(&circle, START).is_none());
            assert!(free_granules(&pool(START - 1), START).is_none());
            assert!(free_granules(&pool(u64::MAX), START).is_none());
            let mut random = Random::new(72);
            let range = START..START + PYTHON_POOL_BYTES;
            let places = std::slice::from_ref(&range);
            for _ in 0..1000 {
                let mut memory = random.hostile_bytes(PYTHON_POOL_BYTES as usize, places);
                let header = pool(random.hostile_word(places));
                memory[..48].copy_from_slice(&header[..48]);
                free_granules(&memory, START);
            }
        });
    }
}
