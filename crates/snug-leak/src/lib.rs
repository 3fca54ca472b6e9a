//! The answer to "is it a leak?": trends, intervals, verdicts and the words for them.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod assemble;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
pub mod fit;
pub mod floors;
pub mod growth_check;
pub mod load;
pub mod report;
mod root_end;
pub mod session;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod simulate_sampling;
pub mod size_growth;
pub mod trend;
pub mod verdict;
pub mod wording;
