//! Files that a user asked for: refused early where they can't be made, written whole.

use std::fs;
use std::path::Path;

use super::failure::{Context, Failure, Result, USAGE};

/// Writes `content` to `path`, in place of what the file held. A failure names the file.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).cannot(|| format!("write {}", path.display()))
}

/// Refuses a file that `write` could not make, before the work whose result it would hold. `option` names it.
pub(crate) fn check_place(option: &str, path: &Path) -> Result<()> {
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
