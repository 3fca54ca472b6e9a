//! Types of a Python process, which objects name in their second word: they tell the counts of objects, words of the
//! collector, and code from each other. A type is what names `type` in turn, at most through a few others, and `type`
//! names itself. The beginning of a type (Include/cpython/object.h, `PyTypeObject`) is the same in all versions of
//! CPython 3 that have a global lock. Of a free-threaded one no type is found.

use std::collections::HashMap;

use crate::remote::{self, word};
use snug_process::proc::Pid;
use snug_process::smaps::PageMap;

/// Where `PyTypeObject` has what is used here.
const TYPE: usize = 8;
const NAME: usize = 24;
const BASIC_BYTES: usize = 32;
const ITEM_BYTES: usize = 40;
const FLAGS: usize = 168;
const HEAD_BYTES: usize = 176;
/// In its flags: the collector knows its objects, which follow two words of the collector's.
const HAS_GC: u64 = 1 << 14;
/// From a type to `type` there are so many types at most.
const STEPS_MAX: usize = 4;
/// Addresses of which it is remembered whether a type is there.
const KNOWN_MAX: usize = 1 << 16;
/// The upper half of all addresses is the kernel's, and the first pages are nobody's.
const ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 47;

/// What is known of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonType {
    /// Python's collector knows its objects.
    pub has_gc: bool,
    /// `code`, whose objects hold what the interpreter runs, and what it notes there.
    pub is_code: bool,
    basic_bytes: u64,
    item_bytes: u64,
}

impl PythonType {
    /// How long an object is that says it has so many items.
    pub fn object_bytes(self, items: u64) -> u64 {
        self.basic_bytes.saturating_add(self.item_bytes.saturating_mul(items))
    }
}

/// Types of a process, as far as they were asked for.
pub struct PythonTypes {
    pid: Pid,
    pages: PageMap,
    known: HashMap<u64, Option<PythonType>>,
}

/// Whether a word may be the count of an object: of 3.12 and later only its lower half counts, and there are flags above.
pub fn may_be_count(word: u64) -> bool {
    word as u32 != 0 && (word >> 32) & 0xffff == 0 && word >> 48 <= 0xff
}

impl PythonTypes {
    /// Opens the memory of a process.
    pub fn new(pid: Pid) -> std::io::Result<PythonTypes> {
        Ok(PythonTypes { pid, pages: PageMap::open(pid)?, known: HashMap::new() })
    }

    /// The type at an address. None: there is none.
    pub fn at(&mut self, address: u64) -> Option<PythonType> {
        if address % 8 != 0 || !ADDRESSES.contains(&address) {
            return None;
        }
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let found = self.look(address);
        self.known.insert(address, found);
        found
    }

    fn look(&self, address: u64) -> Option<PythonType> {
        let head = self.read(address, HEAD_BYTES)?;
        let mut kind = (address, word(&head, TYPE));
        for _ in 0..STEPS_MAX {
            if kind.0 == kind.1 {
                break;
            }
            kind = (kind.1, word(&self.read(kind.1, 16)?, TYPE));
        }
        let name_of = |of: u64| self.read(word(&self.read(of, 32)?, NAME), 5);
        if kind.0 != kind.1 || name_of(kind.0)? != b"type\0" {
            return None;
        }
        Some(PythonType {
            has_gc: word(&head, FLAGS) & HAS_GC != 0,
            is_code: name_of(address).is_some_and(|name| name == b"code\0"),
            basic_bytes: word(&head, BASIC_BYTES),
            item_bytes: word(&head, ITEM_BYTES),
        })
    }

    /// Reads what is in memory: what was never touched would have a page after that.
    pub fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let page = self.pages.page_bytes();
        let (start, end) =
            (address - address % page, address.checked_add(bytes as u64)?.next_multiple_of(page));
        if !ADDRESSES.contains(&address) || !ADDRESSES.contains(&end) {
            return None;
        }
        let is_there = self.pages.states(start, end).ok()?.iter().all(|state| state.present);
        is_there.then(|| remote::read_memory(self.pid, address, bytes).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};

    /// A type at the beginning of `memory`: which one it names, its name, and its flags.
    fn put_type(memory: &mut [u64], of: u64, name: &[u8; 8], flags: u64) -> u64 {
        let at = memory.as_ptr() as u64;
        memory[1] = of;
        memory[3] = at + 23 * 8;
        memory[4] = 200;
        memory[5] = 2;
        memory[21] = flags;
        memory[23] = u64::from_le_bytes(*name);
        at
    }

    #[test]
    fn types_lead_to_the_one_that_names_itself() {
        let mut memory = vec![0u64; 96];
        let root = memory.as_ptr() as u64;
        put_type(&mut memory[..24], root, b"type\0\0\0\0", HAS_GC);
        let code = put_type(&mut memory[24..48], root, b"code\0\0\0\0", 0);
        let derived = put_type(&mut memory[48..72], code, b"codex\0\0\0", HAS_GC);
        // A list whose only member leads to itself, as in C.
        let ring = memory[72..].as_ptr() as u64;
        put_type(&mut memory[72..], ring, b"ring\0\0\0\0", 0);
        let mut types = PythonTypes::new(std::process::id() as Pid).unwrap();
        let found = types.at(code).unwrap();
        assert!(found.is_code && !found.has_gc);
        assert_eq!(found.object_bytes(50), 300);
        let found = types.at(derived).unwrap();
        assert!(!found.is_code && found.has_gc);
        assert!(types.at(root).is_some());
        assert_eq!(
            (types.at(ring), types.at(root + 8), types.at(8), types.at(u64::MAX)),
            (None, None, None, None)
        );
    }

    #[test]
    fn words_that_may_be_counts() {
        for count in [1, 70_000, 0xffff_ffff, 0x0001_0000_c000_0000] {
            assert!(may_be_count(count), "{count:x}");
        }
        for other in [0, 0x7f12_3456_7890, 0x5581_0000_0010, u64::MAX, 1 << 32] {
            assert!(!may_be_count(other), "{other:x}");
        }
    }

    #[test]
    fn types_of_who_means_harm_lead_to_an_end() {
        must_end(|| {
            let mut random = Random::new(73);
            let mut types = PythonTypes::new(std::process::id() as Pid).unwrap();
            for _ in 0..20 {
                let own = vec![0u8; 4096];
                let range = own.as_ptr() as u64..own.as_ptr() as u64 + 4096;
                let memory = random.hostile_bytes(4096, std::slice::from_ref(&range));
                let start = memory.as_ptr() as u64;
                for at in (start..start + 3000).step_by(8) {
                    types.at(at);
                }
            }
        });
    }
}
