//! The metrics: one table of names, help texts and values, written in the text format of Prometheus.

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::TextEncoder;

use crate::labels::Labels;
use crate::pods::ContainerNames;
use snug_base::failure::{Context, Result};
use snug_base::VERSION;
use snug_heap::account::Heap;
use snug_heap::glibc_heap::HeapSize;
use snug_heap::sharing::ForkHooks;
use snug_process::memory_group::Cgroup;

/// What is exported of one process. Memory is in bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub labels: Option<Labels>,
    pub allocator: String,
    /// Whether its container has, or asks for, snug.
    pub group: FleetGroup,
    pub version: String,
    pub cgroup: String,
    pub pid: i32,
    pub start_time_s: f64,
    pub rss_bytes: u64,
    pub pss_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub hooks: Option<ForkHooks>,
    pub cpu_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub threads: u64,
    pub heap: Option<Heap>,
    /// Share of a core that giving memory back may take, from 0 to 1.
    pub purge_budget: Option<f64>,
    /// Only where it was asked for: a walk costs as much as the heap is large.
    pub glibc_heap: Option<HeapSize>,
    /// Live bytes by what allocated them, if that was asked for and the process samples. Names are different.
    pub sites: Vec<(String, f64)>,
}

/// What a process is in a comparison of allocators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FleetGroup {
    Canary,
    #[default]
    Baseline,
}

/// A control group, and the names of its container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedCgroup {
    pub names: ContainerNames,
    pub cgroup: Cgroup,
}

/// What is exported of the exporter itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub cpu_s: f64,
    pub reading_s: f64,
    pub left_out: usize,
    pub refused: usize,
}

type Value<T> = fn(&T) -> Option<f64>;

const PROCESS_GAUGES: &[(&str, &str, Value<Sample>)] = &[
    ("snug_process_pid", "Identifier of the process.", |sample| Some(f64::from(sample.pid))),
    ("snug_process_start_time_seconds", "When the process started, since 1970.", |sample| {
        Some(sample.start_time_s)
    }),
    ("snug_process_resident_bytes", "Resident memory (RSS), shared pages included.", |sample| {
        Some(sample.rss_bytes as f64)
    }),
    (
        "snug_process_proportional_bytes",
        "Resident memory with shared pages split among the processes that share them (PSS).",
        |sample| sample.pss_bytes.map(|bytes| bytes as f64),
    ),
    ("snug_process_swap_bytes", "Memory that is swapped out.", |sample| {
        sample.swap_bytes.map(|bytes| bytes as f64)
    }),
    ("snug_process_threads", "Threads of the process.", |sample| Some(sample.threads as f64)),
    (
        "snug_heap_purge_budget_ratio",
        "Share of a core that giving memory back may take: purge_cpu_percent.",
        |sample| sample.purge_budget,
    ),
];

const PROCESS_COUNTERS: &[(&str, &str, Value<Sample>)] = &[
    ("snug_process_cpu_seconds_total", "CPU time of the process, user and system.", |sample| {
        Some(sample.cpu_s)
    }),
    ("snug_process_minor_page_faults_total", "Page faults that read no file.", |sample| {
        Some(sample.minor_faults as f64)
    }),
    ("snug_process_major_page_faults_total", "Page faults that read a file or swap.", |sample| {
        Some(sample.major_faults as f64)
    }),
];

/// Of the process that was prepared, and of its workers: no sum counts twice what they share.
const HOOKS_GAUGES: &[(&str, &str, Value<ForkHooks>)] = &[
    (
        "snug_hooks_shared_bytes",
        "Of a process that hooks prepared for forks: what it shared with workers at the first fork.",
        |hooks| hooks.is_prepared.then_some(hooks.state.shared_bytes as f64),
    ),
    (
        "snug_hooks_immortal_objects",
        "Of that process: objects that hooks made immortal before it.",
        |hooks| hooks.is_prepared.then_some(hooks.state.objects as f64),
    ),
    (
        "snug_hooks_copied_bytes",
        "Of a worker of such a process: how much of what was shared it has copied since, estimated.",
        |hooks| hooks.copied_bytes.map(|bytes| bytes as f64),
    ),
];

const HEAP_GAUGES: &[(&str, &str, Value<Heap>)] = &[
    ("snug_heap_live_bytes", "Blocks that the program allocated and has not freed.", |heap| {
        Some(heap.live_allocated_bytes as f64)
    }),
    ("snug_heap_requested_bytes", "Bytes that the program asked for in those blocks.", |heap| {
        Some(heap.live_requested_bytes as f64)
    }),
    ("snug_heap_cached_bytes", "Freed blocks that threads keep at hand.", |heap| {
        heap.cached_bytes.map(|bytes| bytes as f64)
    }),
    ("snug_heap_slab_free_bytes", "Free blocks between live ones.", |heap| Some(heap.slab_free_bytes as f64)),
    ("snug_heap_dirty_bytes", "Free pages that are not given back yet.", |heap| {
        heap.dirty_bytes.map(|bytes| bytes as f64)
    }),
    ("snug_heap_metadata_bytes", "Tables of the allocator.", |heap| {
        heap.metadata_bytes.map(|bytes| bytes as f64)
    }),
    ("snug_heap_resident_bytes", "All of the heap that holds memory, at most.", |heap| {
        Some(heap.resident_bytes as f64)
    }),
    ("snug_heap_fragmentation_ratio", "Share of the heap's memory that is not live, from 0 to 1.", |heap| {
        Some(heap.fragmentation)
    }),
];

const HEAP_COUNTERS: &[(&str, &str, Value<Heap>)] = &[
    (
        "snug_heap_taken_bytes_total",
        "Blocks that left the slabs; what a thread's cache serves again is not counted.",
        |heap| Some(heap.taken_bytes as f64),
    ),
    ("snug_heap_purged_bytes_total", "Memory given back to the kernel.", |heap| {
        Some(heap.purged_bytes as f64)
    }),
    ("snug_heap_purges_total", "How often memory was given back.", |heap| Some(heap.purges as f64)),
    ("snug_heap_idle_purges_total", "How often everything was given back in an idle moment.", |heap| {
        Some(heap.idle_purges as f64)
    }),
    ("snug_heap_limit_purges_total", "How often because the container's limit was near.", |heap| {
        Some(heap.limit_purges as f64)
    }),
];

/// Not in the family of snug's heaps: an estimate is no count, and alerts must not mix them.
const GLIBC_GAUGES: &[(&str, &str, Value<HeapSize>)] = &[
    (
        "snug_glibc_live_bytes",
        "Live blocks under glibc, estimated from the chunks in its heaps.",
        |estimate| Some(estimate.live_bytes as f64),
    ),
    ("snug_glibc_resident_bytes", "Resident memory of glibc's heaps.", |estimate| {
        Some(estimate.held_bytes as f64)
    }),
];

const CGROUP_GAUGES: &[(&str, &str, Value<Cgroup>)] = &[
    ("snug_cgroup_memory_bytes", "Memory of the control group, cached files included.", |cgroup| {
        Some(cgroup.used_bytes as f64)
    }),
    ("snug_cgroup_memory_working_bytes", "The same without files that can be dropped at once.", |cgroup| {
        Some(cgroup.working_bytes() as f64)
    }),
    (
        "snug_cgroup_memory_limit_bytes",
        "How large the working memory can become before the control group or one above it is at its limit.",
        |cgroup| cgroup.limit_bytes.map(|bytes| bytes as f64),
    ),
];

/// Writes all metrics.
pub(crate) fn text(samples: &[Sample], cgroups: &[NamedCgroup], own: &Own) -> Result<String> {
    let mut families = Vec::new();
    let labelled: Vec<(Vec<LabelPair>, &Sample)> =
        samples.iter().map(|sample| (process_labels(sample), sample)).collect();
    families.push(family(
        "snug_process_info",
        "Always 1; version of the allocator, and the control group.",
        MetricType::GAUGE,
        samples.iter().map(|sample| (info_labels(sample), 1.0)).collect(),
    ));
    let heaps: Vec<(Vec<LabelPair>, &Heap)> = labelled
        .iter()
        .filter_map(|(labels, sample)| Some((labels.clone(), sample.heap.as_ref()?)))
        .collect();
    let estimates: Vec<(Vec<LabelPair>, &HeapSize)> = labelled
        .iter()
        .filter_map(|(labels, sample)| Some((labels.clone(), sample.glibc_heap.as_ref()?)))
        .collect();
    let hooks: Vec<(Vec<LabelPair>, &ForkHooks)> = labelled
        .iter()
        .filter_map(|(labels, sample)| Some((labels.clone(), sample.hooks.as_ref()?)))
        .collect();
    let groups: Vec<(Vec<LabelPair>, &Cgroup)> =
        cgroups.iter().map(|named| (cgroup_labels(named), &named.cgroup)).collect();
    table(&mut families, PROCESS_GAUGES, MetricType::GAUGE, &labelled);
    table(&mut families, PROCESS_COUNTERS, MetricType::COUNTER, &labelled);
    table(&mut families, HOOKS_GAUGES, MetricType::GAUGE, &hooks);
    table(&mut families, HEAP_GAUGES, MetricType::GAUGE, &heaps);
    table(&mut families, HEAP_COUNTERS, MetricType::COUNTER, &heaps);
    families.push(family(
        "snug_site_live_bytes",
        "Live blocks by the function and line that allocated them, estimated from samples; the rest as other.",
        MetricType::GAUGE,
        labelled.iter().flat_map(|(labels, sample)| site_values(labels, sample)).collect(),
    ));
    table(&mut families, GLIBC_GAUGES, MetricType::GAUGE, &estimates);
    table(&mut families, CGROUP_GAUGES, MetricType::GAUGE, &groups);
    let (gauge, counter) = (MetricType::GAUGE, MetricType::COUNTER);
    let build = vec![(vec![pair("version", VERSION)], 1.0)];
    families.push(family("snug_build_info", "Always 1; version of the exporter.", gauge, build));
    let of_own = [
        ("snug_exporter_processes", "Processes that are exported.", gauge, samples.len() as f64),
        ("snug_exporter_processes_left_out", "Processes beyond --max-processes.", gauge, own.left_out as f64),
        (
            "snug_exporter_processes_refused",
            "Processes that may not be read, or whose heap may not.",
            gauge,
            own.refused as f64,
        ),
        ("snug_exporter_reading_seconds", "How long the last reading took.", gauge, own.reading_s),
        ("snug_exporter_cpu_seconds_total", "CPU time of the exporter.", counter, own.cpu_s),
    ];
    families
        .extend(of_own.map(|(name, help, kind, value)| family(name, help, kind, vec![(Vec::new(), value)])));
    // A family without metrics is an error to the encoder.
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).cannot(|| "write metrics".into())
}

fn table<T>(
    families: &mut Vec<MetricFamily>,
    rows: &[(&str, &str, Value<T>)],
    kind: MetricType,
    items: &[(Vec<LabelPair>, &T)],
) {
    for (name, help, value) in rows {
        let values = items.iter().filter_map(|(labels, item)| Some((labels.clone(), value(item)?)));
        families.push(family(name, help, kind, values.collect()));
    }
}

fn family(name: &str, help: &str, kind: MetricType, values: Vec<(Vec<LabelPair>, f64)>) -> MetricFamily {
    let metrics = values.into_iter().map(|(labels, value)| {
        let mut metric = Metric::from_label(labels);
        match kind {
            MetricType::COUNTER => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            _ => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        metric
    });
    let mut family = MetricFamily::default();
    family.set_metric(metrics.collect());
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}

/// The same for all metrics of a process, so that they can be joined. What is not known is left out.
fn process_labels(sample: &Sample) -> Vec<LabelPair> {
    let group = match sample.group {
        FleetGroup::Canary => "canary",
        FleetGroup::Baseline => "baseline",
    };
    let mut pairs = vec![pair("allocator", &sample.allocator), pair("group", group)];
    if let Some(labels) = &sample.labels {
        if !labels.app.is_empty() {
            pairs.push(pair("app", &labels.app));
        }
        pairs.extend(container_labels(&labels.names));
        pairs.push(pair("role", &labels.role));
        pairs.push(pair("worker", &labels.worker));
    }
    pairs
}

fn site_values<'a>(
    labels: &'a [LabelPair],
    sample: &'a Sample,
) -> impl Iterator<Item = (Vec<LabelPair>, f64)> + 'a {
    sample.sites.iter().map(|(site, bytes)| {
        let pairs = labels.iter().cloned().chain([pair("site", site)]).collect();
        (pairs, bytes.round())
    })
}

fn container_labels(names: &ContainerNames) -> impl Iterator<Item = LabelPair> + '_ {
    let all = [("namespace", &names.namespace), ("pod", &names.pod), ("container", &names.container)];
    all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| pair(name, value))
}

fn cgroup_labels(named: &NamedCgroup) -> Vec<LabelPair> {
    std::iter::once(pair("cgroup", &named.cgroup.path)).chain(container_labels(&named.names)).collect()
}

fn info_labels(sample: &Sample) -> Vec<LabelPair> {
    let mut pairs = process_labels(sample);
    pairs.push(pair("cgroup", &sample.cgroup));
    pairs.push(pair("version", &sample.version));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_heap::hooks::HooksState;

    #[test]
    fn metrics_have_types_and_labels() {
        let labels = Labels {
            role: "puma worker".into(),
            app: "shop".into(),
            worker: "2".into(),
            names: ContainerNames { pod: "shop-0".into(), ..ContainerNames::default() },
        };
        let heap = Heap { live_allocated_bytes: 1000, fragmentation: 0.25, ..Heap::default() };
        let samples = [
            Sample {
                labels: Some(labels),
                allocator: "snug".into(),
                group: FleetGroup::Canary,
                swap_bytes: Some(77),
                hooks: Some(ForkHooks {
                    group: 1,
                    is_prepared: false,
                    state: HooksState { shared_bytes: 9000, ..HooksState::default() },
                    copied_bytes: Some(600),
                }),
                heap: Some(heap),
                sites: vec![("say \"\\\" (a.rb:1)\n".into(), 70.4), ("other".into(), 0.0)],
                ..Sample::default()
            },
            Sample {
                allocator: "glibc".into(),
                rss_bytes: 5000,
                glibc_heap: Some(HeapSize { live_bytes: 3000, held_bytes: 4000 }),
                ..Sample::default()
            },
        ];
        let text = text(&samples, &[], &Own::default()).unwrap();
        let line = r#"snug_heap_live_bytes{allocator="snug",group="canary",app="shop",pod="shop-0",role="puma worker",worker="2"} 1000"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains("\nsnug_process_swap_bytes{") && text.contains("} 77\n"), "{text}");
        assert!(text.contains(&format!("\nsnug_build_info{{version=\"{VERSION}\"}} 1\n")), "{text}");
        assert!(
            text.contains(r#"snug_process_resident_bytes{allocator="glibc",group="baseline"} 5000"#),
            "{text}"
        );
        assert!(text.contains("# TYPE snug_process_cpu_seconds_total counter"), "{text}");
        let site = r#"role="puma worker",worker="2",site="say \"\\\" (a.rb:1)\n"} 70"#;
        assert!(text.contains(site) && text.contains(r#",site="other"} 0"#), "{text}");
        assert!(!text.contains(r#"snug_heap_live_bytes{allocator="glibc""#), "what is not known is left out");
        assert!(text.contains(r#"snug_glibc_live_bytes{allocator="glibc",group="baseline"} 3000"#), "{text}");
        assert!(
            text.contains(r#"snug_hooks_copied_bytes{allocator="snug",group="canary",app="shop""#),
            "{text}"
        );
        assert!(
            !text.contains("snug_hooks_shared_bytes"),
            "that of workers counts once, where it was prepared"
        );
        assert!(!text.contains("snug_cgroup"), "families without values are left out");
    }

    #[test]
    fn what_was_not_counted_is_left_out() {
        let counted = Heap {
            cached_bytes: Some(1),
            dirty_bytes: Some(0),
            metadata_bytes: Some(3),
            counted: true,
            ..Heap::default()
        };
        let exported = |heap: Heap| {
            let sample = Sample { allocator: "snug".into(), heap: Some(heap), ..Sample::default() };
            let text = text(&[sample], &[], &Own::default()).unwrap();
            let names = ["cached", "dirty", "metadata", "live"];
            names.map(|name| text.contains(&format!("\nsnug_heap_{name}_bytes{{")))
        };
        assert_eq!(exported(counted), [true; 4]);
        assert_eq!(exported(Heap::default()), [false, false, false, true]);
    }
}
