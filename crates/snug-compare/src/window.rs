//! Means, peaks and final values of the samples of a run, or of a part of it. Pure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::results::{Details, Run, Samples};
use snug_stats::time_weighted_mean;

/// A part of a run, in seconds since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub start_s: f64,
    pub end_s: f64,
}

impl Window {
    /// Indices of the moments that lie in the window; empty if none does.
    fn of(&self, times: &[f64]) -> std::ops::Range<usize> {
        let first = times.partition_point(|time| *time < self.start_s);
        let end = times.partition_point(|time| *time <= self.end_s);
        first..end.max(first)
    }
}

/// Mean, peak and final value of each kind of memory, and what else the samples say. Empty if no measured process
/// was seen in the window.
pub fn memory(samples: &Samples, details: &Details, window: Window) -> BTreeMap<String, f64> {
    let mut memory = BTreeMap::new();
    let Some((sampled, end_s)) = populated(samples, window) else { return memory };
    let (first, last) = (*sampled.start(), *sampled.end());
    let times = &samples.time_s[first..=last];
    let processes = &samples.processes[first..=last];
    let whole = resident(samples, details, sampled, end_s);
    describe(&mut memory, "rss", &whole.time_s, &whole.rss_bytes, &whole.processes, end_s);
    let counts: Vec<u64> = processes.iter().map(|count| u64::from(*count)).collect();
    memory.insert("processes_mean".into(), time_weighted_mean(times, &counts, end_s));
    let threads = samples.threads[first..=last].iter().copied().max().unwrap_or(0);
    memory.insert("threads_peak".into(), f64::from(threads));
    let range = window.of(&details.time_s);
    let resident = details.rss_bytes.get(range.clone()).unwrap_or_default();
    if let Some(peak) = resident.iter().max() {
        let known = memory.entry("rss_peak_bytes".into()).or_insert(0.0);
        *known = known.max(*peak as f64);
    }
    for (name, values) in [
        ("pss", &details.pss_bytes),
        ("uss", &details.uss_bytes),
        ("lazy_free", &details.lazy_free_bytes),
        ("huge", &details.huge_bytes),
        ("swap", &details.swap_bytes),
    ] {
        if let Some(values) = values.get(range.clone()) {
            let (times, processes) = (&details.time_s[range.clone()], &details.processes[range.clone()]);
            describe(&mut memory, name, times, values, processes, end_s);
            if ["pss", "uss"].contains(&name) {
                relate_to_resident(&mut memory, name, times, resident, processes, end_s);
            }
        }
    }
    let range = window.of(&details.live_time_s);
    if !range.is_empty() {
        let alive = vec![1; range.len()];
        describe(
            &mut memory,
            "live",
            &details.live_time_s[range.clone()],
            &details.live_bytes[range],
            &alive,
            end_s,
        );
    }
    memory
}

/// Resident memory of a whole run, moment by moment, as its mean counts it.
pub fn resident_of(run: &Run) -> Samples {
    let whole = Window { start_s: 0.0, end_s: run.wall_s };
    let found = populated(&run.samples, whole);
    found.map_or_else(Samples::default, |(range, end_s)| resident(&run.samples, &run.details, range, end_s))
}

/// The samples in the window from the first measured process to the last one, and when that was gone: before and after
/// there is nothing to average over. None: there was none.
fn populated(samples: &Samples, window: Window) -> Option<(RangeInclusive<usize>, f64)> {
    let range = window.of(&samples.time_s);
    let counts = &samples.processes[range.clone()];
    let first = range.start + counts.iter().position(|count| *count > 0)?;
    let last = range.start + counts.iter().rposition(|count| *count > 0)?;
    let end_s = samples.time_s.get(last + 1).copied().unwrap_or(window.end_s).min(window.end_s);
    Some((first..=last, end_s))
}

/// The samples of the range, and until then the details of as many processes: of a short run they may be most of what
/// was read, since samples that were dear at its start are rare for seconds (`Pace`).
fn resident(samples: &Samples, details: &Details, range: RangeInclusive<usize>, end_s: f64) -> Samples {
    let mut merged: Vec<(f64, u64, u32)> = range
        .clone()
        .map(|index| (samples.time_s[index], samples.rss_bytes[index], samples.processes[index]))
        .collect();
    let read = details.time_s.iter().zip(&details.rss_bytes).zip(&details.processes);
    for ((time_s, rss_bytes), processes) in read {
        // Only samples know which processes are there: the one before and the next, if there is one, must agree.
        let next = samples.time_s.partition_point(|sampled_s| sampled_s <= time_s);
        let known = next.checked_sub(1).filter(|index| range.contains(index) && *time_s <= end_s);
        let is_as_many = |index: usize| samples.processes.get(index).is_none_or(|count| count == processes);
        if known.is_some_and(is_as_many) && is_as_many(next) {
            merged.push((*time_s, *rss_bytes, *processes));
        }
    }
    merged.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut whole = Samples::default();
    for (time_s, rss_bytes, processes) in merged {
        whole.time_s.push(time_s);
        whole.rss_bytes.push(rss_bytes);
        whole.processes.push(processes);
    }
    whole
}

/// Parts of resident memory are read more rarely than it, and at other moments: of a program that grows they would seem
/// larger than the whole. Their share of it changes little: mean and final are that share of what was read more often.
fn relate_to_resident(
    memory: &mut BTreeMap<String, f64>,
    name: &str,
    times: &[f64],
    resident: &[u64],
    processes: &[u32],
    end_s: f64,
) {
    if resident.len() != times.len() {
        return;
    }
    let whole = [
        ("mean", time_weighted_mean(times, resident, end_s)),
        ("final", final_value(resident, processes).unwrap_or(0) as f64),
    ];
    for (what, whole) in whole.into_iter().filter(|(_, whole)| *whole > 0.0) {
        let Some(often) = memory.get(&format!("rss_{what}_bytes")).copied() else { continue };
        if let Some(part) = memory.get_mut(&format!("{name}_{what}_bytes")) {
            *part *= often / whole;
        }
    }
}

/// The quantities of each phase of a server's run, as "idle.rss_mean_bytes". A program without phases has none.
pub fn of_phases(run: &Run) -> BTreeMap<String, f64> {
    let mut quantities = BTreeMap::new();
    for phase in run.phases.iter().filter(|phase| phase.name != "run") {
        let window = Window { start_s: phase.start_s, end_s: phase.end_s };
        let mut own = memory(&run.samples, &run.details, window);
        own.insert("wall_s".into(), phase.end_s - phase.start_s);
        own.extend(
            growth(&run.samples.time_s, &run.samples.cpu_s, window).map(|value| ("cpu_s".into(), value)),
        );
        let faults: Vec<f64> = run.samples.page_faults.iter().map(|count| *count as f64).collect();
        let faults = growth(&run.samples.time_s, &faults, window);
        own.extend(faults.map(|value| ("page_faults".into(), value.round())));
        quantities.extend(own.into_iter().map(|(name, value)| (format!("{}.{name}", phase.name), value)));
    }
    quantities
}

/// By how much a sum that only grows has grown in the window; None if it was not recorded.
fn growth(times: &[f64], sums: &[f64], window: Window) -> Option<f64> {
    Some(value_at(times, sums, window.end_s)? - value_at(times, sums, window.start_s)?)
}

/// The value at a moment, between two samples in proportion.
fn value_at(times: &[f64], values: &[f64], time_s: f64) -> Option<f64> {
    let after = times.partition_point(|time| *time <= time_s);
    let (Some(before), Some(next)) = (after.checked_sub(1), values.get(after)) else {
        return if after == 0 { values.first() } else { values.last() }.copied();
    };
    let (low, high) = (*values.get(before)?, *next);
    let share = (time_s - times[before]) / (times[after] - times[before]);
    Some(low + (high - low) * share)
}

fn describe(
    memory: &mut BTreeMap<String, f64>,
    name: &str,
    times: &[f64],
    values: &[u64],
    processes: &[u32],
    end_s: f64,
) {
    let (Some(peak), Some(last)) = (values.iter().max(), final_value(values, processes)) else { return };
    memory.insert(format!("{name}_mean_bytes"), time_weighted_mean(times, values, end_s));
    memory.insert(format!("{name}_peak_bytes"), *peak as f64);
    memory.insert(format!("{name}_final_bytes"), last as f64);
}

/// The last value while the usual number of processes was there: a tree that is shutting down, one process after
/// the other, says nothing about the memory it had at its end.
fn final_value(values: &[u64], processes: &[u32]) -> Option<u64> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for count in processes.iter().filter(|count| **count > 0) {
        *counts.entry(*count).or_default() += 1;
    }
    let usual = counts.iter().max_by_key(|(_, times)| **times).map(|(count, _)| *count)?;
    let index = processes.iter().rposition(|count| *count == usual)?;
    values.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::results::Phase;

    #[test]
    fn final_memory_is_that_of_the_whole_tree() {
        assert_eq!(final_value(&[1, 50, 60, 61, 20, 0], &[1, 4, 4, 4, 2, 0]), Some(61));
        assert_eq!(final_value(&[], &[]), None);
        assert_eq!(final_value(&[0, 0], &[0, 0]), None);
    }

    #[test]
    fn a_window_leaves_the_rest_out() {
        let samples = Samples {
            time_s: vec![0.0, 1.0, 2.0, 3.0],
            rss_bytes: vec![900, 10, 20, 800],
            processes: vec![1; 4],
            threads: vec![9, 2, 2, 9],
            ..Samples::default()
        };
        let memory = |start_s, end_s| memory(&samples, &Details::default(), Window { start_s, end_s });
        assert_eq!(memory(0.5, 2.0)["rss_mean_bytes"], 15.0);
        assert_eq!(memory(0.5, 2.0)["rss_peak_bytes"], 20.0);
        assert_eq!(memory(0.5, 2.5)["threads_peak"], 2.0);
        assert!(memory(3.5, 4.0).is_empty());
    }

    /// As a busy machine has it: looks at a new process were dear, and the next sample would come after the end.
    #[test]
    fn where_samples_are_rare_the_details_say_what_was_held_between_them() {
        let samples = Samples {
            time_s: vec![0.0, 0.2],
            rss_bytes: vec![2, 46],
            processes: vec![1, 1],
            threads: vec![1, 9],
            ..Samples::default()
        };
        let mut details = Details {
            time_s: vec![0.1, 0.3, 0.5, 3.0],
            rss_bytes: vec![24, 46, 16, 16],
            processes: vec![1, 1, 1, 1],
            ..Details::default()
        };
        let run = Window { start_s: 0.0, end_s: 3.5 };
        let of = |details: &Details, what: &str| memory(&samples, details, run)[&format!("rss_{what}_bytes")];
        let mean = (0.1 * 13.0 + 0.1 * 35.0 + 0.1 * 46.0 + 0.2 * 31.0 + 3.0 * 16.0) / 3.5;
        assert!((of(&details, "mean") - mean).abs() < 1e-9, "{}", of(&details, "mean"));
        assert_eq!((of(&details, "final"), of(&details, "peak")), (16.0, 46.0));
        // Nor are those of a time at whose end there were more: when they came is not known.
        let mut more = samples.clone();
        more.time_s.push(3.2);
        more.rss_bytes.push(400);
        more.processes.push(5);
        more.threads.push(9);
        let mean = (0.1 * 13.0 + 0.1 * 35.0 + 3.0 * 223.0 + 0.3 * 400.0) / 3.5;
        let found = memory(&more, &details, run)["rss_mean_bytes"];
        assert!((found - mean).abs() < 1e-9, "{found}, not {mean}");
        // Those of fewer processes than were sampled are not the whole.
        details.processes = vec![1, 0, 0, 0];
        assert_eq!(of(&details, "final"), 46.0);
    }

    #[test]
    fn parts_are_not_larger_than_the_whole() {
        // A program that grows, and is read in detail late.
        let samples = Samples {
            time_s: vec![0.0, 1.0, 2.0, 3.0],
            rss_bytes: vec![10, 40, 70, 95],
            processes: vec![1; 4],
            threads: vec![1; 4],
            ..Samples::default()
        };
        let details = Details {
            time_s: vec![2.5, 3.0],
            rss_bytes: vec![90, 100],
            pss_bytes: vec![90, 100],
            uss_bytes: vec![45, 50],
            processes: vec![1; 2],
            live_time_s: vec![2.5],
            live_bytes: vec![60],
            ..Details::default()
        };
        let memory = memory(&samples, &details, Window { start_s: 0.0, end_s: 3.0 });
        for what in ["mean", "peak", "final"] {
            let of = |kind: &str| memory[&format!("{kind}_{what}_bytes")];
            assert!((of("pss") - of("rss")).abs() < 1e-9, "{what}: {memory:?}");
            assert!((of("uss") - of("rss") / 2.0).abs() < 1e-9, "{what}: {memory:?}");
            assert_eq!(of("live"), 60.0, "{what}");
        }
    }

    #[test]
    fn phases_have_quantities_of_their_own() {
        let mut run = fixture::comparison(&[("glibc", &[100.0])]).runs.remove(0);
        run.phases = vec![Phase { name: "run".into(), start_s: 0.0, end_s: 10.0 }];
        assert!(of_phases(&run).is_empty());
        run.phases[0].name = "idle".into();
        run.phases[0].start_s = 5.05;
        let quantities = of_phases(&run);
        assert!((quantities["idle.wall_s"] - 4.95).abs() < 1e-9);
        // The CPU time grows by 0.9 s a second, until the last sample at 9.9 s; ten faults a sample.
        assert!((quantities["idle.cpu_s"] - 0.9 * 4.85).abs() < 1e-9, "{quantities:?}");
        assert!((quantities["idle.page_faults"] - 485.0).abs() < 1e-9);
        assert!((90e6..110e6).contains(&quantities["idle.rss_mean_bytes"]));
        assert!((90e6..110e6).contains(&quantities["idle.pss_final_bytes"]));
    }
}
