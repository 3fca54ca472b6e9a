//! What would run: entry commands of images and units of systemd, told from files alone.

#[cfg(feature = "images")]
mod archive;
#[cfg(feature = "images")]
mod docker;
mod entry;
mod loading;
pub(crate) mod subject;
#[cfg(feature = "images")]
mod temporary;
pub(crate) mod unit;
