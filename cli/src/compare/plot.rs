//! The comparison as a picture: memory over time, one colour per allocator, as SVG and as PNG.

use std::io::{self, Write};
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{fontdb, Options, Tree};

use super::results::{Comparison, Run};
use super::Writer;
use crate::allocator::Kind;
use crate::chart::{Chart, Series, LEGEND_CHARACTERS};
use crate::terminal::{self, short_number};

/// Writes memory over time as SVG.
pub struct SvgWriter;

/// Writes the same picture as PNG, in double resolution.
pub struct PngWriter;

impl Writer for SvgWriter {
    fn write(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(chart(comparison).to_svg().as_bytes())
    }
}

impl Writer for PngWriter {
    fn write(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&render(&chart(comparison).to_svg(), 2.0)?)
    }
}

/// Turns an SVG into PNG bytes. Brings its own fonts, so that it looks the same on a server without any.
fn render(svg: &str, scale: f32) -> io::Result<Vec<u8>> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(ttf_noto_sans::REGULAR.to_vec());
    fonts.load_font_data(ttf_noto_sans::BOLD.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(io::Error::other)?;
    let size =
        tree.size().to_int_size().scale_by(scale).ok_or_else(|| io::Error::other("picture too large"))?;
    let mut pixmap =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| io::Error::other("picture too large"))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(io::Error::other)
}

/// Colours that are told apart by people with any kind of colour vision; dashes tell settings of one allocator
/// apart.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Snug => "#e8590c",
        Kind::Glibc => "#495057",
        Kind::Musl => "#868e96",
        Kind::Jemalloc => "#1c7ed6",
        Kind::Tcmalloc => "#2b8a3e",
        Kind::Mimalloc => "#9c36b5",
        Kind::Snmalloc => "#0c8599",
        Kind::Other => "#a61e4d",
    }
}

const DASHES: &[&str] = &["", "7 4", "2 3", "10 4 2 4", "14 4"];

/// The picture of a comparison.
fn chart(comparison: &Comparison) -> Chart {
    let measure = comparison.summary.memory_measure.as_str();
    let mean_quantity = format!("{measure}_mean_bytes");
    let mean = |label: &str| comparison.estimate(label, &mean_quantity).map_or(0.0, |estimate| estimate.mean);
    let mut series = Vec::new();
    for (index, allocator) in comparison.allocators.iter().enumerate() {
        let mut runs: Vec<&Run> = comparison.good_runs(&allocator.label).collect();
        if runs.is_empty() {
            continue;
        }
        let run_mean = |run: &&Run| run.memory.get(&mean_quantity).copied().unwrap_or(0.0);
        runs.sort_by(|left, right| run_mean(left).total_cmp(&run_mean(right)));
        let middle = runs.remove((runs.len() - 1) / 2);
        let same_kind =
            comparison.allocators[..index].iter().filter(|other| other.kind == allocator.kind).count();
        let (name, details) = legend_lines(&allocator.label, allocator.kind);
        let ratio = comparison.estimate(&allocator.label, &mean_quantity).and_then(|estimate| estimate.ratio);
        let ratio = ratio.map_or_else(|| "1.00".to_string(), |ratio| format!("{:.2}", ratio.value));
        series.push(Series {
            name,
            details,
            values: [format!("{} MB", short_number(mean(&allocator.label) / 1e6)), ratio],
            colour: colour(allocator.kind),
            dash: DASHES[same_kind % DASHES.len()],
            emphasised: allocator.kind == Kind::Snug,
            line: line(middle, measure),
            faint_lines: runs.iter().map(|run| line(run, measure)).collect(),
        });
    }
    let order = |label: &str| -mean(label);
    let labels: Vec<String> = comparison.allocators.iter().map(|a| a.label.clone()).collect();
    let mut keyed: Vec<(f64, Series)> = Vec::new();
    let shown = labels.iter().filter(|label| comparison.good_runs(label).next().is_some());
    for (label, one) in shown.zip(series) {
        keyed.push((order(label), one));
    }
    keyed.sort_by(|left, right| left.0.total_cmp(&right.0));
    Chart {
        title: format!("Memory over time: {}", shorten(&terminal::shell_line(&comparison.program), 62)),
        subtitle: subtitle(comparison),
        x_title: "time since start (s)".into(),
        y_title: format!("memory, {} (MB)", measure.to_uppercase()),
        footer: shorten(
            &format!(
                "snug compare {}  ·  {}  ·  {}",
                comparison.snug_version,
                comparison.started_at,
                comparison.machine.line()
            ),
            150,
        ),
        legend_titles: ["mean".into(), format!("× {}", shorten(&comparison.summary.baseline, 9))],
        series: keyed.into_iter().map(|(_, series)| series).collect(),
    }
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
    let lines = match comparison.settings.rounds {
        1 => String::new(),
        rounds => format!("; thick: the middle one of {rounds} runs, thin: the others"),
    };
    format!("{what} of {which}{lines}")
}

/// Name and small lines for the legend: of a path the allocator's name and the file's, then the settings.
fn legend_lines(label: &str, kind: Kind) -> (String, Vec<String>) {
    let (head, settings) = label.split_once(':').unwrap_or((label, ""));
    let file = head.rsplit('/').next().unwrap_or(head);
    let is_path = file != head;
    let name = if is_path && kind != Kind::Other { kind.name() } else { file };
    let mut lines: Vec<String> = Vec::new();
    for part in settings.split_inclusive([',', '=']) {
        match lines.last_mut() {
            Some(last) if last.len() + part.len() <= LEGEND_CHARACTERS => last.push_str(part),
            _ => lines.push(part.to_string()),
        }
    }
    if is_path {
        lines.insert(0, shorten(file, LEGEND_CHARACTERS));
    }
    (shorten(name, 15), lines)
}

fn shorten(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_string();
    }
    text.chars().take(length - 1).chain(std::iter::once('…')).collect()
}

/// Memory in MB over time. PSS is read less often than RSS, so its line has fewer points.
fn line(run: &Run, measure: &str) -> Vec<(f64, f64)> {
    let (times, values) = match measure {
        "pss" => (&run.details.time_s, &run.details.pss_bytes),
        _ => (&run.samples.time_s, &run.samples.rss_bytes),
    };
    // The line ends with the last process, not with the emptiness after it.
    let length = values.iter().rposition(|value| *value > 0).map_or(0, |last| last + 1);
    let points = times.iter().zip(values).take(length);
    points.map(|(time, value)| (*time, *value as f64 / 1e6)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;

    fn example() -> Comparison {
        fixture::comparison(&[
            ("glibc", &[389.0, 391.0]),
            ("glibc:MALLOC_ARENA_MAX=2", &[231.0, 229.0]),
            ("jemalloc", &[284.0, 285.0]),
            ("snug", &[180.0, 181.0]),
        ])
    }

    #[test]
    fn legend_goes_from_the_largest_to_the_smallest() {
        let chart = chart(&example());
        let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["glibc", "jemalloc", "glibc", "snug"]);
        assert_eq!(chart.series[2].details, ["MALLOC_ARENA_MAX=2"]);
        assert_ne!(chart.series[0].dash, chart.series[2].dash);
        assert!(chart.series[3].emphasised && chart.series[3].values[1] == "0.46");
        assert_eq!(chart.series[0].faint_lines.len(), 1);
    }

    #[test]
    fn png_has_the_size_of_the_picture_twice() {
        let mut png = Vec::new();
        PngWriter.write(&example(), &mut png).unwrap();
        assert_eq!(&png[1..4], b"PNG");
        assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 2240);
    }

    #[test]
    fn labels_become_names_and_small_lines() {
        let (name, details) = legend_lines(
            "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0",
            Kind::Jemalloc,
        );
        assert_eq!(name, "jemalloc");
        assert_eq!(details.concat(), "MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0");
        assert!(details.iter().all(|line| line.len() <= LEGEND_CHARACTERS));
        let lines = vec!["libfoo.so".to_string(), "A=1".to_string()];
        assert_eq!(legend_lines("/opt/x/libfoo.so:A=1", Kind::Tcmalloc), ("tcmalloc".into(), lines));
    }
}
