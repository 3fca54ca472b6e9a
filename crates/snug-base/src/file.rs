//! Files that a user asked for: refused early where they can't be made, written whole. Files that another process
//! names: opened only if they are regular files. Names of files in paths.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::failure::{Context, Failure, Result, USAGE};

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
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
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
    if let Some(there) = there {
        unfinished.as_file().set_permissions(there.permissions())?;
    }
    unfinished.persist(&place).map(|_| ()).map_err(|failed| failed.error)
}

/// Refuses a file that `write` could not make, before the work whose result it would hold. `option` names it.
pub fn check_place(option: &str, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let problem = if path.is_dir() {
        "it is a directory"
    } else if parent.is_some_and(|parent| !parent.is_dir()) {
        "its directory does not exist"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("cannot write {option} {}: {problem}", path.display())).exit_code(USAGE))
}

/// Opens a file for reading whose path another process may have chosen. An error if it is no regular file: to open a
/// FIFO waits for whoever writes to it, to open a device may change it.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let place = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
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
        assert_eq!(open_regular(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
