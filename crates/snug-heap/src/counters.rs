//! The page of counters that a process under snug keeps, as described in core/include/snug_counters.h. This is the
//! one mirror of that header in Rust; a test compiles the header and compares every offset.
//!
//! The head, before the size classes, is small and everything about a process as a whole. What is live needs the
//! classes, too: `Account` has both.

#![allow(missing_docs)] // fields and constants are those of core/include/snug_counters.h, which describes them

use std::mem::{offset_of, size_of};

use crate::read_error::ReadError;

/// First bytes of the page.
pub const MAGIC: &[u8; 16] = b"snug counters\n\0\x01";
/// The version of the layout that this program understands.
pub const VERSION: u32 = 2;
/// Alignment of the page.
pub const ALIGN: u64 = 4096;
pub const ARENAS: usize = 64;
pub const CLASSES: usize = 96;
pub const RETAINED: usize = 16;
const TABLES: usize = 8;

/// One size class of one arena.
#[repr(C)]
pub struct ClassLayout {
    pub size_bytes: u32,
    pub slabs: u32,
    pub slab_bytes: u64,
    pub outstanding_blocks: u64,
    pub taken_blocks: u64,
    pub sampled_requests: u64,
    pub sampled_requested_bytes: u64,
}

/// Declares the page and, from the same list of fields, how its numbers are read.
macro_rules! page {
    ($($name:ident: $type:ident,)*) => {
        /// The page as it lies in memory. Never made or borrowed: it only says where fields are.
        #[repr(C)]
        pub struct Layout {
            pub magic: [u8; 16],
            pub version: u32,
            pub size_bytes: u32,
            pub pid: u32,
            pub class_count: u32,
            pub arena_count: u32,
            pub page_size_bytes: u32,
            pub snug_version: [u8; 16],
            pub settings: [u8; 256],
            pub warnings: [u8; 256],
            $(pub $name: $type,)*
            pub control: Control,
            pub classes: [[ClassLayout; CLASSES]; ARENAS],
        }

        /// A copy of the page's head, as one process wrote it.
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Counters {
            pub pid: u32,
            pub arena_count: u32,
            pub snug_version: String,
            pub settings: String,
            pub warnings: String,
            $(pub $name: $type,)*
        }

        impl Counters {
            /// Reads a copy of the first `HEAD_BYTES` of a page.
            pub fn parse(page: &[u8]) -> Result<Counters, ReadError> {
                check_head(page)?;
                Ok(Counters {
                    pid: u32_at(page, offset_of!(Layout, pid)),
                    arena_count: u32_at(page, offset_of!(Layout, arena_count)),
                    snug_version: text_at(page, offset_of!(Layout, snug_version), 16),
                    settings: text_at(page, offset_of!(Layout, settings), 256),
                    warnings: text_at(page, offset_of!(Layout, warnings), 256),
                    $($name: u64_at(page, offset_of!(Layout, $name)),)*
                })
            }
        }

        /// Name and offset of every plain counter, for the test of the layout.
        #[cfg(test)]
        const OFFSETS: &[(&str, usize)] = &[$((stringify!($name), offset_of!(Layout, $name)),)*];
    };
}

page! {
    heap_top_bytes: u64,
    heap_committed_bytes: u64,
    clean_bytes: u64,
    dirty_bytes: u64,
    slab_purged_bytes: u64,
    run_blocks: u64,
    run_bytes: u64,
    run_requested_bytes: u64,
    large_blocks: u64,
    large_bytes: u64,
    large_requested_bytes: u64,
    large_retained_bytes: u64,
    cached_bytes: u64,
    cached_at_ns: u64,
    metadata_bytes: u64,
    dirty_cap_bytes: u64,
    caches: u64,
    purges: u64,
    purged_bytes: u64,
    ticks: u64,
    idle_purges: u64,
    janitor_starts: u64,
    steals: u64,
    forks: u64,
    lock_waits: u64,
    large_maps: u64,
    large_unmaps: u64,
    limit_purges: u64,
}

/// How many bytes of the page `Counters::parse` wants.
pub const HEAD_BYTES: usize = offset_of!(Layout, classes);

/// Where the size of the page stands, and, in a page that is so long, the address of the samples.
pub const SIZE_OFFSET: usize = offset_of!(Layout, size_bytes);
pub const PROFILE_ADDRESS_OFFSET: usize = size_of::<Layout>();
/// And, in a longer one, where the heap is.
pub const PLACES_OFFSET: usize = PROFILE_ADDRESS_OFFSET + size_of::<u64>();

/// Where the heap is, as it lies in the page.
#[repr(C)]
pub struct PlacesLayout {
    pub heap_address: u64,
    pub large_table_address: u64,
    pub large_table_rows: u64,
    pub large_retained_address: u64,
    /// Each the address, and what is reserved there.
    pub tables: [[u64; 2]; TABLES],
}

/// And, in a still longer one, the address of the slots of sampled guards, and what is reserved there.
pub const GUARD_SLOTS_OFFSET: usize = PLACES_OFFSET + size_of::<PlacesLayout>();

/// And, in the longest, wishes: values for settings that others ask for.
pub const WISHES_OFFSET: usize = GUARD_SLOTS_OFFSET + size_of::<[u64; 2]>();

/// Where `request`, `request_from` and `request_check` follow each other.
pub const REQUEST_OFFSET: usize = offset_of!(Layout, control.request);

/// Kinds of requests and answers, as `enum snug_request` and `enum snug_answer` number them.
pub const REQUEST_PURGE: u32 = 1;
pub const REQUEST_SET: u32 = 2;
pub const REQUEST_SWITCH: u32 = 3;
pub const ANSWER_DONE: u32 = 1;
pub const ANSWER_OUT_OF_RANGE: u32 = 5;

/// The words by which others ask, and the answer, as they lie in the page.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Control {
    pub abilities: u64,
    pub request: u64,
    pub request_from: u64,
    pub request_check: u64,
    pub answer: u64,
    pub answer_to: u64,
}

/// The head of a page with the words of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub head: Counters,
    pub control: Control,
}

impl Page {
    /// Reads a copy of the first `HEAD_BYTES` of a page.
    pub fn parse(page: &[u8]) -> Result<Page, ReadError> {
        let head = Counters::parse(page)?;
        let control = Control {
            abilities: u64_at(page, offset_of!(Layout, control.abilities)),
            request: u64_at(page, offset_of!(Layout, control.request)),
            request_from: u64_at(page, offset_of!(Layout, control.request_from)),
            request_check: u64_at(page, offset_of!(Layout, control.request_check)),
            answer: u64_at(page, offset_of!(Layout, control.answer)),
            answer_to: u64_at(page, offset_of!(Layout, control.answer_to)),
        };
        Ok(Page { head, control })
    }
}

/// What `request_check` must be (Q1 of the header, `snug_request_check`).
pub fn request_check(request: u64, from: u64, pid: u32) -> u64 {
    let mut mixed = request.wrapping_add(u64::from(pid).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(from);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) | 1
}

/// How many bytes of the page hold the rows of that many arenas, head included.
pub fn bytes_with_arenas(arenas: u32) -> usize {
    HEAD_BYTES + (arenas as usize).min(ARENAS) * CLASSES * size_of::<ClassLayout>()
}

/// One size class, summed over all arenas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Class {
    pub size_bytes: u64,
    pub slabs: u64,
    pub slab_bytes: u64,
    pub outstanding_blocks: u64,
    pub taken_blocks: u64,
    pub sampled_requests: u64,
    pub sampled_requested_bytes: u64,
}

impl Class {
    /// Bytes of the blocks that are outside slabs: live, or cached by a thread.
    pub fn outstanding_bytes(&self) -> u64 {
        self.size_bytes.saturating_mul(self.outstanding_blocks)
    }
}

/// What is counted now and then: blocks in caches, free pages, tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickCounts {
    pub cached_bytes: u64,
    pub dirty_bytes: u64,
    pub metadata_bytes: u64,
}

/// A page of counters with its size classes.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    #[serde(flatten)]
    pub head: Counters,
    /// Classes that exist, smallest first.
    pub classes: Vec<Class>,
}

impl Account {
    /// Reads a copy of the first `bytes_with_arenas(arena_count)` bytes of a page. Arenas that were added since
    /// that count was read are left out.
    pub fn parse(page: &[u8]) -> Result<Account, ReadError> {
        let head = Counters::parse(page)?;
        let rows = u32_at(page, offset_of!(Layout, class_count)) as usize;
        let mut classes = vec![Class::default(); rows.min(CLASSES)];
        let arenas = (page.len() - HEAD_BYTES) / (CLASSES * size_of::<ClassLayout>());
        for arena in 0..arenas.min(head.arena_count as usize) {
            for (row, class) in classes.iter_mut().enumerate() {
                let at = HEAD_BYTES + (arena * CLASSES + row) * size_of::<ClassLayout>();
                let add = |sum: &mut u64, offset| *sum = sum.saturating_add(u64_at(page, at + offset));
                class.size_bytes =
                    class.size_bytes.max(u32_at(page, at + offset_of!(ClassLayout, size_bytes)).into());
                class.slabs += u64::from(u32_at(page, at + offset_of!(ClassLayout, slabs)));
                add(&mut class.slab_bytes, offset_of!(ClassLayout, slab_bytes));
                add(&mut class.outstanding_blocks, offset_of!(ClassLayout, outstanding_blocks));
                add(&mut class.taken_blocks, offset_of!(ClassLayout, taken_blocks));
                add(&mut class.sampled_requests, offset_of!(ClassLayout, sampled_requests));
                add(&mut class.sampled_requested_bytes, offset_of!(ClassLayout, sampled_requested_bytes));
            }
        }
        classes.retain(|class| class.size_bytes > 0);
        Ok(Account { head, classes })
    }

    /// Bytes of live blocks, as allocated (E2 of the header). Counters that were read while the program ran need
    /// not agree, so this never falls below what large blocks alone hold.
    pub fn live_bytes(&self) -> u64 {
        let outstanding = sum(self.classes.iter().map(Class::outstanding_bytes));
        let head = &self.head;
        sum([outstanding.saturating_sub(head.cached_bytes), head.run_bytes, head.large_bytes])
    }

    /// What only ticks count; None if none did yet, in a process that has done little. Blocks in caches pass for live
    /// then.
    pub fn tick_counts(&self) -> Option<TickCounts> {
        let Counters { cached_bytes, dirty_bytes, metadata_bytes, .. } = self.head;
        (self.head.cached_at_ns > 0).then_some(TickCounts { cached_bytes, dirty_bytes, metadata_bytes })
    }

    /// Bytes that the heap holds in memory at most (E5 of the header). The size of the heap is counted by ticks, and a
    /// process that did little had none yet: then by what lies in it (E4).
    pub fn resident_bytes(&self) -> u64 {
        let head = &self.head;
        let by_size = sum([head.heap_top_bytes, head.large_retained_bytes]).saturating_sub(head.clean_bytes);
        let slab_bytes = sum(self.classes.iter().map(|class| class.slab_bytes));
        let by_content = sum([slab_bytes, head.run_bytes, head.dirty_bytes]);
        let held = sum([by_size.max(by_content), head.large_bytes, head.metadata_bytes]);
        held.saturating_sub(head.slab_purged_bytes)
    }

    /// Share of the heap's memory that is not live, from 0 to 1: 1 - live / resident.
    pub fn fragmentation(&self) -> f64 {
        match self.resident_bytes() {
            0 => 0.0,
            resident => (1.0 - self.live_bytes() as f64 / resident as f64).max(0.0),
        }
    }

    /// Blocks and their bytes that were ever taken out of slabs. What a thread's cache serves again from blocks
    /// that were freed there is not counted: both are lower bounds of what was allocated.
    pub fn taken(&self) -> (u64, u64) {
        self.classes.iter().fold((0, 0), |(blocks, bytes), class| {
            let taken_bytes = class.taken_blocks.saturating_mul(class.size_bytes);
            (sum([blocks, class.taken_blocks]), sum([bytes, taken_bytes]))
        })
    }
}

/// Adds up, to the largest number at most: what another process says may be anything.
pub fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

fn check_head(page: &[u8]) -> Result<(), ReadError> {
    if page.len() < HEAD_BYTES {
        return Err(ReadError::NotThere("its page of counters is cut short"));
    }
    if !page.starts_with(MAGIC) {
        return Err(ReadError::NotThere("its page of counters is not filled in yet"));
    }
    match u32_at(page, offset_of!(Layout, version)) {
        VERSION => {}
        version => {
            let what = format!("its page of counters has layout {version}, which this tool does not know");
            return Err(ReadError::OtherVersion(what));
        }
    }
    let size = u32_at(page, offset_of!(Layout, size_bytes)) as usize;
    if size < size_of::<Layout>() {
        return Err(ReadError::NotThere("its page of counters is cut short"));
    }
    Ok(())
}

fn u32_at(page: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(page[offset..offset + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(page: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(page[offset..offset + 8].try_into().expect("eight bytes"))
}

fn text_at(page: &[u8], offset: usize, length: usize) -> String {
    let text = page[offset..offset + length].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Heap;
    use crate::wishes::{Wish, WishesLayout};
    use snug_base::random::Random;
    use std::collections::HashMap;
    use std::process::Command;

    /// A page as the library would write it.
    fn page() -> Vec<u8> {
        let mut page = vec![0u8; HEAD_BYTES];
        page[..16].copy_from_slice(MAGIC);
        let mut put = |offset: usize, bytes: &[u8]| page[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(Layout, version), &VERSION.to_ne_bytes());
        put(offset_of!(Layout, size_bytes), &(size_of::<Layout>() as u32).to_ne_bytes());
        put(offset_of!(Layout, pid), &42u32.to_ne_bytes());
        put(offset_of!(Layout, snug_version), b"0.1.0\0");
        put(offset_of!(Layout, settings), b"background:1\0");
        put(offset_of!(Layout, dirty_bytes), &7777u64.to_ne_bytes());
        page
    }

    #[test]
    fn classes_of_all_arenas_are_summed() {
        let mut page = page();
        page.resize(bytes_with_arenas(2), 0);
        let mut put = |offset: usize, bytes: &[u8]| page[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(Layout, class_count), &3u32.to_ne_bytes());
        put(offset_of!(Layout, arena_count), &3u32.to_ne_bytes());
        put(offset_of!(Layout, run_bytes), &8192u64.to_ne_bytes());
        put(offset_of!(Layout, cached_bytes), &100u64.to_ne_bytes());
        put(offset_of!(Layout, heap_top_bytes), &40_000u64.to_ne_bytes());
        for arena in 0..2 {
            for row in 1..3usize {
                let at = HEAD_BYTES + (arena * CLASSES + row) * size_of::<ClassLayout>();
                put(at, &(16 * row as u32).to_ne_bytes());
                put(at + offset_of!(ClassLayout, outstanding_blocks), &10u64.to_ne_bytes());
                put(at + offset_of!(ClassLayout, taken_blocks), &(1000 * row as u64).to_ne_bytes());
            }
        }
        let account = Account::parse(&page).unwrap();
        assert_eq!(account.classes.len(), 2, "row 0 is unused");
        assert_eq!(account.classes[1].outstanding_blocks, 20);
        assert_eq!(account.live_bytes(), 20 * 16 + 20 * 32 - 100 + 8192);
        assert_eq!(account.taken(), (6000, 2000 * 16 + 4000 * 32));
        assert_eq!(account.resident_bytes(), 40_000);
        let live = account.live_bytes() as f64;
        assert!((account.fragmentation() - (1.0 - live / 40_000.0)).abs() < 1e-9);
        // A page of which only the head was read has no classes with blocks.
        assert_eq!(Account::parse(&page[..HEAD_BYTES]).unwrap().classes, []);
    }

    #[test]
    fn before_the_first_tick_the_content_tells_the_size() {
        let head = Counters { run_bytes: 8192, slab_purged_bytes: 4096, ..Counters::default() };
        let class = Class { size_bytes: 16, slab_bytes: 20_480, outstanding_blocks: 10, ..Class::default() };
        let account = Account { head, classes: vec![class] };
        assert_eq!(account.resident_bytes(), 20_480 + 8192 - 4096);
    }

    #[test]
    fn a_page_is_read() {
        let counters = Counters::parse(&page()).unwrap();
        assert_eq!((counters.pid, counters.dirty_bytes), (42, 7777));
        assert_eq!((counters.snug_version.as_str(), counters.settings.as_str()), ("0.1.0", "background:1"));
    }

    #[test]
    fn foreign_pages_are_refused() {
        let mut wrong = page();
        wrong[offset_of!(Layout, version)] = 9;
        assert!(
            matches!(Counters::parse(&wrong), Err(ReadError::OtherVersion(what)) if what.contains("layout 9"))
        );
        wrong[0] = 0;
        assert!(matches!(Counters::parse(&wrong), Err(ReadError::NotThere(_))));
        assert!(matches!(Counters::parse(&page()[..100]), Err(ReadError::NotThere(_))));
    }

    const HEAD_FIELDS: &[(&str, usize)] = &[
        ("magic", offset_of!(Layout, magic)),
        ("version", offset_of!(Layout, version)),
        ("size_bytes", offset_of!(Layout, size_bytes)),
        ("pid", offset_of!(Layout, pid)),
        ("class_count", offset_of!(Layout, class_count)),
        ("arena_count", offset_of!(Layout, arena_count)),
        ("page_size_bytes", offset_of!(Layout, page_size_bytes)),
        ("snug_version", offset_of!(Layout, snug_version)),
        ("settings", offset_of!(Layout, settings)),
        ("warnings", offset_of!(Layout, warnings)),
        ("abilities", offset_of!(Layout, control.abilities)),
        ("request", offset_of!(Layout, control.request)),
        ("request_from", offset_of!(Layout, control.request_from)),
        ("request_check", offset_of!(Layout, control.request_check)),
        ("answer", offset_of!(Layout, control.answer)),
        ("answer_to", offset_of!(Layout, control.answer_to)),
        ("classes", offset_of!(Layout, classes)),
    ];
    const TAIL_FIELDS: &[(&str, usize)] = &[
        ("profile_address", PROFILE_ADDRESS_OFFSET),
        ("heap_address", PLACES_OFFSET + offset_of!(PlacesLayout, heap_address)),
        ("large_table_address", PLACES_OFFSET + offset_of!(PlacesLayout, large_table_address)),
        ("large_table_rows", PLACES_OFFSET + offset_of!(PlacesLayout, large_table_rows)),
        ("large_retained_address", PLACES_OFFSET + offset_of!(PlacesLayout, large_retained_address)),
        ("tables", PLACES_OFFSET + offset_of!(PlacesLayout, tables)),
        ("guard_slots", GUARD_SLOTS_OFFSET),
        ("wished", WISHES_OFFSET + offset_of!(WishesLayout, wished)),
        ("sampling_until_ns", WISHES_OFFSET + offset_of!(WishesLayout, sampling_until_ns)),
        ("sampling_for", WISHES_OFFSET + offset_of!(WishesLayout, sampling_for)),
        ("lease", WISHES_OFFSET + offset_of!(WishesLayout, lease)),
        ("lease.request", WISHES_OFFSET + offset_of!(WishesLayout, lease.request)),
        ("lease.from", WISHES_OFFSET + offset_of!(WishesLayout, lease.from)),
        ("lease.until_ns", WISHES_OFFSET + offset_of!(WishesLayout, lease.until_ns)),
        ("lease.check", WISHES_OFFSET + offset_of!(WishesLayout, lease.check)),
        ("lease.answer", WISHES_OFFSET + offset_of!(WishesLayout, lease.answer)),
        ("lease.answer_to", WISHES_OFFSET + offset_of!(WishesLayout, lease.answer_to)),
        ("wishes", WISHES_OFFSET + offset_of!(WishesLayout, wishes)),
    ];
    const CLASS_FIELDS: &[(&str, usize)] = &[
        ("size_bytes", offset_of!(ClassLayout, size_bytes)),
        ("slabs", offset_of!(ClassLayout, slabs)),
        ("slab_bytes", offset_of!(ClassLayout, slab_bytes)),
        ("outstanding_blocks", offset_of!(ClassLayout, outstanding_blocks)),
        ("taken_blocks", offset_of!(ClassLayout, taken_blocks)),
        ("sampled_requests", offset_of!(ClassLayout, sampled_requests)),
        ("sampled_requested_bytes", offset_of!(ClassLayout, sampled_requested_bytes)),
    ];

    const WORDS: &[(&str, u32)] = &[
        ("REQUEST_PURGE", REQUEST_PURGE),
        ("REQUEST_SET", REQUEST_SET),
        ("REQUEST_SWITCH", REQUEST_SWITCH),
        ("ANSWER_DONE", ANSWER_DONE),
        ("ANSWER_OUT_OF_RANGE", ANSWER_OUT_OF_RANGE),
    ];
    const CHECKED: &[(u64, u64, u32)] =
        &[(0, 0, 0), (1, 4711, 42), (u64::MAX, 0xdead_beef_0000_0001, u32::MAX), (42 << 32 | 0x402, 7, 1)];

    /// A C program that prints every constant, size and offset of the header, one `name value` per line.
    fn layout_program() -> String {
        let mut source = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include \"snug_counters.h\"\nint main(void) {\n\
             for (unsigned i = 0; i < 16; i++) printf(\"magic[%u] %d\\n\", i, SNUG_COUNTERS_MAGIC[i]);\n\
             printf(\"VERSION %d\\nALIGN %d\\n\", SNUG_COUNTERS_VERSION, SNUG_COUNTERS_ALIGN);\n\
             printf(\"ARENAS %d\\nCLASSES %d\\n\", SNUG_COUNTERS_ARENAS, SNUG_COUNTERS_CLASSES);\n\
             printf(\"RETAINED %d\\n\", SNUG_COUNTERS_RETAINED);\n\
             printf(\"page %zu\\nclass %zu\\n\", sizeof(struct snug_counters), sizeof(struct snug_counters_class));\n",
        );
        for (name, _) in HEAD_FIELDS.iter().chain(OFFSETS) {
            let line = format!("printf(\"page.{name} %zu\\n\", offsetof(struct snug_counters, {name}));\n");
            source.push_str(&line);
        }
        for (name, _) in TAIL_FIELDS {
            let line = format!("printf(\"page.{name} %zu\\n\", offsetof(struct snug_counters, {name}));\n");
            source.push_str(&line);
        }
        for (name, _) in WORDS {
            source.push_str(&format!("printf(\"{name} %d\\n\", SNUG_{name});\n"));
        }
        for (index, (request, from, pid)) in CHECKED.iter().enumerate() {
            let call = format!("snug_request_check({request}ull, {from}ull, {pid}u)");
            source.push_str(&format!("printf(\"check[{index}] %llu\\n\", (unsigned long long){call});\n"));
            let call = format!("snug_wish_check({request}ull, {from}ull, 5, {pid}u)");
            source.push_str(&format!("printf(\"wish[{index}] %llu\\n\", (unsigned long long){call});\n"));
        }
        for (name, _) in CLASS_FIELDS {
            let line =
                format!("printf(\"class.{name} %zu\\n\", offsetof(struct snug_counters_class, {name}));\n");
            source.push_str(&line);
        }
        source + "return 0; }\n"
    }

    /// What the header says, by the C compiler's word.
    fn layout_in_c() -> HashMap<String, usize> {
        let directory = std::env::temp_dir().join(format!("snug-layout-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("layout.c"), layout_program()).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/include");
        let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=gnu11", "-I", include, "-o"])
            .args([directory.join("layout"), directory.join("layout.c")])
            .status()
            .expect("a C compiler is needed: apt install gcc");
        assert!(compiled.success());
        let output = Command::new(directory.join("layout")).output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
        pairs.map(|(name, value)| (name.to_string(), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        let c = layout_in_c();
        for (name, offset) in HEAD_FIELDS.iter().chain(OFFSETS) {
            assert_eq!(c[&format!("page.{name}")], *offset, "{name}");
        }
        for (name, offset) in CLASS_FIELDS {
            assert_eq!(c[&format!("class.{name}")], *offset, "{name}");
        }
        for (name, offset) in TAIL_FIELDS {
            assert_eq!(c[&format!("page.{name}")], *offset, "{name}");
        }
        assert_eq!(c["page"], WISHES_OFFSET + size_of::<WishesLayout>());
        assert_eq!(c["class"], std::mem::size_of::<ClassLayout>());
        assert_eq!((c["VERSION"], c["ALIGN"]), (VERSION as usize, ALIGN as usize));
        assert_eq!((c["ARENAS"], c["CLASSES"], c["RETAINED"]), (ARENAS, CLASSES, RETAINED));
        for (name, value) in WORDS {
            assert_eq!(c[*name], *value as usize, "{name}");
        }
        for (index, (request, from, pid)) in CHECKED.iter().enumerate() {
            assert_eq!(c[&format!("check[{index}]")], request_check(*request, *from, *pid) as usize);
            assert_eq!(c[&format!("wish[{index}]")], Wish::new(*request, *from, 5, *pid).check as usize);
        }
        for (index, byte) in MAGIC.iter().enumerate() {
            assert_eq!(c[&format!("magic[{index}]")], *byte as usize, "magic[{index}]");
        }
    }

    #[test]
    fn numbers_of_who_means_harm_are_added_up() {
        let mut random = Random::new(61);
        for _ in 0..200 {
            let mut page = random.hostile_bytes(bytes_with_arenas(2), &[]);
            page[..16].copy_from_slice(MAGIC);
            let mut put =
                |offset: usize, bytes: &[u8]| page[offset..offset + bytes.len()].copy_from_slice(bytes);
            put(offset_of!(Layout, version), &VERSION.to_ne_bytes());
            put(offset_of!(Layout, size_bytes), &u32::MAX.to_ne_bytes());
            let account = Account::parse(&page).unwrap();
            assert!(account.live_bytes() >= account.head.large_bytes);
            assert!((0.0..=1.0).contains(&account.fragmentation()));
            let heap = Heap::from_account(&account);
            assert!(heap.live_requested_bytes >= account.head.large_requested_bytes);
            assert!(
                heap.taken_blocks
                    >= account.classes.iter().map(|class| class.taken_blocks).max().unwrap_or(0)
            );
            Page::parse(&page).unwrap();
        }
    }

    #[test]
    fn fuzzed_pages_of_counters() {
        snug_base::random::fuzz(&[&page()], |bytes| {
            let _ = (Page::parse(bytes), Account::parse(bytes));
        });
    }
}
