//! The ground of the other crates, which knows nothing of memory: failures, numbers for people, the machine, files and
//! ELF files.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod demangle;
pub mod elf;
pub mod failure;
pub mod file;
pub mod json;
pub mod machine;
pub mod progress;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod random;
pub mod root;
pub mod terminal;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod testing;
pub mod time;

/// The one version of the project.
pub const VERSION: &str = include_str!("../../../VERSION").trim_ascii();
