//! The tables of an ELF file: its headers, which are in memory as a whole, and its symbols and their names, which are read
//! piece by piece, in some 30 MB at most. A debug build may have hundreds of MB of them, and a file may be made to say that
//! it has more.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::pod::{bytes_of_slice_mut, slice_from_all_bytes};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{elf, Endianness, ReadCache, ReadCacheOps, ReadRef};

/// Bytes of a file's headers that are read at most, and of what belongs to them. A file that says it has more is not looked
/// into.
const HEADERS_MAX_BYTES: u64 = 32 << 20;
/// So much of a table of symbols is in memory at a time: whole ones, whether they have 16 or 24 bytes.
const SYMBOLS_BYTES: u64 = 3 << 20;
/// Bytes of a table of symbols that are read at most: of 44,000,000.
const SYMBOLS_MAX_BYTES: u64 = 1 << 30;
/// Symbols whose names are looked up together, in the order in which the names are in the file. Linkers let a name be the
/// end of a longer one, wherever that is: in the order of the symbols each of these would be a jump.
const NAMED_TOGETHER: usize = 512 << 10;
/// So much of a table of names is in memory at a time.
const NAMES_BYTES: u64 = 8 << 20;
/// A longer name counts as none.
const NAME_MAX_BYTES: u64 = 64 << 10;
/// The same of one that is looked up alone, as nearly all are shorter.
const NAME_BYTES: u64 = 256;
/// Pieces that are read of a table of names at most: 16 GB, all of a table of 800 MB twenty times, as 10,000,000 symbols may
/// take.
const NAMES_PIECES_MAX: u32 = 2048;

/// The headers of a file, read as they are asked for, up to `HEADERS_MAX_BYTES` in all.
pub struct ElfHeaders<Source: ReadCacheOps> {
    cache: ReadCache<Source>,
    left_bytes: Cell<u64>,
}

impl<Source: ReadCacheOps> ElfHeaders<Source> {
    pub fn of(file: Source) -> ElfHeaders<Source> {
        ElfHeaders { cache: ReadCache::new(file), left_bytes: Cell::new(HEADERS_MAX_BYTES) }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.left_bytes.set(self.left_bytes.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'data, Source: ReadCacheOps> ReadRef<'data> for &'data ElfHeaders<Source> {
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

/// What the headers of an ELF file say. Its symbols are not read.
pub struct ElfLayout<'data, 'file, Header: FileHeader<Endian = Endianness>> {
    pub data: &'data ElfHeaders<&'file File>,
    file: &'file File,
    pub endian: Endianness,
    pub header: &'data Header,
    pub segments: &'data [Header::ProgramHeader],
    pub sections: SectionTable<'data, Header, &'data ElfHeaders<&'file File>>,
}

impl<'data, 'file, Header: FileHeader<Endian = Endianness>> ElfLayout<'data, 'file, Header> {
    /// `data` are the headers of the file.
    pub fn parse(
        data: &'data ElfHeaders<&'file File>,
        file: &'file File,
    ) -> object::Result<ElfLayout<'data, 'file, Header>> {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, data)?;
        let sections = header.sections(endian, data)?;
        Ok(ElfLayout { data, file, endian, header, segments, sections })
    }

    /// Those that the dynamic loader sees.
    pub fn dynamic_symbols(&self) -> SymbolsInFile<'file> {
        self.symbols_of(elf::SHT_DYNSYM)
    }

    /// All; none if the file is stripped.
    pub fn symbols(&self) -> SymbolsInFile<'file> {
        self.symbols_of(elf::SHT_SYMTAB)
    }

    fn symbols_of(&self, section_type: u32) -> SymbolsInFile<'file> {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let place = |section: &Header::SectionHeader| {
            let (start, bytes) = section.file_range(self.endian)?;
            Some(start.min(length)..start.saturating_add(bytes).min(length))
        };
        let section = self.sections.iter().find(|section| section.sh_type(self.endian) == section_type);
        let names = section.and_then(|section| self.sections.section(section.link(self.endian)).ok());
        SymbolsInFile {
            file: self.file,
            endian: self.endian,
            parse: parse::<Header::Sym>,
            symbols: section.and_then(place).unwrap_or_default(),
            names: names.and_then(place).unwrap_or_default(),
        }
    }
}

/// A table of symbols of a file, and that of their names. Those that are defined elsewhere are left out.
pub struct SymbolsInFile<'file> {
    file: &'file File,
    endian: Endianness,
    parse: fn(&[u8], Endianness, &mut dyn FnMut(FoundSymbol)),
    symbols: Range<u64>,
    names: Range<u64>,
}

/// A symbol that is defined in its file.
#[derive(Debug, Clone, Copy)]
pub struct FoundSymbol {
    /// In the table of names.
    name_at: u32,
    pub is_function: bool,
    pub address: u64,
    pub size: u64,
}

/// Reads some symbols as they are in the file.
fn parse<S: Sym<Endian = Endianness>>(bytes: &[u8], endian: Endianness, found: &mut dyn FnMut(FoundSymbol)) {
    let whole = bytes.len() - bytes.len() % size_of::<S>();
    let symbols = slice_from_all_bytes::<S>(&bytes[..whole]).unwrap_or_default();
    for symbol in symbols.iter().filter(|symbol| !symbol.is_undefined(endian)) {
        found(FoundSymbol {
            name_at: symbol.st_name(endian),
            is_function: symbol.st_type() == elf::STT_FUNC && symbol.is_definition(endian),
            address: symbol.st_value(endian).into(),
            size: symbol.st_size(endian).into(),
        });
    }
}

impl SymbolsInFile<'_> {
    /// Reads them all, in their order, up to `SYMBOLS_MAX_BYTES`. What can't be read ends it.
    pub fn for_each(&self, mut found: impl FnMut(FoundSymbol)) {
        let end = self.symbols.end.min(self.symbols.start.saturating_add(SYMBOLS_MAX_BYTES));
        let bytes_at = |at: u64| (end - at).min(SYMBOLS_BYTES);
        let mut at = self.symbols.start;
        // Of numbers: symbols must lie in memory as these do.
        let mut words = vec![0_u64; bytes_at(at).div_ceil(8) as usize];
        while at < end {
            let piece = &mut bytes_of_slice_mut(&mut words)[..bytes_at(at) as usize];
            if self.file.read_exact_at(piece, at).is_err() {
                return;
            }
            (self.parse)(piece, self.endian, &mut found);
            at += piece.len() as u64;
        }
    }

    /// Reads those that are chosen, with their names. Two of the same name are told in their order.
    pub fn for_each_named(
        &self,
        choose: impl Fn(&FoundSymbol) -> bool,
        mut found: impl FnMut(&FoundSymbol, &str),
    ) {
        let mut names = Names::of(self.file, self.names.clone());
        let mut chosen: Vec<FoundSymbol> = Vec::new();
        let mut tell = |chosen: &mut Vec<FoundSymbol>| {
            chosen.sort_by_key(|symbol| symbol.name_at);
            for symbol in chosen.drain(..) {
                if let Some(name) = names.at(symbol.name_at.into()) {
                    found(&symbol, name);
                }
            }
        };
        self.for_each(|symbol| {
            if choose(&symbol) {
                chosen.push(symbol);
            }
            if chosen.len() == NAMED_TOGETHER {
                tell(&mut chosen);
            }
        });
        tell(&mut chosen);
    }

    /// Where the name of one begins in the file, for `name_in`.
    pub fn name_place(&self, symbol: &FoundSymbol) -> u64 {
        self.names.start.saturating_add(symbol.name_at.into())
    }
}

/// The name that begins at a place of a file. None if it is no text, or can't be read.
pub fn name_in(file: &File, place: u64) -> Option<String> {
    let mut name = Vec::new();
    for bytes in [NAME_BYTES, NAME_MAX_BYTES] {
        name.resize(bytes as usize, 0);
        let length = file.read_at(&mut name, place).ok()?;
        if let Some(end) = name[..length].iter().position(|byte| *byte == 0) {
            name.truncate(end);
            return String::from_utf8(name).ok();
        }
    }
    None
}

/// A table of names, which is read in large pieces.
struct Names<'file> {
    file: &'file File,
    /// Where they are in the file.
    range: Range<u64>,
    /// What was read last, and where it begins.
    piece: Vec<u8>,
    piece_at: u64,
    pieces_left: u32,
}

impl<'file> Names<'file> {
    fn of(file: &'file File, range: Range<u64>) -> Names<'file> {
        Names { file, range, piece: Vec::new(), piece_at: 0, pieces_left: NAMES_PIECES_MAX }
    }

    /// The name that begins at an offset in their table. None if it is no text, or can't be read.
    fn at(&mut self, offset: u64) -> Option<&str> {
        let at = self.range.start.checked_add(offset).filter(|at| self.range.contains(at))?;
        let end = at.saturating_add(NAME_MAX_BYTES).min(self.range.end);
        if at < self.piece_at || end > self.piece_at + self.piece.len() as u64 {
            self.read_piece(at)?;
        }
        let bytes = &self.piece[(at - self.piece_at) as usize..(end - self.piece_at) as usize];
        let length = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..length]).ok()
    }

    fn read_piece(&mut self, at: u64) -> Option<()> {
        self.pieces_left = self.pieces_left.checked_sub(1)?;
        self.piece_at = at;
        self.piece.resize(NAMES_BYTES.min(self.range.end - at) as usize, 0);
        let read = self.file.read_exact_at(&mut self.piece, at);
        read.inspect_err(|_| self.piece.clear()).ok()
    }
}

/// ELF files that tests make up.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod fake {
    use super::*;

    /// A symbol: its place in the table, name and where that is in its table, address.
    pub type FakeSymbol<'a> = (u64, &'a str, u64, u64);

    /// A program of 64 bits with tables of symbols and names that are so long, and have holes wherever nothing is. All
    /// symbols are functions of 16 bytes, in a segment of 1 MiB that is written to and lies at 0x400000.
    pub fn elf_file(symbols_bytes: u64, names_bytes: u64, symbols: &[FakeSymbol]) -> File {
        const TABLES_AT: u64 = 4096;
        let file = tempfile::tempfile().unwrap();
        let names_at = TABLES_AT + symbols_bytes;
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // Pairs of halves, and quarters.
        let two = |low: u64, high: u64| low | (high << 32);
        let four = |parts: [u64; 4]| parts.iter().rev().fold(0, |word, part| (word << 16) | part);
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        head.extend(words(&[
            two(four([elf::ET_EXEC.into(), elf::EM_X86_64.into(), 0, 0]), 1),
            0,
            64,
            120,
            two(0, four([64, 56, 0, 0])),
            four([1, 64, 3, 2]),
        ]));
        head.extend(words(&[two(elf::PT_LOAD.into(), 7), 0, 0x40_0000, 0x40_0000, 1 << 20, 1 << 20, 4096]));
        let section = |kind: u32, at, bytes, link: u64, entry| {
            words(&[two(0, kind.into()), 0, 0, at, bytes, link, 8, entry])
        };
        head.extend(section(elf::SHT_NULL, 0, 0, 0, 0));
        head.extend(section(elf::SHT_SYMTAB, TABLES_AT, symbols_bytes, 2, 24));
        head.extend(section(elf::SHT_STRTAB, names_at, names_bytes, 0, 0));
        file.write_all_at(&head, 0).unwrap();
        for (index, name, name_at, address) in symbols {
            let info = u64::from((elf::STB_GLOBAL << 4) | elf::STT_FUNC);
            let symbol = words(&[two(*name_at, four([info, 1, 0, 0])), *address, 16]);
            file.write_all_at(&symbol, TABLES_AT + 24 * index).unwrap();
            file.write_all_at(name.as_bytes(), names_at + name_at).unwrap();
        }
        file.set_len(names_at + names_bytes).unwrap();
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_pieces() {
        let file = tempfile::tempfile().unwrap();
        let (start, bytes) = (64, 3 * NAMES_BYTES);
        let offsets = [1, NAMES_BYTES / 2 - 2, NAMES_BYTES - 3, 2 * NAMES_BYTES, 5];
        offsets.iter().for_each(|offset| file.write_all_at(b"malloc", start + offset).unwrap());
        file.set_len(start + bytes).unwrap();
        let mut names = Names::of(&file, start..start + bytes);
        for offset in &offsets[1..] {
            assert_eq!(names.at(*offset), Some("malloc"), "at {offset}");
            assert!(names.piece.len() as u64 <= NAMES_BYTES);
        }
        assert_eq!(names.at(1), Some("mallmalloc"));
        assert_eq!(names.at(bytes), None);
        assert_eq!(names.pieces_left, NAMES_PIECES_MAX - 4);
        assert_eq!(name_in(&file, start + 1).as_deref(), Some("mallmalloc"));
        assert_eq!(name_in(&file, start + bytes), None);
        names.pieces_left = 0;
        assert_eq!(names.at(2 * NAMES_BYTES), None);
    }

    /// Such a file may be made on purpose.
    #[test]
    fn headers_that_would_fill_the_memory_are_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let headers = ElfHeaders::of(&file);
        assert_eq!(headers.read_bytes_at(0, 1 << 36), Err(()));
        assert_eq!(headers.read_bytes_at(1 << 39, 1 << 20).map(<[u8]>::len), Ok(1 << 20));
        let read = (0..64_u64).filter(|piece| headers.read_bytes_at(piece << 20, 1 << 20).is_ok()).count();
        assert_eq!(read as u64 + 1, HEADERS_MAX_BYTES >> 20);
    }
}
