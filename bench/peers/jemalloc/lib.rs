//! An archive that holds the objects of tikv_jemalloc_sys, for ../build to link. Nothing of Rust gets into the library.

pub use tikv_jemalloc_sys;
