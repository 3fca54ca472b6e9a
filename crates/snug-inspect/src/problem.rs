//! The problems of a process or a program: what is wrong, how bad that is, and what to do.

use serde::Serialize;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// It works, but not as well as it could.
    Warning,
    /// Not what was asked for.
    Error,
}

/// Something that is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A stable name for scripts.
    pub id: &'static str,
    pub severity: Severity,
    pub message: String,
    pub fix: String,
}

impl Problem {
    pub fn new(id: &'static str, severity: Severity, message: String, fix: impl Into<String>) -> Problem {
        Problem { id, severity, message, fix: fix.into() }
    }
}
