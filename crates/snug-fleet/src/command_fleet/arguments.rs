//! The command line of `snug fleet`.

use clap::Args;

use crate::arguments::PodArguments;
use snug_client::prometheus::metric;

/// Say from Prometheus's data what memory limit and request each container needs under snug
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug fleet --prometheus http://localhost:9090 --selector 'namespace=\"shop\"' --canary 'pod=~\".*-canary-.*\"'
  snug fleet --prometheus http://localhost:9090 --members kube_pod_labels --canary 'label_snug_dev_group=\"canary\"'
  snug fleet --prometheus http://localhost:9090 --canary 'pod=~\".*-canary-.*\"' --node-memory 14Gi --window 7d --json
  snug fleet --prometheus http://localhost:9090 --canary 'pod=~\".*-canary-.*\"' --resize

Pods under snug, those of --canary, show what containers need there; a kind with fewer than 5 of them gets no \
answer. A limit exceeds the highest memory of 999 in 1000 such pods, a request exceeds what 9 in 10 need 95 % of the \
time. Both hold with 95 % confidence, for a period like the window: at busier times pods need more. Look back at \
least a day, so that the window includes a day's peak; between two readings the highest value counts. Pods that were \
there for less than half of the window are left out. If a pod under snug came to 95 % of its limit, its kind gets no \
answer: it might have needed more.

Pods are of one kind if their namespace, their container's name and their own name are the same, without the suffix \
that Kubernetes adds, and without -canary, -primary or -snug. Memory and limits come from the kubelet's metrics; \
requests and the size of nodes from kube-state-metrics, if it is there. Where no request is known, the limit is \
used, as Kubernetes does.

The memory freed is the sum of today's requests, less what they could be. It is split into what snug saves and what could \
be freed without it, because today's requests exceed what pods need today. Nodes are counted as if only memory filled them.

With --resize it prints commands of kubectl in place of the table, one kind of pods after the other: they give these sizes to the \
running pods under snug without recreating them, as Kubernetes can from 1.34 on, one pod first. Nothing is changed before you \
run them.

A token is read from --bearer-token-file or SNUG_PROMETHEUS_TOKEN; name and password, as NAME:PASSWORD, from \
--basic-auth-file. With https, --ca-file names the certificates of an authority of your own.

Exit codes: 0 there is an answer for some container; 2 the arguments are invalid; 3 there is none, or Prometheus can't \
be asked.")]
pub struct FleetArguments {
    #[command(flatten)]
    pub pods: PodArguments,
    /// Memory that pods can use on one node, such as 14Gi [default: the median of kube_node_status_allocatable]
    #[arg(long, value_name = "SIZE", value_parser = quantity)]
    pub node_memory: Option<f64>,
    /// Print the commands that resize running pods under snug in place
    #[arg(long, conflicts_with = "json")]
    pub resize: bool,
    /// The metric for limits; 0 is none
    #[arg(long, value_name = "METRIC", default_value = "container_spec_memory_limit_bytes", value_parser = metric)]
    pub limits: String,
}

/// Bytes as Kubernetes writes them.
fn quantity(text: &str) -> Result<f64, String> {
    let number_end = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        _ => return Err("write it as 14Gi or 15G".into()),
    };
    let bytes = number.trim().parse::<f64>().ok().map(|number| number * factor);
    bytes.filter(|bytes| (1e6..1e15).contains(bytes)).ok_or_else(|| "write it as 14Gi or 15G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_kubernetes() {
        assert_eq!(quantity("14Gi"), Ok(14.0 * 1_073_741_824.0));
        assert_eq!(quantity("1.5G"), Ok(1.5e9));
        assert_eq!(quantity("2000000"), Ok(2e6));
        for wrong in ["", "Gi", "14GB", "-1Gi", "0", "x"] {
            assert!(quantity(wrong).is_err(), "{wrong}");
        }
    }
}
