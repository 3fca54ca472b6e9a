//! Failures: what went wrong, and what to do about it. Every error that reaches the user is one of these; only `main`
//! prints it and turns it into an exit code.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::terminal::printable_lines;

/// Exit code for "the answer is no" or "a run failed".
pub const FAILED: u8 = 1;
/// Exit code for a request that makes no sense; clap uses the same.
pub const USAGE: u8 = 2;
/// Exit code for something that could not be looked at (no such process, no permission).
pub const UNKNOWN: u8 = 3;
/// Exit code when a condition of --fail-if holds.
pub const CONDITION: u8 = 4;
/// Exit code when snug itself could not do its part before the program started.
pub const NOT_STARTED: u8 = 125;
/// Exit code when the program was found but can't be executed, as shells use it.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit code when the program was not found, as shells use it.
pub const NOT_FOUND: u8 = 127;
/// Exit code after Ctrl-C, as shells use it.
pub const INTERRUPTED: u8 = 130;
/// Exit code when the reader of stdout went away, as shells show SIGPIPE: neither yes nor no was told.
pub const READER_GONE: u8 = 141;

/// An error for the user: what is wrong, what to do, and the exit code that says so to a script.
#[derive(Debug, Clone)]
pub struct Failure {
    pub message: String,
    pub advice: Option<String>,
    pub exit_code: u8,
    /// The error of the system or of a library that it comes from.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with exit code 1 and no advice yet.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), advice: None, exit_code: FAILED, source: None }
    }

    /// A request that makes no sense, and what to write instead.
    pub fn usage(message: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(message).advise(advice).exit_code(USAGE)
    }

    /// A failure that was explained already and only sets the exit code.
    pub fn already_told(exit_code: u8) -> Failure {
        Failure::new("").exit_code(exit_code)
    }

    /// Adds what the user can do.
    pub fn advise(mut self, advice: impl Into<String>) -> Failure {
        self.advice = Some(advice.into());
        self
    }

    /// Sets the exit code.
    pub fn exit_code(mut self, exit_code: u8) -> Failure {
        self.exit_code = exit_code;
        self
    }

    /// Whether all that failed was to write to a pipe that nobody reads any more.
    pub fn is_broken_pipe(&self) -> bool {
        let mut next = self.source();
        while let Some(error) = next {
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            {
                return true;
            }
            next = error.source();
        }
        false
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The same words and the same exit code; where they come from does not matter.
impl PartialEq for Failure {
    fn eq(&self, other: &Failure) -> bool {
        (&self.message, &self.advice, self.exit_code) == (&other.message, &other.advice, other.exit_code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They may quote what processes and files say.
        write!(formatter, "{}", printable_lines(&self.message))?;
        if let Some(advice) = &self.advice {
            write!(formatter, "\n{}", printable_lines(advice))?;
        }
        Ok(())
    }
}

/// Turns system errors into failures that say what was being done.
pub trait Context<T> {
    /// `doing` completes the sentence "cannot ...".
    fn cannot(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for std::result::Result<T, E> {
    fn cannot(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| {
            let source: Arc<dyn Error + Send + Sync> = Arc::from(error.into());
            Failure { source: Some(source.clone()), ..Failure::new(format!("cannot {}: {source}", doing())) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_the_message() {
        let failure = Failure::new("no library").advise("install it").exit_code(NOT_STARTED);
        assert_eq!(failure.to_string(), "no library\ninstall it");
        assert_eq!(failure.exit_code, 125);
        assert_eq!(Failure::new("a\x1b[2J").advise("b\x1bc").to_string(), "a\u{fffd}[2J\nb\u{fffd}c");
    }

    #[test]
    fn system_errors_get_context() {
        let error: std::result::Result<(), _> = Err(std::io::Error::from_raw_os_error(libc::ENOENT));
        let failure = error.cannot(|| "read x".into()).unwrap_err();
        assert!(failure.message.starts_with("cannot read x: No such file"), "{failure}");
    }

    #[test]
    fn the_source_tells_a_reader_that_left() {
        let broken =
            |error: io::Error| Err::<(), _>(error).cannot(|| "write".into()).unwrap_err().is_broken_pipe();
        assert!(broken(io::ErrorKind::BrokenPipe.into()));
        assert!(!broken(io::ErrorKind::StorageFull.into()) && !Failure::new("Broken pipe").is_broken_pipe());
    }
}
