//! Files that a user asked for: refused early where they can't be made, written whole. Files that another process
//! names: opened only if they are regular files.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::failure::{Context, Failure, Result, USAGE};

/// Writes `content` to `path`, in place of what the file held. A failure names the file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).cannot(|| format!("write {}", path.display()))
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
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(itself)
}

#[cfg(test)]
mod tests {
    use super::*;

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
