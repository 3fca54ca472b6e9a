//! The comparison as a table for people, followed by the sentence that sums it up.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

use super::results::{Comparison, Estimate, SummaryRow};
use super::{view, Writer};
use crate::allocator::Kind;
use crate::terminal::{self, short_count, short_number, styled};

/// Writes the table. `colours` allows bold and colours.
pub struct TableWriter {
    pub colours: bool,
}

/// One kind of column: its heading and how to fill a cell. The second line of a cell is the 95 % interval.
struct Column {
    heading: String,
    cell: Box<dyn Fn(&SummaryRow) -> String>,
}

/// Follows a ratio whose interval holds 1.
const SAME: &str = " ~";

impl Writer for TableWriter {
    fn write(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        let columns = columns(comparison);
        let mut table = Table::new();
        table.load_preset("     ══                ");
        table.set_content_arrangement(ContentArrangement::Disabled);
        let heading = |text: &str| styled(text, terminal::BOLD, self.colours);
        let headings = columns.iter().map(|column| {
            Cell::new(column.heading.lines().map(heading).collect::<Vec<_>>().join("\n"))
                .set_alignment(CellAlignment::Right)
        });
        table.set_header(std::iter::once(Cell::new(heading("allocator"))).chain(headings));
        for (row, allocator) in comparison.summary.allocators.iter().zip(&comparison.allocators) {
            let emphasised = allocator.kind == Kind::Snug && self.colours;
            let shown = |text: &str| styled(text, terminal::BOLD, emphasised);
            let faint = |text: &str| styled(text, terminal::FAINT, self.colours);
            let cells = columns.iter().map(|column| {
                let text = (column.cell)(row);
                let lines = text.split_once('\n').map_or_else(
                    || shown(&text),
                    |(value, interval)| format!("{}\n{}", shown(value), faint(interval)),
                );
                Cell::new(lines).set_alignment(CellAlignment::Right)
            });
            let mut name: Vec<String> =
                label_lines(&allocator.label).iter().map(|line| shown(line)).collect();
            name.extend(allocator.version.as_ref().map(|version| faint(&format!("  {version}"))));
            let name = name.join("\n");
            table.add_row(std::iter::once(Cell::new(name)).chain(cells));
        }
        if let Some(first) = table.column_mut(0) {
            first.set_padding((0, 1));
            first.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(40)));
        }
        writeln!(out, "{}", heading(&title(comparison)))?;
        writeln!(out, "{}", table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))?;
        let any_same = comparison.summary.allocators.iter().any(|row| {
            columns.iter().any(|column| (column.cell)(row).lines().any(|line| line.ends_with(SAME)))
        });
        if any_same {
            writeln!(out, "~ no difference: the 95 % interval of the ratio holds 1")?;
        }
        writeln!(out)?;
        for warning in &comparison.summary.warnings {
            writeln!(out, "{} {warning}", styled("note:", terminal::WARNING, self.colours))?;
        }
        writeln!(out, "{}", heading(&comparison.summary.conclusion))
    }
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

fn columns(comparison: &Comparison) -> Vec<Column> {
    let ratio_column = |quantity: &str| ratio_column(quantity, &comparison.summary.baseline);
    let measure = comparison.summary.memory_measure.clone();
    let mean = format!("{measure}_mean_bytes");
    let mut columns = vec![
        spread_column("mean\nmemory", &mean, 1e-6),
        ratio_column(&mean),
        plain_column("peak", &format!("{measure}_peak_bytes"), terminal::megabytes),
        plain_column("cgroup\npeak", "cgroup_peak_bytes", terminal::megabytes),
    ];
    if view::window(comparison).is_some() {
        let idle = format!("idle.{measure}_final_bytes");
        columns.extend([spread_column("after\nidling", &idle, 1e-6), ratio_column(&idle)]);
    } else {
        columns.push(plain_column("final", &format!("{measure}_final_bytes"), terminal::megabytes));
    }
    if measure == "pss" {
        columns.push(plain_column("mean\nRSS", "rss_mean_bytes", terminal::megabytes));
        columns.push(plain_column("mean\nUSS", "uss_mean_bytes", terminal::megabytes));
    }
    if view::window(comparison).is_none() {
        columns.extend([spread_column("wall\ntime", "wall_s", 1.0), ratio_column("wall_s")]);
    } else {
        for (heading, quantity, factor) in [
            ("requests\nper s", "requests_per_s", 1.0),
            ("p50\nms", "latency_p50_s", 1e3),
            ("p99\nms", "latency_p99_s", 1e3),
        ] {
            columns.extend([spread_column(heading, quantity, factor), ratio_column(quantity)]);
        }
    }
    let [cpu, faults] = view::costs(comparison);
    let headings = match view::cost_window(comparison) {
        Some(window) => ["CPU,", "faults,"].map(|what| format!("{what}\n{window}")),
        None => ["CPU\ntime", "page\nfaults"].map(String::from),
    };
    columns.extend([spread_column(&headings[0], &cpu.name, 1.0), ratio_column(&cpu.name)]);
    columns.push(plain_column(&headings[1], &faults.name, short_count));
    let metrics: BTreeSet<&String> = comparison.runs.iter().flat_map(|run| run.metrics.keys()).collect();
    // Errors make a run fail: a column of zeros says nothing.
    for name in metrics.into_iter().filter(|name| *name != "errors") {
        columns.push(spread_column(name, &format!("metric:{name}"), 1.0));
    }
    let rows = &comparison.summary.allocators;
    if rows.iter().any(|row| row.runs + row.failed_runs != rows[0].runs + rows[0].failed_runs) {
        columns.push(Column { heading: "runs".into(), cell: Box::new(|row| row.runs.to_string()) });
    }
    if rows.iter().any(|row| row.failed_runs > 0) {
        columns.push(Column {
            heading: "failed\nruns".into(),
            cell: Box::new(|row| row.failed_runs.to_string()),
        });
    }
    // A server without load has no latencies: a column of dashes says nothing.
    let is_filled =
        |column: &Column| comparison.summary.allocators.iter().any(|row| (column.cell)(row) != "-");
    columns.retain(is_filled);
    columns
}

/// A column whose cells come from one quantity; a dash where it was not measured.
fn column(heading: &str, quantity: &str, show: impl Fn(&Estimate) -> String + 'static) -> Column {
    let quantity = quantity.to_string();
    let cell = move |row: &SummaryRow| row.quantities.get(&quantity).map_or_else(|| "-".into(), &show);
    Column { heading: heading.into(), cell: Box::new(cell) }
}

fn plain_column(heading: &str, quantity: &str, show: fn(f64) -> String) -> Column {
    column(heading, quantity, move |estimate| show(estimate.median))
}

fn spread_column(heading: &str, quantity: &str, factor: f64) -> Column {
    column(heading, quantity, move |estimate| {
        let median = short_number(estimate.median * factor);
        let digits = median.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        match estimate.median_interval {
            // Student's interval may reach below what the quantity can be.
            Some((low, high)) => {
                format!("{median}\n{:.digits$}-{:.digits$}", (low * factor).max(0.0), high * factor)
            }
            None => median,
        }
    })
}

/// A dash where there is no ratio, as of values that may be zero; the baseline is once itself.
fn ratio_column(quantity: &str, baseline: &str) -> Column {
    let (quantity, baseline) = (quantity.to_string(), baseline.to_string());
    let cell = move |row: &SummaryRow| match row.quantities.get(&quantity) {
        None => "-".into(),
        Some(estimate) => ratio_text(estimate, row.allocator == baseline),
    };
    Column { heading: "x".into(), cell: Box::new(cell) }
}

fn ratio_text(estimate: &Estimate, is_baseline: bool) -> String {
    match estimate.ratio {
        Some(ratio) => {
            let same = if ratio.no_difference() { SAME } else { "" };
            let interval = ratio.interval.map(|(low, high)| format!("\n{low:.2}-{high:.2}"));
            format!("{:.2}{same}{}", ratio.value, interval.unwrap_or_default())
        }
        None if is_baseline => "1".into(),
        None => "-".into(),
    }
}

/// Breaks a long label where its parts meet.
fn label_lines(label: &str) -> Vec<String> {
    const WIDTH: usize = 38;
    let mut lines = vec![String::new()];
    for part in label.split_inclusive([':', ',', '/']) {
        let current = lines.last_mut().expect("there is always one line");
        if !current.is_empty() && current.chars().count() + part.chars().count() > WIDTH {
            lines.push(format!("  {part}"));
        } else {
            current.push_str(part);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;
    use crate::compare::results::{Latency, Percentile, Phase, Serving};

    fn render(comparison: &Comparison) -> String {
        let mut out = Vec::new();
        TableWriter { colours: false }.write(comparison, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_columns_and_conclusion() {
        let text = render(&fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]));
        let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("snug"));
        let (values, intervals) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(values.contains("50.5") && values.contains("0.50") && values.contains("1.00 ~"), "{text}");
        assert!(intervals.contains("44.1-56.9") && intervals.contains("1.0"), "{text}");
        assert!(text.contains("~ no difference"), "{text}");
        assert!(text.contains("requests_per_s") && text.contains("page"), "{text}");
        assert!(text.trim_end().ends_with('.'), "{text}");
        assert!(!text.contains('\u{1b}'), "no colours asked for: {text}");
    }

    #[test]
    fn servers_show_what_their_clients_saw() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[50.0, 51.0])]);
        comparison.settings.serving = Some(Serving::default());
        for run in &mut comparison.runs {
            let percentiles = [50.0, 99.0].map(|percent| Percentile { percent, latency_s: percent / 1e4 });
            run.latency = Some(Latency {
                requests: 9,
                failed: 0,
                requests_per_s: 77.0,
                percentiles: percentiles.to_vec(),
            });
            run.phases = vec![Phase { name: "idle".into(), start_s: 5.0, end_s: 9.0 }];
        }
        comparison.summary = crate::compare::summary::summarise(&comparison);
        let text = render(&comparison);
        assert!(text.contains("p99") && text.contains("9.90") && text.contains("idling"), "{text}");
        assert!(!text.contains("wall"), "how long it was watched says nothing: {text}");
        assert!(comparison.summary.conclusion.contains("p99 latency"), "{}", comparison.summary.conclusion);
    }

    #[test]
    fn failed_runs_are_shown() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("snug", &[50.0])]);
        comparison.runs[1].failure = Some("crash".into());
        comparison.summary = crate::compare::summary::summarise(&comparison);
        let text = render(&comparison);
        assert!(text.contains("failed"), "{text}");
    }

    #[test]
    fn long_labels_are_broken_between_parts() {
        let lines = label_lines("jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0");
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 42), "{lines:?}");
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
        comparison.summary = crate::compare::summary::summarise(&comparison);
        let column = columns(&comparison)
            .into_iter()
            .skip_while(|column| column.heading != "CPU\ntime")
            .nth(1)
            .unwrap();
        let cells = comparison.summary.allocators.iter().map(|row| (column.cell)(row));
        assert_eq!(cells.collect::<Vec<_>>(), ["1", "-"]);
    }
}
