//! An archive that holds the objects of libmimalloc_sys, for ../build to link. Nothing of Rust gets into the library.

pub use libmimalloc_sys;
