//! An archive that holds the objects of rpmalloc_sys, for ../build to link. Nothing of Rust gets into the library.

pub use rpmalloc_sys;
