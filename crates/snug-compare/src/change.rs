//! Two saved comparisons side by side: the same allocator, quantity by quantity. Pure.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::quantities::{named, Quantity, Wanted};
use crate::results::Comparison;
use crate::shown_ratio;
use crate::summary::quantities_of;
use crate::view::{self, Difference};
use snug_inspect::kinds::Kind;
use snug_stats as statistics;
use snug_stats::Ratio;

/// What a comparison was put together from.
#[derive(Default)]
pub struct Origin<'a> {
    /// Names and contents of the files; none if it is one alone.
    pub sources: Vec<(&'a str, &'a Comparison)>,
    /// What differs between the files.
    pub changes: &'a [Changes],
}

/// What changed from one comparison to another.
#[derive(Debug, Clone, Serialize)]
pub struct Changes {
    /// Names of the files.
    pub before: String,
    pub after: String,
    pub rows: Vec<Change>,
    /// What a reader should know: allocators in one file only, another machine.
    pub remarks: Vec<String>,
}

/// One quantity of one allocator in both.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    pub allocator: String,
    /// As in the summary of a comparison.
    pub quantity: String,
    pub before_median: f64,
    pub after_median: f64,
    pub measured: Option<Ratio>,
    #[serde(skip)]
    pub shown: ChangeText,
}

/// The same in words.
#[derive(Debug, Clone)]
pub struct ChangeText {
    /// The first row of its allocator.
    pub first: bool,
    pub heading: String,
    pub before: String,
    pub after: String,
    pub ratio: String,
    pub wanted: Option<Wanted>,
    pub verdict: Difference,
    /// As "0.48 to 0.52"; empty if there is none.
    pub interval: String,
    /// What that means, or why there is none; empty where the numbers say it.
    pub words: &'static str,
}

impl ChangeText {
    /// The words with the interval behind them.
    pub fn says(&self) -> String {
        match (self.words, self.interval.as_str()) {
            ("", interval) => interval.into(),
            (words, "") => words.into(),
            (words, interval) => format!("{words} ({interval})"),
        }
    }
}

/// Compares two comparisons. Ratios are those of `after` to `before`, by the method of `statistics::ratio`.
pub fn between(before: (&str, &Comparison), after: (&str, &Comparison)) -> Changes {
    let mut rows = Vec::new();
    for allocator in &before.1.allocators {
        let mut first = true;
        for quantity in quantities(before.1, after.1) {
            let values = |comparison: &Comparison| -> Vec<f64> {
                let runs = comparison.good_runs(&allocator.label);
                runs.filter_map(|run| quantities_of(run).get(&quantity.name).copied()).collect()
            };
            let (old, new) = (values(before.1), values(after.1));
            if !old.is_empty() && !new.is_empty() {
                rows.push(change(&allocator.label, &quantity, &old, &new, first));
                first = false;
            }
        }
    }
    correct_for_many(&mut rows, &after.1.summary.memory_measure);
    Changes { before: before.0.into(), after: after.0.into(), rows, remarks: remarks(before, after) }
}

/// Corrects the probabilities for the number of rows, but for mean memory under the allocator in question, the first of
/// the sentence, and says what each ratio comes to.
fn correct_for_many(rows: &mut [Change], measure: &str) {
    let memory = format!("{measure}_mean_bytes");
    let primary = rows.iter().filter(|row| row.quantity == memory).map(|row| row.allocator.clone());
    let primary = primary.min_by_key(|allocator| !is_snug(allocator));
    let is_judged = |row: &&mut Change| {
        (row.quantity != memory || Some(&row.allocator) != primary.as_ref()) && row.shown.wanted.is_some()
    };
    let judged = rows.iter_mut().filter(is_judged).filter_map(|row| row.measured.as_mut());
    let judged: Vec<&mut Ratio> = judged.filter(|ratio| ratio.p_value.is_some()).collect();
    let p_values: Vec<f64> = judged.iter().filter_map(|ratio| ratio.p_value).collect();
    for (ratio, corrected) in judged.into_iter().zip(statistics::holm(&p_values)) {
        ratio.adjusted_p_value = Some(corrected);
    }
    for row in rows {
        let (quantity, after, before) = (named(&row.quantity), row.after_median, row.before_median);
        let ratio = row.measured.and_then(|ratio| shown_ratio::of(&quantity, after, before, ratio));
        row.shown.ratio = ratio.map_or_else(|| "–".into(), |ratio| format!("{}×", shown_ratio::times(ratio)));
        row.shown.verdict = view::verdict(ratio, row.shown.wanted);
        row.shown.interval = ratio.map_or_else(String::new, shown_ratio::interval);
        row.shown.words = match row.shown.verdict {
            Difference::NoRatio => "no ratio of zero",
            verdict => verdict.words(),
        };
    }
}

fn is_snug(label: &str) -> bool {
    Kind::from_name(label.split(':').next().unwrap_or_default()) == Some(Kind::Snug)
}

/// The quantities worth a row: those worth a column, and memory at the end of the last phase.
fn quantities(before: &Comparison, after: &Comparison) -> Vec<Quantity> {
    let mut all = view::quantities(before);
    let names: BTreeSet<String> = all.iter().map(|quantity| quantity.name.clone()).collect();
    all.extend(view::quantities(after).into_iter().filter(|quantity| !names.contains(&quantity.name)));
    if let Some(last) = view::phase_table(before).and_then(|mut phases| phases.quantities.pop()) {
        all.insert(3.min(all.len()), Quantity { heading: format!("memory, {}", last.heading), ..last });
    }
    all
}

fn change(allocator: &str, quantity: &Quantity, old: &[f64], new: &[f64], first: bool) -> Change {
    let (before_median, after_median) = (statistics::median(old), statistics::median(new));
    let measured = statistics::ratio(new, old);
    let shown = |value| view::with_unit(quantity, value);
    Change {
        allocator: allocator.into(),
        quantity: quantity.name.clone(),
        before_median,
        after_median,
        measured,
        shown: ChangeText {
            first,
            heading: quantity.heading.clone(),
            before: shown(before_median),
            after: shown(after_median),
            ratio: String::new(),
            wanted: quantity.wanted,
            verdict: Difference::NoRatio,
            interval: String::new(),
            words: "",
        },
    }
}

fn remarks(before: (&str, &Comparison), after: (&str, &Comparison)) -> Vec<String> {
    let mut remarks = Vec::new();
    let labels = |comparison: &Comparison| -> Vec<String> {
        comparison.allocators.iter().map(|allocator| allocator.label.clone()).collect()
    };
    for (one, other) in [(before, after), (after, before)] {
        let theirs = labels(other.1);
        let alone: Vec<String> = labels(one.1).into_iter().filter(|label| !theirs.contains(label)).collect();
        if !alone.is_empty() {
            remarks.push(format!("only in {}: {}", one.0, alone.join(", ")));
        }
    }
    let (old, new) = (before.1, after.1);
    if old.program != new.program {
        remarks.push("the programs differ: the ratios compare different work".into());
    }
    let machine = |comparison: &Comparison| {
        let machine = &comparison.machine;
        (machine.cpu.clone(), machine.cpus, machine.memory_bytes >> 30, machine.page_size_bytes)
    };
    if machine(old) != machine(new) {
        remarks.push("the machines differ: compare memory, and not times".into());
    }
    if old.machine.transparent_huge_pages != new.machine.transparent_huge_pages {
        remarks.push(format!(
            "transparent huge pages: {} in {}, {} in {}",
            old.machine.transparent_huge_pages, before.0, new.machine.transparent_huge_pages, after.0
        ));
    }
    for allocator in &old.allocators {
        let same = new.allocators.iter().find(|other| other.label == allocator.label);
        if let Some(other) = same.filter(|other| other.version != allocator.version) {
            let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".into());
            remarks.push(format!(
                "{}: version {} in {}, {} in {}",
                allocator.label,
                version(&allocator.version),
                before.0,
                version(&other.version),
                after.0
            ));
        }
    }
    remarks
}

/// One sentence about memory for each allocator in both, snug first.
pub fn conclusion(changes: &Changes, measure: &str) -> String {
    let quantity = format!("{measure}_mean_bytes");
    let mut rows: Vec<&Change> = changes.rows.iter().filter(|row| row.quantity == quantity).collect();
    if rows.is_empty() {
        return format!("{} and {} have no allocator in common.", changes.before, changes.after);
    }
    rows.sort_by_key(|row| !is_snug(&row.allocator));
    let clause = |row: &&Change| {
        let ChangeText { ratio, verdict, .. } = &row.shown;
        let says = row.shown.says();
        match verdict {
            Difference::Same | Difference::NotEnoughData => format!("{}: {says}, {ratio}", row.allocator),
            _ => format!("{}: {ratio} ({says})", row.allocator),
        }
    };
    let clauses: Vec<String> = rows.iter().map(clause).collect();
    format!(
        "Mean memory ({}) in {} against {}; {}.",
        measure.to_uppercase(),
        changes.after,
        changes.before,
        clauses.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_same_allocator_in_both() {
        let before = fixture::comparison(&[("glibc", &[100.0, 101.0, 99.0]), ("snug", &[50.0, 51.0, 49.0])]);
        let after = fixture::comparison(&[("jemalloc", &[9.0]), ("snug", &[40.0, 41.0, 39.0])]);
        let changes = between(("monday", &before), ("tuesday", &after));
        assert!(changes.rows.iter().all(|row| row.allocator == "snug"));
        let mean = changes.rows.iter().find(|row| row.quantity == "rss_mean_bytes").unwrap();
        assert_eq!((mean.shown.ratio.as_str(), mean.shown.verdict), ("0.80×", Difference::Better));
        let wall = changes.rows.iter().find(|row| row.quantity == "wall_s").unwrap();
        assert!(wall.shown.says().starts_with("no difference ("), "{:?}", wall.shown);
        assert_eq!(changes.remarks, ["only in monday: glibc", "only in tuesday: jemalloc"]);
        let text = conclusion(&changes, "rss");
        assert!(text.contains("tuesday against monday; snug: 0.80× (0."), "{text}");
    }

    #[test]
    fn other_circumstances_are_mentioned() {
        let before = fixture::comparison(&[("snug", &[50.0, 51.0])]);
        let mut after = before.clone();
        after.machine.cpus = 64;
        after.program = vec!["other".into()];
        after.allocators[0].version = Some("2.0".into());
        let remarks = between(("a", &before), ("b", &after)).remarks.join("\n");
        assert!(remarks.contains("machines differ") && remarks.contains("programs differ"), "{remarks}");
        assert!(remarks.contains("snug: version 1.0 in a, 2.0 in b"), "{remarks}");
    }
}
