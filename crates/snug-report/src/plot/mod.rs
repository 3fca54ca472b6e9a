//! The comparison as pictures: what they share (docs/decisions/0014). Each picture has a file of its own.

mod frontier;
mod latency;
mod memory;

use crate::chart::{Chart, ChartSeries, LEGEND_CHARACTERS};
use snug_base::file::file_name;
use snug_base::terminal;
use snug_compare::quantities::named;
use snug_compare::results::{Allocator, Comparison};
use snug_compare::shown_ratio;
use snug_inspect::kinds::{Kind, ROWS};

/// A picture of the comparison.
pub struct Plot {
    /// Name of its files, without ending.
    pub name: &'static str,
    pub chart: Chart,
}

/// All pictures for which something was measured.
pub fn plots(comparison: &Comparison) -> Vec<Plot> {
    let named = |name, chart: Option<Chart>| chart.map(|chart| Plot { name, chart });
    let all = [
        named("memory", memory::chart(comparison)),
        named("frontier", frontier::chart(comparison)),
        named("latency", latency::chart(comparison)),
    ];
    all.into_iter().flatten().collect()
}

/// Class and colour of an allocator, and its colour on dark paper. The colours are told apart by people with any kind of
/// colour vision; dashes and shapes tell settings of one allocator apart.
fn colour(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Snug => ("snug", "#e8590c", "#ff922b"),
        Kind::Glibc => ("glibc", "#495057", "#ced4da"),
        Kind::Musl => ("musl", "#868e96", "#868e96"),
        Kind::Jemalloc => ("jemalloc", "#1c7ed6", "#4dabf7"),
        Kind::Tcmalloc => ("tcmalloc", "#2b8a3e", "#69db7c"),
        Kind::Mimalloc => ("mimalloc", "#9c36b5", "#da77f2"),
        Kind::Snmalloc => ("snmalloc", "#0c8599", "#3bc9db"),
        Kind::Rpmalloc => ("rpmalloc", "#a97b00", "#ffd43b"),
        Kind::Other => ("other", "#a61e4d", "#f783ac"),
    }
}

/// What a page's style says of them.
pub(crate) fn style() -> String {
    let kinds = || ROWS.iter().map(|row| row.kind).chain([Kind::Musl, Kind::Other]).map(colour);
    let light: String = kinds().map(|(class, colour, _)| format!("--{class}:{colour};")).collect();
    let dark: String = kinds().map(|(class, _, colour)| format!("--{class}:{colour};")).collect();
    let classes: String = kinds().map(|(class, ..)| format!(".{class}{{color:var(--{class})}}")).collect();
    format!(":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{classes}\n")
}

/// The series of an allocator, named and coloured, with nothing in it.
fn series(comparison: &Comparison, index: usize, values: [String; 2]) -> ChartSeries {
    let allocator = &comparison.allocators[index];
    let (name, details) = legend_lines(&allocator.label, allocator.kind);
    let (class, colour, _) = colour(allocator.kind);
    ChartSeries {
        name,
        details,
        values,
        colour,
        class,
        variant: comparison.allocators[..index].iter().filter(|other| other.kind == allocator.kind).count(),
        emphasised: allocator.kind == Kind::Snug,
        line: Vec::new(),
        faint_lines: Vec::new(),
        marks: Vec::new(),
        faint_points: Vec::new(),
    }
}

/// Allocators with at least one good run, those with most memory first, as a legend beside curves has them.
fn by_memory(comparison: &Comparison) -> Vec<usize> {
    let quantity = format!("{}_mean_bytes", comparison.summary.memory_measure);
    let mean = |index: &usize| {
        comparison.estimate(&comparison.allocators[*index].label, &quantity).map_or(0.0, |e| e.median)
    };
    let good = |allocator: &Allocator| comparison.good_runs(&allocator.label).next().is_some();
    let all = 0..comparison.allocators.len();
    let mut indices: Vec<usize> = all.filter(|index| good(&comparison.allocators[*index])).collect();
    indices.sort_by(|left, right| mean(right).total_cmp(&mean(left)));
    indices
}

/// A label for a point: the name, with the settings if another allocator has the same name.
fn short_label(comparison: &Comparison, index: usize) -> String {
    let parts = |index: usize| {
        let allocator = &comparison.allocators[index];
        legend_lines(&allocator.label, allocator.kind)
    };
    let (name, mut details) = parts(index);
    let alone = (0..comparison.allocators.len()).all(|other| other == index || parts(other).0 != name);
    if alone || details.is_empty() {
        return name;
    }
    let remark = split_remark(&comparison.allocators[index].label).1.and_then(|_| details.pop());
    let words = [name, shorten(&details.concat(), 24), remark.unwrap_or_default()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A label without what stands in parentheses at its end, and that.
fn split_remark(label: &str) -> (&str, Option<&str>) {
    match label.strip_suffix(')').and_then(|label| label.rsplit_once(" (")) {
        Some((label, remark)) => (label, Some(remark)),
        None => (label, None),
    }
}

fn title(what: &str, comparison: &Comparison) -> String {
    format!("{what}: {}", shorten(&terminal::shell_line(&comparison.program), 80 - what.len()))
}

fn footer(comparison: &Comparison) -> String {
    let machine = comparison.machine.line();
    let line =
        format!("snug compare {}  ·  {}  ·  {machine}", comparison.snug_version, comparison.started_at);
    shorten(&line, 150)
}

/// The heading above `ratio_text`.
fn ratio_heading(comparison: &Comparison) -> String {
    let baseline = &comparison.summary.baseline;
    if baseline.chars().count() <= 9 {
        format!("× {baseline}")
    } else {
        "× base".into()
    }
}

/// How many times the baseline, for a legend.
fn ratio_text(comparison: &Comparison, label: &str, quantity: &str) -> String {
    if label == comparison.summary.baseline {
        return "1.00".into();
    }
    let ratio = shown_ratio::of_allocator(comparison, label, &named(quantity));
    ratio.map_or_else(|| "–".into(), shown_ratio::times)
}

/// Name and small lines for the legend: of a path the allocator's name and the file's, then the settings, then what
/// stands in parentheses.
fn legend_lines(label: &str, kind: Kind) -> (String, Vec<String>) {
    let (label, remark) = split_remark(label);
    let (head, settings) = label.split_once(':').unwrap_or((label, ""));
    let file = file_name(head);
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
    lines.extend(remark.map(|remark| shorten(remark, LEGEND_CHARACTERS)));
    (shorten(name, 15), lines)
}

/// A text of at most so many characters.
pub fn shorten(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_string();
    }
    text.chars().take(length - 1).chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    #[test]
    fn a_server_has_all_pictures() {
        let all = plots(&fixture::server());
        assert_eq!(all.iter().map(|plot| plot.name).collect::<Vec<_>>(), ["memory", "frontier", "latency"]);
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
        assert_eq!(legend_lines("snug (today)", Kind::Snug), ("snug".into(), vec!["today".to_string()]));
    }

    #[test]
    fn labels_of_points_hold_settings_where_names_are_equal() {
        let comparison = fixture::comparison(&[
            ("glibc", &[2.0]),
            ("glibc:MALLOC_ARENA_MAX=2", &[2.0]),
            ("jemalloc:MALLOC_CONF=narenas:2", &[1.0]),
        ]);
        let both = fixture::comparison(&[("glibc:A=1 (old)", &[2.0]), ("glibc:A=1 (new)", &[2.0])]);
        assert_eq!(short_label(&both, 1), "glibc A=1 new");
        let labels: Vec<String> = (0..3).map(|index| short_label(&comparison, index)).collect();
        assert_eq!(labels, ["glibc", "glibc MALLOC_ARENA_MAX=2", "jemalloc"]);
    }
}
