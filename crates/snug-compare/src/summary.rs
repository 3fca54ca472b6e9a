//! A summary of runs: estimates for every allocator and quantity, warnings, and one sentence. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::results::{Allocator, Comparison, Run, Summary, SummaryRow};
use crate::view::Difference;
use crate::{quantities, shown_ratio, view, warnings, window};
use snug_base::terminal;
use snug_inspect::kinds::Kind;
use snug_stats as statistics;
use snug_stats::{Estimate, Meaning, Ratio};

/// With this many processes at a time or more, pages that they share would be counted twice in RSS.
const SEVERAL_PROCESSES: f64 = 1.5;
/// PSS is read more rarely than RSS: with fewer readings than this, its mean says little. It need not be many: shared
/// pages that are counted in each process make RSS wrong by a third and more, which no number of runs averages out.
const FEWEST_READINGS: f64 = 6.0;

/// Computes the summary of all runs so far.
pub fn summarise(comparison: &Comparison) -> Summary {
    let is_plain = |allocator: &Allocator| allocator.kind == Kind::Glibc && allocator.environment.is_empty();
    let baseline = comparison.allocators.get(baseline(comparison.allocators.iter().map(is_plain)));
    summarise_against(comparison, baseline.map_or("", |allocator| &allocator.label))
}

/// The same with ratios to the allocator of this label.
pub fn summarise_against(comparison: &Comparison, baseline: &str) -> Summary {
    let memory_measure = memory_measure(&comparison.runs);
    let mut values: BTreeMap<&str, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for run in comparison.runs.iter().filter(|run| run.failure.is_none()) {
        let quantities = values.entry(&run.allocator).or_default();
        for (name, value) in quantities_of(run) {
            quantities.entry(name).or_default().push(value);
        }
    }
    let nothing = BTreeMap::new();
    let baseline_values = values.get(baseline).unwrap_or(&nothing);
    let rows = comparison.allocators.iter().map(|allocator| {
        let own = values.get(allocator.label.as_str()).unwrap_or(&nothing);
        let runs = comparison.runs.iter().filter(|run| run.allocator == allocator.label);
        let failed_runs = runs.clone().filter(|run| run.failure.is_some()).count() as u32;
        SummaryRow {
            allocator: allocator.label.clone(),
            runs: runs.count() as u32 - failed_runs,
            failed_runs,
            quantities: estimates(own, (allocator.label != baseline).then_some(baseline_values)),
        }
    });
    let mut summary = Summary {
        allocators: rows.collect(),
        baseline: baseline.into(),
        memory_measure,
        conclusion: String::new(),
        warnings: Vec::new(),
    };
    correct_for_many(comparison, &mut summary);
    summary.conclusion = conclusion(&comparison.allocators, &summary, comparison.settings.serving.is_some());
    summary.warnings = warnings::warnings(comparison, &summary.baseline);
    summary
}

/// Corrects the probabilities of all ratios that the report shows for their number, but for the one that the comparison
/// is about: mean memory of the allocator in question.
fn correct_for_many(comparison: &Comparison, summary: &mut Summary) {
    let names = view::compared_together(comparison, summary);
    let memory = format!("{}_mean_bytes", summary.memory_measure);
    let measured = |allocator: &&Allocator| {
        let row = summary.allocators.iter().find(|row| row.allocator == allocator.label);
        allocator.label != summary.baseline && row.is_some_and(|row| row.quantities.contains_key(&memory))
    };
    let others: Vec<&Allocator> = comparison.allocators.iter().filter(measured).collect();
    let median = |label: &str| {
        let row = summary.allocators.iter().find(|row| row.allocator == label);
        row.and_then(|row| row.quantities.get(&memory)).map_or(f64::MAX, |estimate| estimate.median)
    };
    let primary = subject(&others, median).map(|allocator| allocator.label.clone());
    let mut judged: Vec<&mut Ratio> = Vec::new();
    for row in &mut summary.allocators {
        let is_primary = primary.as_ref() == Some(&row.allocator);
        let shown = row.quantities.iter_mut().filter(|(name, _)| names.contains(*name));
        let secondary = shown.filter(|(name, _)| !is_primary || **name != memory);
        judged.extend(secondary.filter_map(|(_, estimate)| estimate.ratio.as_mut()));
    }
    judged.retain(|ratio| ratio.p_value.is_some());
    let p_values: Vec<f64> = judged.iter().filter_map(|ratio| ratio.p_value).collect();
    for (ratio, corrected) in judged.into_iter().zip(statistics::holm(&p_values)) {
        ratio.adjusted_p_value = Some(corrected);
    }
}

/// The place of what ratios refer to: glibc as it is, or else the first that was asked for.
pub fn baseline(mut is_plain_glibc: impl Iterator<Item = bool>) -> usize {
    is_plain_glibc.position(|is_plain| is_plain).unwrap_or(0)
}

fn memory_measure(runs: &[Run]) -> String {
    let counts: Vec<f64> = runs.iter().filter_map(|run| run.memory.get("processes_mean").copied()).collect();
    let readings: Vec<f64> = runs.iter().map(|run| run.details.time_s.len() as f64).collect();
    if statistics::mean(&counts) >= SEVERAL_PROCESSES && statistics::median(&readings) >= FEWEST_READINGS {
        "pss".into()
    } else {
        "rss".into()
    }
}

/// Everything about a run that can be compared, by name.
pub fn quantities_of(run: &Run) -> BTreeMap<String, f64> {
    let mut quantities = run.memory.clone();
    quantities.insert("wall_s".into(), run.wall_s);
    quantities.insert("cpu_s".into(), run.cpu_user_s + run.cpu_system_s);
    quantities.insert("cpu_user_s".into(), run.cpu_user_s);
    quantities.insert("cpu_system_s".into(), run.cpu_system_s);
    quantities.insert("page_faults".into(), (run.minor_faults + run.major_faults) as f64);
    for (name, value) in &run.metrics {
        quantities.insert(format!("metric:{name}"), *value);
    }
    if let Some(samples) = run.cpu_samples.filter(|samples| samples.total > 0) {
        let parts = [
            ("allocator_code_percent", samples.allocator_code),
            ("memory_calls_percent", samples.memory_calls),
            ("fault_cpu_percent", samples.page_faults),
        ];
        let percent = |count: u64| 100.0 * count as f64 / samples.total as f64;
        let sum = parts.iter().map(|(_, count)| count).sum();
        quantities.insert("allocator_cpu_percent".into(), percent(sum));
        quantities.extend(parts.map(|(name, count)| (name.to_string(), percent(count))));
    }
    if let Some(latency) = &run.latency {
        quantities.insert("requests_per_s".into(), latency.requests_per_s);
        let named = |percent: f64| format!("latency_p{}_s", percent.to_string().replace('.', "_"));
        quantities.extend(latency.percentiles.iter().map(|p| (named(p.percent), p.latency_s)));
    }
    quantities.extend(window::of_phases(run));
    // A load that has a time serves the more requests the faster it is: its totals compare different work.
    let requests = run.latency.as_ref().map_or(0, |latency| latency.requests);
    for (name, total) in
        [("cpu_per_request_s", "load.cpu_s"), ("page_faults_per_request", "load.page_faults")]
    {
        let total = quantities.get(total).filter(|_| requests > 0).copied();
        quantities.extend(total.map(|total| (format!("load.{name}"), total / requests as f64)));
    }
    quantities
}

fn estimates(
    own: &BTreeMap<String, Vec<f64>>,
    baseline: Option<&BTreeMap<String, Vec<f64>>>,
) -> BTreeMap<String, Estimate> {
    let mut estimates = BTreeMap::new();
    for (name, values) in own {
        let Some(mut estimate) = statistics::estimate(values) else { continue };
        let other = baseline.and_then(|baseline| baseline.get(name));
        estimate.ratio = other.and_then(|other| statistics::ratio(values, other));
        estimates.insert(name.clone(), estimate);
    }
    estimates
}

/// The result in one sentence: what memory and time do under the allocator of interest, relative to the baseline.
fn conclusion(allocators: &[Allocator], summary: &Summary, is_server: bool) -> String {
    let memory = format!("{}_mean_bytes", summary.memory_measure);
    let unsampled = |row: &SummaryRow| row.runs > 0 && !row.quantities.contains_key(&memory);
    if summary.allocators.iter().any(unsampled) {
        return "The program ended before its memory could be sampled: compare only the times, or give it more to do."
            .into();
    }
    let measure = summary.memory_measure.to_uppercase();
    let of = |label: &str, quantity: &str| {
        let row = summary.allocators.iter().find(|row| row.allocator == label)?;
        row.quantities.get(quantity)
    };
    let measured = allocators.iter().filter(|allocator| of(&allocator.label, &memory).is_some());
    let others: Vec<&Allocator> = measured.filter(|allocator| allocator.label != summary.baseline).collect();
    let mean_of = |label: &str| of(label, &memory).map_or(f64::MAX, |estimate| estimate.median);
    let Some(subject) = subject(&others, mean_of) else {
        return match of(&summary.baseline, &memory) {
            Some(estimate) => {
                let size = terminal::bytes(estimate.median);
                format!(
                    "{} uses {size} of memory (mean {measure}); there is nothing to compare it with.",
                    summary.baseline
                )
            }
            None => "No run succeeded: there is nothing to compare.".into(),
        };
    };
    let ratio_of = |label: &str, quantity: &str| {
        let (own, baseline) = (of(label, quantity)?, of(&summary.baseline, quantity));
        shown_ratio::to_baseline(&quantities::named(quantity), own, baseline)
    };
    let Some(ratio) = ratio_of(&subject.label, &memory) else {
        return format!("{} did not run, so there is nothing to compare with.", summary.baseline);
    };
    let mut told = headlines(summary, &subject.label, is_server);
    told.iter_mut().for_each(|one| one.ratio = ratio_of(&subject.label, &one.quantity));
    told.retain(|one| one.is_always || one.verdict().is_shown());
    // What is shown comes first, whichever it is.
    told.sort_by_key(|one| !one.verdict().is_shown());
    let mut told = told.iter().filter_map(|one| Some((one.name.as_str(), one.ratio?)));
    let first =
        told.next().map(|(name, ratio)| sentence_part(&subject.label, &summary.baseline, name, ratio));
    let mut parts: Vec<String> =
        first.into_iter().chain(told.map(|(name, ratio)| clause(name, ratio))).collect();
    let peers = others.iter().filter(|allocator| allocator.kind != subject.kind);
    let smallest = peers.min_by(|a, b| mean_of(&a.label).total_cmp(&mean_of(&b.label)));
    if let Some((peer, least)) = smallest.and_then(|peer| Some((peer, ratio_of(&peer.label, &memory)?))) {
        let verb = if ratio.interval.is_none() { "used" } else { "uses" };
        let times = shown_ratio::times(least);
        parts.push(format!("of the others, {} {verb} the least memory: {times} times", peer.label));
    }
    let mut text = parts.join("; ") + ".";
    match ratio.meaning() {
        None => text.push_str(" One run each cannot tell a difference from noise: use --runs 3 or more."),
        Some(Meaning::NotEnoughData) => text.push_str(" Use more --runs, or a longer program."),
        Some(_) => {}
    }
    text
}

/// What the sentence may say something of.
struct Headline {
    quantity: String,
    name: String,
    /// Or only if it is shown to differ.
    is_always: bool,
    ratio: Option<Ratio>,
}

impl Headline {
    fn verdict(&self) -> Difference {
        view::verdict(self.ratio, quantities::named(&self.quantity).wanted)
    }
}

/// Memory first, then what the program reported of its throughput, then times.
fn headlines(summary: &Summary, label: &str, is_server: bool) -> Vec<Headline> {
    let measure = &summary.memory_measure;
    let shown_as = measure.to_uppercase();
    let has = |name: &str| summary.allocators.iter().any(|row| row.quantities.contains_key(name));
    let mut all = vec![
        (format!("{measure}_mean_bytes"), format!("mean memory ({shown_as})"), true),
        (format!("{measure}_peak_bytes"), format!("peak memory ({shown_as})"), false),
    ];
    all.extend(subject_throughput(summary, label).map(|name| (format!("metric:{name}"), name.into(), true)));
    all.extend(match is_server {
        false => {
            vec![("wall_s".into(), "wall time".into(), true), ("cpu_s".into(), "CPU time".into(), false)]
        }
        true => vec![
            (format!("idle.{measure}_final_bytes"), "memory after idling".into(), true),
            ("requests_per_s".into(), "the rate of requests".into(), true),
            ("latency_p99_s".into(), "p99 latency".into(), true),
            match has("load.cpu_per_request_s") {
                true => ("load.cpu_per_request_s".into(), "CPU time per request".into(), true),
                false => ("load.cpu_s".into(), "CPU time under load".into(), true),
            },
        ],
    });
    let headline = |(quantity, name, is_always)| Headline { quantity, name, is_always, ratio: None };
    all.into_iter().map(headline).collect()
}

/// The allocator that the sentence is about: snug, or else the one with least memory.
fn subject<'a>(others: &[&'a Allocator], memory: impl Fn(&str) -> f64) -> Option<&'a Allocator> {
    let snug = others.iter().find(|allocator| allocator.kind == Kind::Snug);
    let smallest = || others.iter().min_by(|a, b| memory(&a.label).total_cmp(&memory(&b.label)));
    snug.or_else(smallest).copied()
}

fn subject_throughput<'a>(summary: &'a Summary, label: &str) -> impl Iterator<Item = &'a str> {
    let row = summary.allocators.iter().find(|row| row.allocator == label);
    let names = row.into_iter().flat_map(|row| row.quantities.keys());
    let metrics: BTreeSet<&str> = names.filter_map(|name| name.strip_prefix("metric:")).collect();
    metrics.into_iter().filter(|name| name.ends_with("_per_s"))
}

fn sentence_part(subject: &str, baseline: &str, quantity: &str, ratio: Ratio) -> String {
    let (times, interval) = (shown_ratio::times(ratio), shown_ratio::interval(ratio));
    let has_memory = quantity.contains("memory (");
    match ratio.meaning() {
        Some(Meaning::NotEnoughData) => format!(
            "Not enough data on {quantity} to tell {subject} from {baseline} ({times} times, 95 % interval {interval})"
        ),
        Some(Meaning::NoDifference) => format!(
            "No difference in {quantity} between {subject} and {baseline} ({times} times, 95 % interval {interval})"
        ),
        Some(_) if has_memory => {
            format!("{subject} uses {times} times the {quantity} of {baseline} (95 % interval {interval})")
        }
        Some(_) => format!(
            "Under {subject} {quantity} is {times} times that under {baseline} (95 % interval {interval})"
        ),
        None => format!("{subject} used {times} times the {quantity} of {baseline}"),
    }
}

fn clause(name: &str, ratio: Ratio) -> String {
    let (times, interval) = (shown_ratio::times(ratio), shown_ratio::interval(ratio));
    match ratio.meaning() {
        Some(Meaning::NotEnoughData) => format!("not enough data on {name} ({times} times, {interval})"),
        Some(Meaning::NoDifference) => format!("no difference in {name} ({times} times, {interval})"),
        Some(_) if ratio.may_be_chance() => {
            format!("{name} is {times} times ({interval}), which may be chance")
        }
        Some(_) => format!("{name} is {times} times ({interval})"),
        None => format!("{name} was {times} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::results::CpuSamples;

    #[test]
    fn a_clear_difference_is_stated_with_its_interval() {
        let comparison =
            fixture::comparison(&[("glibc", &[100.0, 102.0, 98.0]), ("snug", &[50.0, 51.0, 49.0])]);
        let summary = summarise(&comparison);
        assert_eq!(summary.baseline, "glibc");
        assert!(
            summary.conclusion.starts_with("snug uses 0.50 times the mean memory (RSS) of glibc"),
            "{}",
            summary.conclusion
        );
        assert!(
            summary.conclusion.contains("no difference in wall time (1.00 times"),
            "{}",
            summary.conclusion
        );
    }

    #[test]
    fn samples_become_shares_of_cpu_time() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0])]);
        let run = &mut comparison.runs[0];
        let counts = CpuSamples { total: 200, allocator_code: 10, memory_calls: 4, page_faults: 2 };
        run.cpu_samples = Some(counts);
        let quantities = quantities_of(run);
        let names =
            ["allocator_cpu_percent", "allocator_code_percent", "memory_calls_percent", "fault_cpu_percent"];
        assert_eq!(names.map(|name| quantities[name]), [8.0, 5.0, 2.0, 1.0]);
        run.cpu_samples = Some(CpuSamples::default());
        assert!(
            !quantities_of(run).contains_key("allocator_cpu_percent"),
            "nothing is known without samples"
        );
    }

    #[test]
    fn noise_is_called_no_difference() {
        let comparison =
            fixture::comparison(&[("glibc", &[100.0, 101.0, 99.0]), ("snug", &[99.5, 101.5, 100.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.starts_with("No difference in mean memory (RSS) between snug and glibc"), "{text}");
        let comparison =
            fixture::comparison(&[("glibc", &[100.0, 120.0, 90.0]), ("snug", &[95.0, 118.0, 99.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.starts_with("Not enough data on mean memory (RSS) to tell snug from glibc ("), "{text}");
        assert!(text.ends_with(" Use more --runs, or a longer program."), "{text}");
        let comparison = fixture::comparison(&[("glibc", &[10.0, 120.0]), ("snug", &[95.0, 18.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.contains("to tell snug from glibc") && text.contains("too wide to tell"), "{text}");
    }

    /// Whatever is planted in one quantity is in the sentence, first where the mean says nothing.
    #[test]
    fn no_proven_change_is_left_out() {
        let noisy: &[f64] = &[80.0, 100.0, 120.0, 95.0, 107.0];
        for (quantity, told) in [
            ("rss_peak_bytes", "snug uses 1.15 times the peak memory (RSS) of glibc (95 % interval 1.1"),
            ("wall_s", "Under snug wall time is 1.15 times that under glibc (95 % interval 1.1"),
            ("cpu_s", "Under snug CPU time is 1.15 times that under glibc (95 % interval 1.1"),
        ] {
            let mut comparison = fixture::comparison(&[("glibc", noisy), ("snug", noisy)]);
            for (index, run) in comparison.runs.iter_mut().enumerate() {
                let own = if run.allocator == "snug" { 1.15 } else { 1.0 } + 0.0002 * (index % 5) as f64;
                let factor = |name: &str| if name == quantity { own } else { 1.0 };
                run.memory.insert("rss_peak_bytes".into(), 200e6 * factor("rss_peak_bytes"));
                run.wall_s = 10.0 * factor("wall_s");
                (run.cpu_user_s, run.cpu_system_s) = (8.0 * factor("cpu_s"), 0.0);
            }
            let text = summarise(&comparison).conclusion;
            assert!(text.starts_with(told), "{quantity}: {text}");
            assert!(text.contains("; not enough data on mean memory (RSS) (1.00 times, "), "{text}");
            for (index, run) in comparison.runs.iter_mut().enumerate() {
                let mean = if run.allocator == "snug" { 50e6 } else { 100e6 };
                run.memory.insert("rss_mean_bytes".into(), mean + 1e4 * (index % 5) as f64);
            }
            let text = summarise(&comparison).conclusion;
            assert!(
                text.starts_with("snug uses 0.50 times the mean memory") && text.contains("1.15 times ("),
                "{text}"
            );
        }
    }

    #[test]
    fn one_run_is_not_enough() {
        let comparison =
            fixture::comparison(&[("glibc", &[100.0]), ("jemalloc", &[80.0]), ("snug", &[90.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.contains("snug used 0.90 times"), "{text}");
        assert!(text.contains("of the others, jemalloc used the least memory: 0.80 times"), "{text}");
        assert!(text.contains("use --runs 3"), "{text}");
    }

    #[test]
    fn without_snug_the_smallest_is_the_subject() {
        let comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("jemalloc", &[80.0, 80.5])]);
        assert!(summarise(&comparison).conclusion.starts_with("jemalloc uses 0.80 times"));
    }

    #[test]
    fn failed_runs_do_not_count() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 100.0]), ("snug", &[50.0, 50.0])]);
        for run in comparison.runs.iter_mut().filter(|run| run.allocator == "snug") {
            run.failure = Some("crashed".into());
        }
        let summary = summarise(&comparison);
        assert_eq!(summary.allocators[1].failed_runs, 2);
        assert!(summary.conclusion.contains("nothing to compare"), "{}", summary.conclusion);
    }

    #[test]
    fn several_processes_are_compared_by_pss() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[80.0, 80.5])]);
        fixture::set_memory(&mut comparison, &[("processes_mean", 4.0)]);
        let summary = comparison.summary;
        assert_eq!(summary.memory_measure, "pss");
        assert!(summary.conclusion.contains("(PSS)"));
    }
}
