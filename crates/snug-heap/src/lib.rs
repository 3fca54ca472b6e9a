//! Readers of what an allocator keeps, from outside of its process: snug's page of counters and samples, glibc's
//! chunks.

#![warn(missing_docs)]
// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod account;
pub mod answers;
pub mod counters;
pub mod glibc_heap;
pub mod hooks;
pub mod interpreters;
pub mod page_change;
pub mod places;
pub mod pools;
pub mod python_change;
pub mod python_types;
pub mod profile;
pub mod read_error;
pub mod remote;
pub mod ruby_change;
pub mod sharing;
pub mod slab_map;
pub mod wishes;
