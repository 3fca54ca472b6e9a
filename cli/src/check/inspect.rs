//! Looks up the facts about processes: mapped files, environment, counters. Decides nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::Pid as NixPid;

use super::facts::{Facts, Image, PreloadFile};
use crate::allocator::{is_telling_symbol, Kind};
use crate::counters::{self, Counters};
use crate::elf::{self, ElfFacts};
use crate::library;
use crate::proc::{self, Mapping, Pid, ProcFilesystem, Processes};

/// Looks at processes and remembers what it learned of files, which many processes share.
pub struct Inspector {
    source: ProcFilesystem,
    files: HashMap<(String, String), Option<Rc<ElfFacts>>>,
    versions: HashMap<(String, Kind), Option<String>>,
    transparent_huge_pages: String,
}

/// Why a process could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// It has ended, or is just starting.
    Gone,
    /// It belongs to someone else.
    NotPermitted,
}

impl Inspector {
    pub fn new(transparent_huge_pages: String) -> Inspector {
        Inspector {
            source: ProcFilesystem::new(),
            files: HashMap::new(),
            versions: HashMap::new(),
            transparent_huge_pages,
        }
    }

    /// Every process: identifier, parent, and name.
    pub fn processes(&mut self) -> Vec<(Pid, Pid, String)> {
        let mut processes = Vec::new();
        for pid in self.source.pids().unwrap_or_default() {
            let stat = self.read(pid, "stat").and_then(|text| proc::parse_stat(&text));
            self.source.forget(pid);
            processes.extend(stat.map(|stat| (pid, stat.parent, stat.name)));
        }
        processes
    }

    /// The command line; empty for a kernel thread.
    pub fn command(&mut self, pid: Pid) -> String {
        self.read(pid, "cmdline").map(|text| proc::parse_command_line(&text)).unwrap_or_default()
    }

    /// The arguments of the command line.
    pub fn arguments(&mut self, pid: Pid) -> Vec<String> {
        let text = self.read(pid, "cmdline").unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split('\0').map(String::from).filter(|argument| !argument.is_empty()).collect()
    }

    /// The program's file.
    pub fn executable(&mut self, pid: Pid) -> Option<String> {
        let link = self.source.link(pid, "exe").ok()?.to_string_lossy().into_owned();
        Some(link.trim_end_matches(" (deleted)").to_string())
    }

    /// All that is known about a process.
    pub fn facts(&mut self, pid: Pid) -> Result<Facts, Hidden> {
        let stat = self.read(pid, "stat").and_then(|text| proc::parse_stat(&text)).ok_or(Hidden::Gone)?;
        self.source.forget(pid);
        let mut buffer = Vec::new();
        let maps = match self.source.read(pid, "maps", &mut buffer) {
            Ok(()) => proc::parse_maps(&buffer),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Hidden::NotPermitted)
            }
            Err(_) => return Err(Hidden::Gone),
        };
        let executable_path = self.executable(pid).ok_or(Hidden::Gone)?;
        let namespace =
            self.source.link(pid, "ns/mnt").map_or_else(|_| String::new(), |link| link.display().to_string());
        let root = format!("/proc/{pid}/root");
        let mut images = self.images(pid, &maps, &namespace, &root);
        let executable_index =
            images.iter().position(|image| image.path == executable_path).ok_or(Hidden::Gone)?;
        let executable = images.remove(executable_index);
        let environment = self.read(pid, "environ").map(|text| proc::parse_environment(&text));
        let preload = environment
            .iter()
            .flatten()
            .find(|(name, _)| name == "LD_PRELOAD")
            .map(|(_, value)| value.as_str());
        let preload_files = self.preload_files(preload.unwrap_or_default(), &namespace, &root);
        let (counters, counters_error) = match read_counters(pid, &maps, &buffer, &executable, &images) {
            Some(Ok(counters)) => (Some(counters), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let system_preload = std::fs::read_to_string(format!("{root}/etc/ld.so.preload")).unwrap_or_default();
        let mode =
            std::fs::metadata(format!("{root}{}", executable.path)).map_or(0, |metadata| metadata.mode());
        Ok(Facts {
            pid,
            parent: stat.parent,
            command: self.command(pid),
            setuid: mode & 0o6000 != 0,
            executable,
            objects: images,
            environment,
            system_preload: system_preload.split_whitespace().map(String::from).collect(),
            preload_files,
            counters,
            counters_error,
            transparent_huge_pages: self.transparent_huge_pages.clone(),
        })
    }

    fn read(&mut self, pid: Pid, file: &'static str) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        self.source.read(pid, file, &mut buffer).ok()?;
        Some(buffer)
    }

    /// The ELF files among the mappings, each once.
    fn images(&mut self, pid: Pid, maps: &[Mapping], namespace: &str, root: &str) -> Vec<Image> {
        let mut images: Vec<Image> = Vec::new();
        for mapping in maps {
            if images.iter().any(|image| image.path == mapping.path) {
                continue;
            }
            let file = if mapping.deleted {
                // What is at the path now is another file; the mapped one is still reachable here.
                format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)
            } else {
                format!("{root}{}", mapping.path)
            };
            let elf = match mapping.deleted {
                true => read_elf(&file),
                false => self.elf(namespace, &mapping.path, &file),
            };
            let is_program_file = maps.iter().any(|other| other.path == mapping.path && other.executable);
            if !is_program_file {
                continue;
            }
            let mut image = Image {
                path: mapping.path.clone(),
                deleted: mapping.deleted,
                base: mapping.start - mapping.offset.min(mapping.start),
                elf,
                version: None,
            };
            if let Some(kind) = image.kind() {
                let key = (format!("{namespace}{}", mapping.path), kind);
                let version =
                    self.versions.entry(key).or_insert_with(|| library::version(kind, Path::new(&file)));
                image.version = version.clone();
            }
            images.push(image);
        }
        images
    }

    fn elf(&mut self, namespace: &str, path: &str, file: &str) -> Option<Rc<ElfFacts>> {
        let key = (namespace.to_string(), path.to_string());
        self.files.entry(key).or_insert_with(|| read_elf(file)).clone()
    }

    fn preload_files(&mut self, preload: &str, namespace: &str, root: &str) -> Vec<(String, PreloadFile)> {
        let mut files = Vec::new();
        for path in preload.split([':', ' ']).filter(|path| path.starts_with('/')) {
            let file = format!("{root}{path}");
            let state = match (Path::new(&file).exists(), self.elf(namespace, path, &file)) {
                (false, _) => PreloadFile::Missing,
                (true, None) => PreloadFile::NotElf,
                (true, Some(elf)) => PreloadFile::Elf(elf),
            };
            files.push((path.to_string(), state));
        }
        files
    }
}

fn read_elf(file: &str) -> Option<Rc<ElfFacts>> {
    elf::read(Path::new(file), &is_telling_symbol).ok().flatten().map(Rc::new)
}

/// Reads the page of counters, if the process has one: by its symbol, or in a stripped static program by its
/// magic. None if there is no sign of snug; an error if there is and it can't be read.
fn read_counters(
    pid: Pid,
    maps: &[Mapping],
    maps_text: &[u8],
    executable: &Image,
    objects: &[Image],
) -> Option<Result<Counters, String>> {
    for image in objects.iter().chain(std::iter::once(executable)) {
        let Some(elf) = &image.elf else { continue };
        let symbol = elf.exported.get("snug_counters").or(elf.internal.get("snug_counters"));
        let (Some(symbol), Some((first_address, first_offset))) = (symbol, elf.first_load) else { continue };
        let first_map = maps.iter().find(|mapping| mapping.path == image.path)?;
        // A segment is mapped at its address plus the load base, each rounded down to pages alike.
        let base =
            (first_map.start - first_map.offset).wrapping_sub(first_address.wrapping_sub(first_offset));
        let address = base.wrapping_add(*symbol);
        return Some(match read_memory(pid, address, counters::HEAD_BYTES) {
            Ok(page) => Counters::parse(&page).map_err(|why| format!("its page of counters is {why:?}")),
            Err(error) => Err(error.to_string()),
        });
    }
    let is_static = executable.elf.as_ref().is_some_and(|elf| elf.is_static_program());
    if !is_static {
        return None;
    }
    let ranges = writable_ranges(maps_text, &executable.path);
    let addresses =
        ranges.into_iter().flat_map(|(start, end)| (start..end).step_by(counters::ALIGN as usize));
    for address in addresses {
        let Ok(start) = read_memory(pid, address, counters::MAGIC.len()) else { continue };
        if start == counters::MAGIC {
            let page = read_memory(pid, address, counters::HEAD_BYTES).map_err(|error| error.to_string());
            return Some(page.and_then(|page| Counters::parse(&page).map_err(|why| format!("{why:?}"))));
        }
    }
    None
}

/// Writable mappings of a file and the anonymous ones that directly follow them: its zeroed data.
fn writable_ranges(maps_text: &[u8], path: &str) -> Vec<(u64, u64)> {
    let text = String::from_utf8_lossy(maps_text);
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut end_of_file_part = 0;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        let of_file = line.contains(path);
        let follows = start == end_of_file_part && words.nth(3).is_none_or(|name| name == "[heap]");
        if of_file || follows {
            end_of_file_part = end;
            if permissions.starts_with("rw") {
                ranges.push((start, end));
            }
        }
    }
    ranges
}

/// Copies memory of another process without stopping it.
fn read_memory(pid: Pid, address: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0u8; length];
    let remote = [RemoteIoVec { base: address as usize, len: length }];
    let copied = process_vm_readv(NixPid::from_raw(pid), &mut [IoSliceMut::new(&mut buffer)], &remote);
    match copied {
        Ok(count) if count == length => return Ok(buffer),
        Err(nix::errno::Errno::EPERM | nix::errno::Errno::ESRCH) => {
            return Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied))
        }
        // Sandboxes may refuse the call itself: the file does the same.
        _ => {}
    }
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut buffer, address)?;
    Ok(buffer)
}

/// Facts about a program that is not running, from what the loader says that it would load.
pub fn facts_before_start(
    inspector: &mut Inspector,
    image: &Path,
    elf: ElfFacts,
    setuid: bool,
    command: &str,
    listed: &[PathBuf],
) -> Facts {
    let environment: Vec<(String, String)> = crate::terminal::environment().collect();
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    let image_of = |inspector: &mut Inspector, path: &Path, base: u64| -> Image {
        let path_full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let text = path_full.display().to_string();
        let mut image = Image { elf: inspector.elf("", &text, &text), path: text, base, ..Image::default() };
        image.version = image.kind().and_then(|kind| library::version(kind, &path_full));
        image
    };
    // Listed in the order of loading, so addresses fall as they would in a process.
    let count = listed.len() as u64;
    let objects: Vec<Image> = listed
        .iter()
        .enumerate()
        .map(|(index, path)| image_of(inspector, path, count - index as u64))
        .collect();
    let preload_files = inspector.preload_files(&preload, "", "");
    let system_preload = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    Facts {
        pid: 0,
        parent: 0,
        command: command.to_string(),
        executable: Image { path: image.display().to_string(), elf: Some(Rc::new(elf)), ..Image::default() },
        setuid,
        objects,
        environment: Some(environment),
        system_preload: system_preload.split_whitespace().map(String::from).collect(),
        preload_files,
        counters: None,
        counters_error: None,
        transparent_huge_pages: inspector.transparent_huge_pages.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_facts() {
        let mut inspector = Inspector::new("madvise".into());
        let facts = inspector.facts(std::process::id() as Pid).unwrap();
        assert!(facts.objects.iter().any(|object| object.kind() == Some(Kind::Glibc)));
        assert!(facts.executable.elf.is_some());
        assert!(facts.environment.is_some());
        assert_eq!(inspector.facts(Pid::MAX).unwrap_err(), Hidden::Gone);
    }

    #[test]
    fn own_memory_can_be_read() {
        let text = *b"a text to find again";
        let read = read_memory(std::process::id() as Pid, text.as_ptr() as u64, text.len()).unwrap();
        assert_eq!(read, text);
        assert!(read_memory(std::process::id() as Pid, 8, 16).is_err());
    }

    #[test]
    fn zeroed_data_follows_the_file() {
        let maps = b"1000-2000 r-xp 0 fe:00 7 /bin/app\n2000-3000 rw-p 1000 fe:00 7 /bin/app\n\
            3000-5000 rw-p 0 00:00 0 \n5000-6000 rw-p 0 00:00 0 [heap]\n8000-9000 rw-p 0 00:00 0 \n";
        assert_eq!(writable_ranges(maps, "/bin/app"), [(0x2000, 0x3000), (0x3000, 0x5000), (0x5000, 0x6000)]);
    }
}
