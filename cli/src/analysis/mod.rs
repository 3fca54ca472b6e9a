//! What was measured and what it means. Pure: nothing here starts, reads or shows anything.

pub(crate) mod advice;
pub(crate) mod assemble;
pub(crate) mod attribution;
pub(crate) mod black_box;
pub(crate) mod boot;
pub(crate) mod boot_difference;
pub(crate) mod boot_library;
pub(crate) mod canary;
pub(crate) mod change;
pub(crate) mod condition;
pub(crate) mod dimension;
#[cfg(test)]
mod false_alarms;
#[cfg(test)]
pub(crate) mod fixture;
mod fit;
pub(crate) mod fleet;
mod floors;
pub(crate) mod keeping;
pub(crate) mod growth_check;
pub(crate) mod leak_report;
pub(crate) mod leak_wording;
mod lexer;
pub(crate) mod overview;
pub(crate) mod profile_difference;
pub(crate) mod profile_lines;
pub(crate) mod quantities;
pub(crate) mod results;
pub(crate) mod saved;
pub(crate) mod scope;
pub(crate) mod shown_ratio;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod simulate_sampling;
pub(crate) mod sites;
pub(crate) mod size_growth;
pub(crate) mod statistics;
pub(crate) mod summary;
mod trend;
pub(crate) mod until;
pub(crate) mod verdict;
pub(crate) mod view;
mod warnings;
pub(crate) mod window;
