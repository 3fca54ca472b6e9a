//! Memory that forked workers share with the process that forked them, what they have copied since, and why: their
//! pages are compared with its pages at the same addresses, from outside, a few at a time.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::residence;
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::machine;
use snug_heap::page_change::{self, Blocks, Cause, Granules, PART_BYTES};
use snug_heap::python_change::PythonObjects;
use snug_heap::ruby_change::{self, RubyHeap};
use snug_heap::slab_map::SlabMap;
use snug_heap::{pools, remote};
use snug_inspect::access;
use snug_inspect::inspector::Inspector;
use snug_inspect::kinds::Kind;
use snug_process::proc::{self, Pid, ProcFilesystem, Processes};
use snug_process::smaps::{self, PageEntry, PageMap, ResidentMapping};
use snug_process::{role, tree};

/// Anonymous memory of a worker, or of several. All of it is in one of these.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Shares {
    /// What its parent, or other workers, have as well.
    pub shared_bytes: u64,
    /// What both have at the same address, but not the same page: one of them has written there.
    pub copied_bytes: u64,
    /// What the parent has not at that address.
    pub new_bytes: u64,
    pub swapped_bytes: u64,
    /// Parts of `copied_bytes`.
    pub causes: Vec<CauseSize>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseSize {
    pub cause: Cause,
    pub bytes: u64,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worker {
    pub pid: Pid,
    /// The process that forked it.
    pub parent: Pid,
    pub role: String,
    pub allocator: Option<Kind>,
    #[serde(flatten)]
    pub shares: Shares,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Copied {
    /// The process that was named.
    pub pid: Pid,
    pub workers: Vec<Worker>,
    pub sum: Shares,
    /// What could not be told apart, and why.
    pub notes: Vec<String>,
}

/// Pages that are compared at a time.
const BATCH_PAGES: usize = 256;

/// Looks at the workers below a process; at the process itself if there are none, and it is one.
pub fn collect(pid: Pid) -> Result<Copied> {
    access::look_at(pid)?;
    let below = tree::below(pid).into_iter().map(|(pid, _)| pid);
    let mut workers: Vec<(Pid, Pid)> = below.filter_map(|below| Some((below, forked_by(below)?))).collect();
    if workers.is_empty() {
        workers.extend(forked_by(pid).map(|parent| (pid, parent)));
    }
    let mut notes = Vec::new();
    let mut inspector = Inspector::new(machine::describe().transparent_huge_pages);
    let mut parents = BTreeMap::new();
    let found = workers.iter().filter_map(|(pid, parent)| {
        let parent = parents.entry(*parent).or_insert_with(|| Parent::open(*parent, &mut inspector));
        worker(*pid, parent.as_mut()?, &mut inspector, &mut notes).transpose()
    });
    let found = found.collect::<Result<Vec<Worker>>>()?;
    if found.is_empty() {
        return Err(Failure::new(format!(
            "process {pid} shares no memory since a fork: neither it nor any process below it was forked and executed nothing"
        ))
        .advise("name a server that forks its workers: gunicorn, Celery, Puma with workers, uWSGI, PostgreSQL")
        .exit_code(UNKNOWN));
    }
    let sum = Shares::sum(found.iter().map(|worker| &worker.shares));
    notes.dedup();
    Ok(Copied { pid, workers: found, sum, notes })
}

/// The process that forked this one, if it has executed nothing since: an exec would have moved its stack.
fn forked_by(pid: Pid) -> Option<Pid> {
    let mut source = ProcFilesystem::new();
    let mut stat = |pid: Pid| {
        let mut buffer = Vec::new();
        source.read(pid, "stat", &mut buffer).ok()?;
        proc::parse_stat(&buffer).filter(|stat| !stat.has_ended())
    };
    let own = stat(pid)?;
    let parent = stat(own.parent)?;
    (own.start_stack != 0 && own.start_stack == parent.start_stack).then_some(own.parent)
}

/// What is read once of a process that forked workers, however many they are.
struct Parent {
    pid: Pid,
    pages: std::io::Result<PageMap>,
    slabs: Option<SlabMap>,
    objects: Option<PythonObjects>,
    slots: Option<RubyHeap>,
}

impl Parent {
    /// None: it has ended.
    fn open(pid: Pid, inspector: &mut Inspector) -> Option<Parent> {
        let found = access::look_at_with(inspector, pid).ok()?;
        let slabs = found.counters_at.and_then(|page| SlabMap::open(pid, page));
        let text = proc::content(pid, "smaps").ok()?;
        let slots = ruby_slots(pid, &smaps::parse_smaps(&text));
        let (pages, objects) = (PageMap::open(pid), PythonObjects::new(pid).ok());
        Some(Parent { pid, pages, slabs, objects, slots })
    }
}

fn ruby_slots(pid: Pid, mappings: &[ResidentMapping]) -> Option<RubyHeap> {
    let is_ruby = residence::runs(mappings, |file| file.contains("ruby"));
    is_ruby.then(|| RubyHeap::open(pid, &residence::anonymous_ranges(mappings)))?
}

/// Compares a worker with its parent. None: one of them has ended.
fn worker(
    pid: Pid,
    parent: &mut Parent,
    inspector: &mut Inspector,
    notes: &mut Vec<String>,
) -> Result<Option<Worker>> {
    let unreadable = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Err(access::explain_refused(pid, &access::ptrace_scope())),
        _ => Ok(None),
    };
    let Ok(found) = access::look_at_with(inspector, pid) else { return Ok(None) };
    let text = match proc::content(pid, "smaps") {
        Ok(text) => text,
        Err(error) => return unreadable(&error),
    };
    let mappings = smaps::parse_smaps(&text);
    let (pages, of_parent) = match (PageMap::open(pid), &parent.pages) {
        (Ok(pages), Ok(of_parent)) => (pages, of_parent),
        (Err(error), _) => return unreadable(&error),
        (_, Err(error)) => return unreadable(error),
    };
    of_parent.begin_anew();
    // Sums alone need less than bytes do.
    let refused = |pid: Pid| {
        let first = mappings.first().map(|mapping| remote::read_memory(pid, mapping.start, 4));
        first
            .is_some_and(|read| read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied))
    };
    if let Some(pid) = [parent.pid, pid].into_iter().find(|pid| refused(*pid)) {
        return Err(access::explain_refused(pid, &access::ptrace_scope()));
    }
    let slabs = found.counters_at.and_then(|page| SlabMap::open(pid, page));
    let kind = found.report.allocator.as_ref().map(|used| used.kind);
    if slabs.is_none() || parent.slabs.is_none() {
        let name = kind.map_or("the allocator", Kind::name);
        notes.push(format!(
            "{name} does not show which blocks are free: new blocks in holes, and what it notes in free ones, count as \
             changed blocks"
        ));
    }
    let mut comparison = Comparison {
        pid,
        parent: parent.pid,
        slabs: parent.slabs.as_ref().zip(slabs),
        language: Language::new(&mut parent.objects, &mut parent.slots, pid, &mappings),
        buffers: (Vec::new(), Vec::new()),
        shares: Tally::default(),
    };
    for mapping in mappings.iter().filter(|mapping| !mapping.shared && mapping.rss_bytes > 0) {
        comparison.mapping(mapping, &pages, of_parent);
    }
    let mut source = ProcFilesystem::new();
    let mut buffer = Vec::new();
    let _ = source.read(pid, "cmdline", &mut buffer);
    Ok(Some(Worker {
        pid,
        parent: parent.pid,
        role: role::role(&proc::parse_arguments(&buffer), ""),
        allocator: kind,
        shares: comparison.shares.into_shares(),
    }))
}

/// Sums while pages are compared.
#[derive(Default)]
struct Tally {
    shared_bytes: u64,
    new_bytes: u64,
    swapped_bytes: u64,
    causes: BTreeMap<Cause, u64>,
}

impl Tally {
    fn into_shares(self) -> Shares {
        let causes = self.causes.into_iter().map(|(cause, bytes)| CauseSize { cause, bytes });
        let causes: Vec<CauseSize> = causes.collect();
        Shares {
            shared_bytes: self.shared_bytes,
            copied_bytes: causes.iter().map(|of| of.bytes).sum(),
            new_bytes: self.new_bytes,
            swapped_bytes: self.swapped_bytes,
            causes,
        }
    }
}

impl Shares {
    /// The sums over several.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Shares>) -> Shares {
        let mut sum = Tally::default();
        for shares in all {
            sum.shared_bytes += shares.shared_bytes;
            sum.new_bytes += shares.new_bytes;
            sum.swapped_bytes += shares.swapped_bytes;
            for of in &shares.causes {
                *sum.causes.entry(of.cause).or_default() += of.bytes;
            }
        }
        sum.into_shares()
    }

    /// How much of what was copied has this cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.causes.iter().find(|of| of.cause == cause).map_or(0, |of| of.bytes)
    }

    /// Their memory in all.
    pub fn anonymous_bytes(&self) -> u64 {
        self.shared_bytes + self.copied_bytes + self.new_bytes
    }
}

/// What is known of objects of the language in which the program is written; of Ruby in both.
enum Language<'a> {
    Python(&'a mut PythonObjects),
    Ruby(&'a mut RubyHeap, RubyHeap),
    Other,
}

impl<'a> Language<'a> {
    /// Of a worker whose mappings these are.
    fn new(
        objects: &'a mut Option<PythonObjects>,
        slots: &'a mut Option<RubyHeap>,
        pid: Pid,
        mappings: &[ResidentMapping],
    ) -> Language<'a> {
        if let (Some(of_parent), Some(own)) = (slots, ruby_slots(pid, mappings)) {
            return Language::Ruby(of_parent, own);
        }
        match objects.as_mut().filter(|_| residence::runs(mappings, |file| file.contains("python"))) {
            Some(objects) => {
                objects.start_again();
                Language::Python(objects)
            }
            None => Language::Other,
        }
    }

    /// Why the word at an offset of these 4 KiB differs. None: it is nothing of the language's.
    fn cause(&mut self, part: u64, before: &[u8], now: &[u8], at: usize) -> Option<Cause> {
        match self {
            Language::Python(objects) => objects.cause(part, before, now, at),
            Language::Ruby(of_parent, own) => ruby_change::cause((of_parent, own), part, (before, now), at),
            Language::Other => None,
        }
    }
}

/// What is known of both processes.
struct Comparison<'a> {
    pid: Pid,
    parent: Pid,
    /// Of the parent and of the worker.
    slabs: Option<(&'a SlabMap, SlabMap)>,
    language: Language<'a>,
    /// Copies of pages of the parent and of the worker.
    buffers: (Vec<u8>, Vec<u8>),
    shares: Tally,
}

/// What a page of a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageKind {
    /// Not in memory, or no anonymous page.
    Nothing,
    Swapped,
    Shared,
    New,
    /// The parent's is in memory, or is not.
    Copied {
        is_readable: bool,
    },
}

fn kind_of(own: PageEntry, of_parent: PageEntry) -> PageKind {
    match own {
        own if own.is_swapped() => PageKind::Swapped,
        own if !own.is_present() || own.is_of_file() => PageKind::Nothing,
        own if !own.is_exclusive() => PageKind::Shared,
        _ if of_parent.is_present() => PageKind::Copied { is_readable: true },
        _ if of_parent.is_swapped() => PageKind::Copied { is_readable: false },
        _ => PageKind::New,
    }
}

impl Comparison<'_> {
    fn mapping(&mut self, mapping: &ResidentMapping, pages: &PageMap, of_parent: &PageMap) {
        let page_bytes = pages.page_bytes();
        let batch_bytes = BATCH_PAGES as u64 * page_bytes;
        let mut start = mapping.start;
        while start < mapping.end {
            let end = mapping.end.min(start + batch_bytes);
            // What has gone meanwhile is left out.
            if let (Ok(own), Ok(of_parent)) = (pages.entries(start, end), of_parent.entries(start, end)) {
                let mut copied = Vec::new();
                for (index, (own, of_parent)) in own.into_iter().zip(of_parent).enumerate() {
                    let address = start + index as u64 * page_bytes;
                    match kind_of(own, of_parent) {
                        PageKind::Nothing => {}
                        PageKind::Swapped => self.shares.swapped_bytes += page_bytes,
                        PageKind::Shared => self.shares.shared_bytes += page_bytes,
                        PageKind::New => self.shares.new_bytes += page_bytes,
                        PageKind::Copied { is_readable: true } => copied.push(address),
                        PageKind::Copied { is_readable: false } => self.add(Cause::Unread, page_bytes),
                    }
                }
                self.compare(mapping, &copied, page_bytes as usize);
            }
            start = end;
        }
    }

    fn add(&mut self, cause: Cause, bytes: u64) {
        *self.shares.causes.entry(cause).or_default() += bytes;
    }

    /// Finds out why these pages were copied.
    fn compare(&mut self, mapping: &ResidentMapping, addresses: &[u64], page_bytes: usize) {
        let (mut before, mut now) = std::mem::take(&mut self.buffers);
        let are_read = [(self.parent, &mut before), (self.pid, &mut now)]
            .map(|(pid, buffer)| read(pid, addresses, page_bytes, buffer));
        for (index, address) in addresses.iter().enumerate() {
            let bytes = index * page_bytes..(index + 1) * page_bytes;
            let cause = match are_read[0][index] && are_read[1][index] {
                true => self.page(*address, &before[bytes.clone()], &now[bytes]),
                false => Cause::Unread,
            };
            self.add(in_mapping(mapping, cause), page_bytes as u64);
        }
        self.buffers = (before, now);
    }

    fn page(&mut self, address: u64, before: &[u8], now: &[u8]) -> Cause {
        let parts = before.chunks_exact(PART_BYTES).zip(now.chunks_exact(PART_BYTES)).enumerate();
        let mut cause = Cause::WrittenBack;
        for (index, (before, now)) in parts {
            let part = address + (index * PART_BYTES) as u64;
            let (pid, parent, slabs) = (self.pid, self.parent, &self.slabs);
            let is_python = matches!(self.language, Language::Python(_));
            let language = |at: usize| self.language.cause(part, before, now, at);
            let blocks = || blocks(part, parent, pid, slabs.as_ref(), is_python);
            cause = cause.max(page_change::cause_of(before, now, language, blocks).unwrap_or(cause));
        }
        cause
    }
}

/// Which blocks are free in 4 KiB of both: in a pool of Python's, or in snug's heap.
fn blocks(
    part: u64,
    parent: Pid,
    pid: Pid,
    slabs: Option<&(&SlabMap, SlabMap)>,
    is_python: bool,
) -> Option<Blocks> {
    if is_python {
        if let (Some((before, header)), Some((now, _))) =
            (pools::free_in(parent, part), pools::free_in(pid, part))
        {
            return Some(Blocks { free_in_parent: before, free_in_child: now, of_allocator: header });
        }
    }
    let (of_parent, own) = slabs?;
    let none = Granules::all(false);
    Some(Blocks {
        free_in_parent: of_parent.free_in(part)?,
        free_in_child: own.free_in(part).unwrap_or(none),
        of_allocator: none,
    })
}

/// The cause, where the mapping says more than what changed.
fn in_mapping(mapping: &ResidentMapping, cause: Cause) -> Cause {
    match cause {
        Cause::Changed | Cause::Rewritten if mapping.name.starts_with("[stack") => Cause::Stacks,
        Cause::Changed | Cause::Rewritten if mapping.has_file => Cause::Variables,
        // Machine code that an interpreter made.
        Cause::Changed | Cause::Rewritten if mapping.executable => Cause::Code,
        _ => cause,
    }
}

/// Copies pages of a process. False where one has gone.
fn read(pid: Pid, addresses: &[u64], page_bytes: usize, buffer: &mut Vec<u8>) -> Vec<bool> {
    buffer.resize(buffer.len().max(addresses.len() * page_bytes), 0);
    let buffer = &mut buffer[..addresses.len() * page_bytes];
    if remote::read_pieces(pid, addresses, page_bytes, buffer).is_ok() {
        return vec![true; addresses.len()];
    }
    let pieces = addresses.iter().zip(buffer.chunks_exact_mut(page_bytes));
    pieces.map(|(address, piece)| remote::read_into(pid, *address, piece).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_have_gone_are_told_from_others() {
        let page = snug_base::machine::page_size_bytes();
        let memory = vec![7u8; 4 * page as usize];
        let first = (memory.as_ptr() as u64).next_multiple_of(page);
        let mut buffer = Vec::new();
        let found =
            read(std::process::id() as Pid, &[first, 8 * page, first + page], page as usize, &mut buffer);
        assert_eq!(found, [true, false, true]);
        assert!(buffer[..8] == [7; 8] && buffer[2 * page as usize] == 7);
    }

    #[test]
    fn sums_keep_their_causes() {
        let of = |cause, bytes| Shares {
            shared_bytes: 1,
            copied_bytes: bytes,
            causes: vec![CauseSize { cause, bytes }],
            ..Shares::default()
        };
        let sum = Shares::sum([of(Cause::Code, 3), of(Cause::Counts, 4), of(Cause::Code, 5)].iter());
        assert_eq!((sum.shared_bytes, sum.copied_bytes, sum.anonymous_bytes()), (3, 12, 15));
        assert_eq!((sum.of(Cause::Code), sum.of(Cause::Counts), sum.of(Cause::Holes)), (8, 4, 0));
    }

    #[test]
    fn a_process_that_executed_something_is_no_worker() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as Pid;
        let is_sleep =
            || std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path.ends_with("sleep"));
        while !is_sleep() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(forked_by(pid), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
