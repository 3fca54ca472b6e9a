//! The table that `snug top --once` prints.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::columns::{self, Content, COLUMNS};
use snug_inspect::sampled;
use snug_live::watch::Reading;

/// All columns but the trend, one process per line.
pub(crate) fn table(readings: &[Reading]) -> String {
    let mut table = Table::new();
    table.load_preset("                   ");
    table.set_content_arrangement(ContentArrangement::Disabled);
    let shown: Vec<_> = COLUMNS.iter().filter(|column| column.content != Content::Trend).collect();
    table.set_header(shown.iter().map(|column| Cell::new(column.title)));
    for reading in readings {
        table.add_row(shown.iter().map(|column| Cell::new(columns::cell(reading, column, 0))));
    }
    for (column, shown) in table.column_iter_mut().zip(&shown) {
        if columns::is_number(shown.content) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    let text = table.to_string();
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Which processes take samples, if any do.
pub(crate) fn sampled(readings: &[Reading]) -> Option<String> {
    let settings = |reading: &Reading| Some(reading.heap.as_ref()?.account.head.settings.clone());
    let is_sampled =
        |reading: &&Reading| settings(reading).is_some_and(|text| sampled::mean_bytes(&text).is_some());
    let pids: Vec<String> =
        readings.iter().filter(is_sampled).map(|reading| reading.pid.to_string()).collect();
    (!pids.is_empty())
        .then(|| format!("sampling is on in {}; snug check PID shows what switched it on", pids.join(", ")))
}
