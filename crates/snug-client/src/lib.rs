//! Asks Prometheus, over HTTP and TLS, with a token or a password.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod prometheus;
pub mod server;
