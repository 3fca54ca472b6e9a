//! The columns of `snug top`: titles, cells, order, and which of them a narrow terminal shows. Pure.

use std::cmp::Ordering;

use crate::arguments::SortColumn;
use snug_base::terminal::{self, printable};
use snug_live::watch::Reading;

/// What stands in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Value(SortColumn),
    Allocator,
    Trend,
}

/// A column.
pub(crate) struct Column {
    pub content: Content,
    pub title: &'static str,
    pub width: u16,
    /// Columns of low importance give way first when the terminal is narrow.
    importance: u8,
}

const fn column(content: Content, title: &'static str, width: u16, importance: u8) -> Column {
    Column { content, title, width, importance }
}

/// All columns, from left to right.
pub(crate) const COLUMNS: &[Column] = &[
    column(Content::Value(SortColumn::Pid), "PID", 7, 11),
    column(Content::Value(SortColumn::Role), "ROLE", 14, 12),
    column(Content::Allocator, "ALLOCATOR", 15, 4),
    column(Content::Value(SortColumn::Rss), "RSS", 7, 10),
    column(Content::Value(SortColumn::Pss), "PSS", 7, 7),
    column(Content::Value(SortColumn::Live), "LIVE", 8, 9),
    column(Content::Value(SortColumn::Cached), "CACHED", 7, 2),
    column(Content::Value(SortColumn::Dirty), "DIRTY", 7, 3),
    column(Content::Value(SortColumn::Fragmentation), "FRAG", 5, 8),
    column(Content::Value(SortColumn::Rate), "ALLOC/s", 7, 1),
    column(Content::Value(SortColumn::Cpu), "CPU", 5, 5),
    column(Content::Trend, "RSS TREND", 10, 6),
];

/// What can be sorted by, in the order in which the keys go through the columns.
pub(crate) fn sorts() -> Vec<SortColumn> {
    let value = |column: &Column| match column.content {
        Content::Value(value) => Some(value),
        _ => None,
    };
    COLUMNS.iter().filter_map(value).collect()
}

/// The columns that fit into a width, with theirs. What is left over goes to roles first, then to trends.
pub(crate) fn that_fit(width: u16) -> Vec<(&'static Column, u16)> {
    let mut by_importance: Vec<&Column> = COLUMNS.iter().collect();
    by_importance.sort_by_key(|column| std::cmp::Reverse(column.importance));
    let mut left = width + 1;
    let mut least = 0;
    for column in by_importance {
        if column.width + 1 > left {
            break;
        }
        left -= column.width + 1;
        least = column.importance;
    }
    let mut fitting: Vec<(&Column, u16)> = COLUMNS
        .iter()
        .filter(|column| least > 0 && column.importance >= least)
        .map(|column| (column, column.width))
        .collect();
    for (content, most) in
        [(Content::Value(SortColumn::Role), 16), (Content::Trend, 20), (Content::Value(SortColumn::Role), 24)]
    {
        if let Some((_, width)) = fitting.iter_mut().find(|(column, _)| column.content == content) {
            let more = left.min(most);
            *width += more;
            left -= more;
        }
    }
    fitting
}

/// A value, or None if it is not known.
fn number(reading: &Reading, column: SortColumn) -> Option<f64> {
    let (heap, estimate) = (reading.heap.as_ref(), reading.glibc_heap);
    let counts = heap.and_then(|heap| heap.account.tick_counts());
    match column {
        SortColumn::Pid => Some(f64::from(reading.pid)),
        SortColumn::Role => None,
        SortColumn::Rss => Some(reading.rss_bytes as f64),
        SortColumn::Pss => reading.pss_bytes.map(|bytes| bytes as f64),
        SortColumn::Live => {
            let estimated = estimate.map(|estimate| estimate.live_bytes);
            heap.map(|heap| heap.account.live_bytes()).or(estimated).map(|bytes| bytes as f64)
        }
        SortColumn::Cached => counts.map(|counts| counts.cached_bytes as f64),
        SortColumn::Dirty => counts.map(|counts| counts.dirty_bytes as f64),
        SortColumn::Fragmentation => {
            let estimated = estimate.map(|estimate| estimate.fragmentation());
            heap.map(|heap| heap.account.fragmentation()).or(estimated)
        }
        SortColumn::Rate => heap.and_then(|heap| heap.taken_bytes_per_s),
        SortColumn::Cpu => reading.cpu_cores,
    }
}

/// The text of a cell.
pub(crate) fn cell(reading: &Reading, column: &Column, width: u16) -> String {
    let value = match column.content {
        Content::Allocator => return printable(&reading.identity.text()),
        Content::Trend => return sparkline(&reading.rss_history, width.into()),
        Content::Value(value) => value,
    };
    // What is not counted is marked.
    let mark = if reading.heap.is_none() { "~" } else { "" };
    match (value, number(reading, value)) {
        (SortColumn::Role, _) => printable(&reading.role_text()),
        (SortColumn::Pid, _) => reading.pid.to_string(),
        // What other allocators hold can't be known from outside; the word stands once.
        (SortColumn::Live, None) => "unknown".into(),
        (_, None) => "-".into(),
        (SortColumn::Live, Some(live)) => format!("{mark}{}", terminal::bytes(live)),
        (SortColumn::Fragmentation, Some(share)) => format!("{mark}{:.0}%", share * 100.0),
        (SortColumn::Cpu, Some(cores)) => format!("{:.0}%", cores * 100.0),
        (_, Some(bytes)) => terminal::bytes(bytes),
    }
}

/// Whether cells of a column stand at its right edge.
pub(crate) fn is_number(content: Content) -> bool {
    !matches!(content, Content::Allocator | Content::Trend | Content::Value(SortColumn::Role))
}

/// Order of two processes: the largest first, names and identifiers upwards, or the other way round if `reversed`;
/// the unknown last in any case.
pub(crate) fn compare(left: &Reading, right: &Reading, column: SortColumn, reversed: bool) -> Ordering {
    let turned = |order: Ordering| if reversed { order.reverse() } else { order };
    let by_pid = left.pid.cmp(&right.pid);
    match column {
        SortColumn::Pid => turned(by_pid),
        SortColumn::Role => turned(left.role_text().cmp(&right.role_text())).then(by_pid),
        column => match (number(left, column), number(right, column)) {
            (Some(left), Some(right)) => turned(right.total_cmp(&left)),
            (left, right) => right.is_some().cmp(&left.is_some()),
        }
        .then(right.rss_bytes.cmp(&left.rss_bytes))
        .then(by_pid),
    }
}

/// The last values as bars of eighths, one column each. A change of less than 5 % looks flat.
pub(crate) fn sparkline(history: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &history[history.len().saturating_sub(width)..];
    let (Some(least), Some(most)) = (shown.iter().min(), shown.iter().max()) else { return String::new() };
    let range = (most - least).max(most / 20).max(1) as f64;
    let bar = |value: &u64| BARS[(((value - least) as f64 / range) * 7.0).round() as usize];
    let bars: String = shown.iter().map(bar).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(width: u16) -> Vec<&'static str> {
        that_fit(width).iter().map(|(column, _)| column.title).collect()
    }

    #[test]
    fn narrow_terminals_show_what_matters_most() {
        assert_eq!(titles(200).len(), COLUMNS.len());
        assert_eq!(titles(30), ["PID", "ROLE", "RSS"]);
        assert_eq!(titles(80), ["PID", "ROLE", "RSS", "PSS", "LIVE", "FRAG", "CPU", "RSS TREND"]);
        assert!(titles(10).is_empty());
        for width in 24..300 {
            let used: u16 = that_fit(width).iter().map(|(_, width)| width + 1).sum();
            assert!(used <= width + 1, "{used} of {width}");
        }
    }

    #[test]
    fn sparklines() {
        assert_eq!(sparkline(&[], 4), "");
        assert_eq!(sparkline(&[100, 100], 4), "  ▁▁");
        assert_eq!(sparkline(&[100, 101, 100], 3), "▁▂▁", "a small change is small");
        assert_eq!(sparkline(&[9, 0, 50, 100], 3), "▁▅█", "only the last ones");
    }
}
