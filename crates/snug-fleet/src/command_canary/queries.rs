//! Queries to Prometheus, and how its answers become readings of pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::canary::conclusion::{Aspect, FleetReadings};
use crate::canary::groups::PodSeries;
use crate::command_canary::arguments::CanaryArguments;
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_client::prometheus::{inner, LabelledSeries, Prometheus, TimeRange};

/// A rate over less would miss samples: they come every 15 to 60 s.
const RATE_LEAST_S: u64 = 300;

/// A query with a place for the matchers of a group.
pub(crate) struct Queries<'a> {
    arguments: &'a CanaryArguments,
    units: String,
    rate_s: u64,
}

impl Queries<'_> {
    /// The queries that the command line asks for.
    pub(crate) fn new(arguments: &CanaryArguments, range: TimeRange) -> Queries<'_> {
        Queries { arguments, units: arguments.unit.join(", "), rate_s: range.step_s.max(RATE_LEAST_S) }
    }

    /// `matchers`: of the group, None for all pods.
    fn selected(&self, metric: &str, matchers: Option<&str>) -> String {
        let in_place = if self.arguments.pods.members.is_none() { matchers } else { None };
        let mut all = vec![inner(&self.arguments.pods.selector).to_string()];
        all.extend(in_place.map(|matchers| inner(matchers).to_string()));
        // The kubelet's metrics have a pod's sum and its pause container beside the containers.
        if metric.starts_with("container_") && !all.iter().any(|matchers| names_container(matchers)) {
            all.push("container!=\"\",container!=\"POD\"".into());
        }
        all.retain(|matchers| !matchers.is_empty());
        format!("{metric}{{{}}}", all.join(","))
    }

    /// Only units that the metric of the members has.
    fn joined(&self, query: String, matchers: Option<&str>) -> String {
        match (&self.arguments.pods.members, matchers) {
            (Some(members), Some(matchers)) => {
                format!("{query} and on ({}) {members}{{{}}}", self.units, inner(matchers))
            }
            _ => query,
        }
    }

    fn level(&self, aspect: Aspect, matchers: Option<&str>) -> String {
        let (units, rate_s) = (&self.units, self.rate_s);
        let arguments = self.arguments;
        let query = match aspect {
            Aspect::Memory => {
                format!("sum by ({units}) ({})", self.selected(&arguments.pods.memory, matchers))
            }
            Aspect::Cpu => {
                format!("sum by ({units}) (rate({}[{rate_s}s]))", self.selected(&arguments.cpu, matchers))
            }
            Aspect::Latency => {
                let buckets = format!("{}_bucket", arguments.latency.as_deref().unwrap_or_default());
                let share = arguments.latency_percentile / 100.0;
                let of = self.selected(&buckets, matchers);
                format!("histogram_quantile({share}, sum by ({units}, le) (rate({of}[{rate_s}s])))")
            }
            Aspect::Restarts => {
                format!("max by ({units}) ({})", self.selected(&arguments.start_time, matchers))
            }
            Aspect::OomKills => {
                format!("sum by ({units}) ({})", self.selected(&arguments.oom_kills, matchers))
            }
        };
        self.joined(query, matchers)
    }

    /// Pods of both groups.
    fn pods(&self, server: &Prometheus, aspect: Aspect, range: TimeRange) -> Result<Vec<PodSeries>> {
        let canary = self.group(server, aspect, Some(&self.arguments.pods.canary), range)?;
        let baseline = self.group(server, aspect, self.arguments.baseline.as_deref(), range)?;
        let canaries: BTreeSet<String> = canary.keys().cloned().collect();
        if self.arguments.baseline.is_some() {
            if let Some(both) = baseline.keys().find(|unit| canaries.contains(*unit)) {
                return Err(Failure::usage(
                    format!("{both} is of the canary and of the baseline"),
                    "make --baseline narrower, or leave it out: then it is all pods that are not the canary",
                ));
            }
        }
        let of = |is_canary: bool| move |(unit, readings)| PodSeries { unit, is_canary, readings };
        let others = baseline.into_iter().filter(|(unit, _)| !canaries.contains(unit));
        Ok(canary.into_iter().map(of(true)).chain(others.map(of(false))).collect())
    }

    fn group(
        &self,
        server: &Prometheus,
        aspect: Aspect,
        matchers: Option<&str>,
        range: TimeRange,
    ) -> Result<BTreeMap<String, Vec<(f64, f64)>>> {
        let query = self.level(aspect, matchers);
        let found = server.range(&query, range)?;
        if found.is_empty() && aspect == Aspect::Memory {
            let what = if matchers == Some(&self.arguments.pods.canary) { "canary" } else { "baseline" };
            return Err(Failure::new(format!("Prometheus has no series of the {what} in that time"))
                .advise(format!("the query is {query}"))
                .exit_code(UNKNOWN));
        }
        let numbers = |series: &LabelledSeries| series.points.iter().any(|(_, value)| value.is_finite());
        if aspect == Aspect::Memory && !found.iter().any(numbers) {
            return Err(Failure::new("Prometheus has no numbers in that time, only NaN")
                .advise(format!("the query is {query}"))
                .exit_code(UNKNOWN));
        }
        found.into_iter().map(|series| Ok((self.unit(&series, &query)?, finite(series.points)))).collect()
    }

    /// Which pod a series is of.
    fn unit(&self, series: &LabelledSeries, query: &str) -> Result<String> {
        let value =
            |label: &String| series.labels.get(label).map(String::as_str).filter(|value| !value.is_empty());
        let parts: Vec<&str> = self.arguments.unit.iter().filter_map(value).collect();
        if parts.len() < self.arguments.unit.len() {
            return Err(Failure::new(format!("a series lacks one of the labels {}", self.units))
                .advise(format!("say by --unit which labels tell pods apart; the query is {query}"))
                .exit_code(UNKNOWN));
        }
        Ok(parts.join("/"))
    }
}

fn finite(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.retain(|(_, value)| value.is_finite());
    points
}

/// Whether there is a matcher for the label container; what stands in quotes is none.
fn names_container(matchers: &str) -> bool {
    let outside: String = matchers.split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let label = |part: &str| {
        part.trim_start()
            .strip_prefix("container")
            .is_some_and(|rest| rest.trim_start().starts_with(['=', '!']))
    };
    outside.split([',', '"']).any(label)
}

/// Asks for everything.
pub(crate) fn read(
    arguments: &CanaryArguments,
    server: &Prometheus,
    range: TimeRange,
) -> Result<FleetReadings> {
    let queries = Queries::new(arguments, range);
    let mut levels = vec![(Aspect::Memory, queries.pods(server, Aspect::Memory, range)?)];
    let others = [Some(Aspect::Cpu), arguments.latency.is_some().then_some(Aspect::Latency)];
    for aspect in others.into_iter().flatten() {
        let pods = queries.pods(server, aspect, range)?;
        if aspect == Aspect::Latency && pods.iter().all(|pod| pod.readings.is_empty()) {
            let query = queries.level(aspect, Some(&arguments.pods.canary));
            return Err(Failure::new("Prometheus has no latencies of these pods in that time")
                .advise(format!("--latency is a histogram, without _bucket; the query is {query}"))
                .exit_code(UNKNOWN));
        }
        if !pods.is_empty() {
            levels.push((aspect, pods));
        }
    }
    let starts = queries.pods(server, Aspect::Restarts, range)?;
    let oom_kills = queries.pods(server, Aspect::OomKills, range)?;
    let span_s = common_span(&levels[0].1);
    Ok(FleetReadings { levels, starts, oom_kills, step_s: range.step_s as f64, span_s })
}

/// How long both groups were read.
fn common_span(pods: &[PodSeries]) -> f64 {
    let span = |is_canary| {
        let times = || {
            let group = pods.iter().filter(move |pod| pod.is_canary == is_canary);
            group.flat_map(|pod| pod.readings.iter().map(|(time, _)| *time))
        };
        (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max))
    };
    let (canary, baseline) = (span(true), span(false));
    (canary.1.min(baseline.1) - canary.0.max(baseline.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_put_together() {
        assert!(names_container("a=\"b\", container =~ \"x\"") && names_container("container!=\"\""));
        assert!(!names_container("pod=\"container=1\",container_name=\"x\""));
    }
}
