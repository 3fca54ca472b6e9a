//! From runs to what they say: estimates for every allocator and quantity, warnings, and one sentence. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::results::{Allocator, Comparison, Estimate, Ratio, Run, Summary, SummaryRow};
use super::{quantities, statistics};
use crate::allocator::Kind;
use crate::terminal;

/// With this many processes at a time or more, pages that they share would be counted twice in RSS.
const SEVERAL_PROCESSES: f64 = 1.5;
/// PSS is read more rarely than RSS: with fewer readings than this, its mean says little. It need not be many: shared
/// pages that are counted in each process make RSS wrong by a third and more, which no number of runs averages out.
const FEWEST_READINGS: f64 = 6.0;
/// CPU use of the machine is counted in hundredths of seconds: too coarse for shorter runs.
const SHORTEST_FOR_BUSY_S: f64 = 0.5;
/// Memory of an unusual kind is mentioned above this share of RSS.
const NOTEWORTHY_SHARE: f64 = 0.03;
/// Other programs keeping more than this share of the machine's CPUs busy make times doubtful.
const BUSY_SHARE: f64 = 0.15;

/// Computes the summary of all runs so far.
pub fn summarise(comparison: &Comparison) -> Summary {
    let baseline = baseline(&comparison.allocators);
    let memory_measure = memory_measure(&comparison.runs);
    let mut values: BTreeMap<&str, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for run in comparison.runs.iter().filter(|run| run.failure.is_none()) {
        let quantities = values.entry(&run.allocator).or_default();
        for (name, value) in quantities_of(run) {
            quantities.entry(name).or_default().push(value);
        }
    }
    let nothing = BTreeMap::new();
    let baseline_values = values.get(baseline.as_str()).unwrap_or(&nothing);
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
        baseline,
        memory_measure,
        conclusion: String::new(),
        warnings: Vec::new(),
    };
    summary.conclusion = conclusion(&comparison.allocators, &summary, comparison.settings.serving.is_some());
    summary.warnings = warnings(comparison, &summary.baseline);
    summary
}

/// What ratios refer to: glibc as it is, or else the first that was asked for.
fn baseline(allocators: &[Allocator]) -> String {
    let plain = |allocator: &&Allocator| allocator.kind == Kind::Glibc && allocator.environment.is_empty();
    let found = allocators.iter().find(plain).or(allocators.first());
    found.map_or_else(String::new, |allocator| allocator.label.clone())
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
    if let Some(latency) = &run.latency {
        quantities.insert("requests_per_s".into(), latency.requests_per_s);
        let named = |percent: f64| format!("latency_p{}_s", percent.to_string().replace('.', "_"));
        quantities.extend(latency.percentiles.iter().map(|p| (named(p.percent), p.latency_s)));
    }
    quantities.extend(quantities::of_phases(run));
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
    let Some(ratio) = of(&subject.label, &memory).and_then(|estimate| estimate.ratio) else {
        return format!("{} did not run, so there is nothing to compare with.", summary.baseline);
    };
    let mut parts =
        vec![sentence_part(&subject.label, &summary.baseline, &format!("mean memory ({measure})"), ratio)];
    let throughput = subject_throughput(summary, &subject.label);
    for (quantity, name) in throughput.iter().map(|name| (format!("metric:{name}"), name.as_str())) {
        parts.extend(of(&subject.label, &quantity).and_then(|e| e.ratio).map(|ratio| clause(name, ratio)));
    }
    for (quantity, name) in other_quantities(summary, is_server) {
        parts.extend(of(&subject.label, &quantity).and_then(|e| e.ratio).map(|ratio| clause(name, ratio)));
    }
    let rivals = others.iter().filter(|allocator| allocator.kind != subject.kind);
    let smallest = rivals.min_by(|a, b| mean_of(&a.label).total_cmp(&mean_of(&b.label)));
    if let Some(ratio) = smallest.and_then(|rival| of(&rival.label, &memory)?.ratio) {
        let rival = smallest.map_or("", |rival| rival.label.as_str());
        parts.push(format!("the smallest of the others, {rival}, is at {:.2}", ratio.value));
    }
    let mut text = parts.join("; ") + ".";
    if ratio.interval.is_none() {
        text.push_str(" One run each cannot tell a difference from noise: use --runs 3 or more.");
    }
    text
}

/// What the sentence says of besides memory and throughput that the program reported.
fn other_quantities(summary: &Summary, is_server: bool) -> Vec<(String, &'static str)> {
    if !is_server {
        return vec![("wall_s".into(), "wall time")];
    }
    vec![
        (format!("idle.{}_final_bytes", summary.memory_measure), "memory after idling"),
        ("requests_per_s".into(), "the rate of requests"),
        ("latency_p99_s".into(), "p99 latency"),
        ("load.cpu_s".into(), "CPU time under load"),
    ]
}

/// The allocator that the sentence is about: snug, or else the one with least memory.
fn subject<'a>(others: &[&'a Allocator], memory: impl Fn(&str) -> f64) -> Option<&'a Allocator> {
    let snug = others.iter().find(|allocator| allocator.kind == Kind::Snug);
    let smallest = || others.iter().min_by(|a, b| memory(&a.label).total_cmp(&memory(&b.label)));
    snug.or_else(smallest).copied()
}

fn subject_throughput(summary: &Summary, label: &str) -> Vec<String> {
    let row = summary.allocators.iter().find(|row| row.allocator == label);
    let names = row.into_iter().flat_map(|row| row.quantities.keys());
    let metrics: BTreeSet<&str> = names.filter_map(|name| name.strip_prefix("metric:")).collect();
    metrics.into_iter().filter(|name| name.ends_with("_per_s")).map(String::from).collect()
}

/// An interval this wide (high divided by low) says that the runs differ too much, not that nothing differs.
const UNDECIDED: f64 = 4.0;

fn sentence_part(subject: &str, baseline: &str, quantity: &str, ratio: Ratio) -> String {
    let value = ratio.value;
    match ratio.interval {
        Some((low, high)) if low <= 1.0 && high > low * UNDECIDED => format!(
            "The {quantity} of the runs differs too much to tell {subject} from {baseline} (use more --runs, or a longer \
             program)"
        ),
        Some((low, high)) if ratio.no_difference() => format!(
            "Between {subject} and {baseline} no difference in {quantity} can be shown ({value:.2} times, 95 % interval \
             {low:.2} to {high:.2})"
        ),
        Some((low, high)) => format!(
            "{subject} uses {value:.2} times the {quantity} of {baseline} (95 % interval {low:.2} to {high:.2})"
        ),
        None => format!("{subject} used {value:.2} times the {quantity} of {baseline}"),
    }
}

fn clause(name: &str, ratio: Ratio) -> String {
    let value = ratio.value;
    match ratio.interval {
        Some((low, high)) if low <= 1.0 && high > low * UNDECIDED => {
            format!("for {name} the runs differ too much to tell")
        }
        Some((low, high)) if ratio.no_difference() => {
            format!("no difference in {name} can be shown ({value:.2} times, {low:.2} to {high:.2})")
        }
        Some((low, high)) => format!("{name} is {value:.2} times ({low:.2} to {high:.2})"),
        None => format!("{name} was {value:.2} times"),
    }
}

/// What a reader should know before believing the numbers.
fn warnings(comparison: &Comparison, baseline: &str) -> Vec<String> {
    let mut warnings = BTreeSet::new();
    for allocator in &comparison.allocators {
        for (name, value) in &allocator.inherited {
            warnings.insert(format!("{name}={value} was set already, and {} reads it", allocator.label));
        }
    }
    for run in &comparison.runs {
        for file in &run.evidence.found {
            warnings.insert(format!(
                "under {} the program brings an allocator of its own ({file}): that row does not show the C library's",
                run.allocator
            ));
        }
        for note in &run.notes {
            warnings.insert(format!("{}: {note}", run.allocator));
        }
    }
    if let Some(reason) = &comparison.settings.no_cgroup_peak {
        warnings.insert(format!("the peak that a container's limit would see is not shown: {reason}"));
    }
    memory_warnings(comparison, &mut warnings);
    let long_runs = comparison.runs.iter().filter(|run| run.wall_s >= SHORTEST_FOR_BUSY_S);
    let busiest = long_runs.map(|run| run.other_busy_cores).fold(0.0, f64::max);
    if busiest > BUSY_SHARE * comparison.machine.cpus as f64 {
        warnings.insert(format!(
            "other programs kept up to {busiest:.1} of {} CPUs busy meanwhile: times are doubtful",
            comparison.machine.cpus
        ));
    }
    let short = comparison.runs.iter().any(|run| run.failure.is_none() && run.samples.time_s.len() < 5);
    if short {
        warnings.insert(
            "the program ended within a few milliseconds: its memory was sampled less than 5 times".into(),
        );
    }
    if comparison.machine.transparent_huge_pages == "always" {
        warnings.insert(
            "transparent huge pages are set to 'always': allocators that do not opt out hold more memory than elsewhere"
                .into(),
        );
    }
    if comparison.runs.iter().any(|run| run.allocator == baseline && !run.metrics.is_empty())
        && comparison.runs.iter().any(|run| run.failure.is_none() && run.metrics.is_empty())
    {
        warnings.insert("some runs printed no snug-metric lines".into());
    }
    stopped_early(comparison).into_iter().chain(warnings).collect()
}

/// That there are fewer runs than were asked for.
fn stopped_early(comparison: &Comparison) -> Option<String> {
    let (made, planned) = comparison.stopped_early()?;
    Some(format!(
        "stopped after {made} of {planned} runs: the numbers are those of fewer runs than were asked for"
    ))
}

/// Memory that RSS counts although it is free to take, or does not count although it is used.
fn memory_warnings(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    for allocator in &comparison.allocators {
        let mean = |quantity: &str| {
            let runs = comparison.good_runs(&allocator.label);
            statistics::mean(&runs.filter_map(|run| run.memory.get(quantity).copied()).collect::<Vec<_>>())
        };
        let (lazy, rss) = (mean("lazy_free_mean_bytes"), mean("rss_mean_bytes"));
        if lazy > NOTEWORTHY_SHARE * rss {
            warnings.insert(format!(
                "under {}, {} of the mean RSS is marked as free (LazyFree): the kernel takes it when memory is short",
                allocator.label,
                terminal::bytes(lazy)
            ));
        }
        let huge = mean("huge_mean_bytes");
        if huge > NOTEWORTHY_SHARE * rss {
            let size = terminal::bytes(huge);
            warnings.insert(format!("under {}, {size} of the mean RSS is in huge pages", allocator.label));
        }
        let swapped = mean("swap_peak_bytes");
        if swapped > NOTEWORTHY_SHARE * rss {
            let size = terminal::bytes(swapped);
            warnings.insert(format!(
                "under {}, up to {size} were swapped out, which RSS does not count",
                allocator.label
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;

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
            summary.conclusion.contains("no difference in wall time can be shown"),
            "{}",
            summary.conclusion
        );
    }

    #[test]
    fn noise_is_called_no_difference() {
        let comparison =
            fixture::comparison(&[("glibc", &[100.0, 120.0, 90.0]), ("snug", &[95.0, 118.0, 99.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.starts_with("Between snug and glibc no difference in mean memory"), "{text}");
        let comparison = fixture::comparison(&[("glibc", &[10.0, 120.0]), ("snug", &[95.0, 18.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.contains("differs too much to tell snug from glibc"), "{text}");
    }

    #[test]
    fn one_run_is_not_enough() {
        let comparison =
            fixture::comparison(&[("glibc", &[100.0]), ("jemalloc", &[80.0]), ("snug", &[90.0])]);
        let text = summarise(&comparison).conclusion;
        assert!(text.contains("snug used 0.90 times"), "{text}");
        assert!(text.contains("the smallest of the others, jemalloc, is at 0.80"), "{text}");
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
    fn a_comparison_that_was_stopped_says_so_first() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[80.0, 80.5])]);
        assert!(summarise(&comparison).warnings.is_empty());
        comparison.runs[0].notes.push("a note".into());
        comparison.runs.pop();
        let warnings = summarise(&comparison).warnings;
        assert!(warnings[0].starts_with("stopped after 3 of 4 runs") && warnings.len() == 2, "{warnings:?}");
    }

    #[test]
    fn unusual_memory_is_mentioned() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0]), ("jemalloc", &[80.0])]);
        comparison.runs[1].memory.insert("lazy_free_mean_bytes".into(), 30e6);
        let warnings = summarise(&comparison).warnings;
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].starts_with("under jemalloc, 30.0 MB of the mean RSS is marked as free"),
            "{warnings:?}"
        );
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
