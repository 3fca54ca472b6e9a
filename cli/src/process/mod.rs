//! Processes of this machine: what `/proc` says of them, which belong together, waiting for them and stopping them.

pub(crate) mod cgroup;
pub(crate) mod children;
pub(crate) mod command_line;
pub(crate) mod ending;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod follow;
pub(crate) mod guard;
pub(crate) mod listening;
pub(crate) mod maps;
pub(crate) mod memory_group;
pub(crate) mod pace;
pub(crate) mod place;
pub(crate) mod pod_name;
pub(crate) mod proc;
pub(crate) mod role;
pub(crate) mod smaps;
pub(crate) mod stacks;
pub(crate) mod symbols;
#[allow(unsafe_code)]
pub(crate) mod system;
pub(crate) mod traced;
pub(crate) mod tree;
