//! Names of functions at addresses in a process, from the symbols of the files that are mapped there, read through its
//! own root while it runs, or through ours when it has ended. Lines of sources are looked up where they are asked for.

mod lines;
mod perf_map;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use object::elf::PT_LOAD;
use object::read::elf::ProgramHeader;

use crate::maps::{inside, Mapping};
use crate::proc::{self, Pid};
use crate::symbols::lines::Lines;
use crate::symbols::perf_map::{script_place, PerfMap};
use snug_base::demangle::demangled;
use snug_base::elf::{name_in, Elf64, ElfHeaders};
use snug_base::file::{file_name, open_regular};

pub use crate::symbols::lines::CodeLine;

/// What stands for the name of a function that was made at run time, and has none.
pub const CODE_MADE: &str = "[code made at run time]";
/// Functions that are kept of a file at most: 100 MB.
const FUNCTIONS_MAX: usize = 4 << 20;
/// Names of one function that are looked at.
const ALIASES_MAX: usize = 100;
/// What lines of sources may take: memory, and time.
const LINES_MAX_BYTES: u64 = 512 << 20;
const LINES_MAX_TIME: Duration = Duration::from_secs(10);

/// A place in native code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodePlace {
    /// Of the file's symbol; else the file and the offset in it.
    pub function: String,
    /// Empty where no file is mapped: code that was made at run time.
    pub path: String,
    /// Of the source; None where it is not known, or not looked up. Of code made at run time, where the function begins.
    pub line: Option<CodeLine>,
}

/// Resolves addresses of one process.
pub struct Symbols {
    root: String,
    pid: Pid,
    /// What the process says it made at run time. None: nobody asked yet.
    made: Option<PerfMap>,
    /// In the order of their addresses, as the kernel lists them.
    mappings: Vec<Mapping>,
    files: HashMap<String, Option<FileSymbols>>,
    /// What looking lines up may still take. None: they are not wanted.
    lines_left: Option<LinesLeft>,
}

struct LinesLeft {
    bytes: u64,
    time: Duration,
}

/// The functions of a file, and where its segments are in it. Names are read when they are asked for: a large program has
/// hundreds of MB of them.
struct FileSymbols {
    file: File,
    /// What was stripped of it.
    stripped: Option<File>,
    /// None: not read yet.
    lines: Option<Option<Lines>>,
    /// Address, size, and where in the file the name is, or in what was stripped; in this order.
    functions: Vec<(u64, u64, u64)>,
    /// Offset in the file, length there, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Of a process with these mappings.
    pub fn new(pid: Pid, mappings: Vec<Mapping>) -> Symbols {
        let root = format!("/proc/{}/root", proc::living(pid));
        let mut symbols =
            Symbols { root, pid, made: None, mappings: Vec::new(), files: HashMap::new(), lines_left: None };
        symbols.map_anew(pid, mappings);
        symbols
    }

    /// Of a process that had these mappings, and this one's root.
    pub fn of_ended(pid: Pid, mappings: Vec<Mapping>) -> Symbols {
        let mut symbols = Symbols { root: String::new(), ..Symbols::new(pid, Vec::new()) };
        symbols.map_anew(pid, mappings);
        symbols
    }

    /// With lines of sources, where files say them. That takes far longer than names alone.
    pub fn with_lines(self) -> Symbols {
        let left = LinesLeft { bytes: LINES_MAX_BYTES, time: LINES_MAX_TIME };
        Symbols { lines_left: Some(left), ..self }
    }

    /// The same process, or another one with the same root, has these mappings now. Symbols that were read stay.
    pub fn map_anew(&mut self, pid: Pid, mut mappings: Vec<Mapping>) {
        // Files are read through the process's root, if it is there.
        if let (false, Ok(root)) =
            (self.root.is_empty(), std::fs::read_link(format!("/proc/{}/root", proc::living(pid))))
        {
            let root = root.to_string_lossy();
            mappings
                .iter_mut()
                .for_each(|mapping| mapping.path = inside(&root, std::mem::take(&mut mapping.path)));
        }
        (self.pid, self.made, self.mappings) = (pid, None, mappings);
    }

    /// What is at an address.
    pub fn place(&mut self, address: u64) -> CodePlace {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings[..after].last().filter(|mapping| address < mapping.end);
        let Some(mapping) = mapping.cloned() else {
            let made = self.made.get_or_insert_with(|| PerfMap::of(&self.root, self.pid));
            let name = made.name_at(address).unwrap_or(CODE_MADE);
            let (function, line) = script_place(name)
                .map_or_else(|| (name.into(), None), |(function, line)| (function, Some(line)));
            return CodePlace { function, line, ..CodePlace::default() };
        };
        let offset = address - mapping.start + mapping.offset;
        let root = &self.root;
        let file = self.files.entry(mapping.path.clone()).or_insert_with(|| match mapping.deleted {
            true => None,
            false => read(root, &mapping.path),
        });
        let function = file.as_ref().and_then(|file| file.function_at(offset));
        let line = match (file, &mut self.lines_left) {
            (Some(file), Some(left)) => file.line_at(offset, left),
            _ => None,
        };
        let name = file_name(&mapping.path);
        let function = function.map(|name| demangled(&name));
        CodePlace {
            function: function.unwrap_or_else(|| format!("{name}+{offset:#x}")),
            path: mapping.path,
            line,
        }
    }
}

impl FileSymbols {
    /// The address at an offset in the file, as its symbols have it.
    fn address_at(&self, offset: u64) -> Option<u64> {
        let (start, _, address) = self
            .segments
            .iter()
            .find(|(start, length, _)| (*start..start.saturating_add(*length)).contains(&offset))?;
        address.checked_add(offset - start)
    }

    /// The line of a source at an offset in the file.
    fn line_at(&mut self, offset: u64, left: &mut LinesLeft) -> Option<CodeLine> {
        let address = self.address_at(offset)?;
        if left.time.is_zero() {
            return None;
        }
        let begin = Instant::now();
        let files = [Some(&self.file), self.stripped.as_ref()];
        let read = || files.into_iter().flatten().rev().find_map(|file| Lines::of(file, &mut left.bytes));
        let found = self.lines.get_or_insert_with(read).as_ref().and_then(|lines| lines.at(address));
        left.time = left.time.saturating_sub(begin.elapsed());
        found
    }

    /// The function that holds an offset in the file.
    fn function_at(&self, offset: u64) -> Option<String> {
        let wanted = self.address_at(offset)?;
        let after = self.functions.partition_point(|(address, _, _)| *address <= wanted);
        let nearest = self.functions[after.checked_sub(1)?].0;
        let first = self.functions[..after].partition_point(|(address, _, _)| *address < nearest);
        let names = self.stripped.as_ref().unwrap_or(&self.file);
        let aliases = self.functions[first..after].iter().take(ALIASES_MAX);
        let (size, name) =
            aliases.filter_map(|(_, size, name_at)| Some((*size, name_in(names, *name_at)?))).min()?;
        (wanted - nearest < size.max(1)).then_some(name)
    }
}

/// None if the file can't be read, or is no ELF file of 64 bits.
fn read(root: &str, path: &str) -> Option<FileSymbols> {
    let file = open_regular(Path::new(&format!("{root}{path}"))).ok()?;
    let (mut functions, segments) = places(&file)?;
    // Only the segments of the file itself are in it.
    let stripped = lines::stripped_part(root, path, &file);
    let more = stripped.as_ref().and_then(places).map_or_else(Vec::new, |(functions, _)| functions);
    let stripped = stripped.filter(|_| !more.is_empty());
    if stripped.is_some() {
        functions = more;
    }
    Some(FileSymbols { file, stripped, lines: None, functions, segments })
}

/// As `FileSymbols` has them.
type FunctionsAndSegments = (Vec<(u64, u64, u64)>, Vec<(u64, u64, u64)>);

fn places(file: &File) -> Option<FunctionsAndSegments> {
    let headers = ElfHeaders::of(file);
    let layout = Elf64::parse(&headers, file).ok()?;
    let endian = layout.endian;
    let loaded = layout.segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let segments =
        loaded.map(|segment| (segment.p_offset(endian), segment.p_filesz(endian), segment.p_vaddr(endian)));
    let mut functions = Vec::new();
    for symbols in [layout.symbols(), layout.dynamic_symbols()] {
        symbols.for_each(|symbol| {
            if symbol.is_function && functions.len() < FUNCTIONS_MAX {
                functions.push((symbol.address, symbol.size, symbols.name_place(&symbol)));
            }
        });
    }
    functions.sort_unstable();
    Some((functions, segments.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use crate::maps;
    use snug_base::elf::fake;

    #[test]
    fn own_functions_have_names() {
        let pid = std::process::id() as Pid;
        let mappings = maps::parse_maps(&std::fs::read("/proc/self/maps").unwrap());
        let mut symbols = Symbols::new(pid, mappings);
        let place = symbols.place(libc::qsort as *const () as usize as u64 + 1);
        assert!(place.function.contains("qsort"), "{place:?}");
        assert!(place.path.contains("libc"), "{place:?}");
        let own = symbols.place(own_functions_have_names as fn() as usize as u64);
        assert!(own.path.contains("snug"), "{own:?}");
        assert_eq!(symbols.place(8).path, "");
        let mappings = maps::parse_maps(&std::fs::read("/proc/self/maps").unwrap());
        let place = Symbols::of_ended(pid, mappings).place(libc::qsort as *const () as usize as u64 + 1);
        assert!(place.function.contains("qsort"), "{place:?}");
    }

    #[test]
    fn what_has_no_symbol_is_an_offset() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"f\0g\0e\0h\0", 0).unwrap();
        let file = FileSymbols {
            file,
            stripped: None,
            lines: None,
            functions: vec![(0x2000, 0x10, 0), (0x2010, 0, 2), (0x2018, 4, 6), (0x2018, 4, 4)],
            segments: vec![(0x1000, 0x1000, 0x2000)],
        };
        let function_at = |offset| file.function_at(offset).unwrap_or_default();
        assert_eq!([0x1000, 0x100f, 0x1010].map(function_at), ["f", "f", "g"]);
        assert_eq!([0x1011, 0x101c, 0x10].map(function_at), ["", "", ""]);
        assert_eq!(function_at(0x1018), "e", "of two names the first in the alphabet");
    }

    /// As large debug builds have them.
    #[test]
    fn functions_are_found_in_tables_of_hundreds_of_megabytes() {
        let (symbols_bytes, names_bytes) = (240 << 20, 600 << 20);
        let last = symbols_bytes / 24 - 1;
        let symbols = [(1, "near", names_bytes - 5, 0x40_0100), (last, "far", 1, 0x40_0200)];
        let file = fake::elf_file(symbols_bytes, names_bytes, &symbols);
        let symbols = read("", &format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let function_at = |offset| symbols.function_at(offset).unwrap_or_default();
        assert_eq!([0x100, 0x10f, 0x110, 0x208].map(function_at), ["near", "near", "", "far"]);
    }
}
