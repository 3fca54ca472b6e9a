//! Memory limits and requests that containers need, now and under snug, by how much memory their pods used. Pure.
//!
//! Pods are the units: of each, the highest of its readings counts, and the 95th percentile. Their logarithms are taken
//! for normally distributed; a tolerance bound of them is above nearly all pods that are like these, on a time like this.

pub mod resize;
#[cfg(test)]
mod simulate;
mod tolerance;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use resize::{NoResize, Resize};
use snug_stats as statistics;

/// How sure each limit and each request is, from 0 to 1.
pub const CONFIDENCE: f64 = 0.95;
/// Share of pods whose peak fits the limit.
pub const LIMIT_SHARE: f64 = 0.999;
/// Share of pods whose 95th percentile in time fits the request.
pub const REQUEST_SHARE: f64 = 0.9;
/// The percentile of a pod's readings that its request is to hold.
const REQUEST_PERCENTILE: f64 = 0.95;
/// With fewer pods a bound says nothing.
pub const PODS_LEAST: usize = 5;
/// Pods that were there for less of the window have not shown their peak.
const SPAN_LEAST: f64 = 0.5;
/// From this share of its limit on a pod may have wanted more than it got.
const AT_LIMIT: f64 = 0.95;
/// Limits and requests are multiples of this.
const GRAIN_BYTES: f64 = (16 << 20) as f64;

/// A container of one pod, as it was read.
#[derive(Debug, Clone, Default)]
pub struct PodMemory {
    pub namespace: String,
    pub pod: String,
    /// What the pods of one Deployment, and of its canary, have in common.
    pub workload: String,
    pub container: String,
    pub is_canary: bool,
    /// Time in s, and bytes.
    pub readings: Vec<(f64, f64)>,
    pub limit_bytes: Option<f64>,
    pub request_bytes: Option<f64>,
}

/// What containers of one kind need. Bytes of one pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Need {
    /// Pods that it comes from.
    pub pods: usize,
    /// The highest reading of them.
    pub peak_bytes: f64,
    pub limit_bytes: f64,
    pub request_bytes: f64,
}

/// Why there is no need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    NoPods,
    TooFewPods,
    /// A pod was at its limit: what it would have taken nobody can see.
    AtItsLimit,
}

/// One kind of container of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetRow {
    pub namespace: String,
    pub workload: String,
    pub container: String,
    /// Pods that run now, and how many of those are of the canary.
    pub pods: usize,
    pub canary_pods: usize,
    pub limit_bytes: Option<f64>,
    /// The limit, where no request is known: Kubernetes takes it for one.
    pub request_bytes: Option<f64>,
    pub under_snug: Option<Need>,
    pub under_snug_unknown: Option<Unknown>,
    pub today: Option<Need>,
    pub today_unknown: Option<Unknown>,
    /// What requests of all these pods fall by; below 0 they rise. None: not known.
    pub freed_bytes: Option<f64>,
    /// What of that is because of snug, and not because requests are larger than what is needed today.
    pub freed_by_snug_bytes: Option<f64>,
    /// How its pods under snug get what they need.
    pub resize: Option<Resize>,
    pub resize_unknown: Option<NoResize>,
}

/// All of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FleetSizes {
    pub containers: Vec<FleetRow>,
    /// What all pods request that are counted in `freed_bytes`.
    pub requested_bytes: f64,
    pub freed_bytes: f64,
    /// Where both are known.
    pub freed_by_snug_bytes: f64,
    pub node_bytes: Option<f64>,
    /// Nodes that become free if memory is what fills them.
    pub nodes_freed: Option<u64>,
}

/// Works out what a fleet needs. `window_s`: the time that was asked for; `end_s` its end; `step_s` between readings.
/// `node_bytes`: what pods may have of a node.
pub fn size(
    pods: &[PodMemory],
    window_s: f64,
    end_s: f64,
    step_s: f64,
    node_bytes: Option<f64>,
) -> FleetSizes {
    let mut kinds: BTreeMap<(&str, &str, &str), Vec<&PodMemory>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.readings.is_empty()) {
        kinds.entry((&pod.namespace, &pod.workload, &pod.container)).or_default().push(pod);
    }
    let runs = |pod: &PodMemory| pod.readings.last().is_some_and(|(time, _)| end_s - time <= 2.0 * step_s);
    let containers: Vec<FleetRow> = kinds
        .into_iter()
        .map(|((namespace, workload, container), pods)| {
            let of = |is_canary: bool| {
                let chosen = pods.iter().filter(|pod| pod.is_canary == is_canary);
                need(&chosen.copied().collect::<Vec<_>>(), window_s)
            };
            let (under_snug, today) = (of(true), of(false));
            let running: Vec<&PodMemory> = pods.iter().copied().filter(|pod| runs(pod)).collect();
            let largest = |value: fn(&PodMemory) -> Option<f64>| {
                running.iter().filter_map(|pod| value(pod)).max_by(f64::total_cmp)
            };
            let limit_bytes = largest(|pod| pod.limit_bytes);
            let request_bytes = largest(|pod| pod.request_bytes).or(limit_bytes);
            // Of no pod it is 0, and not -0.
            let of_all = |bytes: f64| running.len() as f64 * bytes + 0.0;
            let wanted = under_snug.as_ref().ok().map(|need| need.request_bytes);
            let canaries: Vec<&PodMemory> = running.iter().copied().filter(|pod| pod.is_canary).collect();
            let resize = under_snug.as_ref().ok().map(|need| resize::resize(&canaries, need)).transpose();
            FleetRow {
                namespace: namespace.into(),
                workload: workload.into(),
                container: container.into(),
                pods: running.len(),
                canary_pods: canaries.len(),
                limit_bytes,
                request_bytes,
                freed_bytes: request_bytes.zip(wanted).map(|(now, wanted)| of_all(now - wanted)),
                freed_by_snug_bytes: today
                    .as_ref()
                    .ok()
                    .zip(wanted)
                    .map(|(today, wanted)| of_all(today.request_bytes - wanted)),
                under_snug_unknown: under_snug.as_ref().err().copied(),
                under_snug: under_snug.ok(),
                today_unknown: today.as_ref().err().copied(),
                today: today.ok(),
                resize_unknown: resize.as_ref().err().copied(),
                resize: resize.ok().flatten(),
            }
        })
        .collect();
    let known = || containers.iter().filter(|row| row.freed_bytes.is_some());
    // The `sum` of none is -0.
    let sum =
        |value: fn(&FleetRow) -> Option<f64>| known().filter_map(value).fold(0.0, |sum, bytes| sum + bytes);
    let freed_bytes = sum(|row| row.freed_bytes);
    FleetSizes {
        requested_bytes: sum(|row| row.request_bytes.map(|bytes| bytes * row.pods as f64)),
        freed_bytes,
        freed_by_snug_bytes: sum(|row| row.freed_by_snug_bytes),
        node_bytes,
        nodes_freed: node_bytes.map(|node_bytes| (freed_bytes / node_bytes).max(0.0) as u64),
        containers,
    }
}

/// What such pods need.
fn need(pods: &[&PodMemory], window_s: f64) -> Result<Need, Unknown> {
    if pods.is_empty() {
        return Err(Unknown::NoPods);
    }
    let span = |pod: &PodMemory| match (pod.readings.first(), pod.readings.last()) {
        (Some((first, _)), Some((last, _))) => last - first,
        _ => 0.0,
    };
    let peak = |pod: &PodMemory| pod.readings.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    if pods.iter().any(|pod| pod.limit_bytes.is_some_and(|limit| peak(pod) >= AT_LIMIT * limit)) {
        return Err(Unknown::AtItsLimit);
    }
    let long: Vec<&&PodMemory> = pods.iter().filter(|pod| span(pod) >= SPAN_LEAST * window_s).collect();
    let names: BTreeSet<&str> = long.iter().map(|pod| pod.pod.as_str()).collect();
    if names.len() < PODS_LEAST {
        return Err(Unknown::TooFewPods);
    }
    let peaks: Vec<f64> = long.iter().map(|pod| peak(pod)).collect();
    let usual: Vec<f64> = long.iter().map(|pod| percentile(pod)).collect();
    let peak_bytes = peaks.iter().copied().fold(0.0, f64::max);
    let request_bytes = whole(bound(&usual, REQUEST_SHARE));
    Ok(Need {
        pods: long.len(),
        peak_bytes,
        // A limit below the request is no limit.
        limit_bytes: whole(bound(&peaks, LIMIT_SHARE).max(peak_bytes)).max(request_bytes),
        request_bytes,
    })
}

fn percentile(pod: &PodMemory) -> f64 {
    let mut values: Vec<f64> = pod.readings.iter().map(|(_, bytes)| *bytes).collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * REQUEST_PERCENTILE).round() as usize]
}

/// The bound that is above this share of all values, by the logarithms of these.
fn bound(values: &[f64], share: f64) -> f64 {
    let logs: Vec<f64> = values.iter().map(|value| value.max(1.0).ln()).collect();
    let mean = statistics::mean(&logs);
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let deviation = (squares / (logs.len() - 1) as f64).sqrt();
    (mean + tolerance::factor(logs.len(), share, CONFIDENCE) * deviation).exp()
}

/// Rounded up to what people write.
fn whole(bytes: f64) -> f64 {
    (bytes / GRAIN_BYTES).ceil() * GRAIN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;
    const WINDOW_S: f64 = 86400.0;

    fn pods(is_canary: bool, levels: &[f64]) -> Vec<PodMemory> {
        let named = |(number, level): (usize, &f64)| PodMemory {
            namespace: "shop".into(),
            pod: format!("web-{is_canary}-{number}"),
            workload: "web".into(),
            container: "web".into(),
            is_canary,
            readings: (0..=96).map(|step| (f64::from(step) * 900.0, level * MIB)).collect(),
            limit_bytes: Some(1024.0 * MIB),
            request_bytes: Some(800.0 * MIB),
        };
        levels.iter().enumerate().map(named).collect()
    }

    fn fleet() -> Vec<PodMemory> {
        let baseline = pods(false, &[400.0, 410.0, 390.0, 405.0, 395.0, 400.0]);
        [pods(true, &[300.0, 310.0, 290.0, 305.0, 295.0]), baseline].concat()
    }

    #[test]
    fn what_is_freed_is_divided_into_what_snug_does_and_what_it_does_not() {
        let sizes = size(&fleet(), WINDOW_S, WINDOW_S, 900.0, Some(1024.0 * MIB));
        let row = &sizes.containers[0];
        let (snug, today) = (row.under_snug.as_ref().unwrap(), row.today.as_ref().unwrap());
        assert_eq!((row.pods, row.canary_pods, snug.pods, today.pods), (11, 5, 5, 6));
        assert!(snug.peak_bytes <= snug.request_bytes && snug.request_bytes < snug.limit_bytes, "{snug:?}");
        assert_eq!(snug.request_bytes % (16.0 * MIB), 0.0);
        assert_eq!(row.freed_bytes, Some(11.0 * (800.0 * MIB - snug.request_bytes)));
        assert_eq!(row.freed_by_snug_bytes, Some(11.0 * (today.request_bytes - snug.request_bytes)));
        assert_eq!(sizes.requested_bytes, 11.0 * 800.0 * MIB);
        assert_eq!(sizes.nodes_freed, Some((sizes.freed_bytes / (1024.0 * MIB)) as u64));
    }

    #[test]
    fn what_is_not_known_is_said() {
        let reason =
            |pods: &[PodMemory]| size(pods, WINDOW_S, WINDOW_S, 900.0, None).containers[0].under_snug_unknown;
        assert_eq!(reason(&pods(false, &[400.0; 6])), Some(Unknown::NoPods));
        assert_eq!(reason(&pods(true, &[400.0; 4])), Some(Unknown::TooFewPods));
        assert_eq!(reason(&pods(true, &[400.0, 400.0, 400.0, 400.0, 1000.0])), Some(Unknown::AtItsLimit));
        let mut young = pods(true, &[400.0; 6]);
        young.iter_mut().for_each(|pod| drop(pod.readings.drain(..60)));
        assert_eq!(reason(&young), Some(Unknown::TooFewPods), "they have not shown their peak");
        assert_eq!(reason(&pods(true, &[400.0; 5])), None);
        let sizes = size(&pods(false, &[400.0; 6]), WINDOW_S, WINDOW_S, 900.0, Some(1e9));
        assert_eq!(
            (sizes.freed_bytes, sizes.nodes_freed),
            (0.0, Some(0)),
            "nothing is promised without a canary"
        );
    }

    #[test]
    fn pods_that_ended_are_not_counted_but_say_something() {
        let mut all = fleet();
        all[0].readings.truncate(80);
        let row = &size(&all, WINDOW_S, WINDOW_S, 900.0, None).containers[0];
        assert_eq!((row.pods, row.canary_pods, row.under_snug.as_ref().unwrap().pods), (10, 4, 5));
    }

    #[test]
    fn nothing_is_no_minus_zero() {
        // All have ended, and snug's needed more.
        let mut ended = [pods(true, &[500.0; 5]), pods(false, &[400.0; 6])].concat();
        ended.iter_mut().for_each(|pod| pod.readings.truncate(80));
        for pods in [Vec::new(), pods(false, &[400.0; 6]), ended] {
            let sizes = size(&pods, WINDOW_S, WINDOW_S, 900.0, Some(1e9));
            let json = serde_json::to_string(&sizes).unwrap();
            assert!(json.contains("\"freed_bytes\":0.0") && !json.contains("-0.0"), "{json}");
        }
    }

    #[test]
    fn requests_that_are_too_small_rise() {
        let mut all = fleet();
        all.iter_mut().for_each(|pod| pod.request_bytes = Some(100.0 * MIB));
        assert!(size(&all, WINDOW_S, WINDOW_S, 900.0, Some(1e9)).freed_bytes < 0.0);
    }
}
