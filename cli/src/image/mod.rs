//! What would run: entry commands of images and units of systemd, told from files alone.

mod archive;
mod entry;
mod loading;
pub(crate) mod subject;
mod temporary;
pub(crate) mod unit;
