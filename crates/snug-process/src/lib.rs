//! Processes of this machine: what `/proc` says of them, which belong together, how to start them, wait for them and
//! stop them. All `unsafe` of the tool is in `system`.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod cgroup;
pub mod children;
pub mod command_line;
pub mod ending;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod fake;
pub mod follow;
#[cfg(test)]
mod fuzzed;
pub mod guard;
pub mod huge_pages;
pub mod listening;
pub mod maps;
pub mod memory_group;
pub mod pace;
pub mod place;
pub mod pod_name;
pub mod proc;
pub mod role;
pub mod smaps;
pub mod stacks;
pub mod symbols;
#[allow(unsafe_code)]
pub mod system;
pub mod traced;
pub mod tree;
pub mod wheel;
