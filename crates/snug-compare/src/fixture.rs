//! A comparison made up for tests.

use std::collections::BTreeMap;

use crate::results::*;
use crate::summary::summarise;
use snug_base::machine::Machine;
use snug_inspect::kinds::Kind;

/// Sets what was measured in every run, and sums the comparison up again.
pub fn set_memory(comparison: &mut Comparison, values: &[(&str, f64)]) {
    for run in &mut comparison.runs {
        run.memory.extend(values.iter().map(|(name, value)| (name.to_string(), *value)));
    }
    comparison.summary = summarise(comparison);
}

/// Allocators with the mean memory, in MB, of each of their runs. Wall times vary a little and equally.
pub fn comparison(memory_mb: &[(&str, &[f64])]) -> Comparison {
    let allocators = memory_mb.iter().map(|(label, _)| Allocator {
        label: label.to_string(),
        kind: Kind::from_name(label.split(':').next().unwrap()).unwrap_or(Kind::Other),
        library: None,
        version: Some("1.0".into()),
        environment: label.split_once(':').map_or_else(BTreeMap::new, |(_, variable)| {
            let (name, value) = variable.split_once('=').unwrap();
            BTreeMap::from([(name.to_string(), value.to_string())])
        }),
        inherited: BTreeMap::new(),
        complaints: Vec::new(),
    });
    let runs = memory_mb.iter().flat_map(|(label, means)| {
        means.iter().enumerate().map(|(index, mean)| run(label, index as u32 + 1, mean * 1e6))
    });
    let mut comparison = Comparison {
        format: FORMAT.into(),
        format_version: FORMAT_VERSION,
        snug_version: "0.1.0".into(),
        started_at: "2026-11-21T02:03:04Z".into(),
        invocation: ["snug", "compare", "--", "ruby", "app.rb"].map(String::from).to_vec(),
        directory: "/srv/app".into(),
        program: ["ruby", "app.rb"].map(String::from).to_vec(),
        machine: Machine { cpus: 2, cpu: "A CPU".into(), ..Machine::default() },
        settings: Settings {
            rounds: memory_mb.first().map_or(0, |(_, means)| means.len() as u32),
            planned_runs: None,
            until: None,
            interval_ms: 50,
            detail_interval_ms: 500,
            overhead_limit: 0.01,
            only: None,
            serving: None,
            no_cgroup_peak: None,
        },
        allocators: allocators.collect(),
        runs: runs.collect(),
        summary: Summary::default(),
    };
    comparison.summary = summarise(&comparison);
    comparison
}

/// Asserts that a writer shows of a comparison that was stopped how many runs there are, not how many there should be.
pub fn assert_stop_is_shown(render: impl Fn(&Comparison) -> String) {
    let mut stopped = comparison(&[("glibc", &[100.0, 101.0, 99.0]), ("snug", &[50.0, 51.0, 49.0])]);
    stopped.runs.pop();
    stopped.summary = summarise(&stopped);
    let text = render(&stopped);
    assert!(text.contains("stopped after 5 of 6 runs") && text.contains("edians of 2 to 3 "), "{text}");
    assert!(!text.contains("edians of 3 "), "{text}");
}

fn run(label: &str, round: u32, mean_bytes: f64) -> Run {
    let time_s: Vec<f64> = (0..100).map(|step| step as f64 * 0.1).collect();
    let wave = |time: &f64| (mean_bytes * (1.0 + 0.1 * (time * 2.0).sin())) as u64;
    let rss_bytes: Vec<u64> = time_s.iter().map(wave).collect();
    let memory = ["rss", "pss", "uss"].iter().flat_map(|kind| {
        [("mean", 1.0), ("peak", 1.1), ("final", 0.9)]
            .map(|(what, factor)| (format!("{kind}_{what}_bytes"), mean_bytes * factor))
    });
    Run {
        allocator: label.into(),
        round,
        started_at: "2026-11-21T02:03:04Z".into(),
        failure: None,
        exit_code: Some(0),
        wall_s: 10.0 + 0.1 * f64::from(round),
        cpu_user_s: 8.0 + 0.1 * f64::from(round),
        cpu_system_s: 1.0,
        minor_faults: 1000,
        major_faults: 0,
        memory: memory.collect(),
        metrics: BTreeMap::from([("requests_per_s".to_string(), 50.0 + f64::from(round))]),
        cpu_samples: None,
        latency: None,
        phases: Vec::new(),
        processes_seen: 1,
        processes: Vec::new(),
        samples: Samples {
            processes: vec![1; time_s.len()],
            threads: vec![3; time_s.len()],
            cpu_s: time_s.iter().map(|time| time * 0.9).collect(),
            page_faults: (0..time_s.len() as u64).map(|index| index * 10).collect(),
            time_s: time_s.clone(),
            rss_bytes: rss_bytes.clone(),
        },
        details: Details {
            processes: vec![1; time_s.len()],
            time_s,
            pss_bytes: rss_bytes,
            ..Details::default()
        },
        evidence: Evidence::default(),
        overhead: Overhead::default(),
        other_busy_cores: 0.0,
        notes: Vec::new(),
        log: "logs/1".into(),
    }
}

/// A server with phases and latencies, three runs each: what is faster, what holds more memory when idle, and what
/// makes no difference.
pub fn server() -> Comparison {
    let mut comparison = comparison(&[
        ("glibc", &[412.0, 405.0, 420.0]),
        ("glibc:MALLOC_ARENA_MAX=2", &[291.0, 287.0, 296.0]),
        ("jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000", &[268.0, 264.0, 273.0]),
        ("snug", &[205.0, 202.0, 209.0]),
    ]);
    for run in &mut comparison.runs {
        // Requests per second, and the part of the memory that comes back in the idle phase.
        let (rate, returned) = match run.allocator.as_str() {
            "glibc" => (512.0, 0.02),
            "snug" => (530.0, 0.62),
            label if label.starts_with("glibc:") => (488.0, 0.05),
            _ => (534.0, 0.31),
        };
        let jitter = 1.0 + 0.006 * (f64::from(run.round) - 2.0);
        serve(run, rate * jitter, returned);
    }
    comparison.summary = summarise(&comparison);
    comparison
}

/// Makes the run one of a server that boots for 2 s, is warmed for 4 s, loaded for 20 s and idle for 10 s.
fn serve(run: &mut Run, requests_per_s: f64, returned: f64) {
    let mean_bytes = run.memory["rss_mean_bytes"];
    let late_s = 0.1 * f64::from(run.round);
    let starts = [0.0, 2.0 + late_s, 6.0 + late_s, 26.0 + late_s, 36.0 + late_s];
    let phase = |index: usize, name: &str| Phase {
        name: name.into(),
        start_s: starts[index],
        end_s: starts[index + 1],
    };
    run.phases =
        ["boot", "warm", "load", "idle"].iter().enumerate().map(|(i, name)| phase(i, name)).collect();
    run.wall_s = starts[4];
    let time_s: Vec<f64> =
        (0..=180).map(|step| f64::from(step) * 0.2).filter(|time| *time < starts[4]).collect();
    let level = |time: f64| {
        let grown = 0.25 + 0.15 * (time / starts[1]).min(1.0);
        let loaded = 0.75 * (1.0 - (-(time - starts[1]).max(0.0) / 5.0).exp());
        let busy = if time > starts[1] && time < starts[3] { 0.03 * (time * 5.0).sin() } else { 0.0 };
        let back = returned * (1.0 - (-(time - starts[3]).max(0.0) / 0.8).exp());
        (grown + loaded) * (1.0 - back) + busy
    };
    run.samples.rss_bytes = time_s.iter().map(|time| (mean_bytes * level(*time)) as u64).collect();
    run.samples.processes = vec![3; time_s.len()];
    run.samples.threads = vec![15; time_s.len()];
    run.details.pss_bytes = run.samples.rss_bytes.clone();
    run.details.processes = run.samples.processes.clone();
    run.details.time_s = time_s.clone();
    // Nothing was used after the last moment that is known of it.
    let (cpu_s, page_faults) = (*run.samples.cpu_s.last().unwrap(), *run.samples.page_faults.last().unwrap());
    run.samples.cpu_s.resize(time_s.len(), cpu_s);
    run.samples.page_faults.resize(time_s.len(), page_faults);
    run.samples.time_s = time_s;
    let latency_s = |factor: f64| 8.0 / requests_per_s * factor;
    let tail = [(50.0, 0.8), (75.0, 1.1), (90.0, 1.6), (99.0, 2.9), (99.9, 5.2), (100.0, 9.5)];
    run.metrics.clear();
    run.latency = Some(Latency {
        requests: (requests_per_s * 20.0) as u64,
        failed: 0,
        requests_per_s,
        percentiles: tail
            .map(|(percent, factor)| Percentile { percent, latency_s: latency_s(factor) })
            .to_vec(),
    });
}
