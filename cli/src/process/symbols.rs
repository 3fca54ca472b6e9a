//! Names of functions at addresses in a process, from the symbols of the files that are mapped there, read through its
//! own root while it runs, or through ours when it has ended.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use object::elf::PT_LOAD;
use object::read::elf::ProgramHeader;

use crate::base::elf::{name_in, Elf64, ElfHeaders};
use crate::base::file::open_regular;
use crate::process::maps::Mapping;
use crate::process::proc::Pid;

/// Functions that are kept of a file at most: 100 MB.
const FUNCTIONS_MAX: usize = 4 << 20;
/// Names of one function that are looked at.
const ALIASES_MAX: usize = 100;

/// A place in native code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CodePlace {
    /// Of the file's symbol; else the file and the offset in it.
    pub function: String,
    /// Empty where no file is mapped: code that was made at run time.
    pub path: String,
}

/// Resolves addresses of one process.
pub(crate) struct Symbols {
    root: String,
    /// In the order of their addresses, as the kernel lists them.
    mappings: Vec<Mapping>,
    files: HashMap<String, Option<FileSymbols>>,
}

/// The functions of a file, and where its segments are in it. Names are read when they are asked for: a large program has
/// hundreds of MB of them.
struct FileSymbols {
    file: File,
    /// Address, size, and where in the file the name is; in this order.
    functions: Vec<(u64, u64, u64)>,
    /// Offset in the file, length there, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Of a process with these mappings.
    pub(crate) fn new(pid: Pid, mappings: Vec<Mapping>) -> Symbols {
        Symbols { root: format!("/proc/{pid}/root"), mappings, files: HashMap::new() }
    }

    /// Of a process that had these mappings, and this one's root.
    pub(crate) fn of_ended(mappings: Vec<Mapping>) -> Symbols {
        Symbols { root: String::new(), mappings, files: HashMap::new() }
    }

    /// The same process, or another one with the same root, has these mappings now. Symbols that were read stay.
    pub(crate) fn map_anew(&mut self, mappings: Vec<Mapping>) {
        self.mappings = mappings;
    }

    /// What is at an address.
    pub(crate) fn place(&mut self, address: u64) -> CodePlace {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings[..after].last().filter(|mapping| address < mapping.end);
        let Some(mapping) = mapping.cloned() else {
            return CodePlace { function: "[code made at run time]".into(), path: String::new() };
        };
        let offset = address - mapping.start + mapping.offset;
        let root = &self.root;
        let file = self.files.entry(mapping.path.clone()).or_insert_with(|| {
            let path = format!("{root}{}", mapping.path);
            if mapping.deleted {
                None
            } else {
                read(Path::new(&path))
            }
        });
        let function = file.as_ref().and_then(|file| file.function_at(offset));
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        CodePlace { function: function.unwrap_or_else(|| format!("{name}+{offset:#x}")), path: mapping.path }
    }
}

impl FileSymbols {
    /// The function that holds an offset in the file.
    fn function_at(&self, offset: u64) -> Option<String> {
        let (start, _, address) =
            self.segments.iter().find(|(start, length, _)| (*start..start + length).contains(&offset))?;
        let wanted = address + offset - start;
        let after = self.functions.partition_point(|(address, _, _)| *address <= wanted);
        let nearest = self.functions[after.checked_sub(1)?].0;
        let first = self.functions[..after].partition_point(|(address, _, _)| *address < nearest);
        let aliases = self.functions[first..after].iter().take(ALIASES_MAX);
        let (size, name) =
            aliases.filter_map(|(_, size, name_at)| Some((*size, name_in(&self.file, *name_at)?))).min()?;
        (wanted - nearest < size.max(1)).then_some(name)
    }
}

/// None if the file can't be read, or is no ELF file of 64 bits.
fn read(path: &Path) -> Option<FileSymbols> {
    let file = open_regular(path).ok()?;
    let (functions, segments) = places(&file)?;
    Some(FileSymbols { file, functions, segments })
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

    use crate::base::elf::fake;
    use crate::process::maps;

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
        let place = Symbols::of_ended(mappings).place(libc::qsort as *const () as usize as u64 + 1);
        assert!(place.function.contains("qsort"), "{place:?}");
    }

    #[test]
    fn what_has_no_symbol_is_an_offset() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"f\0g\0e\0h\0", 0).unwrap();
        let file = FileSymbols {
            file,
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
        let symbols = read(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        let function_at = |offset| symbols.function_at(offset).unwrap_or_default();
        assert_eq!([0x100, 0x10f, 0x110, 0x208].map(function_at), ["near", "near", "", "far"]);
    }
}
