//! Names of functions at addresses in a process, from the symbols of the files that are mapped there, read through its
//! own root while it runs, or through ours when it has ended.

use std::collections::HashMap;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::base::elf::{Names, Tables};
use crate::base::file::open_regular;
use crate::process::maps::Mapping;
use crate::process::proc::Pid;

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

/// The functions of a file, by address, and where its segments are in it.
#[derive(Default)]
struct FileSymbols {
    functions: Vec<(u64, u64, String)>,
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
        let function = file.as_ref().and_then(|file| file.function_at(offset)).map(str::to_string);
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        CodePlace { function: function.unwrap_or_else(|| format!("{name}+{offset:#x}")), path: mapping.path }
    }
}

impl FileSymbols {
    /// The function that holds an offset in the file.
    fn function_at(&self, offset: u64) -> Option<&str> {
        let (start, _, address) =
            self.segments.iter().find(|(start, length, _)| (*start..start + length).contains(&offset))?;
        let wanted = address + offset - start;
        let after = self.functions.partition_point(|(address, _, _)| *address <= wanted);
        let (address, size, name) = &self.functions[after.checked_sub(1)?];
        (wanted - address < (*size).max(1)).then_some(name)
    }
}

/// None if the file can't be read, or is no ELF file of 64 bits.
fn read(path: &Path) -> Option<FileSymbols> {
    let opened = open_regular(path).ok()?;
    let tables = Tables::of(&opened);
    let file = ElfFile64::<Endianness, _>::parse(&tables).ok()?;
    let mut symbols = FileSymbols::default();
    for segment in file.segments() {
        let (offset, length) = segment.file_range();
        symbols.segments.push((offset, length, segment.address()));
    }
    let own = (file.symbols(), file.elf_symbol_table());
    let dynamic = (file.dynamic_symbols(), file.elf_dynamic_symbol_table());
    for (listed, table) in [own, dynamic] {
        let mut names = Names::of(&file, table, &opened);
        for symbol in listed.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
            if let Some(name) = names.name(&symbol) {
                symbols.functions.push((symbol.address(), symbol.size(), name.to_string()));
            }
        }
    }
    symbols.functions.sort();
    symbols.functions.dedup_by_key(|(address, _, _)| *address);
    Some(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let file = FileSymbols {
            functions: vec![(0x2000, 0x10, "f".into()), (0x2010, 0, "g".into())],
            segments: vec![(0x1000, 0x1000, 0x2000)],
        };
        assert_eq!(file.function_at(0x1000), Some("f"));
        assert_eq!(file.function_at(0x100f), Some("f"));
        assert_eq!(file.function_at(0x1010), Some("g"));
        assert_eq!(file.function_at(0x1011), None);
        assert_eq!(file.function_at(0x10), None);
    }
}
