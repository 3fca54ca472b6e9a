//! Which allocator a process or a program uses, and which there are.

pub(crate) mod access;
pub(crate) mod asker;
pub(crate) mod changes;
pub(crate) mod control;
pub(crate) mod deploy;
pub(crate) mod facts;
pub(crate) mod identity;
pub(crate) mod inspect;
pub(crate) mod installation;
pub(crate) mod judge;
pub(crate) mod kinds;
pub(crate) mod library;
pub(crate) mod linkage;
mod malloc_conf;
pub(crate) mod options;
pub(crate) mod packages;
mod preload;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod residence;
pub(crate) mod sampled;
pub(crate) mod stats;
pub(crate) mod watch;
