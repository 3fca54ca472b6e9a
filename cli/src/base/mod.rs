//! What everything else stands on and what knows nothing of memory: failures, numbers for people, the machine, files and
//! ELF files.

pub(crate) mod demangle;
pub(crate) mod elf;
pub(crate) mod failure;
pub(crate) mod file;
pub(crate) mod machine;
pub(crate) mod progress;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod root;
pub(crate) mod terminal;
pub(crate) mod time;
