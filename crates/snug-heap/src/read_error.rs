//! The reasons why the memory of another process can't be read.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// Why not. Decisions are made by the variant; its text is for people alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The kernel or a sandbox does not let us.
    Refused,
    /// It is not there, or not yet: this is missing.
    NotThere(&'static str),
    /// It has a layout that this program does not know.
    OtherVersion(String),
    /// The process has ended, or has no memory at the address.
    Io(Errno),
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Refused => formatter.write_str("permission denied"),
            ReadError::NotThere(what) => formatter.write_str(what),
            ReadError::OtherVersion(what) => formatter.write_str(what),
            ReadError::Io(errno) => io::Error::from(*errno).fmt(formatter),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match error.kind() {
            io::ErrorKind::PermissionDenied => ReadError::Refused,
            _ => ReadError::Io(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}
