//! Pods of a cluster, from what Prometheus keeps of them: is a canary better, and what requests and limits do they need?.

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
