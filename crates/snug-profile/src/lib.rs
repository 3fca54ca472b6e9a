//! Samples of allocations: which lines hold memory, how profiles differ, the black box, and the formats in which
//! profiles are written.

#![warn(missing_docs)]
// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod black_box;
pub mod black_box_folder;
pub mod black_box_writer;
pub mod difference;
pub mod heap_v2;
pub mod keeping;
pub mod pprof;
pub mod lines;
pub mod sampled_tree;
pub mod sampling;
pub mod sites;
