//! Several saved comparisons of different programs in one table: a row for each allocator, a column for each file, for
//! one quantity. Pure.

use crate::quantities::{self, Quantity, Wanted};
use crate::results::Comparison;
use crate::saved::Saved;
use crate::{shown_ratio, view};
use snug_base::failure::{Failure, Result, USAGE};
use snug_inspect::kinds::Kind;

/// One quantity of all allocators in all files.
#[derive(Debug)]
pub struct Overview {
    /// With its unit: "mean memory, MB".
    pub heading: String,
    /// Names of the files, in order.
    pub files: Vec<String>,
    /// Label of the allocator that ratios refer to.
    pub baseline: String,
    /// The best first.
    pub rows: Vec<OverviewRow>,
}

#[derive(Debug)]
pub struct OverviewRow {
    pub label: String,
    pub version: Option<String>,
    pub kind: Kind,
    /// The median in each file, as it is shown; None where it was not measured.
    pub cells: Vec<Option<String>>,
    /// Of one file how many times the baseline, as shown in both cells; of several the geometric mean over all of the
    /// medians divided by the baseline's. None if one is missing.
    pub ratio: Option<f64>,
}

/// Makes the table of one quantity: "memory" (RSS, or PSS where processes fork), "idle", "throughput", "p99", or a name as in
/// --fail-if. Fails if no file has the quantity, or a file lacks the baseline.
pub fn overview(files: &[Saved], name: &str, baseline: Option<&str>) -> Result<Overview> {
    let baseline = baseline.map_or_else(|| files[0].comparison.summary.baseline.clone(), String::from);
    files.iter().try_for_each(|file| file.require_baseline(&baseline))?;
    let found: Vec<Option<Quantity>> =
        files.iter().map(|file| quantity(&file.comparison, name)).collect::<Result<_>>()?;
    let Some(first) = found.iter().flatten().next() else {
        return Err(Failure::new(format!("--overview: none of the files has {name}")).exit_code(USAGE));
    };
    let mut rows = Vec::new();
    for allocator in files.iter().flat_map(|file| &file.comparison.allocators) {
        if rows.iter().any(|row: &OverviewRow| row.label == allocator.label) {
            continue;
        }
        let medians: Vec<Option<f64>> = medians(files, &found, &allocator.label);
        let against = self::medians(files, &found, &baseline);
        let shown = medians
            .iter()
            .zip(&found)
            .map(|(median, quantity)| Some(view::number(quantity.as_ref()?, (*median)?)));
        rows.push(OverviewRow {
            label: allocator.label.clone(),
            version: allocator.version.clone(),
            kind: allocator.kind,
            cells: shown.collect(),
            ratio: match &found[..] {
                [Some(quantity)] => ratio_of_cells(quantity, medians[0], against[0]),
                _ => geometric_mean(&medians, &against),
            },
        });
    }
    let more = first.wanted == Some(Wanted::More);
    rows.sort_by(|one, other| compare(one.ratio, other.ratio, more));
    let files = files.iter().map(|file| file.name.clone()).collect();
    Ok(Overview { heading: heading(name, first), files, baseline, rows })
}

/// Those without a ratio last.
fn compare(one: Option<f64>, other: Option<f64>, more: bool) -> std::cmp::Ordering {
    match (one, other) {
        (Some(one), Some(other)) if more => other.total_cmp(&one),
        (Some(one), Some(other)) => one.total_cmp(&other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

fn heading(name: &str, first: &Quantity) -> String {
    let heading = match name {
        "memory" => "mean memory",
        "idle" => "memory after idling",
        "throughput" => "throughput",
        _ => &first.heading,
    };
    match first.unit {
        "" => heading.into(),
        "/s" => format!("{heading}, per s"),
        unit => format!("{heading}, {unit}"),
    }
}

/// What a name means in one comparison; None if it does not have the like.
fn quantity(comparison: &Comparison, name: &str) -> Result<Option<Quantity>> {
    let measure = &comparison.summary.memory_measure;
    let full = match name {
        "idle" => Some(format!("idle.{measure}_final_bytes")),
        "memory" => Some(format!("{measure}_mean_bytes")),
        "throughput" => view::throughput_quantity(comparison),
        "p99" => Some("latency_p99_s".into()),
        name => Some(
            quantities::quantity_name(name)
                .map_err(|problem| Failure::new(format!("--overview: {problem}")).exit_code(USAGE))?,
        ),
    };
    let has =
        |full: &String| comparison.summary.allocators.iter().any(|row| row.quantities.contains_key(full));
    // Programs report the same by names of their own.
    let reported = match name {
        "p99" => vec!["metric:p99_ms".to_string()],
        "idle" => vec![format!("metric:idle_{measure}_mb"), "metric:idle_rss_mb".into()],
        _ => Vec::new(),
    };
    let full = full.into_iter().chain(reported).find(has);
    Ok(full.map(|full| quantities::named(&full)))
}

/// In the unit of results, for each file.
fn medians(files: &[Saved], found: &[Option<Quantity>], label: &str) -> Vec<Option<f64>> {
    let pairs = files.iter().zip(found);
    pairs.map(|(file, one)| Some(file.comparison.estimate(label, &one.as_ref()?.name)?.median)).collect()
}

fn ratio_of_cells(quantity: &Quantity, own: Option<f64>, other: Option<f64>) -> Option<f64> {
    let shown =
        |median: Option<f64>| shown_ratio::shown_value(quantity, median?).filter(|value| *value > 0.0);
    Some(shown(own)? / shown(other)?)
}

fn geometric_mean(own: &[Option<f64>], other: &[Option<f64>]) -> Option<f64> {
    let pairs: Option<Vec<(f64, f64)>> =
        own.iter().zip(other).map(|(own, other)| (*own).zip(*other)).collect();
    let pairs = pairs.filter(|pairs| pairs.iter().all(|(own, other)| *own > 0.0 && *other > 0.0))?;
    Some((pairs.iter().map(|(own, other)| (own / other).ln()).sum::<f64>() / pairs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn saved(name: &str, memory_mb: &[(&str, &[f64])]) -> Saved {
        Saved { name: name.into(), comparison: fixture::comparison(memory_mb) }
    }

    fn two() -> [Saved; 2] {
        [
            saved("puma", &[("glibc", &[400.0, 402.0, 404.0]), ("snug", &[100.0, 101.0, 99.0])]),
            saved(
                "sidekiq",
                &[
                    ("glibc", &[200.0, 201.0, 199.0]),
                    ("jemalloc", &[150.0, 151.0, 152.0]),
                    ("snug", &[198.0, 200.0, 201.0]),
                ],
            ),
        ]
    }

    #[test]
    fn medians_of_all_files_and_the_mean_of_their_ratios() {
        let overview = overview(&two(), "memory", None).unwrap();
        assert_eq!((overview.heading.as_str(), overview.baseline.as_str()), ("mean memory, MB", "glibc"));
        assert_eq!(overview.files, ["puma", "sidekiq"]);
        let labels: Vec<&str> = overview.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["snug", "glibc", "jemalloc"], "what is not in all files comes last");
        let cells: Vec<_> = overview.rows[0].cells.iter().flatten().collect();
        assert_eq!(cells, ["100", "200"]);
        let expected = (100.0f64 / 402.0 * 200.0 / 200.0).sqrt();
        assert!((overview.rows[0].ratio.unwrap() - expected).abs() < 1e-9);
        assert_eq!((overview.rows[2].cells[0].as_ref(), overview.rows[2].ratio), (None, None));
    }

    #[test]
    fn of_one_file_the_ratio_is_that_of_the_cells() {
        let file = saved("puma", &[("glibc", &[100.4, 100.4]), ("snug", &[100.6, 100.6])]);
        let overview = overview(&[file], "memory", None).unwrap();
        let rows: Vec<_> = overview.rows.iter().map(|row| (row.cells[0].as_deref(), row.ratio)).collect();
        assert_eq!(rows, [(Some("100"), Some(1.0)), (Some("101"), Some(1.01))]);
    }

    #[test]
    fn the_baseline_can_be_chosen() {
        let overview = overview(&two(), "memory", Some("snug")).unwrap();
        assert_eq!(overview.rows[0].ratio, Some(1.0));
        let message = super::overview(&two(), "memory", Some("jemalloc")).unwrap_err().message;
        assert!(message.contains("puma has no allocator \"jemalloc\""), "{message}");
    }

    #[test]
    fn more_throughput_comes_first() {
        let mut files = two();
        for run in files.iter_mut().flat_map(|file| &mut file.comparison.runs) {
            let rate = if run.allocator == "snug" { 80.0 } else { 50.0 };
            run.metrics.insert("requests_per_s".into(), rate);
        }
        for file in &mut files {
            file.comparison.summary = crate::summary::summarise(&file.comparison);
        }
        let overview = overview(&files, "throughput", None).unwrap();
        assert_eq!(
            (overview.heading.as_str(), overview.rows[0].label.as_str()),
            ("throughput, per s", "snug")
        );
    }

    #[test]
    fn what_nobody_measured_is_an_error() {
        let message = |name| overview(&two(), name, None).unwrap_err().message;
        assert!(message("p99").contains("none of the files has p99"));
        assert!(message("rss_meen").contains("did you mean"), "{}", message("rss_meen"));
    }
}
