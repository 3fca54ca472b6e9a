//! Warnings about a comparison, to be read before its numbers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::quantities::named;
use crate::results::{Comparison, Run};
use crate::{until, view};
use snug_base::terminal;
use snug_stats as statistics;

/// CPU use of the machine is counted in hundredths of seconds: too coarse for shorter runs.
const SHORTEST_FOR_BUSY_S: f64 = 0.5;
/// Memory of an unusual kind is mentioned above this share of RSS.
const NOTEWORTHY_SHARE: f64 = 0.03;
/// And page cache above this share of a control group's peak.
const NOTEWORTHY_CACHE_SHARE: f64 = 0.1;
/// A load that is shorter seldom shows what memory comes to.
const SHORTEST_LOAD_S: f64 = 10.0;
/// The first second of a run is looked at more closely, which in shorter runs is much of the cost.
const LONG_FOR_OVERHEAD_S: f64 = 10.0;
/// Other programs keeping more than this share of the machine's CPUs busy make times unreliable.
const BUSY_SHARE: f64 = 0.15;

/// What a reader should know before believing the numbers.
pub fn warnings(comparison: &Comparison, baseline: &str) -> Vec<String> {
    let mut warnings = BTreeSet::new();
    for allocator in &comparison.allocators {
        for (name, value) in &allocator.inherited {
            warnings.insert(format!("{name}={value} was set already, and {} reads it", allocator.label));
        }
    }
    for run in &comparison.runs {
        for file in &run.evidence.found {
            warnings.insert(format!(
                "under {} the program brings an allocator of its own ({file}): that row does not measure the \
                    C library's",
                run.allocator
            ));
        }
    }
    for allocator in &comparison.allocators {
        warnings
            .extend(allocator.complaints.iter().map(|complaint| format!("{}: {complaint}", allocator.label)));
    }
    run_notes(comparison, &mut warnings);
    load_warnings(comparison, &mut warnings);
    overhead_warning(comparison, &mut warnings);
    if let Some(reason) = &comparison.settings.no_cgroup_peak {
        warnings.insert(format!("the peak that a container's limit would see is not shown: {reason}"));
    }
    page_cache_warning(comparison, &mut warnings);
    memory_warnings(comparison, &mut warnings);
    let long_runs = comparison.runs.iter().filter(|run| run.wall_s >= SHORTEST_FOR_BUSY_S);
    let busiest = long_runs.map(|run| run.other_busy_cores).fold(0.0, f64::max);
    if busiest > BUSY_SHARE * comparison.machine.cpus as f64 {
        warnings.insert(format!(
            "other programs kept up to {busiest:.1} of {} CPUs busy: times are unreliable",
            comparison.machine.cpus
        ));
    }
    let short = comparison.runs.iter().any(|run| run.failure.is_none() && run.samples.time_s.len() < 5);
    if short {
        warnings.insert(
            "a run was so short, or looking at it so dear, that its memory was sampled fewer than 5 times"
                .into(),
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
    stopped_early(comparison).into_iter().chain(until::warning(comparison)).chain(warnings).collect()
}

/// The notes of runs, each with the runs that it is about.
fn run_notes(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    let mut rounds: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for run in &comparison.runs {
        for note in &run.notes {
            rounds.entry((&run.allocator, note)).or_default().push(run.round.to_string());
        }
    }
    for ((allocator, note), rounds) in rounds {
        let all = comparison.runs.iter().filter(|run| run.allocator == allocator).count();
        let which = match rounds.as_slice() {
            [_] if all == 1 => String::new(),
            [round] => format!(", round {round}"),
            several if several.len() == all => ", every round".into(),
            several => format!(", rounds {}", several.join(", ")),
        };
        warnings.insert(format!("{allocator}{which}: {note}"));
    }
}

/// That mean memory says little of the load: it was short, or the server idle most of the time.
fn load_warnings(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    let lengths = |name: &str| -> Vec<f64> {
        let good = comparison.runs.iter().filter(|run| run.failure.is_none());
        let phases = good.flat_map(|run| run.phases.iter()).filter(|phase| phase.name == name);
        phases.map(|phase| phase.end_s - phase.start_s).collect()
    };
    let loads = lengths("load");
    if loads.is_empty() {
        return;
    }
    let shown = |seconds: f64| terminal::short_number(seconds);
    let (load_s, idle_s) = (statistics::median(&loads), statistics::median(&lengths("idle")));
    if load_s < SHORTEST_LOAD_S {
        warnings.insert(format!(
            "the load lasted {} s only: memory of most servers grows for longer; use --load-for 30s, or more requests",
            shown(load_s)
        ));
    }
    let served_s = load_s + idle_s + statistics::median(&lengths("warm"));
    if idle_s > served_s / 2.0 {
        warnings.insert(format!(
            "the server was idle for {} of {} s: mean memory is mostly that of an idle server",
            shown(idle_s),
            shown(served_s)
        ));
    }
}

/// That measuring took more than it was to take.
fn overhead_warning(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    let long = comparison.runs.iter().filter(|run| run.wall_s >= LONG_FOR_OVERHEAD_S);
    let most = long.map(|run| run.overhead.share_of_one_core).fold(0.0, f64::max);
    let limit = comparison.settings.overhead_limit;
    if most > limit * 1.5 {
        warnings.insert(format!(
            "measuring cost up to {:.1} % of one core, more than the intended {:.1} %: the program starts many \
             processes, or has large ones",
            most * 100.0,
            limit * 100.0
        ));
    }
}

/// That there are fewer runs than were asked for.
fn stopped_early(comparison: &Comparison) -> Option<String> {
    let (made, planned) = comparison.stopped_early()?;
    Some(format!("stopped after {made} of {planned} runs: the numbers come from fewer runs than requested"))
}

/// That a container's peak has much page cache in it, which the kernel takes back before a limit is reached.
fn page_cache_warning(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    let value = |run: &Run, name: &str| run.memory.get(name).copied().unwrap_or(0.0);
    let shares = comparison
        .runs
        .iter()
        .map(|run| value(run, "cgroup_cache_peak_bytes") / value(run, "cgroup_peak_bytes").max(1.0));
    let most = shares.fold(0.0, f64::max).min(1.0);
    if most > NOTEWORTHY_CACHE_SHARE {
        warnings.insert(format!(
            "up to {:.0} % of a cgroup's peak was page cache: files that the program read or wrote, its log included",
            most * 100.0
        ));
    }
}

/// Memory that RSS counts although it is free to take, or does not count although it is used. Medians, as the table has
/// them, and of what was "up to" so much the largest.
fn memory_warnings(comparison: &Comparison, warnings: &mut BTreeSet<String>) {
    for allocator in &comparison.allocators {
        let values = |quantity: &str| -> Vec<f64> {
            let runs = comparison.good_runs(&allocator.label);
            runs.filter_map(|run| run.memory.get(quantity).copied()).collect()
        };
        let median = |quantity: &str| statistics::median(&values(quantity));
        let shown = |quantity: &str, bytes: f64| view::with_unit(&named(quantity), bytes);
        let (lazy, rss) = (median("lazy_free_mean_bytes"), median("rss_mean_bytes"));
        if lazy > NOTEWORTHY_SHARE * rss {
            warnings.insert(format!(
                "under {}, {} of the mean RSS is marked as free (LazyFree): the kernel takes it when memory is short",
                allocator.label,
                shown("lazy_free_mean_bytes", lazy)
            ));
        }
        let huge = median("huge_mean_bytes");
        if huge > NOTEWORTHY_SHARE * rss {
            let size = shown("huge_mean_bytes", huge);
            warnings.insert(format!("under {}, {size} of the mean RSS is in huge pages", allocator.label));
        }
        let swapped = values("swap_peak_bytes").into_iter().fold(0.0, f64::max);
        if swapped > NOTEWORTHY_SHARE * rss {
            let size = shown("swap_peak_bytes", swapped);
            warnings.insert(format!(
                "under {}, up to {size} were swapped out, which RSS does not count",
                allocator.label
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use crate::summary::summarise;
    use snug_base::random::Random;

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
    fn notes_say_which_run_they_are_about() {
        let mut comparison =
            fixture::comparison(&[("glibc", &[100.0, 101.0, 99.0]), ("snug", &[80.0, 80.5, 80.1])]);
        for (run, note) in [(0, "late"), (2, "late"), (3, "early"), (4, "early"), (5, "early"), (1, "odd")] {
            comparison.runs[run].notes.push(note.into());
        }
        let warnings = summarise(&comparison).warnings;
        assert_eq!(warnings, ["glibc, round 2: odd", "glibc, rounds 1, 3: late", "snug, every round: early"]);
    }

    #[test]
    fn short_loads_and_idle_servers_are_mentioned() {
        let mut comparison = fixture::server();
        assert_eq!(summarise(&comparison).warnings, [""; 0]);
        for phase in comparison.runs.iter_mut().flat_map(|run| &mut run.phases) {
            if phase.name == "load" {
                phase.end_s = phase.start_s + 0.5;
            }
        }
        let warnings = summarise(&comparison).warnings.join("\n");
        assert!(
            warnings.contains("the load lasted 0.50 s only") && warnings.contains("idle for 10.0 of 14.5 s"),
            "{warnings}"
        );
        comparison.runs[3].overhead.share_of_one_core = 0.0208;
        let warnings = summarise(&comparison).warnings.join("\n");
        assert!(warnings.contains("measuring cost up to 2.1 % of one core"), "{warnings}");
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

    /// Of the one allocator of a comparison, from what was measured in its runs.
    fn notes(quantity: &str, values_mb: &[f64]) -> Vec<String> {
        let mut comparison = fixture::comparison(&[("glibc", &vec![100.0; values_mb.len()])]);
        for (run, value) in comparison.runs.iter_mut().zip(values_mb) {
            run.memory.insert(quantity.into(), value * 1e6);
        }
        comparison.summary = summarise(&comparison);
        let table = crate::view::others(&comparison).unwrap().table;
        let shown = table.quantities.iter().position(|one| one.name == quantity);
        let cell = shown.map_or("0", |column| table.rows[0].cells[column].as_ref().unwrap().value.as_str());
        let notes = comparison.summary.warnings.iter();
        notes.map(|note| note.replace(&format!(" {cell} MB "), " CELL ")).collect()
    }

    #[test]
    fn amounts_are_those_of_the_table() {
        let huge = "under glibc, CELL of the mean RSS is in huge pages";
        assert_eq!(notes("huge_mean_bytes", &[0.0, 50.0, 52.0]), [huge]);
        assert_eq!(notes("huge_mean_bytes", &[0.0, 0.0, 300.0]), [""; 0], "the table says 0");
        let lazy = "under glibc, CELL of the mean RSS is marked as free (LazyFree): \
                    the kernel takes it when memory is short";
        assert_eq!(notes("lazy_free_mean_bytes", &[10.0, 11.0, 94.0, 99.0]), [lazy]);
        let mut random = Random::new(9);
        for _ in 0..200 {
            let values: Vec<f64> = (0..3).map(|_| random.log_between(4.0, 4000.0)).collect();
            assert_eq!(notes("huge_mean_bytes", &values), [huge], "{values:?}");
            assert_eq!(notes("lazy_free_mean_bytes", &values), [lazy], "{values:?}");
        }
    }

    #[test]
    fn up_to_is_the_largest() {
        let swapped = |size| format!("under glibc, up to {size} were swapped out, which RSS does not count");
        assert_eq!(notes("swap_peak_bytes", &[0.0, 0.0, 300.0]), [swapped("300 MB")]);
        assert_eq!(notes("swap_peak_bytes", &[1200.0, 1.0, 7.0]), [swapped("1200 MB")]);
        assert_eq!(notes("swap_peak_bytes", &[0.0, 1.0, 2.0]), [""; 0]);
    }

    #[test]
    fn page_cache_in_a_peak_is_mentioned() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[80.0, 80.5])]);
        fixture::set_memory(
            &mut comparison,
            &[("cgroup_peak_bytes", 100e6), ("cgroup_cache_peak_bytes", 5e6)],
        );
        assert_eq!(summarise(&comparison).warnings, [""; 0]);
        fixture::set_memory(&mut comparison, &[("cgroup_cache_peak_bytes", 31e6)]);
        assert!(
            summarise(&comparison).warnings[0].starts_with("up to 31 % of a cgroup's peak was page cache")
        );
    }
}
