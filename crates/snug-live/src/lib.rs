//! Processes over time: readings of their memory, where it is, statistics, and requests to snug in them.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod control;
pub mod copied;
pub mod outcome_text;
pub mod record;
pub mod residence;
pub mod sampling_lease;
pub mod sightings;
pub mod stats;
pub mod watch;
