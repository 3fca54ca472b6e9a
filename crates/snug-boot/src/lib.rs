//! The cost of a program's boot: memory and time of each file that it requires.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod difference;
pub mod library;
pub mod recorder;
pub mod report;
pub mod text;
