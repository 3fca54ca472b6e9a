//! The arguments of both commands: which pods they ask Prometheus about, and over which time.

use std::time::{Duration, SystemTime};

use clap::Args;

use snug_base::time::time_between;
use snug_client::prometheus::{metric, moment};
use snug_client::server::PrometheusArguments;

/// Options of `snug canary` and `snug fleet`.
#[derive(Debug, Args)]
pub struct PodArguments {
    #[command(flatten)]
    pub server: PrometheusArguments,
    /// Label matchers that select all pods, those of the canary too
    #[arg(long, value_name = "MATCHERS", default_value = "", hide_default_value = true)]
    pub selector: String,
    /// Label matchers that tell the canary, the pods under snug, from the others
    #[arg(long, value_name = "MATCHERS")]
    pub canary: String,
    /// A metric to which the matchers of a group apply, joined by the labels that tell pods apart: kube_pod_labels
    #[arg(long, value_name = "METRIC", value_parser = metric)]
    pub members: Option<String>,
    /// How far to look back
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = window)]
    pub window: Duration,
    /// Time between readings [default: a 288th of the window, at least 1m]
    #[arg(long, value_name = "TIME", value_parser = step)]
    pub step: Option<Duration>,
    /// The end of the window, as 2026-11-20T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub end: Option<SystemTime>,
    /// The metric for memory
    #[arg(long, value_name = "METRIC", default_value = "container_memory_working_set_bytes", value_parser = metric)]
    pub memory: String,
    /// Write JSON
    #[arg(long, display_order = 900)]
    pub json: bool,
}

fn window(text: &str) -> Result<Duration, String> {
    time_between(text, 120.0, 60.0 * 86_400.0)
}

fn step(text: &str) -> Result<Duration, String> {
    time_between(text, 1.0, 86_400.0)
}
