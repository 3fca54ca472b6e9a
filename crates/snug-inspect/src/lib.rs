//! The allocator that a process, a program, an image or a unit uses: which it is, how it got there, what is wrong, and
//! which allocators there are.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod access;
pub mod asker;
pub mod changes;
pub mod deploy;
pub mod entry;
pub mod facts;
pub mod identity;
pub mod inspector;
pub mod installation;
pub mod judge;
pub mod kinds;
pub mod library;
pub mod linkage;
pub mod loading;
pub mod malloc_conf;
pub mod options;
pub mod packages;
pub mod preload;
pub mod preloaded;
pub mod problem;
pub mod program;
pub mod report;
pub mod sampled;
pub mod subject;
pub mod unit;
