//! Runs a program for a measurement: which allocators, when it is ready, the load, what is measured of it.

pub(crate) mod black_box;
pub(crate) mod black_box_folder;
pub(crate) mod boot;
pub(crate) mod errand;
mod http;
pub(crate) mod load;
mod live;
mod log;
pub(crate) mod measure;
mod outcome;
pub(crate) mod perf;
mod phases;
pub(crate) mod plan;
pub(crate) mod preloaded;
mod probe;
mod reported;
mod sample;
pub(crate) mod sampled_tree;
pub(crate) mod sampling;
pub(crate) mod serving;
pub(crate) mod sets;
pub(crate) mod settings;
mod target;
pub(crate) mod track;
