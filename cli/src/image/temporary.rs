//! Directories that are removed when they are no longer needed, also where a signal ends this program.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::signal::{SigSet, Signal};

use crate::base::failure::{Context, Result, INTERRUPTED};
use crate::process::system;

/// Those that exist.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static SIGNALS: Once = Once::new();

/// A directory of this process.
pub(super) struct Temporary(PathBuf);

impl Temporary {
    /// Makes one where the system keeps temporary files. Nobody else may look into it: what it holds of an image may be
    /// secret. Call it on the main thread, before others start: signals that end this program are waited for from now on.
    pub(super) fn new() -> Result<Temporary> {
        SIGNALS.call_once(remove_on_signal);
        let mut builder = tempfile::Builder::new();
        builder.prefix("snug-image-").permissions(Permissions::from_mode(0o700));
        // Under the lock, so that a signal finds it in the list.
        let mut directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        let path = builder.tempdir().cannot(|| "make a directory".into())?.keep();
        directories.push(path.clone());
        Ok(Temporary(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = std::fs::remove_dir_all(&self.0);
        directories.retain(|path| *path != self.0);
    }
}

/// Leaves it to a thread to receive the signals that ask this program to stop.
fn remove_on_signal() {
    let mut signals = SigSet::empty();
    let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    ending.into_iter().filter(|signal| !system::is_ignored(*signal)).for_each(|signal| signals.add(signal));
    // Without it a signal ends the program as ever, and the directories stay.
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            for path in DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_closed_to_others() {
        let temporary = Temporary::new().unwrap();
        let mode = std::fs::metadata(temporary.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }

    #[test]
    fn it_goes_with_what_is_in_it() {
        let (first, second) = (Temporary::new().unwrap(), Temporary::new().unwrap());
        assert_ne!(first.path(), second.path());
        std::fs::write(first.path().join("layer"), "x").unwrap();
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
    }
}
