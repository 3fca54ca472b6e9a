//! What went wrong, and what to do about it. Every error that reaches the user is one of these; only `main`
//! prints it and turns it into an exit code.

use std::fmt;

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

/// An error for the user: what is wrong, what to do, and the exit code that says so to a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    pub advice: Option<String>,
    pub exit_code: u8,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with exit code 1 and no advice yet.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), advice: None, exit_code: FAILED }
    }

    /// A request that makes no sense, and what to write instead.
    pub fn usage(message: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::new(message).advise(advice).exit_code(USAGE)
    }

    /// A failure that was explained already and only sets the exit code.
    pub fn already_told(exit_code: u8) -> Failure {
        Failure { message: String::new(), advice: None, exit_code }
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
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.message)?;
        if let Some(advice) = &self.advice {
            write!(formatter, "\n{advice}")?;
        }
        Ok(())
    }
}

/// Turns system errors into failures that say what was being done.
pub trait Context<T> {
    /// `doing` completes the sentence "cannot ...".
    fn cannot(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn cannot(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("cannot {}: {error}", doing())))
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
    }

    #[test]
    fn system_errors_get_context() {
        let error: std::result::Result<(), _> = Err(std::io::Error::from_raw_os_error(libc::ENOENT));
        let failure = error.cannot(|| "read x".into()).unwrap_err();
        assert!(failure.message.starts_with("cannot read x: No such file"), "{failure}");
    }
}
