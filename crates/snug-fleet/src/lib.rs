//! Answers about the pods of a cluster, from what Prometheus keeps of them: whether a canary is better, and which
//! requests and limits they need.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

mod arguments;
pub mod canary;
pub mod canary_text;
pub mod command_canary;
pub mod command_fleet;
pub mod fleet;
pub mod fleet_text;
pub mod resize_text;
