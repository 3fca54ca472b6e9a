//! The reasons why words of a Python process changed since it was forked: counts, its collector's, or code.

use std::ops::Range;

use crate::page_change::{Cause, GRANULE_BYTES, PART_BYTES};
use crate::python_types::{may_be_count, PythonTypes};
use crate::remote::word;
use snug_process::proc::Pid;

/// How far before a page a code object is searched that reaches into it.
const CODE_BYTES_MAX: u64 = 64 << 10;
/// Where an object has its type, and the number of its items.
const TYPE: usize = 8;
const ITEMS: usize = 16;

/// The objects of the parent. Pages are asked for in ascending order, until it starts again.
pub struct PythonObjects {
    types: PythonTypes,
    /// Where `code` is, once an object of that type was seen.
    code_type: Option<u64>,
    /// Code objects that may reach into the next pages, and up to where they were searched.
    code: Vec<Range<u64>>,
    searched: u64,
}

impl PythonObjects {
    /// Opens the memory of a process.
    pub fn new(parent: Pid) -> std::io::Result<PythonObjects> {
        Ok(PythonObjects { types: PythonTypes::new(parent)?, code_type: None, code: Vec::new(), searched: 0 })
    }

    /// Forgets up to where was searched, but not which types there are.
    pub fn start_again(&mut self) {
        self.code.clear();
        self.searched = 0;
    }

    /// Why the word at an offset of these 4 KiB differs. None: it is nothing of the interpreter's.
    pub fn cause(&mut self, address: u64, parent: &[u8], child: &[u8], at: usize) -> Option<Cause> {
        let (before, now) = (word(parent, at), word(child, at));
        let kind = |bytes: &[u8], object: usize| {
            (object + TYPE + 8 <= bytes.len()).then(|| word(bytes, object + TYPE))
        };
        let is_object = at % GRANULE_BYTES == 0 && kind(parent, at) == kind(child, at);
        let are_counts = may_be_count(before) && may_be_count(now) && before >> 32 == now >> 32;
        if is_object && are_counts && kind(parent, at).is_some_and(|kind| self.types.at(kind).is_some()) {
            return Some(Cause::Counts);
        }
        // Two words before an object are the collector's.
        let object = at - at % GRANULE_BYTES + GRANULE_BYTES;
        let next = match kind(parent, object) {
            Some(kind) => Some(kind),
            None => self.types.read(address + (object + TYPE) as u64, 8).map(|bytes| word(&bytes, 0)),
        };
        let is_same = kind(child, object).is_none_or(|kind| Some(kind) == next);
        let may_lead = |word: u64| word >> 47 == 0;
        if is_same && may_lead(before) && may_lead(now) {
            let has_gc = next.and_then(|kind| self.types.at(kind)).is_some_and(|kind| kind.has_gc);
            if has_gc {
                return Some(Cause::Collector);
            }
        }
        self.is_code(address, at).then_some(Cause::Code)
    }

    fn is_code(&mut self, address: u64, at: usize) -> bool {
        let (start, end) = (address.saturating_sub(CODE_BYTES_MAX), address + PART_BYTES as u64);
        if self.searched < end {
            self.code.retain(|code| code.end > address);
            let from = self.searched.max(start);
            (from..end).step_by(PART_BYTES).for_each(|part| self.search(part));
            self.searched = end;
        }
        let place = address + at as u64;
        self.code.iter().any(|code| code.contains(&place))
    }

    /// Searches 4 KiB for beginnings of code objects.
    fn search(&mut self, part: u64) {
        let Some(bytes) = self.types.read(part, PART_BYTES) else { return };
        for at in (0..PART_BYTES).step_by(GRANULE_BYTES).filter(|at| may_be_count(word(&bytes, *at))) {
            let kind = word(&bytes, at + TYPE);
            if self.code_type.is_some_and(|code| code != kind) {
                continue;
            }
            let Some(found) = self.types.at(kind).filter(|found| found.is_code) else { continue };
            self.code_type = Some(kind);
            let items = match at + ITEMS + 8 <= PART_BYTES {
                true => word(&bytes, at + ITEMS),
                false => match self.types.read(part + (at + ITEMS) as u64, 8) {
                    Some(bytes) => word(&bytes, 0),
                    None => continue,
                },
            };
            let start = part + at as u64;
            let length = found.object_bytes(items);
            if length <= CODE_BYTES_MAX {
                self.code.push(start..start + length);
            }
        }
    }
}
