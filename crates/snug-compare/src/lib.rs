//! Comparisons of allocators: quantities, the data model, what it means, conditions. Pure: nothing here starts, reads
//! or shows anything.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod advice;
pub mod attribution;
pub mod change;
pub mod condition;
pub mod dimension;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod fixture;
#[cfg(test)]
mod false_alarms;
pub mod overview;
pub mod quantities;
pub mod results;
pub mod saved;
pub mod shown_ratio;
pub mod summary;
pub mod until;
pub mod view;
pub mod warnings;
pub mod window;
