//! Memory against throughput, or against wall time where a program that ends by itself reports none: what is saved, and
//! what it costs.

use crate::chart::{Axis, Better, Chart, ChartSeries, Mark};
use crate::plot::{by_memory, footer, ratio_heading, ratio_text, series, short_label, title};
use snug_compare::quantities::named;
use snug_compare::results::Comparison;
use snug_compare::view::{number, run_count, throughput_quantity, window};
use snug_stats::Estimate;

/// A quantity with the factor to the unit that is shown.
struct Side {
    quantity: String,
    factor: f64,
}

/// The picture; None unless there are two allocators to tell apart, and a throughput or a time to tell them apart by.
pub(crate) fn chart(comparison: &Comparison) -> Option<Chart> {
    let measure = comparison.summary.memory_measure.as_str();
    let memory = Side { quantity: format!("{measure}_mean_bytes"), factor: 1e-6 };
    let throughput = throughput_quantity(comparison);
    let (speed, what, unit, better) = match &throughput {
        Some(quantity) => {
            let name = quantity.strip_prefix("metric:").unwrap_or(quantity).replace("_per_s", "");
            (quantity.as_str(), format!("{} per second", name.replace('_', " ")), "/s", Better::BelowRight)
        }
        // How long a server runs is what it was asked to.
        None if window(comparison).is_some() => return None,
        None => ("wall_s", "wall time (s)".into(), "s", Better::BelowLeft),
    };
    let speed = Side { quantity: speed.into(), factor: 1.0 };
    let all: Vec<ChartSeries> = (by_memory(comparison).into_iter())
        .filter_map(|index| point(comparison, index, &speed, &memory, unit))
        .collect();
    if all.len() < 2 {
        return None;
    }
    let points =
        || all.iter().flat_map(|series| series.faint_points.iter().copied().chain([series.marks[0].at]));
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let x = Axis::around(&what, unit, points().map(|point| point.0));
    let remark = if x.begins_at_zero() { "" } else { "; the lower axis does not begin at zero" };
    let name = if throughput.is_some() { "Memory against throughput" } else { "Memory against time" };
    let subtitle = match run_count(comparison) {
        None => format!("one run each{remark}"),
        Some(runs) => format!("medians of {runs} runs with 95 % intervals; faint: each run{remark}"),
    };
    let unit_heading = if throughput.is_some() { "per s".to_string() } else { "time".into() };
    Some(Chart {
        title: title(name, comparison),
        subtitle,
        footer: footer(comparison),
        x,
        y: Axis::from_zero(
            &format!("memory, mean over time, {} (MB)", measure.to_uppercase()),
            "MB",
            highest * 1.15,
        ),
        bands: Vec::new(),
        guide: best(all.iter().map(|series| series.marks[0].at).collect(), better),
        better: Some(better),
        legend_titles: [unit_heading, ratio_heading(comparison)],
        series: all,
    })
}

fn point(
    comparison: &Comparison,
    index: usize,
    speed: &Side,
    memory: &Side,
    unit: &str,
) -> Option<ChartSeries> {
    let label = &comparison.allocators[index].label;
    let of = |side: &Side| comparison.estimate(label, &side.quantity);
    let (x, y) = (of(speed)?, of(memory)?);
    let scaled = |estimate: &Estimate, side: &Side| {
        estimate.median_interval.map(|(low, high)| (low * side.factor, high * side.factor))
    };
    let shown = |estimate: &Estimate, side: &Side| number(&named(&side.quantity), estimate.median);
    let values = [
        format!("{}{}", shown(x, speed), if unit == "s" { " s" } else { "" }),
        ratio_text(comparison, label, &speed.quantity),
    ];
    let mut series = series(comparison, index, values);
    let runs = comparison.good_runs(label).map(snug_compare::summary::quantities_of);
    let both = |run: std::collections::BTreeMap<String, f64>| {
        Some((run.get(&speed.quantity)? * speed.factor, run.get(&memory.quantity)? * memory.factor))
    };
    series.faint_points = runs.filter_map(both).collect();
    series.marks = vec![Mark {
        at: (x.median * speed.factor, y.median * memory.factor),
        x_interval: scaled(x, speed),
        y_interval: scaled(y, memory),
        label: short_label(comparison, index),
        hint: format!("{label}: {} {unit}, {} MB", shown(x, speed), shown(y, memory)),
    }];
    Some(series)
}

/// The results that no other beats in both, from left to right.
fn best(points: Vec<(f64, f64)>, better: Better) -> Vec<(f64, f64)> {
    let faster =
        |left: f64, right: f64| if better == Better::BelowRight { left > right } else { left < right };
    let beaten = |point: &(f64, f64)| {
        points.iter().any(|other| {
            (faster(other.0, point.0) && other.1 <= point.1) || (other.0 == point.0 && other.1 < point.1)
        })
    };
    let mut kept: Vec<(f64, f64)> = points.iter().filter(|point| !beaten(point)).copied().collect();
    kept.sort_by(|left, right| left.0.total_cmp(&right.0));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::{fixture, summary};

    #[test]
    fn wall_time_elsewhere() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("snug", &[50.0])]);
        for run in &mut comparison.runs {
            run.metrics.clear();
        }
        comparison.summary = summary::summarise(&comparison);
        let chart = chart(&comparison).unwrap();
        assert!(chart.x.title.starts_with("wall time") && chart.better == Some(Better::BelowLeft));
        comparison.allocators.pop();
        assert!(super::chart(&comparison).is_none(), "one point shows nothing");
    }

    #[test]
    fn a_point_says_what_the_legend_says() {
        let mut comparison = fixture::comparison(&[("glibc", &[0.1451]), ("snug", &[0.1462])]);
        for run in &mut comparison.runs {
            run.metrics.clear();
            run.wall_s = 0.1473;
        }
        comparison.summary = summary::summarise(&comparison);
        let chart = chart(&comparison).unwrap();
        let glibc = chart.series.iter().find(|series| series.name == "glibc").unwrap();
        assert_eq!((&*glibc.values[0], &*glibc.marks[0].hint), ("0.147 s", "glibc: 0.147 s, 0.145 MB"));
    }

    #[test]
    fn only_unbeaten_results_are_joined() {
        let points = vec![(10.0, 100.0), (12.0, 120.0), (9.0, 130.0), (8.0, 50.0)];
        assert_eq!(best(points.clone(), Better::BelowRight), [(8.0, 50.0), (10.0, 100.0), (12.0, 120.0)]);
        assert_eq!(best(points, Better::BelowLeft), [(8.0, 50.0)]);
    }
}
