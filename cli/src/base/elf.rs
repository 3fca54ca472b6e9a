//! What an ELF file says about itself: for which machine it is, what it needs, and which of the symbols that
//! matter to us it defines. Knows nothing of processes or of allocators' policies.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{
    Dyn, ElfFile, ElfSymbol, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable,
};
use object::read::StringTable;
use object::{Endianness, FileKind, Object, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

/// The facts about one ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// e_machine, for example EM_X86_64.
    pub machine: u16,
    /// 64 or 32.
    pub bits: u8,
    /// PT_INTERP: the dynamic loader; None for libraries and static programs.
    pub interpreter: Option<String>,
    /// It can be loaded at any address: ET_DYN.
    pub position_independent: bool,
    /// It has a dynamic section at all.
    pub dynamic: bool,
    /// DT_NEEDED, in order.
    pub needed: Vec<String>,
    /// DT_RUNPATH and DT_RPATH: where its libraries are looked for first.
    pub run_paths: Vec<String>,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// Symbols the dynamic loader sees as defined here, with their addresses; only those asked for.
    pub exported: HashMap<String, u64>,
    /// Symbols of the full table (absent if stripped) and their addresses; only those asked for.
    pub internal: HashMap<String, u64>,
    /// Address and file offset of the first loaded segment, which give the load base.
    pub first_load: Option<(u64, u64)>,
}

impl ElfFacts {
    /// Name of the machine as Debian writes it.
    pub(crate) fn machine_name(&self) -> String {
        machine_name(self.machine, self.bits)
    }

    /// A program (or position-independent program) that the dynamic loader never touches.
    pub(crate) fn is_static_program(&self) -> bool {
        self.interpreter.is_none() && self.needed.is_empty()
    }
}

/// Name of a machine as Debian writes it.
pub(crate) fn machine_name(machine: u16, bits: u8) -> String {
    match (machine, bits) {
        (elf::EM_X86_64, 64) => "x86-64".into(),
        (elf::EM_X86_64, _) => "x32".into(),
        (elf::EM_386, _) => "i386".into(),
        (elf::EM_AARCH64, _) => "aarch64".into(),
        (elf::EM_ARM, _) => "arm".into(),
        (elf::EM_RISCV, _) => "riscv64".into(),
        (elf::EM_PPC64, _) => "ppc64".into(),
        (elf::EM_S390, _) => "s390x".into(),
        _ => format!("machine {machine}, {bits} bits"),
    }
}

/// Reads an ELF file. `wanted` decides which symbols are kept. None if it is not an ELF file; an error if it
/// can't be read.
pub(crate) fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<Option<ElfFacts>> {
    let cache = ReadCache::new(File::open(path)?);
    let facts = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => facts::<elf::FileHeader64<Endianness>, _>(&cache, wanted),
        Ok(FileKind::Elf32) => facts::<elf::FileHeader32<Endianness>, _>(&cache, wanted),
        _ => return Ok(None),
    };
    Ok(facts.ok())
}

/// A part of an ELF file of 64 bits that is loaded to be written, variables that begin as zero included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WritableSegment {
    /// In the file.
    pub offset: u64,
    /// In memory.
    pub bytes: u64,
}

/// An ELF file of 64 bits that is read piece by piece.
type Elf64<'data> = ElfFile<'data, elf::FileHeader64<Endianness>, &'data ReadCache<File>>;

/// What `look` finds in a file; nothing if it can't be read or is no ELF file of 64 bits.
fn find_in<T>(path: &Path, look: impl FnOnce(&Elf64) -> Vec<T>) -> Vec<T> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let cache = ReadCache::new(file);
    let found = Elf64::parse(&cache).map(|file| look(&file));
    found.unwrap_or_default()
}

/// Reads what an ELF file has of these; nothing if it can't be read or is none.
pub(crate) fn writable_segments(path: &Path) -> Vec<WritableSegment> {
    find_in(path, |file| {
        let endian = file.endian();
        let headers = file.elf_program_headers().iter();
        let written = headers.filter(|header| {
            header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian) & elf::PF_W != 0
        });
        written
            .map(|header| WritableSegment { offset: header.p_offset(endian), bytes: header.p_memsz(endian) })
            .collect()
    })
}

/// Functions that the dynamic loader sees as defined in an ELF file of 64 bits: names, addresses, sizes in bytes. Nothing
/// if it can't be read or is none.
pub(crate) fn exported_functions(path: &Path) -> Vec<(String, u64, u64)> {
    find_in(path, |file| {
        let names = Names::of(file, file.elf_dynamic_symbol_table());
        let functions = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        let named = functions
            .filter_map(|symbol| Some((names.name(&symbol)?.to_string(), symbol.address(), symbol.size())));
        named.collect()
    })
}

fn facts<'data, Header, Data>(data: Data, wanted: &dyn Fn(&str) -> bool) -> object::Result<ElfFacts>
where
    Header: FileHeader<Endian = Endianness>,
    Data: ReadRef<'data>,
{
    let file = ElfFile::<'data, Header, Data>::parse(data)?;
    let endian = file.endian();
    let header = file.elf_header();
    let mut facts = ElfFacts {
        machine: header.e_machine(endian),
        bits: if file.is_64() { 64 } else { 32 },
        position_independent: header.e_type(endian) == elf::ET_DYN,
        ..ElfFacts::default()
    };
    for segment in file.elf_program_headers() {
        match segment.p_type(endian) {
            elf::PT_LOAD if facts.first_load.is_none() => {
                facts.first_load = Some((segment.p_vaddr(endian).into(), segment.p_offset(endian).into()));
            }
            elf::PT_DYNAMIC => facts.dynamic = true,
            _ => {}
        }
        if let Some(path) = segment.interpreter(endian, data)? {
            facts.interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    let sections = file.elf_section_table();
    if let Some((entries, strings_section)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings_section)?;
        for entry in entries {
            let tag = entry.tag32(endian);
            if tag == Some(elf::DT_NULL) {
                break;
            }
            let wanted = [elf::DT_NEEDED, elf::DT_SONAME, elf::DT_RUNPATH, elf::DT_RPATH];
            let Some(tag) = tag.filter(|tag| wanted.contains(tag)) else { continue };
            let offset: u64 = entry.d_val(endian).into();
            let Ok(name) = strings.get(offset as u32) else { continue };
            let text = String::from_utf8_lossy(name).into_owned();
            match tag {
                elf::DT_NEEDED => facts.needed.push(text),
                elf::DT_SONAME => facts.soname = Some(text),
                _ => facts.run_paths.push(text),
            }
        }
    }
    let names = Names::of(&file, file.elf_dynamic_symbol_table());
    facts.exported = pick(file.dynamic_symbols(), &names, wanted);
    let names = Names::of(&file, file.elf_symbol_table());
    facts.internal = pick(file.symbols(), &names, wanted);
    Ok(facts)
}

/// The names of a table's symbols, which were read from the file at once: there may be 100,000, and `ObjectSymbol::name`
/// reads each by itself.
pub(crate) struct Names<'data>(StringTable<'data>);

impl<'data> Names<'data> {
    /// Those of a table that the file has; none if they can't be read.
    pub(crate) fn of<Header, Data>(
        file: &ElfFile<'data, Header, Data>,
        table: &SymbolTable<'data, Header, Data>,
    ) -> Names<'data>
    where
        Header: FileHeader<Endian = Endianness>,
        Data: ReadRef<'data>,
    {
        let section = file.elf_section_table().section(table.string_section());
        let bytes = section.and_then(|section| section.data(file.endian(), file.data()));
        let bytes = bytes.unwrap_or_default();
        Names(StringTable::new(bytes, 0, bytes.len() as u64))
    }

    /// None if it is no text.
    pub(crate) fn name<Header, Data>(&self, symbol: &ElfSymbol<'data, '_, Header, Data>) -> Option<&'data str>
    where
        Header: FileHeader<Endian = Endianness>,
        Data: ReadRef<'data>,
    {
        let raw = symbol.elf_symbol();
        std::str::from_utf8(self.0.get(raw.st_name(symbol.endian())).ok()?).ok()
    }
}

fn pick<'data: 'file, 'file, Header, Data>(
    symbols: impl Iterator<Item = ElfSymbol<'data, 'file, Header, Data>>,
    names: &Names<'data>,
    wanted: &dyn Fn(&str) -> bool,
) -> HashMap<String, u64>
where
    Header: FileHeader<Endian = Endianness>,
    Data: ReadRef<'data> + 'file,
{
    let defined = symbols.filter(|symbol| !symbol.is_undefined());
    let named = defined.filter_map(|symbol| Some((names.name(&symbol)?, symbol.address())));
    named.filter(|(name, _)| wanted(name)).map(|(name, address)| (name.to_string(), address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_is_dynamic_and_for_this_machine() {
        let own = std::env::current_exe().unwrap();
        let facts = read(&own, &|name| name == "main").unwrap().unwrap();
        assert_eq!(facts.bits as usize, 8 * std::mem::size_of::<usize>());
        assert!(facts.internal.contains_key("main"));
        if cfg!(target_env = "gnu") {
            assert!(facts.dynamic && facts.interpreter.is_some());
            assert!(facts.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", facts.needed);
            assert!(!facts.is_static_program());
        }
    }

    /// A file that counts how often it is read.
    struct Counted<'a>(File, &'a std::cell::Cell<u32>);

    impl std::io::Read for Counted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(buffer)
        }
    }

    impl std::io::Seek for Counted<'_> {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }

    /// Ours has some 100,000 symbols; a running program is looked at while its memory should be.
    #[test]
    fn however_many_symbols_there_are_reads_are_few() {
        let reads = std::cell::Cell::new(0);
        let cache = ReadCache::new(Counted(File::open(std::env::current_exe().unwrap()).unwrap(), &reads));
        let names = std::cell::Cell::new(0);
        let count = |_: &str| {
            names.set(names.get() + 1);
            false
        };
        facts::<elf::FileHeader64<Endianness>, _>(&cache, &count).unwrap();
        assert!(names.get() > 1000 && reads.get() < 100, "{} reads of {} names", reads.get(), names.get());
    }

    #[test]
    fn a_script_is_no_elf_file() {
        assert_eq!(read(Path::new("Cargo.toml"), &|_| true).unwrap(), None);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert!(read(Path::new("/nonexistent"), &|_| true).is_err());
    }
}
