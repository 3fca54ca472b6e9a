//! The work of hooks before a process forked its workers. They note it in a page of shared memory, which workers
//! inherit: `snug hooks 1`, a line feed, JSON (docs/decisions/0050-immortal-before-the-fork.md).

use serde::{Deserialize, Serialize};

use crate::remote;
use snug_process::proc::Pid;

/// What the page begins with.
const MAGIC: &[u8] = b"snug hooks 1\n";
/// How the kernel calls memory that is shared with children alone.
const MAPPED_AS: &str = "/dev/zero (deleted)";
/// What is read of such memory. The hooks' is a page.
const READ_BYTES: usize = 4096;
/// A program may map as much of it as it likes.
const MAPPINGS_MAX: usize = 64;

/// What the hooks say of the process that they prepared.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct HooksState {
    /// The process that was prepared, as it calls itself: in a container another number than outside.
    pub pid: Pid,
    /// Objects were made immortal.
    pub immortal: bool,
    /// Why not.
    pub reason: Option<String>,
    /// How many.
    pub objects: u64,
    /// What was anonymous at the first fork, all of which the workers share.
    pub shared_bytes: u64,
    /// What it took.
    pub seconds: f64,
}

/// A page of hooks, found in a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HooksPage {
    /// The same in all processes that inherited this page, and in no other.
    pub inode: u64,
    /// What it says.
    pub state: HooksState,
}

impl HooksState {
    /// How much of what it shared a worker holds copies of, which shares so much with others still.
    pub fn copied_bytes(&self, shared_dirty_bytes: u64) -> u64 {
        self.shared_bytes.saturating_sub(shared_dirty_bytes)
    }
}

/// Whether a process is the one that was prepared, by its `/proc/PID/status`.
pub fn is_prepared(state: &HooksState, status: &[u8]) -> bool {
    let text = String::from_utf8_lossy(status);
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    // The last one is that of the innermost namespace.
    line("NSpid:").or_else(|| line("Pid:")).and_then(|line| line.split_ascii_whitespace().last())
        == Some(state.pid.to_string().as_str())
}

/// Finds the page of hooks in a process, by its `/proc/PID/maps`.
pub fn find(pid: Pid, maps_text: &[u8]) -> Option<HooksPage> {
    let places = places(maps_text);
    places.into_iter().find_map(|(address, inode)| {
        let page = remote::read_memory(pid, address, READ_BYTES).ok()?;
        Some(HooksPage { inode, state: parse(&page)? })
    })
}

/// Where the page may lie, and the inode of its memory.
fn places(maps_text: &[u8]) -> Vec<(u64, u64)> {
    let text = String::from_utf8_lossy(maps_text);
    let shared = text.lines().filter_map(|line| {
        let mut words = line.strip_suffix(MAPPED_AS)?.split_ascii_whitespace();
        let (start, _) = words.next()?.split_once('-')?;
        let is_shared = words.next()?.ends_with('s');
        let inode = words.nth(2)?.parse().ok()?;
        Some((u64::from_str_radix(start, 16).ok()?, inode)).filter(|_| is_shared)
    });
    shared.take(MAPPINGS_MAX).collect()
}

/// Reads the page. None: it is something else.
fn parse(page: &[u8]) -> Option<HooksState> {
    let json = page.strip_prefix(MAGIC)?.split(|byte| *byte == 0).next()?;
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;

    #[test]
    fn the_page_is_found_and_read() {
        let maps = b"7f00-7f10 rw-p 00000000 00:00 0 \n7f20-7f30 rw-s 00000000 00:01 2071 /dev/zero (deleted)\n\
            7f40-7f50 rw-s 00000000 00:01 8 /dev/shm/x (deleted)\n7f60-7f70 rw-p 00000000 00:01 9 /dev/zero (deleted)\n";
        assert_eq!(places(maps), [(0x7f20, 2071)]);
        let json = r#"{"pid": 7, "immortal": true, "reason": null, "objects": 3, "shared_bytes": 9000, "seconds": 0.5, "new": 1}"#;
        let page = [MAGIC, json.as_bytes(), &[0; 100]].concat();
        let state = parse(&page).unwrap();
        assert_eq!((state.pid, state.immortal, state.objects, state.shared_bytes), (7, true, 3, 9000));
        assert_eq!((state.copied_bytes(2000), state.copied_bytes(10_000)), (7000, 0));
        assert_eq!(parse(&page[1..]), None);
        assert_eq!(parse(&page[..40]), None);
    }

    #[test]
    fn a_process_is_known_by_the_number_that_it_knows() {
        let state = HooksState { pid: 7, ..HooksState::default() };
        assert!(is_prepared(&state, b"Name:\tx\nPid:\t4711\nNSpid:\t4711\t7\n"));
        assert!(!is_prepared(&state, b"Name:\tx\nPid:\t7\nNSpid:\t7\t1\n"));
        assert!(is_prepared(&state, b"Name:\tx\nPid:\t7\n"), "an old kernel");
    }

    #[test]
    fn pages_of_who_means_harm_are_read_to_an_end() {
        let mut random = Random::new(71);
        for _ in 0..2000 {
            let page = [MAGIC, &random.hostile_bytes(200, &[])].concat();
            parse(&page);
        }
    }
}
