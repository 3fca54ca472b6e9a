//! Lines of sources at addresses in native code, from DWARF in a file, or in the one that holds what was stripped of it.
//! Sections are read when the first line is asked for, unless they are larger than what a profile may take.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use gimli::{EndianRcSlice, RunTimeEndian, SectionId};
use object::elf;
use object::read::elf::SectionHeader;

use snug_base::elf::{Elf64, ElfHeaders};
use snug_base::file::open_regular;

/// Bytes of a file's sections that are in memory at most, decompressed.
const SECTIONS_MAX_BYTES: u64 = 256 << 20;
/// Functions inside each other that are looked through: a compiler inlines fewer.
const INLINED_MAX: usize = 1000;
/// Where distributions put what they strip off.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

type DebugSlice = EndianRcSlice<RunTimeEndian>;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLine {
    pub file: String,
    pub line: u32,
}

/// The lines of a file.
pub(crate) struct Lines(addr2line::Context<DebugSlice>);

impl Lines {
    /// None: the file has none, or too many. `left_bytes`: what all files together may still take, which is made less.
    pub(crate) fn of(file: &File, left_bytes: &mut u64) -> Option<Lines> {
        let headers = ElfHeaders::of(file);
        let layout = Elf64::parse(&headers, file).ok()?;
        let mut left = SECTIONS_MAX_BYTES.min(*left_bytes);
        let all = left;
        let mut load = |id: SectionId| -> Result<DebugSlice, gimli::Error> {
            let bytes = section(&layout, file, id.name(), &mut left).ok_or(gimli::Error::Io)?;
            let endian = if layout.endian == object::Endianness::Big {
                RunTimeEndian::Big
            } else {
                RunTimeEndian::Little
            };
            Ok(EndianRcSlice::new(Rc::from(bytes), endian))
        };
        let dwarf = gimli::Dwarf::load(&mut load).ok()?;
        *left_bytes -= all - left;
        addr2line::Context::from_dwarf(dwarf).ok().map(Lines)
    }

    /// The line of the function that has code of its own at an address, though another one may be inlined there.
    pub(crate) fn at(&self, address: u64) -> Option<CodeLine> {
        let mut found = None;
        if let Ok(mut frames) = self.0.find_frames(address).skip_all_loads() {
            for _ in 0..INLINED_MAX {
                let Ok(Some(frame)) = frames.next() else { break };
                found = frame.location.and_then(line_of).or(found);
            }
        }
        found.or_else(|| line_of(self.0.find_location(address).ok()??))
    }
}

fn line_of(location: addr2line::Location<'_>) -> Option<CodeLine> {
    Some(CodeLine { file: location.file?.to_string(), line: location.line.filter(|line| *line > 0)? })
}

/// What a section holds: nothing, if there is none. None: it can't be read, or is too large.
fn section(layout: &Elf64<'_, '_>, file: &File, name: &str, left: &mut u64) -> Option<Vec<u8>> {
    let endian = layout.endian;
    let is_named = |section: &&elf::SectionHeader64<_>| {
        layout.sections.section_name(endian, section).is_ok_and(|found| found == name.as_bytes())
    };
    let Some(section) = layout.sections.iter().find(is_named) else { return Some(Vec::new()) };
    let Some((start, bytes)) = section.file_range(endian) else { return Some(Vec::new()) };
    // A file may be made to say that it has more than it has.
    let bytes = bytes.min(file.metadata().ok()?.len().saturating_sub(start));
    let is_compressed = section.sh_flags(endian) & u64::from(elf::SHF_COMPRESSED) != 0;
    *left = left.checked_sub(bytes)?;
    let mut content = vec![0; bytes as usize];
    file.read_exact_at(&mut content, start).ok()?;
    if !is_compressed {
        return Some(content);
    }
    let (header, _) =
        object::pod::from_bytes::<elf::CompressionHeader64<object::Endianness>>(&content).ok()?;
    let whole_bytes = header.ch_size.get(endian);
    if header.ch_type.get(endian) != elf::ELFCOMPRESS_ZLIB {
        return Some(Vec::new());
    }
    *left = left.checked_sub(whole_bytes)?;
    let mut whole = Vec::new();
    let packed = &content[size_of_val(header)..];
    ZlibDecoder::new(packed).take(whole_bytes).read_to_end(&mut whole).ok()?;
    Some(whole)
}

/// The file with what was stripped of the one at a path, below a root: it must be of the same build.
pub(crate) fn stripped_part(root: &str, path: &str, file: &File) -> Option<File> {
    let id = build_id(file)?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id =
        (hex.len() > 2).then(|| format!("{DEBUG_FOLDER}/.build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
    let by_name = link_name(file).into_iter().flat_map(|name| {
        let below = folder.strip_prefix("/").unwrap_or(folder);
        [
            folder.join(&name),
            folder.join(".debug").join(&name),
            Path::new(DEBUG_FOLDER).join(below).join(&name),
        ]
    });
    let places = by_id.map(PathBuf::from).into_iter().chain(by_name);
    let mut files =
        places.filter_map(|place| open_regular(Path::new(&format!("{root}{}", place.display()))).ok());
    files.find(|found| build_id(found).as_deref() == Some(&id))
}

/// What the linker says of the build.
fn build_id(file: &File) -> Option<Vec<u8>> {
    let headers = ElfHeaders::of(file);
    let layout = Elf64::parse(&headers, file).ok()?;
    let notes =
        layout.sections.iter().filter_map(|section| section.notes(layout.endian, layout.data).ok()?);
    for mut notes in notes {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(layout.endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

/// The name of the file with what was stripped, as the file itself says it.
fn link_name(file: &File) -> Option<String> {
    let headers = ElfHeaders::of(file);
    let layout = Elf64::parse(&headers, file).ok()?;
    let mut left = 4096;
    let content = section(&layout, file, ".gnu_debuglink", &mut left)?;
    let name = content.split(|byte| *byte == 0).next()?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}
