//! The command line of `snug canary`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::arguments::PodArguments;
use snug_base::time::time;
use snug_client::prometheus::metric;

/// Tell from Prometheus's data whether a canary does better or worse than the other pods
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug canary --prometheus http://localhost:9090 --selector 'namespace=\"shop\",container=\"web\"' \\
    --canary 'pod=~\"web-canary-.*\"'
  snug canary --prometheus http://localhost:9090 --selector 'namespace=\"shop\",container=\"web\"' \\
    --members kube_pod_labels --canary 'label_snug_dev_group=\"canary\"'
  snug canary --prometheus http://prometheus:9090 --selector 'namespace=\"shop\",container=\"web\"' \\
    --canary 'pod=~\"web-canary-.*\"' --latency http_request_duration_seconds --wait 6h --json

Memory, CPU time, restarts and OOM kills come from the container metrics that every cluster has; snug exporter is not \
needed. The baseline is all pods of --selector that are not the canary, or those of --baseline. Unless --selector \
names a container, all containers of a pod are added up.

Each quantity is a ratio, canary to baseline. Its interval comes from how much pods differ from each other, not from \
how many readings there are, and holds over all quantities, however often you ask. Only the same hours and \
containers of the same age are compared; the first minutes of each container are left out. CANARY is an adjusted \
value, BASELINE x RATIO: what the canary's pods would have used had they run at the same hours and been as old as \
the baseline's. The answer is one word: better, if memory is lower and nothing worse; worse, if any quantity is; no \
difference, if more than --effect is ruled out; or not enough data, with what is missing. At most 5 % of fleets \
without a difference are ever called better or worse.

A token is read from --bearer-token-file or SNUG_PROMETHEUS_TOKEN; name and password, as NAME:PASSWORD, from \
--basic-auth-file. With https, --ca-file names the certificates of an authority of your own.

Exit codes: 0 better, or no difference; 1 worse, or with --require better no difference; 2 the arguments are invalid; 3 \
not enough data, or Prometheus can't be asked.")]
pub struct CanaryArguments {
    #[command(flatten)]
    pub pods: PodArguments,
    /// Label matchers that select the baseline [default: all that are not the canary]
    #[arg(long, value_name = "MATCHERS")]
    pub baseline: Option<String>,
    /// The labels that tell pods apart
    #[arg(long, value_name = "LABELS", value_delimiter = ',', default_value = "namespace,pod", value_parser = label)]
    pub unit: Vec<String>,
    /// Leave out containers younger than this
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub warm_up: Duration,
    /// The smallest difference that must not be missed, in percent
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    pub effect: f64,
    /// Differences that don't matter, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub tolerance: f64,
    /// The metric for CPU time, a counter of seconds
    #[arg(long, value_name = "METRIC", default_value = "container_cpu_usage_seconds_total", value_parser = metric)]
    pub cpu: String,
    /// The metric for the times at which containers started
    #[arg(long, value_name = "METRIC", default_value = "container_start_time_seconds", value_parser = metric)]
    pub start_time: String,
    /// The metric for OOM kills, a counter
    #[arg(long, value_name = "METRIC", default_value = "container_oom_events_total", value_parser = metric)]
    pub oom_kills: String,
    /// The metric for latency, a histogram in seconds, without _bucket
    #[arg(long, value_name = "METRIC", value_parser = metric)]
    pub latency: Option<String>,
    /// Which percentile of the latency to compare
    #[arg(long, value_name = "PERCENT", default_value = "99", value_parser = percent)]
    pub latency_percentile: f64,
    /// Ask again until there is an answer, for at most this long
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "end")]
    pub wait: Option<Duration>,
    /// With --wait, how often to ask
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub every: Duration,
    /// Exit with 1 unless the answer is at least this
    #[arg(long, value_name = "ANSWER", value_enum, default_value_t = Required::NotWorse)]
    pub require: Required,
}

/// What a pipeline asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Required {
    Better,
    NotWorse,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    number
        .filter(|number| (0.1..100.0).contains(number))
        .ok_or_else(|| "not a number from 0.1 to below 100".into())
}

fn label(text: &str) -> Result<String, String> {
    metric(text).ok().filter(|name| !name.contains(':')).ok_or_else(|| "not the name of a label".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert!(label("pod").is_ok() && label("a:b").is_err());
        assert_eq!(percent("5%"), Ok(5.0));
        assert!(percent("0").is_err() && percent("100").is_err() && percent("x").is_err());
    }
}
