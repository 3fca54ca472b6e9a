//! A comparison made up for tests.

use std::collections::BTreeMap;

use super::results::*;
use crate::allocator::Kind;
use crate::machine::Machine;

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
            interval_ms: 50,
            detail_interval_ms: 500,
            overhead_limit: 0.01,
            only: None,
        },
        allocators: allocators.collect(),
        runs: runs.collect(),
        summary: Summary::default(),
    };
    comparison.summary = super::summary::summarise(&comparison);
    comparison
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
        phases: Vec::new(),
        processes_seen: 1,
        processes: Vec::new(),
        samples: Samples {
            processes: vec![1; time_s.len()],
            threads: vec![3; time_s.len()],
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
