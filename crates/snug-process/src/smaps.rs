//! The mappings of a process with what each holds in memory, by `/proc/PID/smaps`, and which pages of a range are there,
//! by `/proc/PID/pagemap`.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::proc::{self, Pid};
use snug_base::machine;

/// One mapping, and how much of it is in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResidentMapping {
    pub start: u64,
    pub end: u64,
    /// Where in its file it begins.
    pub offset: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// There is a file behind it, be it one of shared memory.
    pub has_file: bool,
    /// Its path, a name in brackets, or nothing.
    pub name: String,
    pub rss_bytes: u64,
}

impl ResidentMapping {
    /// Memory of the process alone that no file is behind, as allocators get it.
    pub fn is_anonymous(&self) -> bool {
        !self.has_file && !self.shared && (!self.name.starts_with('[') || self.is_named_anonymous())
    }

    fn is_named_anonymous(&self) -> bool {
        self.name == "[heap]" || self.name.starts_with("[anon")
    }
}

/// Reads `/proc/PID/smaps`.
pub fn parse_smaps(text: &[u8]) -> Vec<ResidentMapping> {
    let text = String::from_utf8_lossy(text);
    let mut mappings: Vec<ResidentMapping> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("Rss:") {
            Some(rest) => {
                let kibibytes =
                    rest.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
                if let (Some(last), Some(kibibytes)) = (mappings.last_mut(), kibibytes) {
                    last.rss_bytes = kibibytes * 1024;
                }
            }
            None => mappings.extend(parse_head(line)),
        }
    }
    mappings
}

/// The line that begins a mapping. None: another line.
fn parse_head(line: &str) -> Option<ResidentMapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?.as_bytes();
    let offset = words.next()?;
    let inode = words.nth(1)?;
    Some(ResidentMapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        readable: permissions.first() == Some(&b'r'),
        writable: permissions.get(1) == Some(&b'w'),
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        has_file: inode != "0",
        name: words.next().unwrap_or_default().trim().to_string(),
        rss_bytes: 0,
    })
}

/// Which pages of a process are in memory.
pub struct PageMap {
    file: File,
    page_bytes: u64,
    left_pages: Cell<u64>,
}

/// Where a page is: neither in memory nor in swap, or one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageState {
    pub present: bool,
    pub swapped: bool,
}

/// An entry of `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst of the kernel).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageEntry(u64);

impl PageEntry {
    pub fn is_present(self) -> bool {
        self.0 >> 63 & 1 != 0
    }

    pub fn is_swapped(self) -> bool {
        // Guards of stacks, which need no memory, look like it. Since Linux 6.15 they have a bit of their own.
        self.0 >> 62 & 1 != 0 && self.0 >> 58 & 1 == 0
    }

    /// It is of a file, or of shared memory.
    pub fn is_of_file(self) -> bool {
        self.0 >> 61 & 1 != 0
    }

    /// No other process has it.
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 != 0
    }
}

/// So many pages are looked at at a time.
const BATCH_PAGES: u64 = 1 << 16;
/// And so many in all: of half a terabyte, in a second or two. A program may reserve a hundred terabytes.
const PAGES_MAX: u64 = 1 << 27;

impl PageMap {
    /// Fails if the process is somebody else's.
    pub fn open(pid: Pid) -> io::Result<PageMap> {
        let file = File::open(format!("/proc/{}/pagemap", proc::living(pid)))?;
        Ok(PageMap { file, page_bytes: machine::page_size_bytes(), left_pages: Cell::new(PAGES_MAX) })
    }

    /// From here on it says as much again.
    pub fn begin_anew(&self) {
        self.left_pages.set(PAGES_MAX);
    }

    /// Whether so many pages were looked at that it says nothing of others any more.
    pub fn is_exhausted(&self) -> bool {
        self.left_pages.get() == 0
    }

    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Reads the states of the pages from `start` to `end`, both multiples of a page.
    pub fn states(&self, start: u64, end: u64) -> io::Result<Vec<PageState>> {
        let state = |entry: PageEntry| PageState { present: entry.is_present(), swapped: entry.is_swapped() };
        Ok(self.entries(start, end)?.into_iter().map(state).collect())
    }

    /// All that is said of them.
    pub fn entries(&self, start: u64, end: u64) -> io::Result<Vec<PageEntry>> {
        let pages = end.saturating_sub(start) / self.page_bytes;
        let left = self.left_pages.get().saturating_sub(pages);
        self.left_pages.set(left);
        if left == 0 {
            return Err(io::Error::other("it has too many pages to look at"));
        }
        let mut entries = vec![0; (pages * 8) as usize];
        self.file.read_exact_at(&mut entries, start / self.page_bytes * 8)?;
        let entry = |bytes: &[u8]| PageEntry(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        Ok(entries.chunks_exact(8).map(entry).collect())
    }

    /// Calls back with the address of each page from `start` to `end`, rounded outwards to pages, that is in memory.
    pub fn each_present(&self, start: u64, end: u64, mut call: impl FnMut(u64)) -> io::Result<()> {
        let batch_bytes = BATCH_PAGES * self.page_bytes;
        let last = end.next_multiple_of(self.page_bytes);
        let mut next = start - start % self.page_bytes;
        while next < last {
            let batch_end = last.min(next + batch_bytes);
            let pages = (next..batch_end).step_by(self.page_bytes as usize);
            let states = self.states(next, batch_end)?;
            pages.zip(states).filter(|(_, state)| state.present).for_each(|(page, _)| call(page));
            next = batch_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_not_swapped() {
        let entry = |bits: &[u32]| PageEntry(bits.iter().map(|bit| 1 << bit).sum());
        assert!(entry(&[62]).is_swapped() && !entry(&[62, 58]).is_swapped() && !entry(&[63]).is_swapped());
    }

    #[test]
    fn mappings_are_read_with_their_memory() {
        let text = b"1000-3000 r-xp 00001000 fe:00 77                         /usr/bin/a program\nSize: 8 kB\nRss:    4 kB\n\
            Pss: 1 kB\nVmFlags: rd ex\n4000-9000 rw-p 00000000 00:00 0                            [heap]\nRss: 12 kB\n\
            9000-a000 rw-s 00000000 00:01 5 /dev/shm/x (deleted)\nRss: 0 kB\nb000-c000 rw-p 00000000 00:00 0 \nRss: 4 kB\n\
            d000-e000 rw-p 00000000 00:00 0 [stack]\nRss: 4 kB\n";
        let mappings = parse_smaps(text);
        let seen: Vec<_> = mappings.iter().map(|m| (m.start, m.rss_bytes, m.name.as_str())).collect();
        let wanted = [
            (0x1000, 4096, "/usr/bin/a program"),
            (0x4000, 12_288, "[heap]"),
            (0x9000, 0, "/dev/shm/x (deleted)"),
            (0xb000, 4096, ""),
            (0xd000, 4096, "[stack]"),
        ];
        assert_eq!(seen, wanted);
        let anonymous: Vec<bool> = mappings.iter().map(ResidentMapping::is_anonymous).collect();
        assert_eq!(anonymous, [false, true, false, true, false]);
        assert_eq!(mappings[0].offset, 4096);
        assert!(mappings[0].executable && mappings[0].has_file && !mappings[0].writable);
        assert!(mappings[2].shared && mappings[2].writable);
    }

    #[test]
    fn a_hundred_terabytes_are_looked_at_to_an_end() {
        snug_base::random::must_end(|| {
            let map = PageMap::open(std::process::id() as Pid).unwrap();
            let mut last = 0;
            let looked = map.each_present(4096, 100 << 40, |page| last = page);
            assert!(looked.is_err() && map.is_exhausted() && last < 3 << 40, "{last:x}");
            assert!(map.states(4096, 8192).is_err());
        });
    }

    #[test]
    fn present_pages_are_what_was_touched() {
        const PAGES: usize = 64;
        let bytes = machine::page_size_bytes() as usize;
        let mut memory = vec![0u8; (PAGES + 1) * bytes];
        let first = (memory.as_ptr() as u64).next_multiple_of(bytes as u64);
        let skipped = (first - memory.as_ptr() as u64) as usize;
        (0..PAGES).for_each(|page| memory[skipped + page * bytes] = 1);
        let map = PageMap::open(std::process::id() as Pid).unwrap();
        let mut pages = Vec::new();
        map.each_present(first, first + (PAGES * bytes) as u64, |page| pages.push(page)).unwrap();
        assert_eq!(pages.len(), PAGES, "{}", memory[skipped]);
        assert_eq!(pages[0], first);
    }
}
