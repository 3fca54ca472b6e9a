//! Memory over time, one colour per allocator, with the phases of the runs.

use crate::chart::{Axis, Band, Chart, ChartSeries, Mark};
use crate::plot::{by_memory, footer, ratio_heading, ratio_text, series, shorten, title};
use snug_compare::quantities::named;
use snug_compare::results::{Comparison, Run};
use snug_compare::view::{run_count, with_unit};
use snug_compare::window;
use snug_stats::median;

/// The picture; None if no run went well.
pub(crate) fn chart(comparison: &Comparison) -> Option<Chart> {
    let measure = comparison.summary.memory_measure.as_str();
    let all: Vec<ChartSeries> =
        by_memory(comparison).into_iter().map(|index| curve(comparison, index, measure)).collect();
    let lines = || all.iter().flat_map(|series| series.faint_lines.iter().chain([&series.line])).flatten();
    let end_s = lines().map(|point| point.0).fold(0.0, f64::max);
    let highest = lines().map(|point| point.1).fold(0.0, f64::max);
    lines().next()?;
    Some(Chart {
        title: title("Memory over time", comparison),
        subtitle: subtitle(comparison),
        footer: footer(comparison),
        x: Axis::from_zero("time since start (s)", "s", end_s),
        y: Axis::from_zero(&format!("memory, {} (MB)", measure.to_uppercase()), "MB", highest * 1.04),
        bands: bands(comparison, end_s),
        guide: Vec::new(),
        better: None,
        legend_titles: ["memory".into(), ratio_heading(comparison)],
        series: all,
    })
}

/// The lines of an allocator: the run with the middle memory thick, the others thin.
fn curve(comparison: &Comparison, index: usize, measure: &str) -> ChartSeries {
    let label = &comparison.allocators[index].label;
    let quantity = format!("{measure}_mean_bytes");
    let median = comparison.estimate(label, &quantity).map_or(0.0, |estimate| estimate.median);
    let values = [with_unit(&named(&quantity), median), ratio_text(comparison, label, &quantity)];
    let mut runs: Vec<&Run> = comparison.good_runs(label).collect();
    let run_mean = |run: &&Run| run.memory.get(&quantity).copied().unwrap_or(0.0);
    runs.sort_by(|left, right| run_mean(left).total_cmp(&run_mean(right)));
    let middle = runs.remove((runs.len() - 1) / 2);
    let mut series = series(comparison, index, values);
    series.line = line(middle, measure);
    series.marks = phase_marks(middle, &series.line, label);
    series.faint_lines = runs.iter().map(|run| line(run, measure)).collect();
    series
}

fn subtitle(comparison: &Comparison) -> String {
    let what = match comparison.summary.memory_measure.as_str() {
        "pss" => "proportional set size",
        _ => "resident set size",
    };
    let which = match &comparison.settings.only {
        Some(only) => format!("processes that match \"{}\"", shorten(only, 30)),
        None => "all processes of the program".into(),
    };
    let lines = match run_count(comparison) {
        None => String::new(),
        Some(runs) => format!("; thick: the middle one of {runs} runs, thin: the others"),
    };
    format!("{what} of {which}{lines}")
}

/// Memory in MB over time: of RSS all readings that the mean in the table is of, of PSS its own readings, which are fewer
/// (docs/decisions/0014).
fn line(run: &Run, measure: &str) -> Vec<(f64, f64)> {
    let resident;
    let (times, values) = match measure {
        "pss" => (&run.details.time_s, &run.details.pss_bytes),
        _ => {
            resident = window::resident_of(run);
            (&resident.time_s, &resident.rss_bytes)
        }
    };
    // The line ends with the last process, not with the emptiness after it.
    let length = values.iter().rposition(|value| *value > 0).map_or(0, |last| last + 1);
    let points = times.iter().zip(values).take(length);
    points.map(|(time, value)| (*time, *value as f64 / 1e6)).collect()
}

/// The phases, each from the median of its starts to the median of its ends. A run that is one phase has none.
fn bands(comparison: &Comparison, end_s: f64) -> Vec<Band> {
    let good: Vec<&Run> = comparison.runs.iter().filter(|run| run.failure.is_none()).collect();
    let Some(longest) = good.iter().max_by_key(|run| run.phases.len()).filter(|run| run.phases.len() > 1)
    else {
        return Vec::new();
    };
    let middle = |name: &str, time: fn(&snug_compare::results::Phase) -> f64| {
        let times =
            good.iter().flat_map(|run| run.phases.iter().filter(|phase| phase.name == name).map(time));
        median(&times.collect::<Vec<_>>()).min(end_s)
    };
    let band = |name: &String| Band {
        name: name.clone(),
        start: middle(name, |phase| phase.start_s),
        end: middle(name, |phase| phase.end_s),
    };
    let mut bands: Vec<Band> = longest.phases.iter().map(|phase| band(&phase.name)).collect();
    bands.retain(|band| band.end > band.start);
    bands
}

/// Where the phases of this very run begin: runs are not equally fast, and the bands are those of the middle one.
fn phase_marks(run: &Run, line: &[(f64, f64)], label: &str) -> Vec<Mark> {
    let later = run.phases.iter().skip(1);
    let at = |time: f64| line.iter().rfind(|point| point.0 <= time).or(line.first()).copied();
    let mark = |phase: &snug_compare::results::Phase| {
        Some(Mark {
            at: (phase.start_s, at(phase.start_s)?.1),
            x_interval: None,
            y_interval: None,
            label: String::new(),
            hint: format!("{label}: {} from {:.1} s to {:.1} s", phase.name, phase.start_s, phase.end_s),
        })
    };
    let end_s = line.last().map_or(0.0, |point| point.0);
    later.filter(|phase| phase.start_s < end_s).filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    #[test]
    fn legend_goes_from_the_largest_to_the_smallest() {
        let chart = chart(&fixture::comparison(&[
            ("glibc", &[389.0, 391.0]),
            ("glibc:MALLOC_ARENA_MAX=2", &[231.0, 229.0]),
            ("jemalloc", &[284.0, 285.0]),
            ("snug", &[180.0, 181.0]),
        ]))
        .unwrap();
        let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["glibc", "jemalloc", "glibc", "snug"]);
        assert_eq!(chart.series[2].details, ["MALLOC_ARENA_MAX=2"]);
        assert_ne!(chart.series[0].variant, chart.series[2].variant);
        assert!(chart.series[3].emphasised && chart.series[3].values[1] == "0.46");
        assert_eq!(chart.series[0].faint_lines.len(), 1);
        assert!(chart.bands.is_empty());
    }

    #[test]
    fn phases_are_bands_and_marks() {
        let chart = chart(&fixture::server()).unwrap();
        let names: Vec<&str> = chart.bands.iter().map(|band| band.name.as_str()).collect();
        assert_eq!(names, ["boot", "warm", "load", "idle"]);
        assert!(chart.bands.windows(2).all(|pair| (pair[0].end - pair[1].start).abs() < 0.5));
        assert!(chart.series.iter().all(|series| series.marks.len() == 3), "each phase but the first");
        assert!(chart.series[0].marks[1].hint.contains("load from"));
    }

    /// The mean of a line of straight pieces that stays as it is from its last point on.
    fn mean_of(line: &[(f64, f64)], end_s: f64) -> f64 {
        let end = (end_s, line.last().unwrap().1);
        let steps = line.iter().zip(line[1..].iter().chain([&end]));
        let area: f64 = steps.map(|(from, to)| (to.0 - from.0) * (from.1 + to.1) / 2.0).sum();
        area / (end_s - line[0].0)
    }

    /// What a plot shows of a run is what its mean says, however the readings were spread.
    #[test]
    fn the_line_has_the_mean_of_the_table() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("snug", &[100.0])]);
        for (index, run) in comparison.runs.iter_mut().enumerate() {
            // As on a busy machine: samples are rare and stop early, and one finds more processes than the details have.
            run.wall_s = 12.0;
            let few = [0, 3, 40, 80].map(|place| place + index);
            run.samples.time_s = few.map(|place| place as f64 * 0.1).to_vec();
            run.samples.rss_bytes = vec![40_000_000, 90_000_000, 400_000_000, 10_000_000];
            run.samples.processes = vec![1, 1, 2, 1];
            run.samples.threads = vec![1; 4];
            run.details.rss_bytes = run.details.pss_bytes.iter().map(|bytes| bytes / 2).collect();
            let whole = window::Window { start_s: 0.0, end_s: run.wall_s };
            run.memory = window::memory(&run.samples, &run.details, whole);
        }
        comparison.summary = snug_compare::summary::summarise(&comparison);
        let chart = chart(&comparison).unwrap();
        for series in &chart.series {
            let run = comparison.runs.iter().find(|run| run.allocator == series.name).unwrap();
            let (drawn, counted) = (mean_of(&series.line, run.wall_s), run.memory["rss_mean_bytes"] / 1e6);
            assert!((drawn - counted).abs() < 1e-6 * counted, "{drawn} drawn, {counted} in the table");
            assert!(series.line.len() > 20, "{} points", series.line.len());
        }
    }

    /// Files of older versions may lack it.
    #[test]
    fn results_without_resident_memory_in_detail_are_drawn_by_samples() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0])]);
        comparison.runs[0].samples.processes[..3].fill(0);
        comparison.runs[0].samples.processes[95..].fill(0);
        let chart = chart(&comparison).unwrap();
        let times: Vec<f64> = chart.series[0].line.iter().map(|point| point.0).collect();
        assert_eq!(times, comparison.runs[0].samples.time_s[3..95]);
    }

    #[test]
    fn failed_runs_are_not_drawn() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("snug", &[50.0])]);
        comparison.runs[1].failure = Some("crash".into());
        assert_eq!(chart(&comparison).unwrap().series.len(), 1);
        comparison.runs[0].failure = Some("crash".into());
        assert!(chart(&comparison).is_none());
    }
}
