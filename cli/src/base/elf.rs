//! What an ELF file says about itself: for which machine it is, what it needs, and which of the symbols that
//! matter to us it defines. Knows nothing of processes or of allocators' policies.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf;
use object::read::elf::{
    Dyn, ElfFile, ElfSymbol, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable,
};
use object::{Endianness, FileKind, Object, ObjectSymbol, ReadCache, ReadCacheOps, ReadRef, SymbolKind};

use super::file::open_regular;

/// Bytes of a file's headers and tables that are read at most: of some 1,300,000 symbols. A file that says it has more
/// is not looked into, as it may be made to fill the memory of who looks.
const TABLES_MAX_BYTES: u64 = 32 << 20;
/// So much of a table of names is in memory at a time; the next piece begins in the middle of this one or behind it.
const NAMES_BYTES: u64 = 8 << 20;
/// A longer name counts as none.
const NAME_MAX_BYTES: u64 = 64 << 10;
/// Pieces that are read of a table of names at most: of 1 GB, where names are in the order of their symbols.
const NAMES_PIECES_MAX: u32 = 256;

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
    Ok(read_from(&open_regular(path)?, wanted))
}

/// The same of a file that is open.
pub(crate) fn read_from(file: &File, wanted: &dyn Fn(&str) -> bool) -> Option<ElfFacts> {
    let tables = Tables::of(file);
    let facts = match FileKind::parse(&tables) {
        Ok(FileKind::Elf64) => facts::<elf::FileHeader64<Endianness>, _>(&tables, file, wanted),
        Ok(FileKind::Elf32) => facts::<elf::FileHeader32<Endianness>, _>(&tables, file, wanted),
        _ => return None,
    };
    facts.ok()
}

/// The headers and tables of a file, read as they are asked for, up to `TABLES_MAX_BYTES` in all.
pub(crate) struct Tables<Source: ReadCacheOps> {
    cache: ReadCache<Source>,
    left_bytes: Cell<u64>,
}

impl<Source: ReadCacheOps> Tables<Source> {
    pub(crate) fn of(file: Source) -> Tables<Source> {
        Tables { cache: ReadCache::new(file), left_bytes: Cell::new(TABLES_MAX_BYTES) }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.left_bytes.set(self.left_bytes.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'data, Source: ReadCacheOps> ReadRef<'data> for &'data Tables<Source> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        let found = self.cache.read_bytes_at_until(range, delimiter)?; // 4 KiB at most
        self.take(found.len() as u64)?;
        Ok(found)
    }
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
type Elf64<'data, 'file> = ElfFile<'data, elf::FileHeader64<Endianness>, &'data Tables<&'file File>>;

/// What `look` finds in a file; nothing if it can't be read or is no ELF file of 64 bits.
fn find_in<T>(path: &Path, look: impl FnOnce(&Elf64, &File) -> Vec<T>) -> Vec<T> {
    let Ok(opened) = open_regular(path) else { return Vec::new() };
    let tables = Tables::of(&opened);
    let found = Elf64::parse(&tables).map(|file| look(&file, &opened));
    found.unwrap_or_default()
}

/// Reads what an ELF file has of these; nothing if it can't be read or is none.
pub(crate) fn writable_segments(path: &Path) -> Vec<WritableSegment> {
    find_in(path, |file, _| {
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
    find_in(path, |file, opened| {
        let mut names = Names::of(file, file.elf_dynamic_symbol_table(), opened);
        let functions = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        let named = functions
            .filter_map(|symbol| Some((names.name(&symbol)?.to_string(), symbol.address(), symbol.size())));
        named.collect()
    })
}

fn facts<'data, Header, Data>(
    data: Data,
    opened: &File,
    wanted: &dyn Fn(&str) -> bool,
) -> object::Result<ElfFacts>
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
    let names = Names::of(&file, file.elf_dynamic_symbol_table(), opened);
    facts.exported = pick(file.dynamic_symbols(), names, wanted);
    let names = Names::of(&file, file.elf_symbol_table(), opened);
    facts.internal = pick(file.symbols(), names, wanted);
    Ok(facts)
}

/// The names of a table's symbols, which are read from the file in large pieces: they may have hundreds of MB, and
/// `ObjectSymbol::name` reads each by itself, of which there may be 100,000.
pub(crate) struct Names<'file> {
    file: &'file File,
    /// Where they are in the file.
    range: Range<u64>,
    /// What was read last, and where it begins.
    piece: Vec<u8>,
    piece_at: u64,
    pieces_left: u32,
}

impl<'file> Names<'file> {
    /// Those of a table that the file has; none if they can't be read. `opened` is the same file.
    pub(crate) fn of<'data, Header, Data>(
        file: &ElfFile<'data, Header, Data>,
        table: &SymbolTable<'data, Header, Data>,
        opened: &'file File,
    ) -> Names<'file>
    where
        Header: FileHeader<Endian = Endianness>,
        Data: ReadRef<'data>,
    {
        let section = file.elf_section_table().section(table.string_section()).ok();
        let range = section.and_then(|section| section.file_range(file.endian()));
        let length = opened.metadata().map_or(0, |metadata| metadata.len());
        let range = range.map_or(0..0, |(start, size)| start..start.saturating_add(size).min(length));
        Names { file: opened, range, piece: Vec::new(), piece_at: 0, pieces_left: NAMES_PIECES_MAX }
    }

    /// None if it is no text, or can't be read.
    pub(crate) fn name<'data, Header, Data>(
        &mut self,
        symbol: &ElfSymbol<'data, '_, Header, Data>,
    ) -> Option<&str>
    where
        Header: FileHeader<Endian = Endianness>,
        Data: ReadRef<'data>,
    {
        self.at(symbol.elf_symbol().st_name(symbol.endian()).into())
    }

    /// The name that begins at an offset in their table.
    fn at(&mut self, offset: u64) -> Option<&str> {
        let at = self.range.start.checked_add(offset).filter(|at| self.range.contains(at))?;
        let end = at.saturating_add(NAME_MAX_BYTES).min(self.range.end);
        if at < self.piece_at || end > self.piece_at + self.piece.len() as u64 {
            self.read_piece(offset - offset % (NAMES_BYTES / 2))?;
        }
        let bytes = &self.piece[(at - self.piece_at) as usize..(end - self.piece_at) as usize];
        let length = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..length]).ok()
    }

    fn read_piece(&mut self, offset: u64) -> Option<()> {
        self.pieces_left = self.pieces_left.checked_sub(1)?;
        self.piece_at = self.range.start + offset;
        self.piece.resize(NAMES_BYTES.min(self.range.end - self.piece_at) as usize, 0);
        let read = self.file.read_exact_at(&mut self.piece, self.piece_at);
        read.inspect_err(|_| self.piece.clear()).ok()
    }
}

/// The symbols that are defined and wanted, with their addresses.
fn pick<'data: 'file, 'file, Header, Data>(
    symbols: impl Iterator<Item = ElfSymbol<'data, 'file, Header, Data>>,
    mut names: Names,
    wanted: &dyn Fn(&str) -> bool,
) -> HashMap<String, u64>
where
    Header: FileHeader<Endian = Endianness>,
    Data: ReadRef<'data> + 'file,
{
    let mut picked = HashMap::new();
    for symbol in symbols.filter(|symbol| !symbol.is_undefined()) {
        if let Some(name) = names.name(&symbol).filter(|name| wanted(name)) {
            picked.insert(name.to_string(), symbol.address());
        }
    }
    picked
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
            std::io::Read::read(&mut self.0, buffer)
        }
    }

    impl std::io::Seek for Counted<'_> {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            std::io::Seek::seek(&mut self.0, to)
        }
    }

    /// Ours has some 100,000 symbols; a running program is looked at while its memory should be.
    #[test]
    fn however_many_symbols_there_are_reads_are_few() {
        let reads = std::cell::Cell::new(0);
        let open = || File::open(std::env::current_exe().unwrap()).unwrap();
        let tables = Tables::of(Counted(open(), &reads));
        let names = std::cell::Cell::new(0);
        let count = |_: &str| {
            names.set(names.get() + 1);
            false
        };
        facts::<elf::FileHeader64<Endianness>, _>(&tables, &open(), &count).unwrap();
        assert!(names.get() > 1000 && reads.get() < 100, "{} reads of {} names", reads.get(), names.get());
    }

    #[test]
    fn names_are_read_in_pieces() {
        let file = tempfile::tempfile().unwrap();
        let (start, bytes) = (64, 3 * NAMES_BYTES);
        let offsets = [1, NAMES_BYTES / 2 - 2, NAMES_BYTES - 3, 2 * NAMES_BYTES, 5];
        offsets.iter().for_each(|offset| file.write_all_at(b"malloc", start + offset).unwrap());
        file.set_len(start + bytes).unwrap();
        let mut names = Names {
            file: &file,
            range: start..start + bytes,
            piece: Vec::new(),
            piece_at: 0,
            pieces_left: NAMES_PIECES_MAX,
        };
        for offset in &offsets[1..] {
            assert_eq!(names.at(*offset), Some("malloc"), "at {offset}");
            assert!(names.piece.len() as u64 <= NAMES_BYTES);
        }
        assert_eq!(names.at(1), Some("mallmalloc"));
        assert_eq!(names.at(bytes), None);
        assert_eq!(names.pieces_left, NAMES_PIECES_MAX - 4);
        names.pieces_left = 0;
        assert_eq!(names.at(2 * NAMES_BYTES), None);
    }

    /// Such a file may be made on purpose.
    #[test]
    fn tables_that_would_fill_the_memory_are_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let tables = Tables::of(&file);
        assert_eq!(tables.read_bytes_at(0, 1 << 36), Err(()));
        assert_eq!(tables.read_bytes_at(1 << 39, 1 << 20).map(<[u8]>::len), Ok(1 << 20));
        let read = (0..64_u64).filter(|piece| tables.read_bytes_at(piece << 20, 1 << 20).is_ok()).count();
        assert_eq!(read as u64 + 1, TABLES_MAX_BYTES >> 20);
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
