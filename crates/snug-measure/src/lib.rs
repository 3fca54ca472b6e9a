//! Runs a program for a measurement: which allocators, when it is ready, the load, what is measured of it.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod comparison;
pub mod errand;
pub mod http;
pub mod live;
pub mod log;
pub mod measure;
pub mod outcome;
pub mod perf;
pub mod phases;
pub mod plan;
pub mod probe;
pub mod reported;
pub mod request;
pub mod sample;
pub mod serving;
pub mod sets;
pub mod settings;
pub mod setup;
pub mod target;
pub mod track;
