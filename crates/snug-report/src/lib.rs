//! Writers of results: tables, pages, plots, files for other programs. Decides nothing.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

pub mod blame_text;
pub mod flame;
pub mod profile_text;
pub mod chart;
pub mod check_text;
pub mod copied_text;
pub mod csv;
pub mod hooks_text;
pub mod html;
pub mod leak_plot;
pub mod leak_text;
pub mod markdown;
pub mod narrow;
pub mod output;
pub mod overview;
pub mod plot;
pub mod residence_text;
pub mod stats_text;
pub mod table;
