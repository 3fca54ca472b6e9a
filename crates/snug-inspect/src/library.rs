//! Finding the shared library of an allocator and its version.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::kinds::{is_telling_symbol, Kind, ROWS};
use crate::packages::{self, Package};
use snug_base::elf::{self, ElfFacts};
use snug_base::failure::{Failure, Result, NOT_STARTED};
use snug_base::file::open_regular;

/// A shared library of an allocator on this machine.
#[derive(Debug, Clone)]
pub struct Library {
    pub kind: Kind,
    /// Absolute, without links: as the kernel shows it in `/proc/PID/maps`.
    pub path: PathBuf,
    pub elf: ElfFacts,
}

impl Library {
    /// The package that has such a library; None if it was built, or is of a package that we don't name.
    pub fn package(&self) -> Option<Package> {
        let package = packages::package(self.kind.row()?)?;
        (self.elf.soname.as_ref() == Some(&package.soname)).then_some(package)
    }
}

/// Directories in which the loader looks, in its order, for any architecture's layout.
const SYSTEM_DIRECTORIES: &[&str] = &[
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Where libsnug.so may lie, best first: SNUG_LIBRARY alone when it is set, else beside the tool, then in the
/// lib directory next to it. A path without a directory would be looked up by the loader: not what was meant.
fn snug_candidates(executable: &Path, variable: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(path) = variable.filter(|path| !path.is_empty()) {
        return vec![PathBuf::from(path)];
    }
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let mut directories = vec![beside.to_path_buf(), beside.join("../lib"), beside.join("../lib/snug")];
    if beside.ends_with("build/release") {
        directories.push(beside.join("..")); // where make leaves it
    }
    let names = ["libsnug.so", "libsnug.so.0"];
    directories.iter().flat_map(|directory| names.map(|name| directory.join(name))).collect()
}

/// Where this program lies; without /proc, by the name that it was started by.
pub(crate) fn own_path() -> PathBuf {
    let by_name = || {
        let name = PathBuf::from(std::env::args_os().next()?);
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        let place = match name.components().count() {
            1 => std::env::split_paths(&search_path)
                .map(|folder| folder.join(&name))
                .find(|path| path.is_file())?,
            _ => name,
        };
        place.canonicalize().ok()
    };
    std::env::current_exe().ok().or_else(by_name).unwrap_or_default()
}

/// Finds libsnug.so.
pub fn find_snug() -> Result<Library> {
    let executable = own_path();
    let variable = std::env::var_os("SNUG_LIBRARY");
    let candidates = snug_candidates(&executable, variable.as_deref());
    if let Some(found) = candidates.iter().find(|candidate| candidate.exists()) {
        return open(found);
    }
    let looked: Vec<_> = candidates.iter().map(|candidate| format!("  {}", candidate.display())).collect();
    let failure = Failure::new(format!("libsnug.so not found; looked for\n{}", looked.join("\n")));
    let advice = match variable {
        Some(_) => "SNUG_LIBRARY must be the path of libsnug.so itself, or unset",
        None => "set SNUG_LIBRARY to the path of libsnug.so, or put it beside the program `snug`",
    };
    Err(failure.advise(advice).exit_code(NOT_STARTED))
}

/// Where the loader looks for libraries.
fn directories() -> Vec<PathBuf> {
    let search_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let first = search_path.as_bytes().split(|byte| b":;".contains(byte)).filter(|part| !part.is_empty());
    let system = SYSTEM_DIRECTORIES.iter().map(OsStr::new);
    first.map(OsStr::from_bytes).chain(system).map(PathBuf::from).collect()
}

/// Every library of an allocator that lies where the loader looks, each once.
pub fn find_all() -> Vec<Library> {
    let directories = directories();
    let mut found: Vec<Library> = Vec::new();
    for row in ROWS {
        for (name, directory) in
            row.file_names.iter().flat_map(|name| directories.iter().map(move |d| (name, d)))
        {
            let library =
                Some(directory.join(name)).filter(|path| path.exists()).and_then(|path| open(&path).ok());
            if let Some(library) =
                library.filter(|library| found.iter().all(|other| other.path != library.path))
            {
                found.push(library);
            }
        }
    }
    found
}

/// Finds an allocator's library by its name, as the loader would.
pub fn find_by_kind(kind: Kind) -> Result<Library> {
    if kind == Kind::Snug {
        return find_snug();
    }
    let Some(row) = kind.row() else {
        return Err(Failure::new("this allocator has no usual file name; give the path of its library"));
    };
    let Some(first_name) = row.file_names.first() else {
        return Err(Failure::new(format!("{} is a C library's own: there is nothing to load", row.name)));
    };
    let directories = directories();
    for name in row.file_names {
        for directory in &directories {
            let path = directory.join(name);
            if !path.exists() {
                continue;
            }
            let library = open(&path)?;
            // snug comes under jemalloc's file name, too: by its name alone it would be compared with itself.
            if library.kind != Kind::Snug {
                return Ok(library);
            }
        }
    }
    Err(Failure::new(format!(
        "{} is not installed: no {} in the system's library directories or LD_LIBRARY_PATH",
        row.name, first_name
    ))
    .advise(format!(
        "install it ({}), or give the path of its library instead of its name",
        packages::install(row)
    )))
}

/// Opens a library by its path and finds out what it is.
pub fn open(path: &Path) -> Result<Library> {
    let failed = |why: String| Failure::new(format!("cannot preload {}: {why}", path.display()));
    let path_full = std::fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
    let elf = elf::read(&path_full, &is_telling_symbol)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed("it is not an ELF file".into()))?;
    if elf.interpreter.is_some() && elf.soname.is_none() {
        return Err(failed("it is a program, not a shared library".into()));
    }
    if !elf.dynamic {
        return Err(failed("it is not a shared library".into()).advise("give the path of a .so file"));
    }
    if !elf.exported.contains_key("malloc") {
        return Err(failed("it does not define malloc, so it is not an allocator".into()).advise(
            "some builds prefix their functions (je_malloc, mi_malloc): use one built without a prefix",
        ));
    }
    let by_symbols =
        Kind::from_symbols(elf.exported.keys().map(String::as_str)).filter(|kind| !kind.is_c_library());
    let kind = by_symbols.or(Kind::from_file_name(&path_full.to_string_lossy())).unwrap_or(Kind::Other);
    Ok(Library { kind, path: path_full, elf })
}

/// LD_PRELOAD with a library in front of what was there. A library that is named already is not repeated.
pub fn prepend_preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let library = library.as_os_str().as_bytes();
    let others = existing.unwrap_or_default().as_bytes().split(|byte| b": ".contains(byte));
    let kept = others.filter(|path| !path.is_empty() && *path != library);
    let all: Vec<&[u8]> = std::iter::once(library).chain(kept).collect();
    OsString::from_vec(all.join(&b':'))
}

/// Why LD_PRELOAD can't hold a path: it separates its entries by colons and spaces and knows no quoting.
pub fn unusable_in_preload(library: &Path) -> Option<Failure> {
    let path = library.to_string_lossy();
    path.contains([':', ' '])
        .then(|| Failure::new(format!("LD_PRELOAD can't hold a path with a colon or a space: {path}")))
}

/// The version of an allocator's library or of a program it is linked into, as far as the file tells.
pub fn version(kind: Kind, path: &Path) -> Option<String> {
    let file = open_regular(path).ok()?;
    let by_content = match kind {
        Kind::Jemalloc => search(file, find_jemalloc_version),
        Kind::Tcmalloc => search(file, |content| find_after(content, b"gperftools ")),
        Kind::Glibc => search(file, |content| find_after(content, b"stable release version ")),
        Kind::Snug => search(file, |content| find_after(content, b"snug version ")),
        Kind::Mimalloc => find_mimalloc_version(&file),
        _ => None,
    };
    by_content.or_else(|| version_from_file_name(path))
}

/// Bytes of a file that are in memory at once while a version is looked for. A program may have hundreds of MB, and who
/// looks a container of 64 MiB.
const WINDOW_BYTES: u64 = 1 << 20;
/// More than a version takes with the text by which it is found: so much of a window is in the next one, too.
const OVERLAP_BYTES: usize = 256;
/// Where the search ends.
const SEARCH_MAX_BYTES: u64 = 512 << 20;

/// What `find` finds first in a file. It must not take what the end of the content cuts off.
fn search(file: impl Read, find: impl Fn(&[u8]) -> Option<String>) -> Option<String> {
    let mut file = file.take(SEARCH_MAX_BYTES);
    let mut window = Vec::with_capacity(OVERLAP_BYTES + WINDOW_BYTES as usize);
    while file.by_ref().take(WINDOW_BYTES).read_to_end(&mut window).ok()? > 0 {
        if let Some(found) = find(&window) {
            return Some(found);
        }
        window.drain(..window.len().saturating_sub(OVERLAP_BYTES));
    }
    None
}

/// jemalloc keeps "5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c" among its strings.
fn find_jemalloc_version(content: &[u8]) -> Option<String> {
    let mut rest = content;
    while let Some(at) = find(rest, b"-g") {
        let hash_end = at + 2 + rest[at + 2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hash_end - at - 2 >= 40 {
            let is_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.' || **byte == b'-';
            let length = rest[..at].iter().rev().take_while(is_version).count();
            let text = String::from_utf8_lossy(&rest[at - length..at]).into_owned();
            let version = text.split('-').next().unwrap_or_default().to_string();
            if version.matches('.').count() == 2 && !version.starts_with('.') {
                return Some(version);
            }
        }
        rest = &rest[at + 2..];
    }
    None
}

/// mimalloc's `mi_version` returns a constant: 209 is 2.0.9, 20201 (from 2.2.1 on) 2.2.1, 3 digits before.
fn find_mimalloc_version(file: &File) -> Option<String> {
    let facts = elf::read_from(file, &|name| name == "mi_version")?;
    let address = *facts.exported.get("mi_version")?;
    // Text is usually mapped at its file offset; if it is not here, the bytes do not look like the function.
    let mut code = [0; 16];
    file.read_exact_at(&mut code, address).ok()?;
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(&code);
    let number = match code {
        [0xb8, a, b, c, d, 0xc3, ..] => u32::from_le_bytes([*a, *b, *c, *d]),
        [a, b, c, d, 0xc0, 0x03, 0x5f, 0xd6, ..] => {
            let instruction = u32::from_le_bytes([*a, *b, *c, *d]);
            (instruction & 0xffe0_001f == 0x5280_0000).then_some((instruction >> 5) & 0xffff)?
        }
        _ => return None,
    };
    mimalloc_version(number)
}

fn mimalloc_version(number: u32) -> Option<String> {
    match number {
        100..=999 => Some(format!("{}.{}.{}", number / 100, number / 10 % 10, number % 10)),
        10000..=99999 => Some(format!("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)),
        _ => None,
    }
}

/// The version number that follows a text in a file, and ends in it.
fn find_after(content: &[u8], text: &[u8]) -> Option<String> {
    let mut rest = content;
    while let Some(at) = find(rest, text) {
        rest = &rest[at + text.len()..];
        let is_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let length = rest.iter().position(|byte| !is_version(&byte))?;
        let found = String::from_utf8_lossy(&rest[..length]).trim_end_matches('.').to_string();
        if !found.is_empty() {
            return Some(found);
        }
    }
    None
}

fn find(content: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut start = 0;
    while let Some(at) = content[start..].iter().position(|byte| *byte == first) {
        if content[start + at..].starts_with(text) {
            return Some(start + at);
        }
        start += at + 1;
    }
    None
}

/// libtcmalloc_minimal.so.4.5.10 is 4.5.10 at least as a library.
fn version_from_file_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let suffix = name.split_once(".so.")?.1;
    suffix.contains('.').then(|| format!("library {suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snug_is_looked_for_beside_the_tool_first() {
        let candidates = snug_candidates(Path::new("/opt/snug/bin/snug"), None);
        assert_eq!(candidates[0], Path::new("/opt/snug/bin/libsnug.so"));
        assert!(candidates.contains(&PathBuf::from("/opt/snug/bin/../lib/libsnug.so")));
        assert!(candidates.contains(&PathBuf::from("/opt/snug/bin/../lib/snug/libsnug.so.0")));
        assert_eq!(
            snug_candidates(Path::new("/x/snug"), Some("/y/l.so".as_ref())),
            [PathBuf::from("/y/l.so")]
        );
        assert_eq!(snug_candidates(Path::new("/x/snug"), Some("".as_ref())).len(), 6);
    }

    #[test]
    fn preloads_are_kept() {
        let library = Path::new("/l/libsnug.so");
        assert_eq!(prepend_preload(library, None), "/l/libsnug.so");
        assert_eq!(prepend_preload(library, Some("/a.so /b.so".as_ref())), "/l/libsnug.so:/a.so:/b.so");
        assert_eq!(prepend_preload(library, Some("/a.so:/l/libsnug.so".as_ref())), "/l/libsnug.so:/a.so");
    }

    #[test]
    fn versions_inside_files() {
        let text = b"\0foo-gbar\x005.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0";
        assert_eq!(find_jemalloc_version(text), Some("5.3.0".into()));
        assert_eq!(find_jemalloc_version(b"no version-g123"), None);
        assert_eq!(find_after(b"xx gperftools 2.10\0", b"gperftools "), Some("2.10".into()));
        assert_eq!(find_after(b"gperftools is; gperftools 2.9.\0", b"gperftools "), Some("2.9".into()));
        assert_eq!(mimalloc_version(209), Some("2.0.9".into()));
        assert_eq!(mimalloc_version(20201), Some("2.2.1".into()));
        assert_eq!(version_from_file_name(Path::new("/l/libx.so.4.5.10")), Some("library 4.5.10".into()));
        assert_eq!(version_from_file_name(Path::new("/l/libx.so.4")), None);
    }

    /// Counts what is read, and asks that it be read in pieces.
    struct CountedBytes(File, std::rc::Rc<std::cell::Cell<u64>>);

    impl Read for CountedBytes {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(buffer.len() as u64 <= 2 * WINDOW_BYTES, "{} bytes at once", buffer.len());
            let read = self.0.read(buffer)?;
            self.1.set(self.1.get() + read as u64);
            Ok(read)
        }
    }

    #[test]
    fn a_large_file_is_searched_in_pieces() {
        let text = b"\0snug version 12.34.56\0";
        let hash = b"\x005.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0";
        let search_at = |text: &[u8], at: u64, find: &dyn Fn(&[u8]) -> Option<String>| {
            let mut file = tempfile::tempfile().unwrap();
            file.set_len(1 << 30).unwrap();
            file.write_all_at(text, at).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            let read = std::rc::Rc::new(std::cell::Cell::new(0));
            (search(CountedBytes(file, read.clone()), find), read.get())
        };
        let snug = |content: &[u8]| find_after(content, b"snug version ");
        assert_eq!(search_at(text, 0, &snug), (Some("12.34.56".into()), WINDOW_BYTES));
        // Wherever the end of a window cuts it.
        for before in (0..=hash.len() as u64).step_by(5) {
            let at = 2 * WINDOW_BYTES - before;
            assert_eq!(search_at(text, at, &snug).0.as_deref(), Some("12.34.56"), "{before}");
            assert_eq!(search_at(hash, at, &find_jemalloc_version).0.as_deref(), Some("5.3.0"), "{before}");
        }
        assert_eq!(search_at(text, SEARCH_MAX_BYTES, &|_| None), (None, SEARCH_MAX_BYTES));
    }

    #[test]
    fn a_program_is_no_allocator() {
        assert!(open(Path::new("/bin/sh")).unwrap_err().message.contains("not a shared library"));
        assert!(open(Path::new("/etc/passwd")).unwrap_err().message.contains("not an ELF file"));
        assert!(open(Path::new("/nonexistent.so")).unwrap_err().message.contains("No such file"));
    }
    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        assert!(unusable_in_preload(Path::new("/my lib/libsnug.so")).is_some());
        assert!(unusable_in_preload(Path::new("/lib/libsnug.so")).is_none());
    }
}
