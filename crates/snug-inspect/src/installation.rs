//! The work of `snug install` in a directory: each file is written beside its place, brought to the disk, and renamed,
//! so that a reader finds either the old file or the new one, whole (docs/decisions/0030).

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::{statvfs, FsFlags};
use tempfile::NamedTempFile;

use crate::asker::{self, Asker};
use crate::kinds::{is_telling_symbol, Kind};
use crate::library;
use snug_base::elf;
use snug_base::failure::{Context, Failure, Result, NOT_STARTED};
use snug_base::terminal::bytes;
use snug_heap::answers;

/// The name under which libsnug.so is installed.
pub const LIBRARY: &str = "libsnug.so";
const TOOL: &str = "snug";
const JEMALLOC: &str = "libjemalloc.so.2";
/// Everything that may be installed.
const NAMES: [&str; 4] = [TOOL, LIBRARY, asker::FILE, JEMALLOC];

/// How files begin that are not finished.
const UNFINISHED: &str = ".snug-install-";
/// An unfinished file of this age is left over from an installation that was killed.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(600);
/// A text that is in the tool and hardly in another program.
const TOOL_MARK: &[u8] = b"snug install --uninstall";

/// A file to install.
pub struct Part {
    name: &'static str,
    mode: u32,
    content: Vec<u8>,
}

impl Part {
    fn read(name: &'static str, mode: u32, path: &Path) -> Result<Part> {
        let content = fs::read(path).cannot(|| format!("read {}", path.display()))?;
        Ok(Part { name, mode, content })
    }

    pub fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }
}

/// Finds and reads what is to be installed.
pub fn parts(with_jemalloc: bool) -> Result<Vec<Part>> {
    let executable = Path::new("/proc/self/exe");
    let tool = Part::read(TOOL, 0o755, executable)
        .map_err(|failure| failure.advise("snug finds itself by /proc, which must be mounted"))?;
    let found = library::find_snug()?;
    if found.kind != Kind::Snug {
        let message = format!("{} is not libsnug.so", found.path.display());
        return Err(Failure::new(message).advise("unset SNUG_LIBRARY").exit_code(NOT_STARTED));
    }
    let own = elf::read(executable, &|_| false).ok().flatten().unwrap_or_default();
    if (own.machine, own.bits) != (found.elf.machine, found.elf.bits) {
        let (theirs, ours) = (found.elf.machine_name(), own.machine_name());
        return Err(Failure::new(format!(
            "{} is for {theirs}, and this tool for {ours}",
            found.path.display()
        ))
        .advise(format!("install the package for one of them, or set SNUG_LIBRARY to a library for {ours}"))
        .exit_code(NOT_STARTED));
    }
    let mut parts = vec![tool, Part::read(LIBRARY, 0o644, &found.path)?];
    // Only --ask-allocator needs it, and says what is missing.
    if let Ok(asker) = Asker::find() {
        parts.push(Part::read(asker::FILE, 0o644, asker.path())?);
    }
    if with_jemalloc {
        parts.push(Part::read(JEMALLOC, 0o644, &find_alias(&found.path)?)?);
    }
    Ok(parts)
}

/// The library under jemalloc's name: near libsnug.so or near the tool, as it is installed or built.
fn find_alias(library: &Path) -> Result<PathBuf> {
    let executable = library::own_path();
    let beside = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let (library, tool) = (beside(library), beside(&executable));
    let places = [
        library.clone(),
        library.join("snug"),
        library.join("jemalloc"),
        tool.clone(),
        tool.join("../lib/snug"),
    ];
    let mut candidates = places.iter().map(|place| place.join(JEMALLOC));
    candidates.find(|path| is_ours(JEMALLOC, path)).ok_or_else(|| {
        let looked: Vec<_> = places.iter().map(|place| format!("  {}", place.display())).collect();
        Failure::new(format!("snug's {JEMALLOC} not found; looked in\n{}", looked.join("\n")))
            .advise("put it beside libsnug.so")
            .exit_code(NOT_STARTED)
    })
}

/// Whether a file is what we install under that name.
fn is_ours(name: &str, path: &Path) -> bool {
    match name {
        TOOL => {
            let content = fs::read(path).unwrap_or_default();
            content.windows(TOOL_MARK.len()).any(|text| text == TOOL_MARK)
        }
        asker::FILE => elf::read(path, &is_telling_symbol)
            .is_ok_and(|elf| elf.is_some_and(|elf| elf.exported.contains_key(answers::SYMBOL))),
        _ => library::open(path).is_ok_and(|library| library.kind == Kind::Snug),
    }
}

/// A directory to install into.
pub struct Directory {
    path: PathBuf,
    handle: File,
}

/// Opens the directory, which must exist.
pub fn open(path: &Path) -> Result<Directory> {
    let shown = path.display();
    let opened = fs::canonicalize(path).and_then(|path| Ok((File::open(&path)?, path)));
    let (handle, path) = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let failure = Failure::new(format!("there is no directory {shown}"));
            return Err(failure.advise(format!("make it first: mkdir -p {shown}")));
        }
        other => other.cannot(|| format!("open {shown}"))?,
    };
    if !path.is_dir() {
        return Err(Failure::new(format!("{shown} is not a directory")));
    }
    Ok(Directory { path, handle })
}

impl Directory {
    /// As an absolute path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what lies in it can neither be executed nor preloaded.
    pub fn forbids_execution(&self) -> bool {
        statvfs(&self.path).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOEXEC))
    }

    /// Installs the parts and returns the names of those that were not there already.
    pub fn place(&self, parts: &[Part]) -> Result<Vec<&'static str>> {
        if let Some(failure) = library::unusable_in_preload(&self.path) {
            return Err(failure.advise("choose another directory"));
        }
        let mut missing = Vec::new();
        for part in parts {
            self.refuse_foreign(part.name)?;
            if !self.has(part) {
                missing.push(part);
            }
        }
        self.remove_unfinished(LEFT_OVER_AFTER)?;
        // All are written before the first takes its name: a full disk leaves what was there.
        let mut written = Vec::new();
        for part in missing {
            let size_bytes = parts.iter().map(Part::size_bytes).sum();
            let file = self.write(part).map_err(|error| self.explain(part.name, error, size_bytes))?;
            written.push((file, part.name));
        }
        let mut placed = Vec::new();
        for (file, name) in written {
            file.persist(self.path.join(name)).cannot(|| format!("rename a file to {name}"))?;
            placed.push(name);
        }
        self.sync()?;
        Ok(placed)
    }

    fn has(&self, part: &Part) -> bool {
        let path = self.path.join(part.name);
        let mode = fs::metadata(&path).map(|metadata| metadata.permissions().mode() & 0o7777);
        mode.is_ok_and(|mode| mode == part.mode)
            && fs::read(&path).is_ok_and(|content| content == part.content)
    }

    fn write(&self, part: &Part) -> io::Result<NamedTempFile> {
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.path)?;
        file.write_all(&part.content)?;
        // Whatever the umask: who loads it may be another user.
        file.as_file().set_permissions(Permissions::from_mode(part.mode))?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    fn explain(&self, name: &str, error: io::Error, size_bytes: u64) -> Failure {
        let place = self.path.display();
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                format!("{place} needs room for {}; nothing in it was changed", bytes(size_bytes as f64))
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount it writable for this step; the containers that use it may mount it read-only".into()
            }
            io::ErrorKind::PermissionDenied => format!("run this as the user that owns {place}, or as root"),
            _ => format!("nothing in {place} was changed"),
        };
        let failed: Result<()> = Err(error).cannot(|| format!("write {name} in {place}"));
        failed.expect_err("it is an error").advise(advice)
    }

    /// Removes what is ours and returns the names.
    pub fn remove(&self) -> Result<Vec<&'static str>> {
        let there: Vec<_> =
            NAMES.into_iter().filter(|name| self.path.join(name).symlink_metadata().is_ok()).collect();
        for name in &there {
            self.refuse_foreign(name)?;
        }
        for name in &there {
            let path = self.path.join(name);
            fs::remove_file(&path).cannot(|| format!("remove {}", path.display()))?;
        }
        self.remove_unfinished(Duration::ZERO)?;
        self.sync()?;
        Ok(there)
    }

    /// Fails if something that this command did not install has that name.
    fn refuse_foreign(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
        if metadata.is_file() && is_ours(name, &path) {
            return Ok(());
        }
        let message = format!("{} is there and not from `snug install`", path.display());
        Err(Failure::new(message).advise("use a directory of its own; nothing was changed"))
    }

    /// Removes files that an installation left which was killed.
    fn remove_unfinished(&self, age: Duration) -> Result<()> {
        let shown = || format!("read {}", self.path.display());
        for entry in fs::read_dir(&self.path).cannot(shown)? {
            let entry = entry.cannot(shown)?;
            let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let is_old =
                || modified.is_ok_and(|at| SystemTime::now().duration_since(at).unwrap_or_default() >= age);
            if is_unfinished && is_old() {
                fs::remove_file(entry.path()).cannot(|| format!("remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    /// Brings the names to the disk. Some file systems can't do that for a directory, and need not.
    fn sync(&self) -> Result<()> {
        match self.handle.sync_all() {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
                Err(error).cannot(|| format!("write {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}
