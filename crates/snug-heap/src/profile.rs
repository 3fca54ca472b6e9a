//! Sampled allocations of a process under snug, as core/include/snug_profile.h describes them. This is the one mirror
//! of that header in Rust; a test compiles the header and compares every offset.

use std::collections::{HashMap, HashSet};
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::sync::Arc;

use crate::counters;
use crate::read_error::ReadError;
use crate::remote::{self, ProgramMemory};
use snug_process::proc::Pid;

/// First bytes of the head.
const MAGIC: &[u8; 16] = b"snug profile\n\0\0\x01";
/// The version of the layout that this program understands.
const VERSION: u32 = 1;
/// How often a copy is taken again that changed meanwhile.
const TRIES: u32 = 50;
/// Blocks are counted in such parts.
const BLOCK_PARTS: f64 = 1024.0;
/// No table of samples, stacks or names is longer, by far: the library makes a half of this.
const TABLES_MAX_BYTES: [u64; 3] = [8 << 20, 16 << 20, 4 << 20];
/// A name and a path are cut here, longer than any of the library's: names may lie over each other in a table that is none.
const TEXT_MAX_BYTES: usize = 512;

/// Of an interpreter's version: the library does not read its code.
const UNREAD: u32 = 0x8000_0000;
/// Tags of a stack (`enum snug_profile_tag`).
pub const TAG_RUBY_NO_LOCK: u32 = 2;
/// Ruby's collector ran: native frames alone.
pub const TAG_RUBY_GC: u32 = 4;
/// There are more frames further out.
pub const TAG_DEEP: u32 = 16;
/// The table of stacks was full.
pub const TAG_NO_ROOM: u32 = 64;
/// Its frames of the language are Python's.
pub const TAG_PYTHON: u32 = 128;
/// The thread did not hold Python's lock: native frames alone.
pub const TAG_PYTHON_NO_LOCK: u32 = 256;

#[repr(C)]
struct SampleLayout {
    address: u64,
    size_bytes: u64,
    weight_bytes: u64,
    time_ns: u64,
    stack: u32,
    generation: u32,
    thread: u32,
    next: u32,
    blocks: u64,
}

#[repr(C)]
struct StackLayout {
    hash: u32,
    next: u32,
    native_frames: u16,
    language_frames: u16,
    tags: u32,
    allocated_bytes: u64,
    allocated_blocks: u64,
    live_bytes: u64,
    live_blocks: u64,
}

#[repr(C)]
struct NameLayout {
    hash: u32,
    next: u32,
    label_bytes: u16,
    path_bytes: u16,
    unused: u32,
}

#[repr(C)]
struct HeadLayout {
    magic: [u8; 16],
    version: u32,
    size_bytes: u32,
    sample_size_bytes: u32,
    stack_size_bytes: u32,
    name_size_bytes: u32,
    generation: u32,
    changes: u64,
    started_ns: u64,
    mean_bytes: u64,
    taken: u64,
    freed: u64,
    dropped: u64,
    dropped_bytes: u64,
    stacks_missed: u64,
    names_missed: u64,
    samples_address: u64,
    sample_count: u64,
    sample_capacity: u64,
    stacks_address: u64,
    stacks_bytes: u64,
    stacks_capacity_bytes: u64,
    names_address: u64,
    names_bytes: u64,
    names_capacity_bytes: u64,
    ruby: u32,
    python: u32,
}

/// A function of an interpreter's language, and the line that ran. Frames of one function share its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LanguageFrame {
    /// The function.
    pub label: Arc<str>,
    /// Its file.
    pub path: Arc<str>,
    /// The line in it.
    pub line: u32,
}

/// Where samples were taken. Frames are innermost first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampledStack {
    /// Return addresses.
    pub native: Vec<u64>,
    /// Frames of the interpreter.
    pub language: Vec<LanguageFrame>,
    /// What is special about it: TAG_...
    pub tags: u32,
    /// Estimates: allocated here since sampling began, whether freed or not.
    pub allocated_bytes: f64,
    /// Likewise.
    pub allocated_blocks: f64,
}

/// A live block, and what it stands for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveSample {
    /// Number of its stack in `Profile::stacks`.
    pub stack: u32,
    /// Bytes that it stands for.
    pub weight_bytes: f64,
    /// Blocks that it stands for.
    pub blocks: f64,
    /// When it was allocated, by CLOCK_MONOTONIC_COARSE.
    pub time_ns: u64,
    /// Where the block lies.
    pub address: u64,
    /// The parent took it before it forked this process.
    pub inherited: bool,
}

impl LiveSample {
    /// What it would stand for, had it been sampled by this mean.
    pub fn weight_by(&self, mean_bytes: u64) -> f64 {
        let size_bytes = self.weight_bytes / self.blocks.max(1.0);
        let share = -(-size_bytes / mean_bytes.max(1) as f64).exp_m1();
        size_bytes / share.max(f64::MIN_POSITIVE)
    }

    /// Whether this process allocated the block in that time.
    pub fn is_of(&self, time_ns: Range<u64>) -> bool {
        !self.inherited && time_ns.contains(&self.time_ns)
    }
}

/// All samples of a process at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// When sampling was first switched on, by CLOCK_MONOTONIC_COARSE: what another program has differs. 0: never.
    pub started_ns: u64,
    /// Bytes between two samples, on average.
    pub mean_bytes: u64,
    /// Samples that were ever taken.
    pub taken: u64,
    /// Blocks that should have been samples, and found no room.
    pub dropped: u64,
    /// Samples whose blocks are not freed.
    pub live: Vec<LiveSample>,
    /// By the number that samples have.
    pub stacks: HashMap<u32, SampledStack>,
    /// The interpreter in the process whose code the library does not read, such as "Ruby 4.0".
    pub unread_language: Option<String>,
}

impl Profile {
    /// What all live samples stand for.
    pub fn live_bytes(&self) -> f64 {
        self.live.iter().map(|sample| sample.weight_bytes).sum()
    }
}

/// Where the head of the samples lies. None: sampling was never on.
fn address(pid: Pid, page: u64) -> Result<Option<u64>, ReadError> {
    // It may have executed another program since its page was found.
    if remote::read_memory(pid, page, counters::MAGIC.len())? != counters::MAGIC {
        return Err(ReadError::NotThere("its page of counters is not there any more"));
    }
    let size = remote::read_memory(pid, page + counters::SIZE_OFFSET as u64, 4)?;
    if (u32_at(&size, 0) as usize) < counters::PROFILE_ADDRESS_OFFSET + 8 {
        return Err(ReadError::OtherVersion("its snug is older than snug profile".into()));
    }
    let field = remote::read_memory(pid, page + counters::PROFILE_ADDRESS_OFFSET as u64, 8)?;
    Ok(Some(u64_at(&field, 0)).filter(|address| *address != 0))
}

/// The addresses of the samples' tables, which follow each other. None: there are none, or they can't be read.
pub fn tables(pid: Pid, page: u64) -> Option<Range<u64>> {
    let start = address(pid, page).ok()??;
    let head = remote::read_memory(pid, start, size_of::<HeadLayout>()).ok()?;
    let names = u64_at(&head, offset_of!(HeadLayout, names_address));
    let end = names.checked_add(u64_at(&head, offset_of!(HeadLayout, names_capacity_bytes)))?;
    Some(start..end).filter(|tables| !tables.is_empty())
}

/// Reads the samples of a process whose page of counters lies at an address. None: sampling was never on.
pub fn read(pid: Pid, page: u64) -> Result<Option<Profile>, ReadError> {
    let Some(copy) = copy_of_one_program(pid, page)? else { return Ok(None) };
    let mut profile = copy.samples();
    copy.add_stacks(&mut profile, |_| true);
    Ok(Some(profile))
}

/// The same with fewer stacks, as they are what costs time: those of live samples, but for the known ones.
pub fn read_live(pid: Pid, page: u64, is_known: impl Fn(u32) -> bool) -> Result<Option<Profile>, ReadError> {
    let Some(copy) = copy_of_one_program(pid, page)? else { return Ok(None) };
    let mut profile = copy.samples();
    let live: HashSet<u32> = profile.live.iter().map(|sample| sample.stack).collect();
    copy.add_stacks(&mut profile, |number| live.contains(&number) && !is_known(number));
    Ok(Some(profile))
}

/// Whether the process still runs the program whose samples these are.
pub fn is_still_of(pid: Pid, page: u64, profile: &Profile) -> bool {
    let head =
        address(pid, page).and_then(|address| address.map(|address| read_head(pid, address)).transpose());
    let started_ns = |head: Vec<u8>| u64_at(&head, offset_of!(HeadLayout, started_ns));
    // Sampling may begin meanwhile.
    head.is_ok_and(|head| profile.started_ns == 0 || head.map(started_ns) == Some(profile.started_ns))
}

/// All parts are of one program, whatever the process executes meanwhile.
fn copy_of_one_program(pid: Pid, page: u64) -> Result<Option<Copy>, ReadError> {
    ProgramMemory::to_read(pid).within(|| copy(pid, page))
}

/// The tables, all of one moment unless they change all the time. None: sampling was never on.
fn copy(pid: Pid, page: u64) -> Result<Option<Copy>, ReadError> {
    let Some(address) = address(pid, page)? else { return Ok(None) };
    for _ in 0..TRIES {
        let copy = Copy::take(pid, address)?;
        let changes = copy.head(offset_of!(HeadLayout, changes));
        let changes_after = u64_at(&read_head(pid, address)?, offset_of!(HeadLayout, changes));
        if changes % 2 == 0 && changes_after == changes {
            return Ok(Some(copy));
        }
    }
    Copy::take(pid, address).map(Some)
}

fn read_head(pid: Pid, address: u64) -> Result<Vec<u8>, ReadError> {
    Ok(remote::read_memory(pid, address, size_of::<HeadLayout>())?)
}

/// Names and paths by their offsets. None: there is none.
type KnownNames = HashMap<u32, Option<(Arc<str>, Arc<str>)>>;

/// The tables as they lie in memory. Rows are as long as this tool knows them, at least.
struct Copy {
    head: Vec<u8>,
    samples: Vec<u8>,
    stacks: Vec<u8>,
    names: Vec<u8>,
}

impl Copy {
    fn take(pid: Pid, address: u64) -> Result<Copy, ReadError> {
        let head = read_head(pid, address)?;
        let rows_are_long = [
            (offset_of!(HeadLayout, sample_size_bytes), size_of::<SampleLayout>()),
            (offset_of!(HeadLayout, stack_size_bytes), size_of::<StackLayout>()),
            (offset_of!(HeadLayout, name_size_bytes), size_of::<NameLayout>()),
        ]
        .into_iter()
        .all(|(offset, least)| u32_at(&head, offset) as usize >= least);
        let version = u32_at(&head, offset_of!(HeadLayout, version));
        if !head.starts_with(MAGIC) || version != VERSION || !rows_are_long {
            return Err(ReadError::OtherVersion(
                "its samples have a layout that this tool does not know".into(),
            ));
        }
        let number = |offset: usize| u64_at(&head, offset);
        let row = u64::from(u32_at(&head, offset_of!(HeadLayout, sample_size_bytes)));
        let samples_bytes = number(offset_of!(HeadLayout, sample_count)).saturating_mul(row);
        let lengths = [
            samples_bytes,
            number(offset_of!(HeadLayout, stacks_bytes)),
            number(offset_of!(HeadLayout, names_bytes)),
        ];
        if lengths.iter().zip(TABLES_MAX_BYTES).any(|(bytes, most)| *bytes > most) {
            return Err(ReadError::NotThere("its tables of samples are damaged"));
        }
        let table = |address: usize, bytes: u64| remote::read_memory(pid, number(address), bytes as usize);
        let samples = table(offset_of!(HeadLayout, samples_address), lengths[0])?;
        let stacks = table(offset_of!(HeadLayout, stacks_address), lengths[1])?;
        let names = table(offset_of!(HeadLayout, names_address), lengths[2])?;
        Ok(Copy { head, samples, stacks, names })
    }

    fn head(&self, offset: usize) -> u64 {
        u64_at(&self.head, offset)
    }

    /// All but the stacks.
    fn samples(&self) -> Profile {
        let mut profile = Profile {
            started_ns: self.head(offset_of!(HeadLayout, started_ns)),
            mean_bytes: self.head(offset_of!(HeadLayout, mean_bytes)),
            taken: self.head(offset_of!(HeadLayout, taken)),
            dropped: self.head(offset_of!(HeadLayout, dropped)),
            unread_language: unread("Ruby", u32_at(&self.head, offset_of!(HeadLayout, ruby)))
                .or_else(|| unread("Python", u32_at(&self.head, offset_of!(HeadLayout, python)))),
            ..Profile::default()
        };
        let generation = u32_at(&self.head, offset_of!(HeadLayout, generation));
        let row = u32_at(&self.head, offset_of!(HeadLayout, sample_size_bytes)) as usize;
        for sample in self.samples.chunks_exact(row) {
            let address = u64_at(sample, offset_of!(SampleLayout, address));
            if address == 0 {
                continue;
            }
            profile.live.push(LiveSample {
                stack: u32_at(sample, offset_of!(SampleLayout, stack)),
                weight_bytes: u64_at(sample, offset_of!(SampleLayout, weight_bytes)) as f64,
                blocks: u64_at(sample, offset_of!(SampleLayout, blocks)) as f64 / BLOCK_PARTS,
                time_ns: u64_at(sample, offset_of!(SampleLayout, time_ns)),
                address,
                inherited: u32_at(sample, offset_of!(SampleLayout, generation)) < generation,
            });
        }
        profile
    }

    /// Adds the stacks that are wanted, by their numbers.
    fn add_stacks(&self, profile: &mut Profile, is_wanted: impl Fn(u32) -> bool) {
        // Stacks follow each other; the first unit means none.
        let first = u32_at(&self.head, offset_of!(HeadLayout, stack_size_bytes)) as usize;
        let mut names = KnownNames::new();
        let mut at = 8;
        while at + first <= self.stacks.len() {
            let number = (at / 8) as u32;
            if is_wanted(number) {
                profile.stacks.insert(number, self.stack(at, first, &mut names));
            }
            let (native, language) = self.frames(at);
            at += first + 8 * (native + language);
        }
    }

    /// How many frames the stack at an offset has: native ones, and those of a language.
    fn frames(&self, at: usize) -> (usize, usize) {
        let count = |offset| usize::from(u16_at(&self.stacks[at..], offset));
        (count(offset_of!(StackLayout, native_frames)), count(offset_of!(StackLayout, language_frames)))
    }

    fn stack(&self, at: usize, first: usize, names: &mut KnownNames) -> SampledStack {
        let row = &self.stacks[at..];
        let (native, language) = self.frames(at);
        let words: Vec<u64> =
            row[first..].chunks_exact(8).take(native + language).map(|word| u64_at(word, 0)).collect();
        let (native_words, language_words) = words.split_at(native.min(words.len()));
        SampledStack {
            native: native_words.to_vec(),
            language: language_words.iter().map(|word| self.language_frame(*word, names)).collect(),
            tags: u32_at(row, offset_of!(StackLayout, tags)),
            allocated_bytes: u64_at(row, offset_of!(StackLayout, allocated_bytes)) as f64,
            allocated_blocks: u64_at(row, offset_of!(StackLayout, allocated_blocks)) as f64 / BLOCK_PARTS,
        }
    }

    fn language_frame(&self, word: u64, names: &mut KnownNames) -> LanguageFrame {
        let offset = word as u32;
        match names.entry(offset).or_insert_with(|| self.name(offset)).clone() {
            Some((label, path)) => LanguageFrame { label, path, line: (word >> 32) as u32 },
            None => LanguageFrame { label: "?".into(), ..LanguageFrame::default() },
        }
    }

    /// The name and path at an offset, in units of 8 bytes.
    fn name(&self, offset: u32) -> Option<(Arc<str>, Arc<str>)> {
        let at = offset as usize * 8;
        let first = u32_at(&self.head, offset_of!(HeadLayout, name_size_bytes)) as usize;
        let row = self.names.get(at..).filter(|row| at != 0 && row.len() >= first)?;
        let label = usize::from(u16_at(row, offset_of!(NameLayout, label_bytes)));
        let path = usize::from(u16_at(row, offset_of!(NameLayout, path_bytes)));
        let (label, path) = row.get(first..first + label + path)?.split_at(label);
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX_BYTES)]).into();
        Some((text(label), text(path)))
    }
}

/// The name and version of an interpreter, if the library does not read its code.
fn unread(name: &str, version: u32) -> Option<String> {
    match (version & UNREAD, version >> 8 & 0xff, version & 0xff) {
        (0, ..) => None,
        (_, major, 0) if name == "Python" => Some(format!("{name} {major}")),
        (_, major, minor) => Some(format!("{name} {major}.{minor}")),
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_ne_bytes(bytes[offset..offset + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::{must_end, Random};
    use std::process::Command;

    macro_rules! offsets {
        ($layout:ident, $name:literal: $($field:ident)*) => {
            [$(($name, stringify!($field), offset_of!($layout, $field)),)* ($name, "", size_of::<$layout>())]
        };
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        let mut expected: Vec<(&str, &str, usize)> = Vec::new();
        expected.extend(offsets!(HeadLayout, "snug_profile": magic version size_bytes sample_size_bytes
            stack_size_bytes name_size_bytes generation changes started_ns mean_bytes taken freed dropped dropped_bytes
            stacks_missed names_missed samples_address sample_count sample_capacity stacks_address stacks_bytes
            stacks_capacity_bytes names_address names_bytes names_capacity_bytes ruby python));
        expected.extend(
            offsets!(SampleLayout, "snug_profile_sample": address size_bytes weight_bytes time_ns stack
            generation thread next blocks),
        );
        expected
            .extend(offsets!(StackLayout, "snug_profile_stack": hash next native_frames language_frames tags
            allocated_bytes allocated_blocks live_bytes live_blocks));
        expected.extend(offsets!(NameLayout, "snug_profile_name": hash next label_bytes path_bytes unused));
        let mut source = String::from("#include <stddef.h>\n#include \"snug_profile.h\"\n");
        for (layout, field, value) in &expected {
            let what = match *field {
                "" => format!("sizeof(struct {layout})"),
                field => format!("offsetof(struct {layout}, {field})"),
            };
            source.push_str(&format!("_Static_assert({what} == {value}, \"{layout} {field}\");\n"));
        }
        let header = include_str!("../../../core/include/snug_profile.h");
        assert!(header.contains(r#"#define SNUG_PROFILE_MAGIC "snug profile\n\0\0\1""#));
        source.push_str(&format!("_Static_assert(SNUG_PROFILE_VERSION == {VERSION}, \"version\");\n"));
        let tags = [
            ("RUBY_NO_LOCK", TAG_RUBY_NO_LOCK),
            ("RUBY_GC", TAG_RUBY_GC),
            ("DEEP", TAG_DEEP),
            ("NO_ROOM", TAG_NO_ROOM),
            ("PYTHON", TAG_PYTHON),
            ("PYTHON_NO_LOCK", TAG_PYTHON_NO_LOCK),
        ];
        for (name, value) in tags {
            source.push_str(&format!("_Static_assert(SNUG_PROFILE_{name} == {value}, \"tag\");\n"));
        }
        let directory = std::env::temp_dir().join(format!("snug-profile-layout-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("layout.c"), source).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/include");
        let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=gnu11", "-fsyntax-only", "-I", include])
            .arg(directory.join("layout.c"))
            .status()
            .expect("a C compiler is needed: apt install gcc");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(compiled.success());
    }

    fn put(bytes: &mut [u8], offset: usize, number: &[u8]) {
        bytes[offset..offset + number.len()].copy_from_slice(number);
    }

    /// Where the head says how long a row is, where its table lies and how long that is, and how long rows must be.
    const TABLES: [(usize, usize, usize, usize); 3] = [
        (
            offset_of!(HeadLayout, sample_size_bytes),
            offset_of!(HeadLayout, samples_address),
            offset_of!(HeadLayout, sample_count),
            size_of::<SampleLayout>(),
        ),
        (
            offset_of!(HeadLayout, stack_size_bytes),
            offset_of!(HeadLayout, stacks_address),
            offset_of!(HeadLayout, stacks_bytes),
            size_of::<StackLayout>(),
        ),
        (
            offset_of!(HeadLayout, name_size_bytes),
            offset_of!(HeadLayout, names_address),
            offset_of!(HeadLayout, names_bytes),
            size_of::<NameLayout>(),
        ),
    ];

    /// A head of these tables: samples, stacks, names.
    fn head_of(tables: &[Vec<u8>; 3]) -> Vec<u8> {
        let mut head = vec![0; size_of::<HeadLayout>()];
        put(&mut head, 0, MAGIC);
        put(&mut head, offset_of!(HeadLayout, version), &VERSION.to_ne_bytes());
        for ((row_at, address_at, length_at, row), table) in TABLES.into_iter().zip(tables) {
            put(&mut head, row_at, &(row as u32).to_ne_bytes());
            put(&mut head, address_at, &(table.as_ptr() as u64).to_ne_bytes());
            put(&mut head, length_at, &(table.len() as u64).to_ne_bytes());
        }
        let rows = (tables[0].len() / size_of::<SampleLayout>()) as u64;
        put(&mut head, offset_of!(HeadLayout, sample_count), &rows.to_ne_bytes());
        head
    }

    /// A page of counters that leads to the head.
    fn page_of(head: &[u8]) -> Vec<u8> {
        let mut page = vec![0; counters::PROFILE_ADDRESS_OFFSET + 8];
        let size = page.len() as u32;
        put(&mut page, 0, counters::MAGIC);
        put(&mut page, counters::SIZE_OFFSET, &size.to_ne_bytes());
        put(&mut page, counters::PROFILE_ADDRESS_OFFSET, &(head.as_ptr() as u64).to_ne_bytes());
        page
    }

    fn read_own(page: &[u8]) -> Result<Profile, ReadError> {
        read(std::process::id() as Pid, page.as_ptr() as u64).map(|profile| profile.expect("there is a head"))
    }

    #[test]
    fn tables_of_who_means_harm_are_read_to_an_end() {
        must_end(|| {
            let mut random = Random::new(6);
            let mut understood = 0;
            for _ in 0..2000 {
                let length = 1usize << (3 + random.below(12));
                let tables = std::array::from_fn(|_| random.hostile_bytes(length, &[]));
                let mut head = head_of(&tables);
                for (row_at, _, length_at, row) in TABLES {
                    // Too short, right, or too long.
                    if random.chance(0.1) {
                        let row = random.hostile_word(&[]).min(2 * row as u64);
                        put(&mut head, row_at, &(row as u32).to_ne_bytes());
                    }
                    if random.chance(0.1) {
                        put(&mut head, length_at, &random.hostile_word(&[]).to_ne_bytes());
                    }
                }
                let others = offset_of!(HeadLayout, changes)..offset_of!(HeadLayout, samples_address);
                let numbers = random.hostile_bytes(others.len(), &[]);
                put(&mut head, others.start, &numbers);
                let capacity = random.hostile_word(&[]).to_ne_bytes();
                put(&mut head, offset_of!(HeadLayout, names_capacity_bytes), &capacity);
                let page = page_of(&head);
                understood += u32::from(read_own(&page).is_ok());
                let (pid, page) = (std::process::id() as Pid, page.as_ptr() as u64);
                let _ = read_live(pid, page, |stack| stack % 3 == 0);
                assert!(super::tables(pid, page).is_none_or(|tables| tables.start < tables.end));
            }
            assert!(understood > 500, "{understood}");
        });
    }

    #[test]
    fn tables_that_cannot_be_are_not_read() {
        let tables = [vec![0; 56], vec![0; 64], vec![0; 64]];
        let whole = head_of(&tables);
        assert!(read_own(&page_of(&whole)).is_ok());
        for (row_at, _, length_at, row) in TABLES {
            let mut head = whole.clone();
            put(&mut head, row_at, &(row as u32 - 1).to_ne_bytes());
            assert!(matches!(read_own(&page_of(&head)), Err(ReadError::OtherVersion(_))));
            for length in [u64::MAX, 17 << 20] {
                let mut head = whole.clone();
                put(&mut head, length_at, &length.to_ne_bytes());
                let damaged = ReadError::NotThere("its tables of samples are damaged");
                assert_eq!(read_own(&page_of(&head)).err(), Some(damaged));
            }
        }
    }

    #[test]
    fn another_program_at_the_same_place_is_noticed() {
        let tables = [Vec::new(), vec![0; 8], Vec::new()];
        let mut head = head_of(&tables);
        put(&mut head, offset_of!(HeadLayout, started_ns), &7u64.to_ne_bytes());
        let page = page_of(&head);
        let pid = std::process::id() as Pid;
        let is_still_of = |page: &[u8], profile: &Profile| is_still_of(pid, page.as_ptr() as u64, profile);
        let before = read_own(&page).unwrap();
        assert!(is_still_of(&page, &before));
        let mut other = page.clone();
        other[0] ^= 1;
        assert!(
            matches!(read_own(&other), Err(ReadError::NotThere(_))),
            "it is no page of counters any more"
        );
        assert!(!is_still_of(&other, &before));
        assert!(is_still_of(&page, &Profile::default()), "one that samples since");
        put(&mut head, offset_of!(HeadLayout, started_ns), &8u64.to_ne_bytes());
        assert!(!is_still_of(&page_of(&head), &before), "another one that samples");
        let silent = [&(page.len() as u32).to_ne_bytes()[..], &vec![0; page.len()]].concat();
        assert!(!is_still_of(&silent, &before), "another one that does not");
        assert!(!super::is_still_of(pid, 8, &before), "none under snug");
    }

    #[test]
    fn frames_of_one_function_share_its_name_which_is_cut() {
        let mut names = vec![0; 8 + size_of::<NameLayout>()];
        put(&mut names, 8 + offset_of!(NameLayout, label_bytes), &60_000u16.to_ne_bytes());
        put(&mut names, 8 + offset_of!(NameLayout, path_bytes), &4u16.to_ne_bytes());
        names.extend([b'f'; 60_000].iter().chain(b"a.rb"));
        let mut stacks = vec![0; 8 + size_of::<StackLayout>()];
        put(&mut stacks, 8 + offset_of!(StackLayout, language_frames), &3u16.to_ne_bytes());
        for (name, line) in [(1, 7), (1, 9), (u32::MAX, 11)] {
            stacks.extend((u64::from(name) | line << 32).to_ne_bytes());
        }
        let tables = [Vec::new(), stacks, names];
        let head = head_of(&tables);
        let profile = read_own(&page_of(&head)).unwrap();
        let [first, second, unknown] = profile.stacks[&1].language.as_slice() else { panic!("{profile:?}") };
        assert_eq!((first.label.len(), &*first.path, first.line), (TEXT_MAX_BYTES, "a.rb", 7));
        assert!(Arc::ptr_eq(&first.label, &second.label) && second.line == 9);
        assert_eq!((&*unknown.label, unknown.line), ("?", 0));
    }

    #[test]
    fn fuzzed_heads_of_samples() {
        let tables = std::array::from_fn(|_| vec![7; 1 << 10]);
        snug_base::random::fuzz(&[&head_of(&tables)], |bytes| {
            let mut head = bytes.to_vec();
            head.resize(size_of::<HeadLayout>(), 0);
            let _ = read(std::process::id() as Pid, page_of(&head).as_ptr() as u64);
        });
    }
}
