//! The comparison as a table for people, followed by the sentence that sums it up.

use std::io::{self, Write};

use crate::narrow::{self, Column};
use snug_base::terminal::{self, prose, styled};
use snug_compare::quantities::Quantity;
use snug_compare::results::{Allocator, Comparison, SummaryRow};
use snug_compare::shown_ratio::{self, interval_end, is_telling, TOO_WIDE};
use snug_compare::view::{self, Difference};
use snug_inspect::kinds::Kind;
use snug_stats::Ratio;

/// One kind of column: its heading and how to fill a cell. The second line of a cell is the 95 % interval.
struct TableColumn {
    heading: String,
    cell: Box<dyn Fn(&SummaryRow) -> String>,
}

/// The heading of ratios.
const RATIO: &str = "x";
/// What follows a ratio in place of words, and what stands below the table of each.
const MARKS: [(Difference, &str, &str); 3] = [
    (Difference::Same, "=", "none is shown, and more than 10 % is ruled out"),
    (Difference::NotEnoughData, "~", "neither none nor more than 10 % is ruled out"),
    (Difference::MayBeChance, "?", "among as many ratios as the report shows, one such is no surprise"),
];

/// Writes the table. `colours` allows bold and colours.
pub fn write(comparison: &Comparison, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let columns = columns(comparison);
    let heading = |text: &str| styled(text, terminal::BOLD, colours);
    let bold_lines = |text: &str, wanted: bool| {
        text.lines().map(|line| styled(line, terminal::BOLD, wanted)).collect::<Vec<_>>().join("\n")
    };
    let faint = |text: &str| styled(text, terminal::FAINT, colours);
    let rows = || comparison.summary.allocators.iter().zip(&comparison.allocators);
    let is_ours = |allocator: &Allocator| allocator.kind == Kind::Snug && colours;
    let names = rows().map(|(_, allocator)| {
        let name = bold_lines(&narrow::label(&allocator.label), is_ours(allocator));
        let version = allocator.version.as_ref().map(|version| faint(&format!("  {version}")));
        std::iter::once(name).chain(version).collect::<Vec<_>>().join("\n")
    });
    let names = Column::text(heading("allocator"), names);
    let shown = |column: &TableColumn| {
        let cells = rows().map(|(row, allocator)| {
            let text = (column.cell)(row);
            match text.split_once('\n') {
                None => bold_lines(&text, is_ours(allocator)),
                Some((value, interval)) => {
                    format!("{}\n{}", bold_lines(value, is_ours(allocator)), faint(interval))
                }
            }
        });
        let shown = Column::numbers(bold_lines(&column.heading, colours), cells);
        if column.heading == RATIO {
            shown.staying()
        } else {
            shown
        }
    };
    let parts: Vec<Column> = columns.iter().map(shown).collect();
    writeln!(out, "{}", heading(&prose(&title(comparison))))?;
    narrow::write(&names, &parts, terminal::stdout_columns(), out)?;
    for (difference, mark, meaning) in MARKS {
        let marked = |text: String| text.lines().any(|line| line.ends_with(&format!(" {mark}")));
        let mut rows = comparison.summary.allocators.iter();
        if rows.any(|row| columns.iter().any(|column| marked((column.cell)(row)))) {
            writeln!(out, "{mark} {}: {meaning}", difference.words())?;
        }
    }
    writeln!(out)?;
    for warning in &comparison.summary.warnings {
        let note = prose(&format!("note: {warning}"));
        writeln!(out, "{}{}", styled("note:", terminal::WARNING, colours), &note["note:".len()..])?;
    }
    writeln!(out, "{}", heading(&prose(&comparison.summary.conclusion)))
}

fn title(comparison: &Comparison) -> String {
    let measure = match comparison.summary.memory_measure.as_str() {
        "pss" => "PSS: pages shared by several processes are divided among them",
        _ => "RSS",
    };
    let which = match &comparison.settings.only {
        Some(only) => format!("processes that match {only:?}"),
        None => "the whole process tree".into(),
    };
    let spread = match view::run_count(comparison) {
        None => "one run each".to_string(),
        Some(runs) => format!("medians of {runs} runs, below them 95 % intervals"),
    };
    let when = view::window(comparison).map_or_else(String::new, |window| format!(", {window}"));
    format!(
        "Memory in MB ({measure}; {which}{when}), times in s; {spread}; x: times {}",
        comparison.summary.baseline
    )
}

fn columns(comparison: &Comparison) -> Vec<TableColumn> {
    let mut columns: Vec<TableColumn> = Vec::new();
    for quantity in view::quantities(comparison) {
        // Under its own name, which may end in a unit, a metric is shown as the program reported it.
        let quantity = match quantity.name.starts_with("metric:") {
            true => Quantity { unit: "", factor: 1.0, ..quantity },
            false => quantity,
        };
        columns.push(value_column(quantity.clone()));
        columns.extend(quantity.ratio.then(|| ratio_column(quantity, comparison)));
    }
    let rows = &comparison.summary.allocators;
    if rows.iter().any(|row| row.runs + row.failed_runs != rows[0].runs + rows[0].failed_runs) {
        columns.push(TableColumn { heading: "runs".into(), cell: Box::new(|row| row.runs.to_string()) });
    }
    if rows.iter().any(|row| row.failed_runs > 0) {
        columns.push(TableColumn {
            heading: "failed\nruns".into(),
            cell: Box::new(|row| row.failed_runs.to_string()),
        });
    }
    columns
}

/// The medians of a quantity, those that have a column for their ratio with their interval; a dash where it was not
/// measured.
fn value_column(quantity: Quantity) -> TableColumn {
    let heading = quantity.short.clone();
    let cell = move |row: &SummaryRow| {
        let Some(estimate) = row.quantities.get(&quantity.name) else { return "-".into() };
        let median = view::number(&quantity, estimate.median);
        let is_wide = quantity.ratio || quantity.name.starts_with("metric:");
        let Some((low, high)) = estimate.median_interval.filter(|_| is_wide) else { return median };
        // Student's interval may reach below what the quantity can be.
        let (low, high) = (low.max(0.0), high);
        if median.contains(' ') {
            return format!("{median}\n{}-{}", view::number(&quantity, low), view::number(&quantity, high));
        }
        let digits = median.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        format!("{median}\n{:.digits$}-{:.digits$}", low * quantity.factor, high * quantity.factor)
    };
    TableColumn { heading, cell: Box::new(cell) }
}

/// A dash where there is no ratio, as of values that may be zero; the baseline is once itself.
fn ratio_column(quantity: Quantity, comparison: &Comparison) -> TableColumn {
    let label = comparison.summary.baseline.clone();
    let baseline = comparison.estimate(&label, &quantity.name).copied();
    let cell = move |row: &SummaryRow| match row.quantities.get(&quantity.name) {
        Some(_) if row.allocator == label => "1".into(),
        Some(estimate) => {
            let ratio = shown_ratio::to_baseline(&quantity, estimate, baseline.as_ref());
            ratio.map_or_else(|| "-".into(), ratio_text)
        }
        None => "-".into(),
    };
    TableColumn { heading: RATIO.into(), cell: Box::new(cell) }
}

fn ratio_text(ratio: Ratio) -> String {
    let times = shown_ratio::times(ratio);
    let verdict = view::verdict(Some(ratio), None);
    let mark = MARKS.iter().find(|(difference, ..)| *difference == verdict);
    let mark = mark.map_or_else(String::new, |(_, mark, _)| format!(" {mark}"));
    match ratio.interval {
        Some((low, high)) if is_telling((low, high)) => {
            format!("{times}{mark}\n{}-{}", interval_end(low), interval_end(high))
        }
        Some(_) => format!("{times}{mark}\n{TOO_WIDE}"),
        None => times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    fn render(comparison: &Comparison) -> String {
        let mut out = Vec::new();
        write(comparison, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn two_runs_have_no_wild_intervals() {
        let text = render(&fixture::comparison(&[("glibc", &[10.0, 120.0]), ("snug", &[95.0, 18.0])]));
        assert!(text.contains("too wide to tell"), "{text}");
        let number =
            |word: &str| word.split('-').map(|end| end.parse::<f64>().ok()).collect::<Option<Vec<_>>>();
        let ranges = text.split_whitespace().filter_map(number).filter(|ends| ends.len() == 2);
        assert!(ranges.into_iter().all(|ends| ends[1] <= 4.0 * ends[0]), "{text}");
    }

    #[test]
    fn failed_runs_are_shown() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("snug", &[50.0])]);
        comparison.runs[1].failure = Some("crash".into());
        comparison.summary = snug_compare::summary::summarise(&comparison);
        let text = render(&comparison);
        assert!(text.contains("failed"), "{text}");
    }

    #[test]
    fn a_comparison_that_was_stopped_shows_the_runs_there_are() {
        fixture::assert_stop_is_shown(render);
    }

    #[test]
    fn what_may_be_zero_has_no_ratio() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[50.0, 51.0])]);
        for run in comparison.runs.iter_mut().filter(|run| run.allocator == "snug") {
            (run.cpu_user_s, run.cpu_system_s) = (0.0, 0.0);
        }
        comparison.summary = snug_compare::summary::summarise(&comparison);
        let column = columns(&comparison)
            .into_iter()
            .skip_while(|column| column.heading != "CPU\ntime")
            .nth(1)
            .unwrap();
        let cells = comparison.summary.allocators.iter().map(|row| (column.cell)(row));
        assert_eq!(cells.collect::<Vec<_>>(), ["1", "-"]);
    }
}
