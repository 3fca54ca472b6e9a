//! The view of a comparison that written reports show, in words and numbers ready to print: quantities, units, and what
//! each ratio means. Markdown and HTML only lay it out. Pure.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::quantities::{self, named, Quantity, Shown, Wanted};
use crate::results::{Allocator, Comparison, Summary};
use crate::shown_ratio;
pub use crate::shown_ratio::number;
use snug_base::terminal;
use snug_inspect::kinds::Kind;
use snug_stats::{Estimate, Meaning, Ratio};

/// What a ratio to the baseline says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// It is the baseline.
    Baseline,
    Better,
    Worse,
    /// It differs, and neither way is better.
    Differs,
    /// None is shown, and what differs by more than a tenth is ruled out.
    Same,
    /// The interval leaves both.
    NotEnoughData,
    /// It does not, and yet chance makes one such difference among so many ratios.
    MayBeChance,
    /// One run each: there is no interval.
    Unproven,
    /// Nothing to divide by.
    NoRatio,
}

impl Difference {
    /// A name for style sheets.
    pub fn class(self) -> &'static str {
        match self {
            Difference::Baseline => "baseline",
            Difference::Better => "better",
            Difference::Worse => "worse",
            Difference::Differs => "differs",
            Difference::Same => "same",
            Difference::NotEnoughData => "open",
            Difference::MayBeChance => "chance",
            Difference::Unproven => "unproven",
            Difference::NoRatio => "none",
        }
    }

    /// What is said beside the numbers; nothing where they speak for themselves.
    pub fn words(self) -> &'static str {
        match self {
            Difference::Same => "no difference",
            Difference::NotEnoughData => "not enough data",
            Difference::MayBeChance => "may be chance",
            Difference::Unproven => "one run each: unproven",
            _ => "",
        }
    }

    /// It differs, whichever way, and not by chance.
    pub fn is_shown(self) -> bool {
        matches!(self, Difference::Better | Difference::Worse | Difference::Differs)
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
    pub verdict: Difference,
    /// The value as a part of the largest in its column, in percent.
    pub share_percent: u32,
}

/// One allocator.
#[derive(Debug, Clone)]
pub struct TableRow {
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
    pub rows: Vec<TableRow>,
}

/// The table of the most important quantities.
pub fn table(comparison: &Comparison) -> Table {
    fill(comparison, quantities(comparison))
}

/// Memory by phase: its mean, and at the end of the last phase what remains. None if the runs have no phases.
pub fn phase_table(comparison: &Comparison) -> Option<Table> {
    let table = fill(comparison, of_phases(comparison, &comparison.summary));
    (!table.quantities.is_empty()).then_some(table)
}

fn of_phases(comparison: &Comparison, summary: &Summary) -> Vec<Quantity> {
    let measure = &summary.memory_measure;
    let of_phase = |phase: &String| {
        named(&format!("{phase}.{measure}_mean_bytes")).headed(&format!("mean, {phase}"), "")
    };
    let phases = phases(comparison);
    let mut quantities: Vec<Quantity> = phases.iter().map(of_phase).collect();
    let last = phases
        .last()
        .map(|last| named(&format!("{last}.{measure}_final_bytes")).headed(&format!("end of {last}"), ""));
    quantities.extend(last);
    measured(summary, quantities)
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

/// What the table has no room for. None if nothing of it was measured.
pub fn others(comparison: &Comparison) -> Option<Others> {
    let rows = &comparison.summary.allocators;
    let is_all = |quantity: &Quantity, value: f64| {
        let mut estimates = rows.iter().filter_map(|row| row.quantities.get(&quantity.name));
        estimates.all(|estimate| estimate.mean == value)
    };
    let mut rest = below(comparison, &comparison.summary);
    // A single process is the ordinary case.
    rest.retain(|quantity| quantity.name != "processes_mean" || !is_all(quantity, 1.0));
    let (zero, filled): (Vec<Quantity>, Vec<Quantity>) =
        rest.into_iter().partition(|quantity| is_all(quantity, 0.0));
    (!filled.is_empty()).then(|| Others { table: fill(comparison, filled), absent: joined_headings(&zero) })
}

/// The quantities below the table, of the kinds of memory first.
fn below(comparison: &Comparison, summary: &Summary) -> Vec<Quantity> {
    let in_table = columns(comparison, summary);
    let is_below =
        |row: &&quantities::QuantityRow| matches!(row.shown, Shown::Memory | Shown::Forked | Shown::Below);
    let all = quantities::ROWS.iter().filter(is_below).map(|row| named(row.name));
    measured(
        summary,
        all.filter(|quantity| in_table.iter().all(|shown| shown.name != quantity.name)).collect(),
    )
}

/// Names of the quantities whose ratios are judged together: all that the report shows and that it calls better or worse.
pub fn compared_together(comparison: &Comparison, summary: &Summary) -> BTreeSet<String> {
    let shown = [columns(comparison, summary), of_phases(comparison, summary), below(comparison, summary)];
    shown.into_iter().flatten().filter(|one| one.wanted.is_some()).map(|one| one.name).collect()
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

/// Whether a quantity was measured under any allocator.
fn has(summary: &Summary, name: &str) -> bool {
    summary.allocators.iter().any(|row| row.quantities.contains_key(name))
}

/// CPU time: per request if that is known, else of the load, else of the whole run.
pub fn cost(comparison: &Comparison) -> Option<Quantity> {
    quantities(comparison).into_iter().find(|quantity| quantity.name.contains("cpu_"))
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

/// The quantities worth a column: memory, work done, latency, time, page faults, and what the program reported.
pub fn quantities(comparison: &Comparison) -> Vec<Quantity> {
    columns(comparison, &comparison.summary)
}

fn columns(comparison: &Comparison, summary: &Summary) -> Vec<Quantity> {
    let column = |row: &quantities::QuantityRow| column(row, comparison, summary);
    let mut all: Vec<Quantity> = quantities::ROWS.iter().filter_map(column).collect();
    let metrics: BTreeSet<&String> = comparison.runs.iter().flat_map(|run| run.metrics.keys()).collect();
    // Errors make a run fail: a column of zeros says nothing.
    let metrics = metrics.into_iter().filter(|name| *name != "errors");
    all.extend(metrics.map(|name| named(&format!("metric:{name}"))));
    measured(summary, all)
}

/// The column of a quantity in this comparison, if it has one.
fn column(row: &quantities::QuantityRow, comparison: &Comparison, summary: &Summary) -> Option<Quantity> {
    let own = named(row.name);
    let is_measure = row.name.starts_with(summary.memory_measure.as_str());
    let of_phase = |phase: &str| named(&format!("{phase}.{}", row.name));
    let is_server = window(comparison).is_some();
    let is_per_request = has(summary, "load.cpu_per_request_s");
    let has_load = has(summary, "load.cpu_s");
    match row.shown {
        Shown::Table => Some(own),
        Shown::Memory if is_measure => Some(own),
        // Of forked workers people know RSS.
        Shown::Memory if summary.memory_measure == "pss" => Some(Quantity { ratio: false, ..own }),
        Shown::MemoryOnly if is_measure => Some(own),
        Shown::MemoryAtEnd if is_measure => Some(match phases(comparison).last().map(String::as_str) {
            None => own,
            Some("idle") => {
                Quantity { ratio: true, ..of_phase("idle").headed("after idling", "after\nidling") }
            }
            Some(last) => of_phase(last).headed(&format!("at the end of {last}"), &format!("end of\n{last}")),
        }),
        Shown::Forked if summary.memory_measure == "pss" => Some(own),
        Shown::Duration if !is_server => Some(own),
        // How long a server runs, or is under a load that has a time, is what was asked for.
        Shown::Duration if is_fixed_work(comparison) => {
            Some(of_phase("load").headed("load time", "load\ntime"))
        }
        Shown::PerRequest if is_per_request => Some(of_phase("load").headed(row.heading, row.short)),
        Shown::Cost if !is_server => Some(own),
        Shown::Cost if is_per_request => None,
        Shown::Cost if has_load => Some(of_phase("load").headed(
            &format!("{}, load", row.heading),
            &format!("{},\nload", row.short.split('\n').next_back().unwrap_or_default()),
        )),
        Shown::Cost => Some(own.headed(
            &format!("{}, whole run", row.heading),
            &format!("{},\nwhole run", row.heading.trim_end_matches(" time").trim_start_matches("page ")),
        )),
        _ => None,
    }
}

/// Whether the load is a fixed amount of work, so that its duration tells something.
fn is_fixed_work(comparison: &Comparison) -> bool {
    comparison.settings.serving.as_ref().is_some_and(|serving| serving.load_s.is_none())
}

fn measured(summary: &Summary, mut quantities: Vec<Quantity>) -> Vec<Quantity> {
    quantities.retain(|quantity| has(summary, &quantity.name));
    quantities
}

fn fill(comparison: &Comparison, quantities: Vec<Quantity>) -> Table {
    let largest = |quantity: &Quantity| {
        let rows = comparison.summary.allocators.iter();
        rows.filter_map(|row| row.quantities.get(&quantity.name)).map(|e| e.median).fold(0.0, f64::max)
    };
    let (_, most_runs) = good_runs(comparison);
    let baseline = |quantity: &Quantity| comparison.estimate(&comparison.summary.baseline, &quantity.name);
    let rows = comparison.summary.allocators.iter().zip(&comparison.allocators).map(|(row, allocator)| {
        let is_baseline = row.allocator == comparison.summary.baseline;
        let cell = |quantity: &Quantity| {
            let estimate = row.quantities.get(&quantity.name)?;
            let ratio = shown_ratio::to_baseline(quantity, estimate, baseline(quantity));
            Some(cell(quantity, estimate, ratio, is_baseline, largest(quantity)))
        };
        TableRow {
            label: row.allocator.clone(),
            kind: allocator.kind,
            remark: match (row.runs, row.failed_runs) {
                (runs, 0) if runs == most_runs => String::new(),
                (runs, 0) => terminal::counted(runs as usize, "run"),
                (runs, failed) => {
                    format!("{failed} of {} failed", terminal::counted((runs + failed) as usize, "run"))
                }
            },
            cells: quantities.iter().map(cell).collect(),
        }
    });
    Table { rows: rows.collect(), quantities }
}

fn cell(
    quantity: &Quantity,
    estimate: &Estimate,
    ratio: Option<Ratio>,
    is_baseline: bool,
    largest: f64,
) -> Cell {
    let value = number(quantity, estimate.median);
    // Student's interval may reach below what the quantity can be.
    let within =
        |(low, high): (f64, f64)| format!("{} to {}", number(quantity, low.max(0.0)), number(quantity, high));
    let spread = estimate.median_interval.filter(|(low, high)| low < high).map_or_else(String::new, within);
    Cell {
        value,
        spread,
        ratio: ratio.map_or_else(String::new, |ratio| format!("{}×", shown_ratio::times(ratio))),
        interval: ratio.map_or_else(String::new, shown_ratio::interval),
        verdict: if is_baseline { Difference::Baseline } else { verdict(ratio, quantity.wanted) },
        share_percent: if largest > 0.0 { (estimate.median / largest * 100.0).round() as u32 } else { 0 },
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

/// What a ratio, as it is shown, says to someone who wants less, or more.
pub fn verdict(ratio: Option<Ratio>, wanted: Option<Wanted>) -> Difference {
    let Some(ratio) = ratio else { return Difference::NoRatio };
    match (ratio.meaning(), wanted) {
        (None, _) => Difference::Unproven,
        (Some(Meaning::NoDifference), _) => Difference::Same,
        (Some(Meaning::NotEnoughData), _) => Difference::NotEnoughData,
        _ if ratio.may_be_chance() => Difference::MayBeChance,
        (_, None) => Difference::Differs,
        (Some(Meaning::Less), Some(Wanted::Less)) | (Some(Meaning::More), Some(Wanted::More)) => {
            Difference::Better
        }
        _ => Difference::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::results::Serving;

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
        assert!(headings(&server).ends_with(&["CPU per request", "page faults per request"]));
        assert!(headings(&server).contains(&"after idling") && !headings(&server).contains(&"final"));
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
        comparison.summary = crate::summary::summarise(&comparison);
        let others = others(&comparison).unwrap();
        assert_eq!(others.headings(), "mean PSS, mean USS, mean LazyFree, most threads");
        assert_eq!(others.absent, "mean in huge pages, peak in swap");
        let cell = |row: usize, column: usize| others.table.rows[row].cells[column].clone().unwrap();
        assert_eq!((cell(1, 2).value.as_str(), cell(1, 2).verdict), ("1.20", Difference::NoRatio));
        assert_eq!((cell(1, 3).value.as_str(), cell(1, 3).spread.as_str()), ("7", ""));
        assert_eq!(cell(1, 3).verdict, Difference::Same);
        comparison.runs.iter_mut().for_each(|run| {
            run.memory.retain(|name, _| name.starts_with("rss"));
            run.memory.insert("huge_mean_bytes".into(), 0.0);
        });
        comparison.summary = crate::summary::summarise(&comparison);
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
        let runs: &[(&str, &[f64])] = &[("glibc", &[100.0, 101.0, 102.0]), ("snug", &[50.0, 50.5, 51.0])];
        let table = table(&fixture::comparison(runs));
        let mean = table.rows[1].cells[0].clone().unwrap();
        assert_eq!(mean.value, "50.5");
        assert!(mean.spread.contains(" to "), "{}", mean.spread);
        assert_eq!((mean.ratio.as_str(), mean.verdict), ("0.50×", Difference::Better));
        assert_eq!(mean.share_percent, 50);
        assert_eq!(table.rows[0].cells[0].as_ref().unwrap().verdict, Difference::Baseline);
        assert_eq!(table.rows[1].cells[3].as_ref().unwrap().verdict, Difference::Same);
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
        let said = |comparison: &Comparison| (window(comparison), cost(comparison).unwrap());
        let idling = Some("from ready to the end of idling");
        assert_eq!(said(&comparison), (None, named("cpu_s")));
        comparison.settings.serving = Some(Serving::default());
        let (_, cost) = said(&comparison);
        assert_eq!((&*cost.name, &*cost.heading), ("cpu_s", "CPU time, whole run"), "nothing made a load");
        comparison = fixture::server();
        let (when, cost) = said(&comparison);
        assert_eq!(
            (when, &*cost.name, &*cost.heading),
            (idling, "load.cpu_per_request_s", "CPU per request")
        );
        // Nobody knows how many requests there were.
        comparison.runs.iter_mut().for_each(|run| run.latency = None);
        comparison.summary = crate::summary::summarise(&comparison);
        assert_eq!(said(&comparison).1.heading, "CPU time, load");
        comparison.runs.iter_mut().for_each(|run| run.phases.truncate(3));
        assert_eq!(window(&comparison), Some("from ready to the end of the load"));
    }

    #[test]
    fn a_load_of_so_much_work_shows_how_long_it_took() {
        let mut server = fixture::server();
        server.settings.serving = Some(Serving { load_s: Some(20.0), ..Serving::default() });
        assert!(!headings(&table(&server)).contains(&"load time"), "it is as long as was asked for");
        server.settings.serving = Some(Serving { load_s: None, ..Serving::default() });
        let table = table(&server);
        let place = headings(&table).iter().position(|heading| *heading == "load time").unwrap();
        assert_eq!(table.rows[0].cells[place].as_ref().unwrap().value, "20.0");
    }

    #[test]
    fn verdicts_depend_on_what_is_wanted() {
        let ratio = |low, high| Some(Ratio { value: 1.0, interval: Some((low, high)), ..Ratio::default() });
        assert_eq!(verdict(ratio(1.1, 1.2), Some(Wanted::More)), Difference::Better);
        assert_eq!(verdict(ratio(1.1, 1.2), Some(Wanted::Less)), Difference::Worse);
        assert_eq!(verdict(ratio(1.1, 1.2), None), Difference::Differs);
        assert_eq!(verdict(ratio(0.9, 1.1), Some(Wanted::Less)), Difference::Same);
        assert_eq!(verdict(ratio(0.9, 1.2), Some(Wanted::Less)), Difference::NotEnoughData);
        assert_eq!(
            verdict(Some(Ratio { value: 2.0, ..Ratio::default() }), Some(Wanted::Less)),
            Difference::Unproven
        );
        assert_eq!(verdict(None, None), Difference::NoRatio);
    }
}
