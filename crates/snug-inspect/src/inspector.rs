//! Looks up the facts about processes: mapped files, environment, counters. Decides nothing.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::facts::{Facts, Image, PreloadFile};
use crate::kinds::{is_telling_symbol, Kind};
use crate::{library, sampled};
use snug_base::elf::{self, ElfFacts};
use snug_base::file::{self, open_regular};
use snug_base::root::{self, DirectoryRoot, Node, Root};
use snug_heap::sharing::ForkHooks;
use snug_heap::{hooks, remote};
use snug_process::maps::{self, Mapping};
use snug_process::place::{self, Place, Signs};
use snug_process::proc::{self, Pid, ProcFilesystem, Processes, Rollup, Stat};

/// What was learned of a file is forgotten when no process that was looked at had it for so long.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Files of code that are looked at in a process: plug-ins by the hundred are normal, more is made up.
const IMAGES_MAX: usize = 4096;
/// And how long these may take: large ones may be made up, too.
const IMAGES_TIME: Duration = Duration::from_secs(20);

/// Looks at processes and remembers what it learned of files, which many processes share.
pub struct Inspector {
    source: ProcFilesystem,
    files: HashMap<FileIdentity, KnownFile>,
    transparent_huge_pages: String,
    counts_huge_pages: bool,
}

/// By what a file is known: not by its path, at which another one may lie tomorrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When its content changed and when anything of it did, in seconds and nanoseconds: a new file may have the number
    /// of a removed one.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What was learned of a file.
struct KnownFile {
    /// None: it is no ELF file.
    elf: Option<Rc<ElfFacts>>,
    /// Which allocator's version was looked for, and what was found.
    version: Option<(Kind, Option<String>)>,
    used: Instant,
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
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
        let source = ProcFilesystem::new();
        Inspector { source, files: HashMap::new(), transparent_huge_pages, counts_huge_pages: false }
    }

    /// It also counts huge pages, which takes a walk through all that a process has mapped.
    pub fn counting_huge_pages(self) -> Inspector {
        Inspector { counts_huge_pages: true, ..self }
    }

    /// The command line; empty for a kernel thread.
    pub fn command(&mut self, pid: Pid) -> String {
        self.read(pid, "cmdline").map(|text| proc::parse_command_line(&text)).unwrap_or_default()
    }

    /// The same, as its arguments one by one.
    fn arguments(&mut self, pid: Pid) -> Vec<String> {
        self.read(pid, "cmdline").map(|text| proc::parse_arguments(&text)).unwrap_or_default()
    }

    /// Whether a process runs, and is no zombie.
    pub fn is_alive(&mut self, pid: Pid) -> bool {
        let stat = self.read(pid, "stat").and_then(|text| proc::parse_stat(&text));
        self.source.forget(pid);
        stat.is_some_and(|stat| !stat.has_ended())
    }

    /// All that is known about a process.
    pub fn facts(&mut self, pid: Pid) -> Result<Facts, Hidden> {
        let executable = self.source.executable(pid);
        let facts = self.facts_of(pid, executable.clone())?;
        // Of a process that ended meanwhile, or became another program, only a part was seen.
        if self.source.executable(pid) != executable {
            return Err(Hidden::Gone);
        }
        Ok(facts)
    }

    /// The same, of a process that may end meanwhile.
    fn facts_of(&mut self, pid: Pid, executable_path: Option<String>) -> Result<Facts, Hidden> {
        let stat = self.read(pid, "stat").and_then(|text| proc::parse_stat(&text)).ok_or(Hidden::Gone)?;
        self.source.forget(pid);
        let mut buffer = Vec::new();
        let maps = match self.source.read(pid, "maps", &mut buffer) {
            Ok(()) => maps::parse_maps(&buffer),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Hidden::NotPermitted)
            }
            Err(_) => return Err(Hidden::Gone),
        };
        let executable_path = executable_path.ok_or(Hidden::Gone)?;
        let changed_root = self.source.link(pid, "root").map_or_else(|_| String::new(), path_text);
        let inside = |path: String| maps::inside(&changed_root, path);
        // The kernel writes ends of lines so into the list of mappings.
        let executable_path = inside(executable_path).replace('\n', "\\012");
        let maps: Vec<Mapping> =
            maps.into_iter().map(|mapping| Mapping { path: inside(mapping.path), ..mapping }).collect();
        let thread = proc::living(pid);
        let root = format!("/proc/{thread}/root");
        let mut images = self.images(thread, &maps, &root);
        let executable_index =
            images.iter().position(|image| image.path == executable_path).ok_or(Hidden::Gone)?;
        let executable = images.remove(executable_index);
        let environment = self.read(pid, "environ").and_then(|text| proc::parse_environment(&text));
        let entries = environment.as_ref().and_then(|_| self.read(pid, "environ")).unwrap_or_default();
        let preload = entries.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="));
        let preload_files = self.preload_files(preload.unwrap_or_default(), &root);
        let elf_files = images.iter().chain(std::iter::once(&executable));
        let elf_files = elf_files.filter_map(|image| Some((image.path.as_str(), image.elf.as_deref()?)));
        let is_static = executable.elf.as_ref().is_some_and(|elf| elf.is_static_program());
        let static_executable = is_static.then_some(executable.path.as_str());
        let answers_at = remote::find_answers(&maps, elf_files.clone());
        let counters_at = remote::find_page(pid, &maps, &buffer, elf_files, static_executable);
        let counters = counters_at.map(|address| remote::read_counters(pid, address)).transpose();
        let (counters, counters_error) = match counters {
            Ok(counters) => (counters, None),
            Err(error) => (None, Some(error)),
        };
        let sampled = sampled::note(pid, counters_at, counters.as_ref(), environment.as_deref());
        let preload_file = file::read_text_below(&DirectoryRoot(root.clone().into()), "/etc/ld.so.preload");
        Ok(Facts {
            pid,
            parent: stat.parent,
            command: self.command(pid),
            arguments: self.arguments(pid),
            setuid: self.read(pid, "auxv").is_some_and(|auxv| proc::is_secure(&auxv)),
            executable,
            objects: images,
            environment,
            system_preload: preload_file.unwrap_or_default().split_whitespace().map(String::from).collect(),
            malloc_conf_link: malloc_conf_link(&root),
            preload_files,
            counters_at,
            counters,
            counters_error,
            answers_at,
            is_forked: self.is_forked(&stat),
            hooks: self.hooks_in(pid, &buffer),
            transparent_huge_pages: self.transparent_huge_pages.clone(),
            rollup: if self.counts_huge_pages { self.rollup(pid) } else { None },
            place: self.place(pid),
            notes: sampled.into_iter().collect(),
            ..Facts::default()
        })
    }

    /// Whether a process runs what its parent ran when it forked: an exec would have moved its stack.
    fn is_forked(&mut self, stat: &Stat) -> bool {
        let parent = self.read(stat.parent, "stat").and_then(|text| proc::parse_stat(&text));
        self.source.forget(stat.parent);
        stat.start_stack != 0 && parent.is_some_and(|parent| parent.start_stack == stat.start_stack)
    }

    /// What hooks did to it, or to what forked it.
    pub(crate) fn fork_hooks(&mut self, pid: Pid) -> Option<ForkHooks> {
        let maps_text = self.read(pid, "maps")?;
        self.hooks_in(pid, &maps_text)
    }

    /// The same by its mappings.
    fn hooks_in(&mut self, pid: Pid, maps_text: &[u8]) -> Option<ForkHooks> {
        let page = hooks::find(pid, maps_text)?;
        let status = self.read(pid, "status")?;
        Some(ForkHooks::new(page, &status, self.rollup(pid)))
    }

    fn rollup(&mut self, pid: Pid) -> Option<Rollup> {
        self.read(pid, "smaps_rollup").and_then(|text| proc::parse_smaps_rollup(&text))
    }

    /// Its container or its unit.
    fn place(&mut self, pid: Pid) -> Place {
        let text = |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let cgroup = text(self.read(pid, "cgroup"));
        let status = text(self.read(pid, "status"));
        let own = std::fs::read_link("/proc/self/ns/pid").ok();
        let other_pid_namespace = self.source.link(pid, "ns/pid").is_ok_and(|link| Some(link) != own);
        place::place(&Signs { cgroup: &cgroup, status: &status, other_pid_namespace })
    }

    /// Processes in the control group of this name, a unit's for example.
    pub fn in_group(&mut self, name: &str) -> Vec<Pid> {
        let pids = self.source.pids().unwrap_or_default();
        let is_in = |pid: &Pid| {
            let text = self.read(*pid, "cgroup").unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let found = place::components(&text).any(|component| component == name);
            found
        };
        pids.into_iter().filter(is_in).collect()
    }

    fn read(&mut self, pid: Pid, file: &'static str) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        self.source.read(pid, file, &mut buffer).ok()?;
        Some(buffer)
    }

    /// The ELF files among the mappings, each once.
    fn images(&mut self, pid: Pid, maps: &[Mapping], root: &str) -> Vec<Image> {
        let mut images: Vec<Image> = Vec::new();
        // Others are data and devices, which are not ours to open.
        let program_files: HashSet<&str> =
            maps.iter().filter(|mapping| mapping.executable).map(|mapping| mapping.path.as_str()).collect();
        let (mut known, begin): (HashSet<&str>, Instant) = (HashSet::new(), Instant::now());
        for mapping in maps {
            let path = mapping.path.as_str();
            if !program_files.contains(path) || !known.insert(path) {
                continue;
            }
            if known.len() > IMAGES_MAX || begin.elapsed() > IMAGES_TIME {
                break;
            }
            let is_text = !mapping.path.contains(char::REPLACEMENT_CHARACTER);
            let file = if mapping.deleted || !is_text {
                // What is at the path now is another file, or not to be named; the mapped one is still reachable here.
                format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)
            } else {
                format!("{root}{}", mapping.path)
            };
            let mut image = Image {
                path: mapping.path.clone(),
                deleted: mapping.deleted,
                base: mapping.start - mapping.offset.min(mapping.start),
                elf: self.elf(&file),
                version: None,
            };
            image.version = image.kind().and_then(|kind| self.version(kind, &file));
            images.push(image);
        }
        images
    }

    /// What an ELF file is.
    fn elf(&mut self, file: impl AsRef<Path>) -> Option<Rc<ElfFacts>> {
        self.known(file)?.elf.clone()
    }

    /// The version of the allocator in a file.
    fn version(&mut self, kind: Kind, file: &str) -> Option<String> {
        let known = self.known(file)?;
        let found = known.version.take().filter(|(of, _)| *of == kind);
        let (_, version) = found.unwrap_or_else(|| (kind, library::version(kind, Path::new(file))));
        known.version = Some((kind, version.clone()));
        version
    }

    /// What is known of a file, which is read if it is new. None if it can't be read, or is no regular file.
    fn known(&mut self, file: impl AsRef<Path>) -> Option<&mut KnownFile> {
        let opened = open_regular(file.as_ref()).ok()?;
        let identity = FileIdentity::of(&opened.metadata().ok()?);
        if !self.files.contains_key(&identity) {
            self.forget_unused(FORGET_AFTER);
        }
        let read = || KnownFile {
            elf: elf::read_from(&opened, &is_telling_symbol).map(Rc::new),
            version: None,
            used: Instant::now(),
        };
        let known = self.files.entry(identity).or_insert_with(read);
        known.used = Instant::now();
        Some(known)
    }

    /// Forgets the files that were not used for so long.
    fn forget_unused(&mut self, duration: Duration) {
        self.files.retain(|_, known| known.used.elapsed() < duration);
    }

    fn preload_files(&mut self, preload: &[u8], root: &str) -> Vec<(String, PreloadFile)> {
        let mut files = Vec::new();
        for bytes in preload.split(|byte| b": ".contains(byte)).filter(|path| path.starts_with(b"/")) {
            let path = String::from_utf8_lossy(bytes);
            // Links of a container lead to its own files.
            let found = root::file(&DirectoryRoot(root.into()), &path).map(OsString::from);
            let mut file = OsString::from(root);
            file.push(found.unwrap_or_else(|| OsStr::from_bytes(bytes).into()));
            let state = match (Path::new(&file).exists(), self.elf(&file)) {
                (false, _) => PreloadFile::Missing,
                (true, None) => PreloadFile::NotElf,
                (true, Some(elf)) => PreloadFile::Elf(elf),
            };
            files.push((path.to_string(), state));
        }
        files
    }
}

/// The text of /etc/malloc.conf below a root, if it is the link that jemalloc reads.
fn malloc_conf_link(root: &str) -> Option<String> {
    let root = DirectoryRoot(if root.is_empty() { "/".into() } else { root.into() });
    let (folder, _) = root::resolve(&root, "/etc")?;
    match root.node(&format!("{folder}/malloc.conf"))? {
        Node::Link(target) => Some(target),
        _ => None,
    }
}

fn path_text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

/// Facts about a program that is not running, from what the loader says that it would load.
pub fn facts_before_start(
    inspector: &mut Inspector,
    image: &Path,
    elf: ElfFacts,
    setuid: bool,
    program: &[String],
    listed: &[PathBuf],
) -> Facts {
    let environment: Vec<(String, String)> = snug_base::terminal::environment().collect();
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let image_of = |inspector: &mut Inspector, path: &Path, base: u64| -> Image {
        let path_full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let text = path_full.display().to_string();
        let mut image = Image { elf: inspector.elf(&text), path: text, base, ..Image::default() };
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
    let preload_files = inspector.preload_files(preload.as_bytes(), "");
    let system_preload = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    Facts {
        pid: 0,
        parent: 0,
        command: program.join(" "),
        arguments: program.to_vec(),
        executable: Image { path: image.display().to_string(), elf: Some(Rc::new(elf)), ..Image::default() },
        setuid,
        objects,
        environment: Some(environment),
        system_preload: system_preload.split_whitespace().map(String::from).collect(),
        malloc_conf_link: malloc_conf_link(""),
        preload_files,
        counters_at: None,
        counters: None,
        counters_error: None,
        transparent_huge_pages: inspector.transparent_huge_pages.clone(),
        ..Facts::default()
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
    fn mapped_data_is_not_opened() {
        let data = tempfile::NamedTempFile::new().unwrap();
        let mapping = |executable| Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            writable: false,
            executable,
            path: data.path().display().to_string(),
            deleted: false,
        };
        let mut inspector = Inspector::new("madvise".into());
        assert!(inspector.images(1, &[mapping(false)], "").is_empty() && inspector.files.is_empty());
        assert_eq!(inspector.images(1, &[mapping(false), mapping(true)], "").len(), 1);
        assert!(inspector.files.contains_key(&FileIdentity::of(&data.as_file().metadata().unwrap())));
    }

    #[test]
    fn a_file_in_place_of_another_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let (library, next) = (folder.path().join("libsnug.so"), folder.path().join("next"));
        let own = std::env::current_exe().unwrap();
        let place = library.display().to_string();
        let mut inspector = Inspector::new("madvise".into());
        assert!(inspector.elf(&place).is_none() && inspector.files.is_empty());
        std::fs::write(&library, "snug version 1.2.3\0").unwrap();
        let version = |inspector: &mut Inspector| inspector.version(Kind::Snug, &place);
        assert!(inspector.elf(&place).is_none());
        assert_eq!(version(&mut inspector).as_deref(), Some("1.2.3"));
        assert_eq!(inspector.version(Kind::Glibc, &place), None);
        // By rename as installers do, and in place.
        std::fs::copy(own, &next).unwrap();
        std::fs::rename(&next, &library).unwrap();
        assert!(inspector.elf(&place).is_some(), "what lies there now is a program");
        std::fs::write(&library, "snug version 1.2.4\0").unwrap();
        assert!(inspector.elf(&place).is_none());
        assert_eq!(version(&mut inspector).as_deref(), Some("1.2.4"));
        assert_eq!(inspector.files.len(), 3);
        inspector.forget_unused(Duration::from_secs(60));
        assert_eq!(inspector.files.len(), 3);
        inspector.forget_unused(Duration::ZERO);
        assert!(inspector.files.is_empty());
    }
}
