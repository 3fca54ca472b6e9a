//! Queries to Prometheus for a fleet, and how its answers become pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::command_fleet::arguments::FleetArguments;
use crate::fleet::PodMemory;
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_client::prometheus::{inner, LabelledSeries, Prometheus, TimeRange};
use snug_process::pod_name;
use snug_stats as statistics;

/// What tells one container from another.
const BY: &str = "namespace, pod, container";
/// The kubelet's metrics have a pod's sum and its pause container beside the containers.
const CONTAINERS: &str = "container!=\"\",container!=\"POD\"";
/// What second Deployments, and those of Flagger, are called after the first.
const SUFFIXES: [&str; 3] = ["-canary", "-primary", "-snug"];
/// Limits from here on are none.
const NO_LIMIT_BYTES: f64 = 1e15;

/// What was found.
pub(crate) struct FleetPods {
    pub pods: Vec<PodMemory>,
    pub node_bytes: Option<f64>,
}

/// Namespace, pod and container.
type ContainerKey = (String, String, String);

/// Asks for everything.
pub(crate) fn read(arguments: &FleetArguments, server: &Prometheus, range: TimeRange) -> Result<FleetPods> {
    let memory = |matchers: &[&str]| {
        let step_s = range.step_s;
        format!("max by ({BY}) (max_over_time({}[{step_s}s]))", selected(&arguments.pods.memory, matchers))
    };
    let selector = inner(&arguments.pods.selector);
    let all = memory(&[selector]);
    let found = by_place(server.range(&all, range)?);
    if found.is_empty() {
        return Err(Failure::new("Prometheus has no series of these containers in that time")
            .advise(format!("the query is {all}"))
            .exit_code(UNKNOWN));
    }
    let canary = match &arguments.pods.members {
        Some(members) => {
            format!("{all} and on (namespace, pod) {members}{{{}}}", inner(&arguments.pods.canary))
        }
        None => memory(&[selector, inner(&arguments.pods.canary)]),
    };
    let canaries: BTreeSet<ContainerKey> = by_place(server.range(&canary, range)?).into_keys().collect();
    let limits =
        last(server, &format!("max by ({BY}) ({})", selected(&arguments.limits, &[selector])), range)?;
    let requests = "kube_pod_container_resource_requests";
    let requests = selected(requests, &[selector, "resource=\"memory\""]);
    let requests = last(server, &format!("max by ({BY}) ({requests})"), range)?;
    let pods = found.into_iter().map(|(place, readings)| {
        let (namespace, pod, container) = place.clone();
        PodMemory {
            workload: workload(&pod),
            is_canary: canaries.contains(&place),
            limit_bytes: limits.get(&place).copied().filter(|bytes| (1.0..NO_LIMIT_BYTES).contains(bytes)),
            request_bytes: requests.get(&place).copied().filter(|bytes| *bytes > 0.0),
            namespace,
            pod,
            container,
            readings,
        }
    });
    let pods = pods.collect();
    let node_bytes = match arguments.node_memory {
        Some(bytes) => Some(bytes),
        None => node_bytes(server, range)?,
    };
    Ok(FleetPods { pods, node_bytes })
}

/// What pods may have of the median node; None if nobody says.
fn node_bytes(server: &Prometheus, range: TimeRange) -> Result<Option<f64>> {
    let now = TimeRange { from_s: range.to_s, ..range };
    let nodes = server.range("kube_node_status_allocatable{resource=\"memory\"}", now)?;
    let sizes: Vec<f64> = nodes.iter().filter_map(|node| Some(node.points.last()?.1)).collect();
    Ok((!sizes.is_empty()).then(|| statistics::median(&sizes)))
}

fn selected(metric: &str, matchers: &[&str]) -> String {
    let named = matchers.iter().copied().filter(|matchers| !matchers.is_empty());
    format!("{metric}{{{}}}", named.chain([CONTAINERS]).collect::<Vec<_>>().join(","))
}

/// Series by their places, without those that lack a label.
fn by_place(series: Vec<LabelledSeries>) -> BTreeMap<ContainerKey, Vec<(f64, f64)>> {
    let place = |series: &LabelledSeries| {
        let label = |name: &str| series.labels.get(name).filter(|value| !value.is_empty()).cloned();
        Some((label("namespace")?, label("pod")?, label("container")?))
    };
    let finite = |mut points: Vec<(f64, f64)>| {
        points.retain(|(_, value)| value.is_finite());
        points
    };
    series.into_iter().filter_map(|series| Some((place(&series)?, finite(series.points)))).collect()
}

/// The last value of each.
fn last(server: &Prometheus, query: &str, range: TimeRange) -> Result<BTreeMap<ContainerKey, f64>> {
    let found = by_place(server.range(query, range)?);
    Ok(found.into_iter().filter_map(|(place, points)| Some((place, points.last()?.1))).collect())
}

/// What the pods of a Deployment and of its canary have in common.
fn workload(pod: &str) -> String {
    let name = pod_name::workload(pod);
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_of_the_same_kind() {
        for pod in
            ["web-6d4cf56db6-x2x4z", "web-canary-6d4cf56db6-x2x4z", "web-primary-7f6cc9d854-8kz2q", "web-0"]
        {
            assert_eq!(workload(pod), "web", "{pod}");
        }
    }

    #[test]
    fn matchers_are_put_together() {
        let expected = format!("m{{a=\"b\",{CONTAINERS}}}");
        assert_eq!(selected("m", &["", "a=\"b\""]), expected);
    }
}
