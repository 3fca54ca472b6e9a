//! Files that a user asked for: refused early where they can't be made, written whole. Files that another process
//! names: opened only if they are regular files. Names of files in paths.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{openat2, OFlag, OpenHow, ResolveFlag};

use super::failure::{Context, Failure, Result, USAGE};
use super::root::{self, DirectoryRoot, Root};

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Writes `content` to `path`, in place of what the file held: all of it, or what was there stays. A failure names the
/// file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    write_whole(path, content.as_ref()).cannot(|| format!("write {}", path.display()))
}

/// Beside its place, and then renamed. What is no file, as /dev/stdout, and where only the file may be written: there.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    refuse_foreign(path)?;
    let place = place_of(path).unwrap_or_else(|_| path.to_path_buf());
    let there = fs::metadata(&place).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return fs::write(&place, content);
    }
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".snug-").permissions(Permissions::from_mode(0o666));
    let mut unfinished = match builder.tempfile_in(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && there.is_some() => {
            return fs::write(&place, content);
        }
        made => made?,
    };
    unfinished.write_all(content)?;
    // The new file is ours: bits that somebody else chose, or that give our rights away, are not taken over.
    if let Some(there) = there.filter(|there| there.uid() == nix::unistd::geteuid().as_raw()) {
        unfinished.as_file().set_permissions(Permissions::from_mode(there.mode() & 0o777))?;
    }
    unfinished.persist(&place).map(|_| ()).map_err(|failed| failed.error)
}

/// Where a link leads, by the kernel's word, which lets nobody follow what is not to be trusted; else the path itself.
fn place_of(path: &Path) -> io::Result<PathBuf> {
    if !fs::symlink_metadata(path)?.is_symlink() {
        return Ok(path.to_path_buf());
    }
    let place = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    match fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())) {
        Ok(target) if target.is_absolute() && target.exists() => Ok(target),
        _ => Ok(path.to_path_buf()),
    }
}

/// Refuses a link, a FIFO or a device that another user has put where a file is to be: it would lead what we write, with our
/// rights, to a place of that user's choice.
pub fn refuse_foreign(path: &Path) -> io::Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let trusted = [0, nix::unistd::geteuid().as_raw()];
    if there.is_file() || there.is_dir() || trusted.contains(&there.uid()) {
        return Ok(());
    }
    Err(io::Error::other("another user has put a link there, or something else that is no file"))
}

/// An empty file, new or emptied, for what a program writes as time goes by. No link is followed: where others may write, it
/// would lead to a place of their choice.
pub fn create(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::options().write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Refuses a file that `write` could not make, before the work whose result it would hold. `option` names it.
pub fn check_place(option: &str, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let foreign = refuse_foreign(path).map_err(|error| error.to_string());
    let problem = if let Err(problem) = &foreign {
        problem.as_str()
    } else if path.is_dir() {
        "it is a directory"
    } else if parent.is_some_and(|parent| !parent.is_dir()) {
        "its directory does not exist"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("cannot write {option} {}: {problem}", path.display())).exit_code(USAGE))
}

/// Opens a file for reading whose path another process may have chosen. An error if it is no regular file: to open a
/// FIFO waits for whoever writes to it, to open a device may change it. Below the root of another process,
/// `/proc/PID/root`, links lead where they lead that process, and never out of its root.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let place = place_below_root(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // The file itself, whatever is at the path by now. Without O_NONBLOCK this would wait for who holds a lease on it.
    let open = |path: &Path| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    match open(Path::new(&format!("/proc/self/fd/{}", place.as_raw_fd()))) {
        // Without /proc, as in a chroot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = open(path)?;
            let (before, now) = (place.metadata()?, file.metadata()?);
            let is_same = (before.dev(), before.ino()) == (now.dev(), now.ino());
            is_same.then_some(file).ok_or_else(|| io::Error::other("it was replaced meanwhile"))
        }
        opened => opened,
    }
}

/// By O_PATH: what is there, which is not opened yet.
fn at(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path)
}

/// What is at a path, and if that is below the root of a process, as the process sees it.
fn place_below_root(path: &Path) -> io::Result<File> {
    let Some((root, inside)) = split_root(path) else { return at(path) };
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(at(&root)?, &inside, how) {
        Err(Errno::ENOSYS | Errno::EPERM) => place_by_steps(&root, &inside),
        opened => Ok(opened?.into()),
    }
}

/// The same before Linux 5.6, and in sandboxes that refuse the call: right if the process changes nothing meanwhile.
fn place_by_steps(root: &Path, inside: &Path) -> io::Result<File> {
    let (found, _) = root::resolve(&DirectoryRoot(root.into()), &inside.to_string_lossy())
        .ok_or(io::ErrorKind::NotFound)?;
    at(&root.join(found.trim_start_matches('/')))
}

/// The root of a process and the path below it, of `/proc/PID/root/...`.
fn split_root(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = path.components();
    let root: PathBuf = parts.by_ref().take(4).collect();
    let pid = root.to_str()?.strip_prefix("/proc/")?.strip_suffix("/root")?;
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    is_pid.then(|| (root, parts.as_path().to_path_buf()))
}

/// The first bytes of a file of a root, up to a limit.
pub fn read_below(root: &dyn Root, path: &str, limit: u64) -> Option<Vec<u8>> {
    let on_disk = root.file(&root::file(root, path)?).ok()?;
    let mut content = Vec::new();
    open_regular(&on_disk).ok()?.take(limit).read_to_end(&mut content).ok()?;
    Some(content)
}

/// The text of a file of a root, up to a MiB.
pub fn read_text_below(root: &dyn Root, path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&read_below(root, path, 1 << 20)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, fifo) =
            (folder.path().join("file"), folder.path().join("link"), folder.path().join("fifo"));
        let count = || fs::read_dir(folder.path()).unwrap().count();
        // As on a full disk.
        let full = Path::new("/dev/full");
        assert!(write(full, "x").unwrap_err().message.contains("/dev/full"));
        assert!(write(&folder.path().join("none/file"), "x").is_err() && count() == 0);
        write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && count() == 2);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read_to_string(fifo).unwrap()
        });
        write(&fifo, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
    }

    /// A file that another user prepares for root's report: with bits that would give root's rights away, or as a link.
    #[test]
    fn what_others_prepared_gives_nothing_away() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        fs::write(at("own"), "old").unwrap();
        fs::set_permissions(at("own"), Permissions::from_mode(0o6755)).unwrap();
        write(&at("own"), "new").unwrap();
        assert_eq!(mode("own"), 0o755);
        crate::need!(crate::testing::root());
        const OTHER: Option<u32> = Some(65534);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        fs::write(at("fresh"), "").unwrap();
        for bits in [0o4777, 0o666] {
            fs::write(at("others"), "old").unwrap();
            std::os::unix::fs::chown(at("others"), OTHER, OTHER).unwrap();
            fs::set_permissions(at("others"), Permissions::from_mode(bits)).unwrap();
            write(&at("others"), "new").unwrap();
            assert_eq!(
                (mode("others"), fs::metadata(at("others")).unwrap().uid()),
                (mode("fresh"), 0),
                "{bits:o}"
            );
        }
        fs::write(at("target"), "kept").unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("none"), at("dangling")).unwrap();
        for name in ["link", "dangling", "fifo"] {
            std::os::unix::fs::lchown(at(name), OTHER, OTHER).unwrap();
            assert!(check_place("--html", &at(name)).is_err(), "{name}");
            assert!(write(&at(name), "new").unwrap_err().message.contains("another user"), "{name}");
        }
        assert_eq!(fs::read_to_string(at("target")).unwrap(), "kept");
        assert!(!at("none").exists());
    }

    #[test]
    fn what_programs_write_goes_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["target", "log"] {
            fs::write(at(name), "old").unwrap();
        }
        std::os::unix::fs::symlink("target", at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "fifo"] {
            assert!(create(&at(name)).is_err(), "{name}");
        }
        create(&at("log")).unwrap();
        create(&at("new")).unwrap().write_all(b"x").unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!([read("target"), read("log"), read("new")], ["old", "", "x"]);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, link, fifo) =
            (folder.path().join("plain"), folder.path().join("link"), folder.path().join("fifo"));
        fs::write(&plain, "content").unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(io::read_to_string(open_regular(&plain).unwrap()).unwrap(), "content");
        assert_eq!(io::read_to_string(open_regular(&link).unwrap()).unwrap(), "content");
        for other in [fifo.as_path(), Path::new("/dev/null"), folder.path()] {
            let error = open_regular(other).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", other.display());
        }
        let root = DirectoryRoot(folder.path().into());
        assert_eq!(read_below(&root, "/link", 3), None, "it leads out");
        assert_eq!(read_below(&root, "/plain", 3).as_deref(), Some("con".as_bytes()));
        assert_eq!(read_below(&root, "/fifo", 3), None);
        assert_eq!(open_regular(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// As a container's process may place links that would lead into ours.
    #[test]
    fn links_of_another_root_lead_nowhere_else() {
        use std::process::{Command, Stdio};
        crate::need!(crate::testing::root());
        let compiler = crate::need!(crate::testing::program("cc"));
        let folder = tempfile::tempdir().unwrap();
        let secret = tempfile::tempdir().unwrap();
        fs::write(secret.path().join("file"), "ours").unwrap();
        let source =
            "#include <unistd.h>\nint main(void) { char c; for (; read(0, &c, 1) == 1;) write(1, &c, 1); }";
        fs::write(secret.path().join("copies.c"), source).unwrap();
        let mut compile = Command::new(compiler);
        compile.args(["-static", "-o"]).arg(folder.path().join("copies")).arg(secret.path().join("copies.c"));
        assert!(compile.status().unwrap().success());
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        };
        fs::write(folder.path().join("own"), "theirs").unwrap();
        link(&secret.path().join("file"), "to-file");
        link(secret.path(), "to-folder");
        link(Path::new("/own"), "to-own");
        let upwards = "../".repeat(20) + "own";
        link(Path::new(&upwards), "upwards");
        let mut command = Command::new("chroot");
        command.arg(folder.path()).arg("/copies").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        // It is there when it answers.
        process.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let read = |path: &str| {
            let path = format!("/proc/{}/root/{path}", process.id());
            open_regular(Path::new(&path)).and_then(io::read_to_string).ok()
        };
        let paths = ["to-file", "to-folder/file", "to-own", "upwards", "/own"];
        let found = paths.map(read);
        let root = format!("/proc/{}/root", process.id());
        let by_steps = paths.map(|path| place_by_steps(Path::new(&root), Path::new(path)).is_ok());
        process.kill().unwrap();
        process.wait().unwrap();
        let theirs = Some("theirs".to_string());
        assert_eq!(found, [None, None, theirs.clone(), theirs.clone(), theirs]);
        assert_eq!(by_steps, [false, false, true, true, true]);
    }
}
