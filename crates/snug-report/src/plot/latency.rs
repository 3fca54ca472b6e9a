//! Percentiles of latency, one line per allocator.

use std::collections::BTreeMap;

use crate::chart::{Axis, Chart, ChartSeries, Mark};
use crate::plot::{by_memory, footer, series, title};
use snug_base::terminal::three_digits;
use snug_compare::results::{Comparison, Run};
use snug_compare::view::run_count;
use snug_stats::median;

/// The picture; None if nobody measured latency.
pub(crate) fn chart(comparison: &Comparison) -> Option<Chart> {
    let percents = percents(comparison);
    if percents.is_empty() {
        return None;
    }
    let curves = by_memory(comparison).into_iter().filter_map(|index| curve(comparison, index, &percents));
    let all: Vec<ChartSeries> = curves.collect();
    let lines = || all.iter().flat_map(|series| series.faint_lines.iter().chain([&series.line])).flatten();
    let y = Axis::fitting("latency (ms)", "ms", lines().map(|point| point.1));
    let lines = match run_count(comparison) {
        None => "one run each".to_string(),
        Some(runs) => format!("thick: medians of {runs} runs, thin: each run"),
    };
    Some(Chart {
        title: title("Latency", comparison),
        subtitle: format!("share of the answers that came within this time; {lines}"),
        footer: footer(comparison),
        x: Axis::names("percent of answers", percents.iter().map(|percent| name(*percent)).collect()),
        y,
        bands: Vec::new(),
        guide: Vec::new(),
        better: None,
        legend_titles: ["p50".into(), "p99".into()],
        series: all,
    })
}

/// Every percentile that some run has, rising. Percents are compared as text: 99.9 is the same in every file.
fn percents(comparison: &Comparison) -> Vec<f64> {
    let good = comparison.runs.iter().filter(|run| run.failure.is_none());
    let all = good.filter_map(|run| run.latency.as_ref()).flat_map(|latency| &latency.percentiles);
    let by_name: BTreeMap<String, f64> = all.map(|one| (name(one.percent), one.percent)).collect();
    let mut percents: Vec<f64> = by_name.into_values().collect();
    percents.sort_by(f64::total_cmp);
    percents
}

/// `p99.9`; the whole is the slowest answer.
fn name(percent: f64) -> String {
    if percent >= 100.0 {
        "slowest".into()
    } else {
        format!("p{percent}")
    }
}

fn curve(comparison: &Comparison, index: usize, percents: &[f64]) -> Option<ChartSeries> {
    let label = &comparison.allocators[index].label;
    let runs: Vec<Vec<(f64, f64)>> =
        comparison.good_runs(label).filter_map(|run| line(run, percents)).collect();
    let mut points = Vec::new();
    for place in 0..percents.len() {
        let at =
            |line: &Vec<(f64, f64)>| line.iter().find(|point| point.0 == place as f64).map(|point| point.1);
        let values: Vec<f64> = runs.iter().filter_map(at).collect();
        if !values.is_empty() {
            points.push((place as f64, median(&values)));
        }
    }
    points.first()?;
    let shown = |latency_ms: f64| format!("{} ms", three_digits(latency_ms));
    let value = |wanted: f64| {
        let place = percents.iter().position(|percent| *percent == wanted)?;
        let found = points.iter().find(|point| point.0 == place as f64)?;
        Some(shown(found.1))
    };
    let values = [50.0, 99.0].map(|percent| value(percent).unwrap_or_else(|| "–".into()));
    let mut series = series(comparison, index, values);
    let mark = |point: &(f64, f64)| Mark {
        at: *point,
        x_interval: None,
        y_interval: None,
        label: String::new(),
        hint: format!("{label}: {} {}", name(percents[point.0 as usize]), shown(point.1)),
    };
    series.marks = points.iter().map(mark).collect();
    series.line = points;
    series.faint_lines = if runs.len() > 1 { runs } else { Vec::new() };
    Some(series)
}

/// Latencies in ms of one run, by the place of their percentile.
fn line(run: &Run, percents: &[f64]) -> Option<Vec<(f64, f64)>> {
    let latency = run.latency.as_ref()?;
    let place = |percent: f64| percents.iter().position(|other| *other == percent);
    let points = latency.percentiles.iter();
    Some(points.filter_map(|one| Some((place(one.percent)? as f64, one.latency_s * 1e3))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    #[test]
    fn a_point_says_what_the_legend_says() {
        let mut comparison = fixture::server();
        for run in &mut comparison.runs {
            let percentiles = run.latency.as_mut().map(|latency| &mut latency.percentiles);
            percentiles.unwrap().iter_mut().for_each(|one| one.latency_s = 0.1451e-3);
        }
        let chart = chart(&comparison).unwrap();
        for series in &chart.series {
            assert_eq!(series.values[0], "0.145 ms");
            assert!(series.marks[0].hint.ends_with(": p50 0.145 ms"), "{}", series.marks[0].hint);
        }
    }

    #[test]
    fn none_without_latency() {
        assert!(chart(&fixture::comparison(&[("glibc", &[1.0])])).is_none());
    }
}
