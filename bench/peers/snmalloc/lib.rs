//! An archive that holds the objects of snmalloc_sys, for ../build to link. Nothing of Rust gets into the library.

pub use snmalloc_sys;
