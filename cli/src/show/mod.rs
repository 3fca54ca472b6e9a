//! How results are shown: tables, pages, plots, files for other programs. Decides nothing.

mod chart;
pub(crate) mod check_text;
mod csv;
mod html;
pub(crate) mod json;
pub(crate) mod leak_plot;
pub(crate) mod leak_text;
mod markdown;
pub(crate) mod output;
pub(crate) mod overview;
pub(crate) mod plot;
pub(crate) mod stats_text;
pub(crate) mod table;
