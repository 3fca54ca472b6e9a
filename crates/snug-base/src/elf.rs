//! ELF files: the machine that one is for, what it needs, and which of the symbols that matter to us it defines. Knows
//! nothing of processes or of allocators' policies.

mod tables;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind};

use crate::elf::tables::{ElfLayout, SymbolsInFile};
use crate::file::open_regular;

#[cfg(any(test, feature = "testing"))]
pub use crate::elf::tables::fake;
pub use crate::elf::tables::name_in;
pub use crate::elf::tables::ElfHeaders;

/// The facts about one ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElfFacts {
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
    pub fn machine_name(&self) -> String {
        machine_name(self.machine, self.bits)
    }

    /// A program (or position-independent program) that the dynamic loader never touches.
    pub fn is_static_program(&self) -> bool {
        self.interpreter.is_none() && self.needed.is_empty()
    }
}

/// Name of a machine as Debian writes it.
pub fn machine_name(machine: u16, bits: u8) -> String {
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
pub fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<Option<ElfFacts>> {
    Ok(read_from(&open_regular(path)?, wanted))
}

/// The same of a file that is open.
pub fn read_from(file: &File, wanted: &dyn Fn(&str) -> bool) -> Option<ElfFacts> {
    let headers = ElfHeaders::of(file);
    let facts = match FileKind::parse(&headers) {
        Ok(FileKind::Elf64) => facts::<elf::FileHeader64<Endianness>>(&headers, file, wanted),
        Ok(FileKind::Elf32) => facts::<elf::FileHeader32<Endianness>>(&headers, file, wanted),
        _ => return None,
    };
    facts.ok()
}

/// A part of an ELF file of 64 bits that is loaded to be written, variables that begin as zero included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritableSegment {
    /// In the file.
    pub offset: u64,
    /// In memory.
    pub bytes: u64,
}

/// What the headers of an ELF file of 64 bits say.
pub type Elf64<'data, 'file> = ElfLayout<'data, 'file, elf::FileHeader64<Endianness>>;

/// What `look` finds in a file; nothing if it can't be read or is no ELF file of 64 bits.
fn find_in<T>(path: &Path, look: impl FnOnce(&Elf64) -> Vec<T>) -> Vec<T> {
    let Ok(file) = open_regular(path) else { return Vec::new() };
    let headers = ElfHeaders::of(&file);
    let found = Elf64::parse(&headers, &file).map(|layout| look(&layout));
    found.unwrap_or_default()
}

/// Reads what an ELF file has of these; nothing if it can't be read or is none.
pub fn writable_segments(path: &Path) -> Vec<WritableSegment> {
    find_in(path, |layout| {
        let endian = layout.endian;
        let written = layout.segments.iter().filter(|header| {
            header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian) & elf::PF_W != 0
        });
        written
            .map(|header| WritableSegment { offset: header.p_offset(endian), bytes: header.p_memsz(endian) })
            .collect()
    })
}

/// Functions that the dynamic loader sees as defined in an ELF file of 64 bits: names, addresses, sizes in bytes. Nothing
/// if it can't be read or is none.
pub fn exported_functions(path: &Path) -> Vec<(String, u64, u64)> {
    find_in(path, |layout| {
        let mut functions = Vec::new();
        layout.dynamic_symbols().for_each_named(
            |symbol| symbol.is_function,
            |symbol, name| functions.push((name.to_string(), symbol.address, symbol.size)),
        );
        functions
    })
}

fn facts<'file, Header: FileHeader<Endian = Endianness>>(
    headers: &ElfHeaders<&'file File>,
    file: &'file File,
    wanted: &dyn Fn(&str) -> bool,
) -> object::Result<ElfFacts> {
    let layout = ElfLayout::<Header>::parse(headers, file)?;
    let (data, endian, header, sections) = (layout.data, layout.endian, layout.header, &layout.sections);
    let mut facts = ElfFacts {
        machine: header.e_machine(endian),
        bits: if header.is_class_64() { 64 } else { 32 },
        position_independent: header.e_type(endian) == elf::ET_DYN,
        ..ElfFacts::default()
    };
    for segment in layout.segments {
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
    facts.exported = pick(&layout.dynamic_symbols(), wanted);
    facts.internal = pick(&layout.symbols(), wanted);
    Ok(facts)
}

/// The symbols that are defined and wanted, with their addresses.
fn pick(symbols: &SymbolsInFile, wanted: &dyn Fn(&str) -> bool) -> HashMap<String, u64> {
    let mut picked = HashMap::new();
    symbols.for_each_named(
        |_| true,
        |symbol, name| {
            if wanted(name) {
                picked.insert(name.to_string(), symbol.address);
            }
        },
    );
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

    /// Calls by which this thread has read so far. None: the kernel does not count them.
    fn reads() -> Option<u64> {
        let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        counts.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
    }

    /// Ours has some 100,000 symbols; a running program is looked at while its memory should be.
    #[test]
    fn however_many_symbols_there_are_reads_are_few() {
        let before = crate::need!(reads().ok_or("the kernel counts no reads of a thread"));
        let names = std::cell::Cell::new(0);
        let count = |_: &str| {
            names.set(names.get() + 1);
            false
        };
        read(&std::env::current_exe().unwrap(), &count).unwrap().unwrap();
        let reads = reads().unwrap() - before;
        assert!(names.get() > 1000 && reads < 100, "{reads} reads of {} names", names.get());
    }

    fn is_malloc(name: &str) -> bool {
        name.ends_with("malloc")
    }

    /// As large debug builds have them.
    #[test]
    fn tables_of_hundreds_of_megabytes_are_read() {
        let (symbols_bytes, names_bytes) = (240 << 20, 600 << 20);
        let symbols =
            [(5, "je_malloc", names_bytes - 10, 0x40_1000), (symbols_bytes / 24 - 1, "malloc", 1, 0x40_2000)];
        let file = fake::elf_file(symbols_bytes, names_bytes, &symbols);
        let facts = read_from(&file, &is_malloc).unwrap();
        assert_eq!((facts.machine, facts.bits, facts.first_load), (elf::EM_X86_64, 64, Some((0x40_0000, 0))));
        let found = symbols.map(|(_, name, _, address)| (name.to_string(), address));
        assert_eq!(facts.internal, HashMap::from(found));
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        assert_eq!(writable_segments(Path::new(&path)), [WritableSegment { offset: 0, bytes: 1 << 20 }]);
    }

    /// Linkers let a name be the end of another one, wherever that lies.
    #[test]
    fn names_are_found_all_over_their_table() {
        let (count, names_bytes) = (2000, 400 << 20);
        let names: Vec<String> = (0..count).map(|number| format!("{number}_malloc")).collect();
        let name_at = |number: u64| if number % 2 == 0 { 1 + 16 * number } else { names_bytes - 16 * number };
        let symbol =
            |number: u64| (number + 1, names[number as usize].as_str(), name_at(number), 0x40_0000 + number);
        let file = fake::elf_file(24 * (count + 1), names_bytes, &(0..count).map(symbol).collect::<Vec<_>>());
        let before = reads();
        let facts = read_from(&file, &is_malloc).unwrap();
        assert_eq!(facts.internal.len() as u64, count);
        assert_eq!(facts.internal["7_malloc"], 0x40_0007);
        let reads = reads().zip(before).map(|(after, before)| after - before);
        assert!(reads.is_none_or(|reads| reads < 50), "{reads:?} reads");
    }

    /// Such a file may be made on purpose.
    #[test]
    fn tables_without_an_end_are_read_to_some_point() {
        let (symbols_bytes, names_bytes) = (3 << 38, 1 << 38);
        let last = symbols_bytes / 24 - 1;
        let file =
            fake::elf_file(symbols_bytes, names_bytes, &[(1, "a_malloc", 1, 1), (last, "z_malloc", 20, 2)]);
        let facts = read_from(&file, &is_malloc).unwrap();
        assert_eq!(facts.internal, HashMap::from([("a_malloc".to_string(), 1)]));
    }

    #[test]
    fn a_script_is_no_elf_file() {
        assert_eq!(read(Path::new("Cargo.toml"), &|_| true).unwrap(), None);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert!(read(Path::new("/nonexistent"), &|_| true).is_err());
    }

    #[test]
    fn fuzzed_elf_files() {
        let mut sample = Vec::new();
        let file = fake::elf_file(48, 64, &[(1, "malloc", 1, 0x40_1000)]);
        std::io::Read::read_to_end(&mut &file, &mut sample).unwrap();
        let linked = std::fs::read("/bin/true").unwrap();
        crate::random::fuzz(&[&sample, &linked], |bytes| {
            let file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &file, bytes).unwrap();
            read_from(&file, &|_| true);
        });
    }
}
