//! One module for each command of the tool, and the command line.

pub(crate) mod advise;
pub(crate) mod arguments;
pub(crate) mod blame;
pub(crate) mod boot;
pub(crate) mod canary;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod complete;
pub(crate) mod exporter;
pub(crate) mod fleet;
pub(crate) mod generate;
pub(crate) mod install;
pub(crate) mod leak;
pub(crate) mod profile;
mod prometheus;
pub(crate) mod purge;
pub(crate) mod report;
pub(crate) mod run;
mod server;
pub(crate) mod set;
pub(crate) mod stats;
pub(crate) mod top;
