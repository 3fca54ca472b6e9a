//! The resident memory of a process, byte by byte: blocks and what the allocator keeps beside them, what interpreters
//! map for themselves, stacks, code, files. The parts add up to what the kernel counts, as each page has one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use snug_base::elf::{self, WritableSegment};
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::file::file_name;
use snug_base::machine;
use snug_heap::remote::{self, ProgramMemory};
use snug_heap::{glibc_heap, interpreters, places};
use snug_inspect::access;
use snug_inspect::kinds::Kind;
use snug_process::proc::{self, Pid};
use snug_process::smaps::{self, PageMap, ResidentMapping};
use snug_process::stacks;

/// What a page holds, in the order in which it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPart {
    /// Blocks that the program has not freed; under glibc estimated, without what threads keep.
    LiveBlocks,
    /// What the allocator holds beside these.
    FreeBlocks,
    Metadata,
    /// Sampled blocks before a page that can't be touched.
    GuardedBlocks,
    RubySlots,
    RubyTransientHeap,
    PythonArenas,
    /// Of the mimalloc that Python carries.
    PythonMimalloc,
    V8Heap,
    Stacks,
    Code,
    /// Read-only, or never written.
    Files,
    /// Variables of programs and libraries.
    Data,
    /// Executable, with no file behind it.
    GeneratedCode,
    Shared,
    /// Anonymous memory of which no more is known: that of other allocators, too.
    Other,
}

/// A part, and how much of it is in memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartSize {
    pub part: MemoryPart,
    pub bytes: u64,
}

/// A mapping, by a name or its addresses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedMapping {
    pub name: String,
    pub bytes: u64,
}

/// The resident memory of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Residence {
    pub pid: Pid,
    /// As the kernel counts it. The parts add up to it.
    pub rss_bytes: u64,
    /// Who serves malloc.
    pub allocator: Option<Kind>,
    pub parts: Vec<PartSize>,
    /// The largest mappings of the part `other`.
    pub largest_others: Vec<NamedMapping>,
    /// Beside RSS: what the kernel holds to map all this, and what is in swap. None: it does not say.
    pub page_tables_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// What could not be told apart, and why.
    pub notes: Vec<String>,
}

/// How many of the mappings are named.
const OTHERS_MAX: usize = 5;

/// Looks at a process.
pub fn collect(pid: Pid) -> Result<Residence> {
    ProgramMemory::to_read(pid).within(|| collect_of_one_program(pid))
}

fn collect_of_one_program(pid: Pid) -> Result<Residence> {
    let found = access::look_at(pid)?;
    let kind = found.report.allocator.as_ref().map(|used| used.kind);
    let unreadable = |what: &str, error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => access::explain_refused(pid, &access::ptrace_scope()),
        _ => Failure::new(format!("{what} of process {pid} can't be read: {error}")).exit_code(UNKNOWN),
    };
    let text = proc::content(pid, "smaps").map_err(|error| unreadable("the mappings", error))?;
    let pages = PageMap::open(pid).map_err(|error| unreadable("the page map", error))?;
    let mappings = smaps::parse_smaps(&text);
    let status = proc::content(pid, "status").unwrap_or_default();

    let mut claims = Claims::default();
    let mut notes = Vec::new();
    let anonymous = anonymous_ranges(&mappings);
    if runs(&mappings, |file| file.contains("ruby")) {
        // First: what lies in it may look like a page of slots, when an array holds one whose elements are right there.
        let young = interpreters::ruby_transient_heap(pid, &pages, &anonymous);
        claims.add(MemoryPart::RubyTransientHeap, young);
        let free = claims.left(anonymous);
        claims.add(MemoryPart::RubySlots, interpreters::ruby_pages(pid, &pages, &free));
    }
    let live_bytes = match (found.counters_at, kind) {
        (Some(page), _) => claims.add_snug(pid, page, &mappings),
        (None, Some(Kind::Glibc)) => claims.add_glibc(pid),
        (None, Some(kind)) => {
            Err(format!("{} does not show where its heap is; it is among the rest", kind.name()))
        }
        (None, None) => Err("which allocator it uses is not known; its heap is among the rest".into()),
    };
    let live_bytes = live_bytes.map_err(|note| notes.push(note)).ok();
    claims.add_others(pid, &pages, &mappings);

    if lacks_v8(&mappings, &claims) {
        notes.push("V8's heap, with the objects of JavaScript, is in other: its chunks look unlike those that snug knows".into());
    }

    let counted = |range: Range<u64>| {
        let mut bytes = 0;
        let _ = pages.each_present(range.start, range.end, |_| bytes += pages.page_bytes());
        bytes
    };
    let split = claims.split(&mappings, counted, live_bytes);
    if pages.is_exhausted() {
        notes.push("it maps more than half a terabyte, and not all of that was looked at".into());
    }
    Ok(Residence {
        pid,
        rss_bytes: mappings.iter().map(|mapping| mapping.rss_bytes).sum(),
        allocator: kind,
        parts: split.parts.into_iter().map(|(part, bytes)| PartSize { part, bytes }).collect(),
        largest_others: split.others,
        page_tables_bytes: proc::parse_status_bytes(&status, "VmPTE:"),
        swap_bytes: proc::parse_status_bytes(&status, "VmSwap:"),
        notes,
    })
}

/// Whether there is a heap of V8 that neither the kernel nor we have a name for.
fn lacks_v8(mappings: &[ResidentMapping], claims: &Claims) -> bool {
    let found = claims.ranges.values().any(|(_, part)| *part == Some(MemoryPart::V8Heap));
    runs(mappings, has_v8) && !found && !mappings.iter().any(|mapping| part_of(mapping) == MemoryPart::V8Heap)
}

/// Whether a program or library of this name has V8 in it.
fn has_v8(file: &str) -> bool {
    file == "node" || file.starts_with("libnode.so") || file.starts_with("libv8")
}

/// Whether a program or library is mapped whose name is one of these.
pub(crate) fn runs(mappings: &[ResidentMapping], is_one: impl Fn(&str) -> bool) -> bool {
    let mut files = mappings.iter().filter(|mapping| mapping.executable && mapping.has_file);
    files.any(|mapping| is_one(file_name(&mapping.name)))
}

pub(crate) fn anonymous_ranges(mappings: &[ResidentMapping]) -> Vec<Range<u64>> {
    let used = mappings.iter().filter(|m| m.is_anonymous() && m.writable && m.rss_bytes > 0);
    used.map(|mapping| mapping.start..mapping.end).collect()
}

/// The part of snug's zone that may be written: mappings that follow each other from its address on.
fn zone(mappings: &[ResidentMapping], address: u64) -> Range<u64> {
    let mut end = address;
    for mapping in mappings.iter().filter(|mapping| mapping.end > address && mapping.writable) {
        if mapping.start > end || !mapping.is_anonymous() {
            break;
        }
        end = mapping.end;
    }
    address..end
}

/// The same addresses in ranges that follow each other and do not touch. What ends before it begins is none.
fn joined(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Addresses of which more is known than their mapping says. No two overlap.
#[derive(Default)]
struct Claims {
    /// By where they begin: where they end, and what is there. None: a heap, in which some is live and some is not.
    ranges: BTreeMap<u64, (u64, Option<MemoryPart>)>,
    /// Pages in such a heap that belong to something else, and count as live there.
    of_interpreters: Vec<Range<u64>>,
}

/// Mappings, told apart.
#[derive(Default)]
struct Split {
    parts: BTreeMap<MemoryPart, u64>,
    others: Vec<NamedMapping>,
}

impl Claims {
    /// Adds the heap of snug, by its page of counters. Returns what of it is live, without large blocks.
    fn add_snug(
        &mut self,
        pid: Pid,
        page: u64,
        mappings: &[ResidentMapping],
    ) -> std::result::Result<u64, String> {
        let places = places::read(pid, page).ok_or("the snug in it is too old to say where its heap is")?;
        let account = remote::read_account(pid, page, 1).map_err(|error| error.to_string())?;
        self.add(MemoryPart::LiveBlocks, places.large);
        self.add(MemoryPart::FreeBlocks, places.retained);
        self.add(MemoryPart::GuardedBlocks, places.guarded);
        self.add_heap(Some(zone(mappings, places.zone_address)));
        self.add(MemoryPart::Metadata, places.metadata);
        Ok(account.live_bytes().saturating_sub(account.head.large_bytes))
    }

    /// The same of glibc's, with all blocks.
    fn add_glibc(&mut self, pid: Pid) -> std::result::Result<u64, String> {
        let (size, ranges) = glibc_heap::examine_ranges(pid)
            .map_err(|_| "glibc's heaps could not be read; they are among the rest")?;
        self.add_heap(ranges);
        Ok(size.live_bytes)
    }

    /// Adds what is no allocator's.
    fn add_others(&mut self, pid: Pid, pages: &PageMap, mappings: &[ResidentMapping]) {
        let anonymous = anonymous_ranges(mappings);
        if runs(mappings, |file| file.contains("python")) {
            let free = self.left(anonymous);
            self.add(MemoryPart::PythonArenas, interpreters::python_pools(pid, pages, &free));
            let free = self.left(anonymous_ranges(mappings));
            self.add(MemoryPart::PythonMimalloc, interpreters::python_segments(pid, pages, &free));
        }
        if runs(mappings, has_v8) {
            let free = self.left(anonymous_ranges(mappings));
            self.add(MemoryPart::V8Heap, interpreters::v8_chunks(pid, pages, &free));
        }
        let read = |at: u64, length: usize| remote::read_memory(pid, at, length).ok();
        self.add(MemoryPart::Stacks, stacks::thread_stacks(pid, mappings, read));
        let data = mappings.iter().filter(|mapping| mapping.has_file && mapping.writable && !mapping.shared);
        let zeroed = data.filter_map(|mapping| {
            let segments = elf::writable_segments(Path::new(&format!(
                "/proc/{}/root{}",
                proc::living(pid),
                mapping.name
            )));
            zeroed_variables(mapping, &segments)
        });
        self.add(MemoryPart::Data, zeroed);
    }

    /// Adds what is not claimed yet of the ranges.
    fn add(&mut self, part: MemoryPart, ranges: impl IntoIterator<Item = Range<u64>>) {
        for piece in self.left(ranges) {
            self.ranges.insert(piece.start, (piece.end, Some(part)));
        }
    }

    /// The same of a heap.
    fn add_heap(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) {
        let ranges = joined(ranges);
        for range in &ranges {
            let inside = self.ranges.iter().filter(|(start, (end, part))| {
                let is_ruby = matches!(part, Some(MemoryPart::RubySlots | MemoryPart::RubyTransientHeap));
                **start < range.end && range.start < *end && is_ruby
            });
            let cut = inside.map(|(start, (end, _))| range.start.max(*start)..range.end.min(*end));
            self.of_interpreters.extend(cut);
        }
        for piece in self.left(ranges) {
            self.ranges.insert(piece.start, (piece.end, None));
        }
    }

    /// What of the ranges is not claimed, in ranges that do not overlap.
    fn left(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut left = Vec::new();
        for range in joined(ranges) {
            let mut next = range.start;
            let before = self.ranges.range(..=range.start).next_back().map(|(start, _)| *start);
            for (start, (end, _)) in self.ranges.range(before.unwrap_or(range.start)..range.end) {
                if *start > next {
                    left.push(next..*start);
                }
                next = next.max(*end);
            }
            if next < range.end {
                left.push(next..range.end);
            }
        }
        left
    }

    /// Divides what mappings hold among parts. `counted` says how much of a range is in memory, `live_bytes` how much of
    /// the heap is live.
    fn split(
        &self,
        mappings: &[ResidentMapping],
        counted: impl Fn(Range<u64>) -> u64,
        live_bytes: Option<u64>,
    ) -> Split {
        let mut split = Split::default();
        let mut heap_bytes = 0;
        for mapping in mappings {
            let (mut rest, mut claimed) = (mapping.rss_bytes, 0);
            let mut add = |part: Option<MemoryPart>, bytes: u64| match part {
                Some(part) => *split.parts.entry(part).or_default() += bytes,
                None => heap_bytes += bytes,
            };
            for (start, end, part) in self.within(mapping) {
                let bytes = counted(start..end).min(rest);
                rest -= bytes;
                claimed += end - start;
                add(part, bytes);
            }
            // Where all is claimed, what is missing was given back while this was counted.
            if claimed == mapping.end - mapping.start {
                let longest = self.within(mapping).max_by_key(|(start, end, _)| end - start);
                longest.into_iter().for_each(|(_, _, part)| add(part, rest));
                continue;
            }
            let part = part_of(mapping);
            *split.parts.entry(part).or_default() += rest;
            if part == MemoryPart::Other && rest > 0 {
                let name = match mapping.name.as_str() {
                    "" => format!("{:x}-{:x}", mapping.start, mapping.end),
                    name => name.to_string(),
                };
                split.others.push(NamedMapping { name, bytes: rest });
            }
        }
        if let Some(live_bytes) = live_bytes {
            // What interpreters took from this heap stands in lines of its own.
            let elsewhere: u64 = self.of_interpreters.iter().cloned().map(&counted).sum();
            let live = live_bytes.saturating_sub(elsewhere).min(heap_bytes);
            *split.parts.entry(MemoryPart::LiveBlocks).or_default() += live;
            *split.parts.entry(MemoryPart::FreeBlocks).or_default() += heap_bytes - live;
        }
        split.parts.retain(|part, bytes| *bytes > 0 || *part == MemoryPart::LiveBlocks);
        split.others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
        split.others.truncate(OTHERS_MAX);
        split
    }

    /// The claims in a mapping, cut to it.
    fn within<'a>(
        &'a self,
        mapping: &'a ResidentMapping,
    ) -> impl Iterator<Item = (u64, u64, Option<MemoryPart>)> + 'a {
        let before = self.ranges.range(..=mapping.start).next_back().map(|(start, _)| *start);
        let near = self.ranges.range(before.unwrap_or(mapping.start)..mapping.end);
        let cut = near.map(|(start, (end, part))| (mapping.start.max(*start), mapping.end.min(*end), *part));
        cut.filter(|(start, end, _)| start < end)
    }
}

/// Where the variables that begin as zero follow a mapping of a file, beyond its end. None: there are none there.
fn zeroed_variables(mapping: &ResidentMapping, segments: &[WritableSegment]) -> Option<Range<u64>> {
    let mut ends = segments.iter().map(|segment| {
        // The segment's first byte is in the page that the mapping begins with, or before it.
        let first = mapping.start.saturating_add(segment.offset).saturating_sub(mapping.offset);
        first.saturating_add(segment.bytes)
    });
    ends.find(|end| *end > mapping.end)
        .map(|end| mapping.end..end.next_multiple_of(machine::page_size_bytes()))
}

/// What a mapping is by itself.
fn part_of(mapping: &ResidentMapping) -> MemoryPart {
    let name = mapping.name.as_str();
    if name.starts_with("[stack") {
        return MemoryPart::Stacks;
    }
    if mapping.shared && (mapping.writable || name.starts_with("/memfd:") || name.starts_with("/dev/shm/")) {
        return MemoryPart::Shared;
    }
    // Builds of V8 that name what they map.
    if name.starts_with("[anon:v8") {
        return MemoryPart::V8Heap;
    }
    if mapping.executable && mapping.has_file || matches!(name, "[vdso]" | "[vsyscall]") {
        return MemoryPart::Code;
    }
    if mapping.executable {
        return MemoryPart::GeneratedCode;
    }
    if mapping.has_file && !mapping.writable || name.starts_with("[vvar") {
        return MemoryPart::Files;
    }
    if mapping.has_file {
        return MemoryPart::Data;
    }
    MemoryPart::Other
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;
    use snug_process::fake::CutName;

    fn mapping(start: u64, pages: u64, name: &str) -> ResidentMapping {
        ResidentMapping {
            start,
            end: start + pages * 4096,
            writable: true,
            has_file: name.starts_with('/'),
            name: name.into(),
            rss_bytes: pages * 4096,
            ..ResidentMapping::default()
        }
    }

    #[test]
    fn each_page_counts_once() {
        let mut claims = Claims::default();
        claims.add(MemoryPart::RubySlots, [0x14000..0x18000, 0x40000..0x44000]);
        claims.add_heap(Some(0x10000..0x20000));
        claims.add(MemoryPart::Stacks, Some(0x1f000..0x22000));
        claims.add(MemoryPart::Data, Some(0x2000..0x3000));
        let mappings = [
            mapping(0x1000, 1, "/lib/libc.so.6"),
            mapping(0x2000, 2, ""),
            mapping(0x10000, 16, ""),
            mapping(0x20000, 6, ""),
            mapping(0x40000, 4, ""),
            mapping(0x50000, 3, "[stack]"),
        ];
        let split = claims.split(&mappings, |range| range.end - range.start, Some(0x6000));
        let wanted = [
            (MemoryPart::LiveBlocks, 0x2000),
            (MemoryPart::FreeBlocks, 0xa000),
            (MemoryPart::RubySlots, 0x8000),
            (MemoryPart::Stacks, 0x5000),
            (MemoryPart::Data, 0x2000),
            (MemoryPart::Other, 0x5000),
        ];
        assert_eq!(split.parts.into_iter().collect::<Vec<_>>(), wanted);
        let names: Vec<_> = split.others.iter().map(|other| (other.name.as_str(), other.bytes)).collect();
        assert_eq!(names, [("20000-26000", 0x4000), ("2000-4000", 0x1000)]);
    }

    #[test]
    fn what_was_given_back_meanwhile_stays_where_it_was() {
        let mut claims = Claims::default();
        claims.add(MemoryPart::RubySlots, Some(0x10000..0x14000));
        claims.add_heap(Some(0x10000..0x20000));
        let split = claims.split(&[mapping(0x10000, 16, "")], |_| 0x1000, Some(0x3000));
        let sizes: Vec<_> = split.parts.into_iter().collect();
        let wanted = [
            (MemoryPart::LiveBlocks, 0x2000),
            (MemoryPart::FreeBlocks, 0xd000),
            (MemoryPart::RubySlots, 0x1000),
        ];
        assert_eq!(sizes, wanted, "{:?}", split.others);
        assert!(split.others.is_empty());
    }

    #[test]
    fn zeroed_variables_follow_the_data_of_a_file() {
        let data = ResidentMapping { offset: 0x3000, ..mapping(0x9000, 1, "/lib/x.so") };
        let segments = [WritableSegment { offset: 0x2d00, bytes: 0x2400 }];
        assert_eq!(zeroed_variables(&data, &segments), Some(0xa000..0xc000));
        assert_eq!(zeroed_variables(&data, &[WritableSegment { offset: 0x2d00, bytes: 0x1000 }]), None);
        assert_eq!(zeroed_variables(&data, &[]), None);
    }

    #[test]
    fn what_touches_claims_is_left() {
        let mut claims = Claims::default();
        claims.add(MemoryPart::Metadata, [10..20, 30..40]);
        let inverted = Range { start: 60, end: 55 };
        assert_eq!(claims.left([15..35, 0..25, inverted, 25..50, 12..18]), [0..10, 20..30, 40..50]);
    }

    #[test]
    fn a_heap_of_v8_that_is_not_found_is_noted() {
        let code =
            |path: &str| ResidentMapping { executable: true, has_file: true, ..mapping(0x1000, 1, path) };
        let named = || mapping(0x9000, 1, "[anon:v8]");
        let mut claims = Claims::default();
        for path in ["/usr/bin/node", "/l/libnode.so.108"] {
            assert!(lacks_v8(&[code(path)], &claims));
        }
        assert!(!lacks_v8(&[code("/usr/bin/node"), named()], &claims));
        assert!(!lacks_v8(&[code("/usr/bin/node_exporter"), code("/usr/bin/ruby")], &claims));
        claims.add(MemoryPart::V8Heap, Some(0x40000..0x80000));
        assert!(!lacks_v8(&[code("/usr/bin/node")], &claims));
    }

    #[test]
    fn mappings_are_told_apart() {
        let part = |change: &dyn Fn(&mut ResidentMapping), name: &str| {
            let mut mapping = mapping(0x1000, 1, name);
            change(&mut mapping);
            part_of(&mapping)
        };
        assert_eq!(part(&|m| m.executable = true, "/usr/bin/ruby"), MemoryPart::Code);
        assert_eq!(part(&|m| m.executable = true, ""), MemoryPart::GeneratedCode);
        assert_eq!(part(&|m| m.writable = false, "/usr/lib/locale/locale-archive"), MemoryPart::Files);
        assert_eq!(part(&|m| m.shared = true, "/dev/zero (deleted)"), MemoryPart::Shared);
        assert_eq!(part(&|_| {}, "[heap]"), MemoryPart::Other);
        assert_eq!(part(&|_| {}, "[anon:v8]"), MemoryPart::V8Heap);
        assert_eq!(part(&|_| {}, "/usr/bin/ruby"), MemoryPart::Data);
    }

    #[test]
    fn own_memory_adds_up() {
        let residence = collect(std::process::id() as Pid).unwrap();
        let sum: u64 = residence.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(sum, residence.rss_bytes);
        assert!(residence.page_tables_bytes.unwrap() > 0);
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let process = CutName::start();
        let residence = collect(process.pid()).unwrap();
        assert!(residence.page_tables_bytes.unwrap() > 0 && residence.swap_bytes.is_some(), "{residence:?}");
    }

    #[test]
    fn claims_of_who_means_harm_count_each_page_once() {
        let mut random = Random::new(66);
        let mappings = [mapping(0x10000, 16, ""), mapping(0x20000, 6, "[heap]"), mapping(0x40000, 64, "")];
        let places: Vec<Range<u64>> = mappings.iter().map(|mapping| mapping.start..mapping.end).collect();
        let rss_bytes: u64 = mappings.iter().map(|mapping| mapping.rss_bytes).sum();
        for _ in 0..1000 {
            let mut claims = Claims::default();
            for _ in 0..random.below(8) {
                let mut range = || random.hostile_word(&places)..random.hostile_word(&places);
                let ranges: Vec<Range<u64>> = (0..20).map(|_| range()).collect();
                match random.below(3) {
                    0 => claims.add_heap(ranges),
                    1 => claims.add(MemoryPart::RubySlots, ranges),
                    _ => claims.add(MemoryPart::Metadata, ranges),
                }
            }
            let ends = claims.ranges.values().map(|(end, _)| *end);
            assert!(ends.zip(claims.ranges.keys().skip(1)).all(|(end, next)| end <= *next), "no two overlap");
            let live_bytes = random.chance(0.9).then(|| random.hostile_word(&[]));
            let counted = |range: Range<u64>| (range.end - range.start).min(1 << 20);
            let split = claims.split(&mappings, counted, live_bytes);
            let sum: u64 = split.parts.values().sum();
            assert!(live_bytes.is_none() || sum == rss_bytes, "{:?}", split.parts);
        }
    }
}
