//! The watch as a picture: memory and what is in use over time.

use std::path::Path;

use crate::chart::{Axis, Chart, ChartSeries, PICTURE};
use crate::plot::shorten;
use snug_base::failure::Result;
use snug_base::file;
use snug_base::terminal::bytes;
use snug_base::time::duration;
use snug_leak::assemble::{LiveSource, Measure};
use snug_leak::report::LeakReport;
use snug_stats::median;

/// More readings than this are shown faintly, and a line through the middle ones of neighbours in front of them.
const LINE_POINTS: usize = 120;

/// Writes the picture as SVG.
pub fn write(report: &LeakReport, path: &Path) -> Result<()> {
    file::write(path, chart(report).to_svg(&PICTURE))
}

fn chart(report: &LeakReport) -> Chart {
    let points = &report.series;
    // The unit that suits the length: an axis of 86,400 seconds says nothing.
    let (unit_s, unit) = match report.watched_s {
        span if span > 3.0 * 3600.0 => (3600.0, "h"),
        span if span > 180.0 => (60.0, "min"),
        _ => (1.0, "s"),
    };
    let start_s = points.time_s.first().copied().unwrap_or(0.0);
    let line = |values: &[u64]| -> Vec<(f64, f64)> {
        let times = points.time_s.iter().map(|time_s| (time_s - start_s) / unit_s);
        times.zip(values).map(|(time, value)| (time, *value as f64 / 1e6)).collect()
    };
    let of = |name: &str, values: &[u64], colour, emphasised| ChartSeries {
        name: name.into(),
        details: Vec::new(),
        values: [values.first(), values.last()]
            .map(|value| value.map_or_else(String::new, |value| bytes(*value as f64))),
        colour,
        class: "",
        variant: 0,
        emphasised,
        faint_lines: match values.len() > LINE_POINTS {
            true => vec![line(values)],
            false => Vec::new(),
        },
        line: thinned(&line(values)),
        marks: Vec::new(),
        faint_points: Vec::new(),
    };
    let memory = match report.measure {
        Measure::Rss => "RSS",
        Measure::Pss => "PSS",
    };
    let mut series = vec![of(memory, &points.memory_bytes, "#1c7ed6", false)];
    if report.live_source != LiveSource::Unknown {
        series.push(of("allocator", &points.heap_bytes, "#868e96", false));
        series.push(of("in use", &points.used_bytes, "#e8590c", true));
    }
    let points = || series.iter().flat_map(|series| series.faint_lines.iter().flatten().chain(&series.line));
    let (last, highest) =
        points().fold((0.0f64, 0.0f64), |(last, highest), (x, y)| (last.max(*x), highest.max(*y)));
    let verdict = report.verdict.name();
    Chart {
        title: shorten(&format!("{verdict}: {}", report.subject), 80),
        subtitle: shorten(&report.answer, 130),
        footer: format!("snug leak {}  ·  {} watched", snug_base::VERSION, duration(report.watched_s)),
        x: Axis::from_zero(&format!("time watched ({unit})"), unit, last),
        y: Axis::from_zero("memory (MB)", "MB", highest * 1.04),
        bands: Vec::new(),
        guide: Vec::new(),
        better: None,
        legend_titles: ["first".into(), "last".into()],
        series,
    }
}

/// The middle one of each group of neighbours: where processes come and go, a line through all readings is a block.
fn thinned(line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let groups = line.chunks(line.len().div_ceil(LINE_POINTS).max(1));
    let middle =
        |group: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| median(&group.iter().map(of).collect::<Vec<_>>());
    groups.map(|group| (middle(group, |point| point.0), middle(group, |point| point.1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_come_and_go_make_no_block() {
        // Every third reading sees a child that holds as much again.
        let raw: Vec<(f64, f64)> =
            (0..600).map(|at| (f64::from(at), if at % 3 == 0 { 200.0 } else { 100.0 })).collect();
        let line = thinned(&raw);
        assert_eq!(line.len(), 120);
        assert!(line.iter().all(|(_, y)| *y == 100.0), "{line:?}");
        assert_eq!(thinned(&raw[..50]), raw[..50]);
        assert!(thinned(&[]).is_empty());
    }
}
