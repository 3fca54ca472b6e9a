//! What the written reports show of a comparison, in words and numbers ready to print: which quantities, in which
//! unit, and what each ratio means. Markdown and HTML only lay it out. Pure.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::results::{Allocator, Comparison, Estimate, Ratio};
use crate::allocator::Kind;
use crate::terminal::{short_count, short_number};

/// A quantity that is worth a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// As in `SummaryRow::quantities`.
    pub name: String,
    pub heading: String,
    pub unit: &'static str,
    /// From the quantity's own unit to the one shown.
    pub factor: f64,
    /// What a reader wants; None where nothing can be said.
    pub wanted: Option<Wanted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Less,
    More,
}

/// What a ratio to the baseline says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the baseline.
    Baseline,
    Better,
    Worse,
    /// It differs, and neither way is better.
    Differs,
    /// The interval holds 1.
    NoDifference,
    /// One run each: there is no interval.
    Unproven,
    /// Nothing to divide by.
    NoRatio,
}

impl Verdict {
    /// A name for style sheets.
    pub fn class(self) -> &'static str {
        match self {
            Verdict::Baseline => "baseline",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Differs => "differs",
            Verdict::NoDifference => "same",
            Verdict::Unproven => "unproven",
            Verdict::NoRatio => "none",
        }
    }
}

/// One number of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Median of the runs.
    pub value: String,
    /// 95 % interval of the median, as "1.2 to 1.4"; empty for one run, and where all runs agree.
    pub spread: String,
    /// As "0.50×"; empty for the baseline.
    pub ratio: String,
    /// As "0.48 to 0.52"; empty if there is none.
    pub interval: String,
    pub verdict: Verdict,
    /// The value as a part of the largest in its column, in percent.
    pub share_percent: u32,
}

/// One allocator.
#[derive(Debug, Clone)]
pub struct Row {
    pub label: String,
    pub kind: Kind,
    /// "2 of 3 runs failed", or how many runs there are where that differs between allocators; else empty.
    pub remark: String,
    /// As many as there are quantities.
    pub cells: Vec<Option<Cell>>,
}

/// Allocators by quantities.
#[derive(Debug, Clone)]
pub struct Table {
    pub quantities: Vec<Quantity>,
    pub rows: Vec<Row>,
}

/// The table of the most important quantities.
pub fn table(comparison: &Comparison) -> Table {
    fill(comparison, quantities(comparison))
}

/// Memory by phase: its mean, and at the end of the last phase what remains. None if the runs have no phases.
pub fn phase_table(comparison: &Comparison) -> Option<Table> {
    let measure = &comparison.summary.memory_measure;
    let of_phase =
        |phase: &String| memory(&format!("{phase}.{measure}_mean_bytes"), &format!("mean, {phase}"));
    let phases = phases(comparison);
    let mut quantities: Vec<Quantity> = phases.iter().map(of_phase).collect();
    let last = phases.last()?;
    quantities.push(memory(&format!("{last}.{measure}_final_bytes"), &format!("end of {last}")));
    let table = fill(comparison, measured(comparison, quantities));
    (!table.quantities.is_empty()).then_some(table)
}

/// What was measured besides the quantities of the table.
#[derive(Debug, Clone)]
pub struct Others {
    pub table: Table,
    /// What was zero at each moment under every allocator, as "mean LazyFree, peak in swap"; empty if nothing was.
    pub absent: String,
}

impl Others {
    /// The headings in one line.
    pub fn headings(&self) -> String {
        joined_headings(&self.table.quantities)
    }
}

/// Memory of the kinds that are not in the table, and threads. None if nothing of it was measured.
pub fn others(comparison: &Comparison) -> Option<Others> {
    // Of these less is not better in itself.
    let neutral = |name: &str, heading: &str| Quantity { wanted: None, ..named(name, heading) };
    let rows = &comparison.summary.allocators;
    let is_all = |quantity: &Quantity, value: f64| {
        let mut estimates = rows.iter().filter_map(|row| row.quantities.get(&quantity.name));
        estimates.all(|estimate| estimate.mean == value)
    };
    let in_table = quantities(comparison);
    let mut rest = measured(
        comparison,
        vec![
            memory("rss_mean_bytes", "mean RSS"),
            memory("pss_mean_bytes", "mean PSS"),
            memory("uss_mean_bytes", "mean USS"),
            memory("cgroup_peak_bytes", "cgroup peak"),
            neutral("huge_mean_bytes", "mean in huge pages"),
            neutral("lazy_free_mean_bytes", "mean LazyFree"),
            memory("swap_peak_bytes", "peak in swap"),
            neutral("threads_peak", "most threads"),
            neutral("processes_mean", "mean processes"),
        ],
    );
    rest.retain(|quantity| {
        let is_in_table = in_table.iter().any(|shown| shown.name == quantity.name);
        // A single process is the ordinary case.
        let is_ordinary = quantity.name == "processes_mean" && is_all(quantity, 1.0);
        !is_in_table && !is_ordinary
    });
    let (zero, filled): (Vec<Quantity>, Vec<Quantity>) =
        rest.into_iter().partition(|quantity| is_all(quantity, 0.0));
    (!filled.is_empty()).then(|| Others { table: fill(comparison, filled), absent: joined_headings(&zero) })
}

fn joined_headings(quantities: &[Quantity]) -> String {
    quantities.iter().map(|quantity| quantity.heading.as_str()).collect::<Vec<_>>().join(", ")
}

/// Names of the phases, in order; none if a run is a single phase.
pub fn phases(comparison: &Comparison) -> Vec<String> {
    let good = comparison.runs.iter().filter(|run| run.failure.is_none() && run.phases.len() > 1);
    let longest = good.max_by_key(|run| run.phases.len());
    longest.map(|run| run.phases.iter().map(|phase| phase.name.clone()).collect()).unwrap_or_default()
}

/// How many runs the medians are those of, as "3" or, where allocators have different numbers, "2 to 3"; None if no
/// allocator has more than one.
pub fn run_count(comparison: &Comparison) -> Option<String> {
    let (fewest, most) = good_runs(comparison);
    match most {
        0 | 1 => None,
        _ if fewest == most => Some(most.to_string()),
        _ => Some(format!("{fewest} to {most}")),
    }
}

/// The smallest and the largest number of good runs of an allocator that has any.
fn good_runs(comparison: &Comparison) -> (u32, u32) {
    let counts = || comparison.summary.allocators.iter().map(|row| row.runs).filter(|runs| *runs > 0);
    (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
}

/// The quantity that says how much work was done per second; None if nothing does.
pub fn throughput_quantity(comparison: &Comparison) -> Option<String> {
    let names = || comparison.summary.allocators.iter().flat_map(|row| row.quantities.keys());
    let plain = names().find(|name| *name == "requests_per_s");
    plain.or_else(|| names().find(|name| name.starts_with("metric:") && name.ends_with("_per_s"))).cloned()
}

/// The part of a run that memory is measured in; None if it is all of it.
pub fn window(comparison: &Comparison) -> Option<&'static str> {
    match phases(comparison).last().map(String::as_str) {
        Some("idle") => Some("from ready to the end of idling"),
        Some(_) => Some("from ready to the end of the load"),
        None => comparison.settings.serving.as_ref().map(|_| "from ready to the end of idling"),
    }
}

/// The part of a run that CPU time and page faults are shown of, everywhere; None if it is all there is. Of a server it
/// is the load, for booting and shutting down are no part of serving.
pub fn cost_window(comparison: &Comparison) -> Option<&'static str> {
    window(comparison)?;
    let has_load = comparison.summary.allocators.iter().any(|row| row.quantities.contains_key("load.cpu_s"));
    Some(if has_load { "load" } else { "whole run" })
}

/// CPU time and page faults.
pub fn costs(comparison: &Comparison) -> [Quantity; 2] {
    let window = cost_window(comparison);
    let phase = if window == Some("load") { "load." } else { "" };
    let when = window.map_or_else(String::new, |window| format!(", {window}"));
    [("cpu_s", "CPU time"), ("page_faults", "page faults")]
        .map(|(name, heading)| named(&format!("{phase}{name}"), &format!("{heading}{when}")))
}

/// The allocator in question: snug, or else the one with least memory that is not the baseline.
pub fn subject(comparison: &Comparison) -> Option<&str> {
    let summary = &comparison.summary;
    let quantity = format!("{}_mean_bytes", summary.memory_measure);
    let others = comparison.allocators.iter().filter(|allocator| allocator.label != summary.baseline);
    let measured = others.filter_map(|one| Some((one, comparison.estimate(&one.label, &quantity)?.median)));
    let key = |(one, mean): &(&Allocator, f64)| (one.kind != Kind::Snug, *mean);
    let least = measured.min_by(|left, right| key(left).partial_cmp(&key(right)).unwrap_or(Ordering::Equal));
    least.map(|(allocator, _)| allocator.label.as_str())
}

/// How to show a quantity, by its name. Units are those that the name ends in.
pub fn describe(name: &str) -> Quantity {
    let (unit, factor, wanted) = match name {
        _ if name.ends_with("_bytes") => ("MB", 1e-6, Some(Wanted::Less)),
        _ if name.ends_with("_mb") => ("MB", 1.0, Some(Wanted::Less)),
        _ if name.ends_with("_per_s") => ("/s", 1.0, Some(Wanted::More)),
        _ if name.contains("latency_") && name.ends_with("_s") => ("ms", 1e3, Some(Wanted::Less)),
        _ if name.ends_with("_ms") => ("ms", 1.0, Some(Wanted::Less)),
        _ if name.ends_with("_s") => ("s", 1.0, Some(Wanted::Less)),
        _ if name.ends_with("page_faults") => ("", 1.0, Some(Wanted::Less)),
        _ => ("", 1.0, None),
    };
    let heading = name.strip_prefix("metric:").unwrap_or(name);
    let stems = ["_bytes", "_mb", "_per_s", "_ms", "_s"];
    let stem = stems.iter().find_map(|ending| heading.strip_suffix(ending)).unwrap_or(heading);
    let heading = if unit.is_empty() { heading } else { stem }.replace('_', " ");
    Quantity { name: name.into(), heading, unit, factor, wanted }
}

fn memory(name: &str, heading: &str) -> Quantity {
    named(name, heading)
}

fn named(name: &str, heading: &str) -> Quantity {
    Quantity { heading: heading.into(), ..describe(name) }
}

/// The quantities worth a column: memory, work done, latency, time, page faults, and what the program reported.
pub fn quantities(comparison: &Comparison) -> Vec<Quantity> {
    let measure = comparison.summary.memory_measure.as_str();
    let upper = measure.to_uppercase();
    let mut all = vec![
        memory(&format!("{measure}_mean_bytes"), &format!("mean {upper}")),
        memory(&format!("{measure}_peak_bytes"), "peak"),
        memory(&format!("{measure}_final_bytes"), "final"),
    ];
    if measure == "pss" {
        all.push(memory("rss_mean_bytes", "mean RSS"));
        all.push(memory("uss_mean_bytes", "mean USS"));
    }
    all.push(named("requests_per_s", "requests"));
    all.extend(["50", "99"].map(|percent| named(&format!("latency_p{percent}_s"), &format!("p{percent}"))));
    // How long a server runs is what it was asked to.
    if window(comparison).is_none() {
        all.push(named("wall_s", "wall time"));
    }
    all.extend(costs(comparison));
    let metrics: BTreeSet<&String> = comparison.runs.iter().flat_map(|run| run.metrics.keys()).collect();
    // Errors make a run fail: a column of zeros says nothing.
    let metrics = metrics.into_iter().filter(|name| *name != "errors");
    all.extend(metrics.map(|name| describe(&format!("metric:{name}"))));
    measured(comparison, all)
}

fn measured(comparison: &Comparison, mut quantities: Vec<Quantity>) -> Vec<Quantity> {
    let rows = &comparison.summary.allocators;
    quantities.retain(|quantity| rows.iter().any(|row| row.quantities.contains_key(&quantity.name)));
    quantities
}

fn fill(comparison: &Comparison, quantities: Vec<Quantity>) -> Table {
    let largest = |quantity: &Quantity| {
        let rows = comparison.summary.allocators.iter();
        rows.filter_map(|row| row.quantities.get(&quantity.name)).map(|e| e.median).fold(0.0, f64::max)
    };
    let (_, most_runs) = good_runs(comparison);
    let rows = comparison.summary.allocators.iter().zip(&comparison.allocators).map(|(row, allocator)| {
        let is_baseline = row.allocator == comparison.summary.baseline;
        let cell = |quantity: &Quantity| {
            let estimate = row.quantities.get(&quantity.name)?;
            Some(cell(quantity, estimate, is_baseline, largest(quantity)))
        };
        Row {
            label: row.allocator.clone(),
            kind: allocator.kind,
            remark: match (row.runs, row.failed_runs) {
                (runs, 0) if runs == most_runs => String::new(),
                (1, 0) => "1 run".into(),
                (runs, 0) => format!("{runs} runs"),
                (runs, failed) => format!("{failed} of {} runs failed", runs + failed),
            },
            cells: quantities.iter().map(cell).collect(),
        }
    });
    Table { rows: rows.collect(), quantities }
}

fn cell(quantity: &Quantity, estimate: &Estimate, is_baseline: bool, largest: f64) -> Cell {
    let value = number(quantity, estimate.median);
    // Student's interval may reach below what the quantity can be.
    let within =
        |(low, high): (f64, f64)| format!("{} to {}", number(quantity, low.max(0.0)), number(quantity, high));
    let spread = estimate.median_interval.filter(|(low, high)| low < high).map_or_else(String::new, within);
    Cell {
        value,
        spread,
        ratio: estimate.ratio.map_or_else(String::new, |ratio| format!("{:.2}×", ratio.value)),
        interval: estimate.ratio.map_or_else(String::new, interval),
        verdict: if is_baseline { Verdict::Baseline } else { verdict(estimate.ratio, quantity.wanted) },
        share_percent: if largest > 0.0 { (estimate.median / largest * 100.0).round() as u32 } else { 0 },
    }
}

/// A value of a quantity in the unit that is shown, without the unit.
pub fn number(quantity: &Quantity, value: f64) -> String {
    match quantity.unit {
        "" if value.abs() >= 1e4 => short_count(value),
        // Three threads are not 3.00.
        "" if value.fract() == 0.0 => format!("{value:.0}"),
        _ => short_number(value * quantity.factor),
    }
}

/// A value of a quantity with its unit.
pub fn with_unit(quantity: &Quantity, value: f64) -> String {
    let number = number(quantity, value);
    match quantity.unit {
        "" => number,
        unit if unit.starts_with('/') => format!("{number}{unit}"),
        unit => format!("{number} {unit}"),
    }
}

/// The interval of a ratio as text; empty if there is none.
pub fn interval(ratio: Ratio) -> String {
    ratio.interval.map_or_else(String::new, |(low, high)| format!("{low:.2} to {high:.2}"))
}

/// What a ratio says to someone who wants less, or more.
pub fn verdict(ratio: Option<Ratio>, wanted: Option<Wanted>) -> Verdict {
    let Some(ratio) = ratio else { return Verdict::NoRatio };
    let Some((low, high)) = ratio.interval else { return Verdict::Unproven };
    match wanted {
        _ if low <= 1.0 && high >= 1.0 => Verdict::NoDifference,
        Some(Wanted::Less) if high < 1.0 => Verdict::Better,
        Some(Wanted::More) if low > 1.0 => Verdict::Better,
        Some(_) => Verdict::Worse,
        None => Verdict::Differs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;
    use crate::compare::results::Serving;

    fn headings(table: &Table) -> Vec<&str> {
        table.quantities.iter().map(|quantity| quantity.heading.as_str()).collect()
    }

    #[test]
    fn programs_and_servers_have_their_columns() {
        let program = table(&fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]));
        assert_eq!(
            headings(&program),
            ["mean RSS", "peak", "final", "wall time", "CPU time", "page faults", "requests"]
        );
        let server = table(&fixture::server());
        assert!(!headings(&server).contains(&"wall time") && headings(&server).contains(&"p99"));
        assert!(headings(&server).ends_with(&["CPU time, load", "page faults, load"]));
        let phases = phase_table(&fixture::server()).unwrap();
        assert_eq!(
            headings(&phases),
            ["mean, boot", "mean, warm", "mean, load", "mean, idle", "end of idle"]
        );
        assert!(phase_table(&fixture::comparison(&[("glibc", &[1.0])])).is_none());
    }

    #[test]
    fn what_the_table_has_no_room_for_is_shown_apart() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 102.0]), ("jemalloc", &[50.0, 51.0])]);
        for run in &mut comparison.runs {
            let lazy_bytes = if run.allocator == "jemalloc" { 1.2e6 } else { 0.0 };
            for (name, value) in [
                ("lazy_free_mean_bytes", lazy_bytes),
                ("huge_mean_bytes", 0.0),
                ("swap_peak_bytes", 0.0),
                ("threads_peak", 7.0),
                ("processes_mean", 1.0),
            ] {
                run.memory.insert(name.into(), value);
            }
        }
        comparison.summary = crate::compare::summary::summarise(&comparison);
        let others = others(&comparison).unwrap();
        assert_eq!(others.headings(), "mean PSS, mean USS, mean LazyFree, most threads");
        assert_eq!(others.absent, "mean in huge pages, peak in swap");
        let cell = |row: usize, column: usize| others.table.rows[row].cells[column].clone().unwrap();
        assert_eq!((cell(1, 2).value.as_str(), cell(1, 2).verdict), ("1.20", Verdict::NoRatio));
        assert_eq!((cell(1, 3).value.as_str(), cell(1, 3).spread.as_str()), ("7", ""));
        assert_eq!(cell(1, 3).verdict, Verdict::NoDifference);
        comparison.runs.iter_mut().for_each(|run| {
            run.memory.retain(|name, _| name.starts_with("rss"));
            run.memory.insert("huge_mean_bytes".into(), 0.0);
        });
        comparison.summary = crate::compare::summary::summarise(&comparison);
        assert!(super::others(&comparison).is_none());
    }

    #[test]
    fn several_processes_are_counted() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 102.0])]);
        fixture::set_memory(&mut comparison, &[("processes_mean", 4.0)]);
        assert_eq!(comparison.summary.memory_measure, "pss");
        assert_eq!(others(&comparison).unwrap().headings(), "mean processes", "the rest is in the table");
    }

    #[test]
    fn cells_say_what_the_ratio_means() {
        let table = table(&fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]));
        let mean = table.rows[1].cells[0].clone().unwrap();
        assert_eq!(mean.value, "50.5");
        assert!(mean.spread.contains(" to "), "{}", mean.spread);
        assert_eq!((mean.ratio.as_str(), mean.verdict), ("0.50×", Verdict::Better));
        assert_eq!(mean.share_percent, 50);
        assert_eq!(table.rows[0].cells[0].as_ref().unwrap().verdict, Verdict::Baseline);
        assert_eq!(table.rows[1].cells[3].as_ref().unwrap().verdict, Verdict::NoDifference);
    }

    #[test]
    fn allocators_with_fewer_runs_are_marked() {
        let runs = |label: &str, runs: usize| (label.to_string(), vec![100.0; runs]);
        let counted = |rows: &[(String, Vec<f64>)]| {
            let rows: Vec<(&str, &[f64])> = rows.iter().map(|(label, runs)| (&**label, &**runs)).collect();
            let comparison = fixture::comparison(&rows);
            let remarks = table(&comparison).rows.into_iter().map(|row| row.remark).collect::<Vec<_>>();
            (run_count(&comparison), remarks)
        };
        assert_eq!(
            counted(&[runs("glibc", 3), runs("snug", 3)]),
            (Some("3".into()), vec!["".into(), "".into()])
        );
        assert_eq!(counted(&[runs("glibc", 1), runs("snug", 1)]).0, None);
        let stopped = counted(&[runs("glibc", 2), runs("snug", 1), runs("jemalloc", 0)]);
        assert_eq!(stopped, (Some("1 to 2".into()), vec!["".into(), "1 run".into(), "0 runs".into()]));
    }

    #[test]
    fn what_is_measured_when_is_said() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0])]);
        let said = |comparison: &Comparison| (window(comparison), costs(comparison).map(|cost| cost.name));
        assert_eq!(said(&comparison), (None, ["cpu_s".into(), "page_faults".into()]));
        comparison.settings.serving = Some(Serving::default());
        assert_eq!(said(&comparison).1, ["cpu_s", "page_faults"], "nothing made a load");
        assert_eq!(costs(&comparison)[0].heading, "CPU time, whole run");
        comparison = fixture::server();
        let load = ["load.cpu_s".to_string(), "load.page_faults".into()];
        assert_eq!(said(&comparison), (Some("from ready to the end of idling"), load));
        comparison.runs.iter_mut().for_each(|run| run.phases.truncate(3));
        assert_eq!(window(&comparison), Some("from ready to the end of the load"));
    }

    #[test]
    fn verdicts_depend_on_what_is_wanted() {
        let ratio = |low, high| Some(Ratio { value: 1.0, interval: Some((low, high)) });
        assert_eq!(verdict(ratio(1.1, 1.2), Some(Wanted::More)), Verdict::Better);
        assert_eq!(verdict(ratio(1.1, 1.2), Some(Wanted::Less)), Verdict::Worse);
        assert_eq!(verdict(ratio(1.1, 1.2), None), Verdict::Differs);
        assert_eq!(verdict(ratio(0.9, 1.2), Some(Wanted::Less)), Verdict::NoDifference);
        assert_eq!(
            verdict(Some(Ratio { value: 2.0, interval: None }), Some(Wanted::Less)),
            Verdict::Unproven
        );
        assert_eq!(verdict(None, None), Verdict::NoRatio);
    }

    #[test]
    fn units_follow_from_names() {
        let shown = |name| (describe(name).heading, describe(name).unit);
        assert_eq!(shown("idle.rss_mean_bytes"), ("idle.rss mean".into(), "MB"));
        assert_eq!(shown("metric:tasks_per_s"), ("tasks".into(), "/s"));
        assert_eq!(shown("metric:p99_ms"), ("p99".into(), "ms"));
        assert_eq!(shown("latency_p99_s"), ("latency p99".into(), "ms"));
        assert_eq!(shown("metric:widgets"), ("widgets".into(), ""));
    }
}
