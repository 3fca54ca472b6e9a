//! Asks HTTP servers: Prometheus, and those that take profiles.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod prometheus;
pub mod server;
