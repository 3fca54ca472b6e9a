//! The commands that resize running pods, for people to read and to run.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::fleet::resize::{quantity, NoResize, Resize, Sizes};
use crate::fleet::{FleetRow, FleetSizes};
use snug_base::terminal::counted;
use snug_process::pod_name;

const HEAD: &str = "\
# Commands that resize running pods in place, for a shell. Nothing has been changed yet: read them, then run step by step.
# Step 5 and the way back are comments, so that nothing runs them by mistake.
# They need kubectl 1.32 or newer and Kubernetes 1.34 or newer, as `kubectl version` shows. 1.33 lowers no memory limit,
# unless resizePolicy says RestartContainer; older servers resize nothing. There, step 5 alone does it, by a roll-out.
# Where resizePolicy says RestartContainer, each resize restarts the container, on every version.
";

/// Writes them for each kind of pods that has an answer, or why there are none.
pub fn write(sizes: &FleetSizes, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{HEAD}")?;
    for row in sizes.containers.iter().filter(|row| row.under_snug.is_some()) {
        writeln!(out)?;
        match (&row.resize, row.resize_unknown) {
            (Some(resize), _) => write_row(row, resize, out)?,
            (None, why) => writeln!(out, "# {}: {}", name(row), reason(why))?,
        }
    }
    if !sizes.containers.iter().any(|row| row.under_snug.is_some()) {
        writeln!(out, "\n# Not enough data: of no container is it known what it needs under snug.")?;
    }
    Ok(())
}

/// Names that Prometheus has may hold anything, and a line that ends would end the comment.
fn name(row: &FleetRow) -> String {
    let name = format!("{}/{}/{}", row.namespace, row.workload, row.container);
    name.replace(|letter: char| letter.is_control(), "?")
}

fn reason(why: Option<NoResize>) -> &'static str {
    match why {
        Some(NoResize::NoRequest) => {
            "it asks for no memory. A first request changes its class of service, which a resize may not: \
             set it in the workload"
        }
        Some(NoResize::OddName) => "a name is not as Kubernetes has names, so no command is printed",
        Some(NoResize::NothingToChange) | None => "no pod under snug runs that does not have its sizes",
    }
}

fn write_row(row: &FleetRow, resize: &Resize, out: &mut dyn Write) -> io::Result<()> {
    let Resize { pods, from, to, patch, patch_back, .. } = resize;
    let (space, container) = (&row.namespace, &row.container);
    writeln!(out, "# {}: {}, in {} under snug", name(row), change(from, to), counted(pods.len(), "pod"))?;
    if from.request_bytes == from.limit_bytes {
        writeln!(
            out,
            "# Their request is their limit, or is taken to be where Prometheus does not have it, and stays so: a \
             resize\n# may not change the class of service."
        )?;
    }
    let (first, others) = (&pods[0], &pods[1..]);
    writeln!(out, "\n# 1. Does the server accept it? Nothing changes.")?;
    writeln!(
        out,
        "kubectl -n {space} patch pod {first} --subresource resize --dry-run=server --patch '{patch}'"
    )?;
    writeln!(out, "\n# 2. How one pod is resized{}. This does nothing yet.", room_text(resize))?;
    writeln!(out, "resize() {{")?;
    if let Some(room) = resize.room_bytes {
        writeln!(out, "  used=$(kubectl -n {space} exec \"$1\" -c {container} -- sh -c \\")?;
        writeln!(
            out,
            "    'for p in /proc/[0-9]*; do {PURGE} ${{p#/proc/}}; done >/dev/null 2>&1; {USED}') || return"
        )?;
        writeln!(out, "  [ \"$used\" -lt {room} ] || {{ echo \"$1: $used bytes are in use: left as it is\"; return 1; }}")?;
    }
    writeln!(out, "  kubectl -n {space} patch pod \"$1\" --subresource resize --patch '{patch}' &&")?;
    writeln!(
        out,
        "    kubectl -n {space} wait pod \"$1\" --timeout=2m \\\n      --for=jsonpath='{}' ||",
        wanted(container, to)
    )?;
    writeln!(out, "    {{ kubectl -n {space} get pod \"$1\" -o jsonpath='{CONDITIONS}'; return 1; }}\n}}")?;
    writeln!(out, "\n# 3. One pod. Watch it for as long as its load takes to come round.\nresize {first}")?;
    if !others.is_empty() {
        writeln!(out, "\n# 4. The others, until one is not.")?;
        writeln!(out, "for pod in {}; do resize \"$pod\" || break; done", others.join(" "))?;
    }
    writeln!(out, "\n# 5. New pods, once all pods use snug. This makes a roll-out; or write it into your manifest, for the next one.")?;
    for (kind, workload) in workloads(pods) {
        let patch = in_workload(kind, &resize.template_patch);
        writeln!(out, "# kubectl -n {space} patch {kind} {workload} --patch '{patch}'")?;
    }
    writeln!(out, "\n# The way back{}; of step 5: kubectl rollout undo.", back_text(resize))?;
    writeln!(out, "# for pod in {}; do", pods.join(" "))?;
    writeln!(out, "#   kubectl -n {space} patch pod $pod --subresource resize --patch '{patch_back}'\n# done")
}

/// Of a workload of this kind, so that new pods follow. A CronJob has its pods' template in that of its Jobs.
fn in_workload(kind: &str, template_patch: &str) -> String {
    match kind {
        "cronjob" => format!("{{\"spec\":{{\"jobTemplate\":{template_patch}}}}}"),
        _ => template_patch.into(),
    }
}

fn back_text(resize: &Resize) -> &'static str {
    if resize.from.lowers_limit_of(&resize.to) {
        ", which lowers the limit: see first that less is in use"
    } else {
        ", at any time"
    }
}

/// In a container: where images of ours have the tool, and how much memory it uses.
const PURGE: &str = "/opt/snug/snug purge";
const USED: &str = "cat /sys/fs/cgroup/memory.current";
/// Why a pod does not have its new sizes.
const CONDITIONS: &str =
    r#"{range .status.conditions[?(@.message)]}{.type}: {.reason}: {.message}{"\n"}{end}"#;

fn room_text(resize: &Resize) -> String {
    resize.room_bytes.map_or_else(String::new, |room| {
        format!(
            ": purge it, and go on if then less than {:.0}Mi is in use, 95 % of the new limit",
            room / 1_048_576.0
        )
    })
}

/// What the kubelet says of a pod that has the sizes.
fn wanted(container: &str, to: &Sizes) -> String {
    let (part, bytes) = match to.limit_bytes {
        Some(limit) => ("limits", limit),
        None => ("requests", to.request_bytes.unwrap_or_default()),
    };
    let quantity = quantity(bytes);
    format!("{{.status.containerStatuses[?(@.name==\"{container}\")].resources.{part}.memory}}={quantity}")
}

fn change(from: &Sizes, to: &Sizes) -> String {
    let part = |name: &str, from: Option<f64>, to: Option<f64>| {
        from.zip(to).map(|(from, to)| format!("{name} {} -> {}", quantity(from), quantity(to)))
    };
    let parts = [
        part("limit", from.limit_bytes, to.limit_bytes),
        part("request", from.request_bytes, to.request_bytes),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What makes these pods, by their names.
fn workloads(pods: &[String]) -> BTreeSet<(&'static str, &str)> {
    let of = |pod| pod_name::controller(pod).unwrap_or(("KIND", "NAME"));
    pods.iter().map(|pod| of(pod.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{size, PodMemory};
    use snug_base::testing::written;

    const MIB: f64 = (1 << 20) as f64;
    const DAY_S: f64 = 86400.0;

    fn pods(namespace: &str, request_mib: f64, limit_mib: f64, spread_mib: usize) -> Vec<PodMemory> {
        let pod = |number: usize| PodMemory {
            namespace: namespace.into(),
            pod: format!("web-6d4cf56db6-x2x4{}", ["b", "c", "d", "f", "g"][number]),
            workload: "web".into(),
            container: "app".into(),
            is_canary: true,
            readings: (0..=96)
                .map(|step| (f64::from(step) * 900.0, (300 + spread_mib * number) as f64 * MIB))
                .collect(),
            limit_bytes: Some(limit_mib * MIB),
            request_bytes: Some(request_mib * MIB),
        };
        (0..5).map(pod).collect()
    }

    fn commands(pods: &[PodMemory]) -> String {
        let sizes = size(pods, DAY_S, DAY_S, 900.0, None);
        written(|out| write(&sizes, out))
    }

    #[test]
    fn one_pod_first_then_the_others_and_a_way_back() {
        let text = commands(&pods("shop", 768.0, 1024.0, 1));
        let places: Vec<usize> = [
            "# shop/web/app: limit 1Gi -> 320Mi, request 768Mi -> 304Mi, in 5 pods under snug",
            "kubectl -n shop patch pod web-6d4cf56db6-x2x4b --subresource resize --dry-run=server --patch '{\"spec\"",
            "snug purge",
            "-lt 318767104 ]",
            "patch pod \"$1\" --subresource resize --patch '{\"spec\":{\"containers\":[{\"name\":\"app\",\"resources\":{\"requests\"\
             :{\"memory\":\"304Mi\"},\"limits\":{\"memory\":\"320Mi\"}}}]}}'",
            "resources.limits.memory}=320Mi'",
            "\nresize web-6d4cf56db6-x2x4b\n",
            "for pod in web-6d4cf56db6-x2x4c web-6d4cf56db6-x2x4d",
            "\n# kubectl -n shop patch deployment web --patch '{\"spec\":{\"template\":{\"spec\":{\"containers\"",
            "\"limits\":{\"memory\":\"1Gi\"}",
        ]
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
        .into();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}: {text}");
        assert!(!text.contains("class of service"), "{text}");
    }

    #[test]
    fn a_limit_that_rises_needs_neither_purge_nor_room() {
        let text = commands(&pods("shop", 128.0, 384.0, 10));
        assert!(text.contains("limit 384Mi -> 4") && !text.contains("purge"), "{text}");
    }

    #[test]
    fn a_cronjob_has_its_template_in_that_of_its_jobs() {
        let patch = "{\"spec\":{\"template\":{}}}";
        assert_eq!(
            in_workload("cronjob", patch),
            "{\"spec\":{\"jobTemplate\":{\"spec\":{\"template\":{}}}}}"
        );
        assert_eq!(in_workload("deployment", patch), patch);
    }

    #[test]
    fn a_request_that_is_the_limit_stays_the_limit() {
        let text = commands(&pods("shop", 1024.0, 1024.0, 1));
        assert!(text.contains("request 1Gi -> 320Mi") && text.contains("class of service"), "{text}");
    }

    /// Labels come from whatever writes to Prometheus.
    #[test]
    fn no_name_gets_into_a_shell() {
        for odd in ["shop\nreboot", "shop;reboot", "$(reboot)"] {
            let text = commands(&pods(odd, 768.0, 1024.0, 1));
            assert!(text.contains("so no command is printed") && !text.contains("kubectl -n"), "{text}");
            assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        }
    }
}
