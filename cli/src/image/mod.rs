//! What would run: programs in root file systems and units of systemd, told from files alone.

mod entry;
mod loading;
pub(crate) mod subject;
pub(crate) mod unit;
