//! The comparison as one HTML page that needs nothing else: no network, and no script for the essentials. What the
//! page says is put together here; `page.html` lays it out.

mod facts;
mod filters {
    use std::fmt::Display;

    /// HTML in which long names may be broken after the characters that join their parts.
    pub(crate) fn breakable(text: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
        let mut html = String::new();
        for c in text.to_string().chars() {
            match c {
                '&' => html.push_str("&amp;"),
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '/' | ':' | ',' | '=' | '_' => html.extend([c.to_string().as_str(), "<wbr>"]),
                c => html.push(c),
            }
        }
        Ok(html)
    }
}

use std::io::{self, Write};

use askama::Template;

use crate::chart::{Chart, NARROW, PAGE};
use crate::html::facts::ComparisonFacts;
use crate::plot;
use snug_base::terminal;
use snug_compare::change::{Changes, Origin};
use snug_compare::quantities::named;
use snug_compare::results::Comparison;
use snug_compare::shown_ratio;
use snug_compare::view::{self, Others, Table};
use snug_inspect::kinds::Kind;

/// Writes the page.
pub fn write(comparison: &Comparison, origin: &Origin, out: &mut dyn Write) -> io::Result<()> {
    let page = ReportPage::new(comparison, origin);
    out.write_all(page.render().map_err(io::Error::other)?.as_bytes())
}

#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage<'a> {
    style: String,
    script: &'static str,
    program: String,
    /// The first part of the conclusion, and the others.
    lead: String,
    clauses: Vec<String>,
    tiles: Vec<Tile>,
    failures: Vec<FailedRun>,
    runs: usize,
    warnings: &'a [String],
    baseline: &'a str,
    changes: &'a [Changes],
    table: Table,
    phases: Option<Table>,
    others: Option<Others>,
    measure: String,
    measured_processes: String,
    /// The part of a run that memory is measured in; None: all of it.
    window: Option<&'static str>,
    /// How many runs the medians are those of; None: one each.
    run_count: Option<String>,
    figures: Vec<Figure>,
    sources: Vec<ComparisonFacts>,
    snug_version: &'a str,
    started_at: &'a str,
}

/// A number worth being large.
struct Tile {
    heading: String,
    ratio: String,
    class: &'static str,
    values: String,
    remark: String,
}

struct FailedRun {
    allocator: String,
    round: u32,
    reason: String,
}

struct Figure {
    name: &'static str,
    heading: String,
    caption: String,
    y_title: String,
    wide: String,
    narrow: String,
    legend_titles: [String; 2],
    legend: Vec<LegendLine>,
}

/// A line of a legend.
struct LegendLine {
    key: String,
    name: String,
    details: Vec<String>,
    values: [String; 2],
    emphasised: bool,
    /// What the script looks for in the picture.
    series: String,
}

impl<'a> ReportPage<'a> {
    fn new(comparison: &'a Comparison, origin: &'a Origin) -> ReportPage<'a> {
        let mut parts = comparison.summary.conclusion.split("; ").map(capital);
        let failed = comparison.runs.iter().filter(|run| run.failure.is_some());
        let failure = |run: &snug_compare::results::Run| FailedRun {
            allocator: run.allocator.clone(),
            round: run.round,
            reason: run.failure.clone().unwrap_or_default(),
        };
        let alone = [("", comparison)];
        let sources = if origin.sources.is_empty() { &alone[..] } else { &origin.sources[..] };
        ReportPage {
            style: format!("{}{}", include_str!("../../templates/page.css"), plot::style()),
            script: include_str!("../../templates/page.js"),
            program: terminal::shell_line(&comparison.program),
            lead: parts.next().map_or_else(String::new, |lead| format!("{}.", lead.trim_end_matches('.'))),
            clauses: parts.collect(),
            tiles: if origin.changes.is_empty() { tiles(comparison) } else { Vec::new() },
            failures: failed.map(failure).collect(),
            runs: comparison.runs.len(),
            warnings: &comparison.summary.warnings,
            baseline: &comparison.summary.baseline,
            changes: origin.changes,
            table: view::table(comparison),
            phases: view::phase_table(comparison),
            others: view::others(comparison),
            measure: comparison.summary.memory_measure.to_uppercase(),
            measured_processes: match &comparison.settings.only {
                Some(only) => format!("processes whose command line matches {only}"),
                None => "the program and every process it started".into(),
            },
            window: view::window(comparison),
            run_count: view::run_count(comparison),
            figures: plot::plots(comparison).into_iter().map(|plot| figure(plot.name, &plot.chart)).collect(),
            sources: sources.iter().map(|(name, one)| ComparisonFacts::new(name, one)).collect(),
            snug_version: &comparison.snug_version,
            started_at: &comparison.started_at,
        }
    }
}

fn figure(name: &'static str, chart: &Chart) -> Figure {
    let entry = |series: &crate::chart::ChartSeries| LegendLine {
        key: series.key_svg(),
        name: series.name.clone(),
        details: series.details.clone(),
        values: series.values.clone(),
        emphasised: series.emphasised,
        series: series.full_name(),
    };
    let (heading, _) = chart.title.split_once(':').unwrap_or((&chart.title, ""));
    Figure {
        name,
        heading: heading.into(),
        caption: capital(&chart.subtitle) + ".",
        y_title: chart.y.title.clone(),
        wide: chart.to_svg(&PAGE),
        narrow: chart.to_svg(&NARROW),
        legend_titles: chart.legend_titles.clone(),
        legend: chart.series.iter().map(entry).collect(),
    }
}

/// What matters most about the allocator in question, against the baseline.
fn tiles(comparison: &Comparison) -> Vec<Tile> {
    let Some(subject) = view::subject(comparison) else { return Vec::new() };
    let measure = &comparison.summary.memory_measure;
    let last = view::phases(comparison).pop();
    let mut quantities = vec![(format!("{measure}_mean_bytes"), "mean memory".to_string())];
    quantities.extend(
        last.map(|phase| (format!("{phase}.{measure}_final_bytes"), format!("memory after {phase}"))),
    );
    match view::throughput_quantity(comparison) {
        Some(name) => {
            let heading = format!("{} per second", named(&name).heading);
            quantities.push((name, heading));
        }
        // How long a server runs is what it was asked to.
        None if view::window(comparison).is_some() => {}
        None => quantities.push(("wall_s".into(), "wall time".into())),
    }
    quantities.push(("latency_p99_s".into(), "99th percentile of latency".into()));
    quantities.extend(view::cost(comparison).map(|cpu| (cpu.name, cpu.heading)));
    let baseline = &comparison.summary.baseline;
    let tile = |(name, heading): (String, String)| {
        let quantity = named(&name);
        let (own, other) = (comparison.estimate(subject, &name)?, comparison.estimate(baseline, &name)?);
        let ratio = shown_ratio::to_baseline(&quantity, own, Some(other))?;
        let verdict = view::verdict(Some(ratio), quantity.wanted);
        let shown = |value| view::with_unit(&quantity, value);
        Some(Tile {
            heading,
            ratio: format!("{}×", shown_ratio::times(ratio)),
            class: verdict.class(),
            values: format!("{} instead of {}", shown(own.median), shown(other.median)),
            remark: match verdict {
                view::Difference::Unproven => verdict.words().into(),
                _ if verdict.words().is_empty() => format!("95 % interval {}", shown_ratio::interval(ratio)),
                _ => format!("{} ({})", verdict.words(), shown_ratio::interval(ratio)),
            },
        })
    };
    quantities.into_iter().filter_map(tile).take(4).collect()
}

fn capital(text: &str) -> String {
    // Names of allocators are written small, also where a sentence begins.
    let first = text.split([' ', ':']).next().unwrap_or_default();
    if Kind::from_name(first).is_some() {
        return text.to_string();
    }
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |c| c.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::results::Serving;
    use snug_compare::{fixture, summary};

    fn render(comparison: &Comparison) -> String {
        snug_base::testing::written(|out| write(comparison, &Origin::default(), out))
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = render(&fixture::server());
        assert!(page.starts_with("<!DOCTYPE html>"));
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!without_namespace.contains(outside), "{outside}");
        }
        for name in ["memory", "frontier", "latency"] {
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn how_long_a_server_was_watched_is_no_result() {
        let mut comparison = fixture::server();
        for run in &mut comparison.runs {
            run.latency = None;
        }
        comparison.settings.serving = Some(Serving::default());
        comparison.summary = summary::summarise(&comparison);
        let page = render(&comparison);
        assert!(page.contains("CPU time, load") && !page.contains("wall time"));
        assert!(!page.contains("id=\"frontier\""), "there is nothing to set memory against");
    }

    #[test]
    fn other_kinds_of_memory_are_folded_away() {
        let mut comparison = fixture::server();
        fixture::set_memory(&mut comparison, &[("lazy_free_mean_bytes", 1.5e6), ("huge_mean_bytes", 0.0)]);
        let page = render(&comparison);
        let (_, folded) =
            page.split_once("<summary>Also measured: mean PSS, mean USS, mean LazyFree").unwrap();
        let (folded, _) = folded.split_once("</details>").unwrap();
        assert!(
            folded.contains("1.50") && folded.contains("Zero throughout: mean in huge pages."),
            "{folded}"
        );
        assert!(page.contains("<dt>LazyFree</dt>"));
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[50.0, 51.0])]);
        comparison.program = vec!["sh".into(), "-c".into(), "<script>alert(1)</script>".into()];
        comparison.runs[1].failure = Some("</pre><img src=x onerror=alert(2)>".into());
        comparison.runs[0].notes.push("<b>note</b>".into());
        comparison.summary = summary::summarise(&comparison);
        let page = render(&comparison);
        assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("<b>note"));
        assert!(
            page.contains("1 of 4 runs failed") && page.contains("onerror=alert(2)"),
            "the failure is shown"
        );
    }

    #[test]
    fn single_runs_prove_nothing_and_the_page_says_so() {
        let page = render(&fixture::comparison(&[("glibc", &[100.0]), ("snug", &[50.0])]));
        assert!(page.contains("unproven"), "{page}");
    }

    #[test]
    fn a_comparison_that_was_stopped_shows_the_runs_there_are() {
        fixture::assert_stop_is_shown(render);
    }
}
