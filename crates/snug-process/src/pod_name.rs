//! The owner of a pod, by the pod's name. Pure.

/// The letters that Kubernetes makes names of: no vowels, nothing that looks like another.
const RANDOM_LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
/// How many letters there are behind a pod's name, and at most behind that of a ReplicaSet.
const POD_LETTERS: usize = 5;
const REPLICA_SET_LETTERS: usize = 10;

/// What a pod belongs to, by its name: without what Deployments, StatefulSets, DaemonSets and Jobs put behind it.
pub fn workload(pod: &str) -> &str {
    controller(pod).map_or(pod, |(_, name)| name)
}

/// The kind of that, as kubectl writes it, and its name. A Job's pods are named as those of a DaemonSet.
pub fn controller(pod: &str) -> Option<(&'static str, &str)> {
    let (stem, last) = pod.rsplit_once('-')?;
    if is_number(last) && last.len() < POD_LETTERS {
        return Some(("statefulset", stem));
    }
    if last.len() != POD_LETTERS || !is_random(last) {
        return None;
    }
    Some(match stem.rsplit_once('-') {
        Some((name, hash))
            if (POD_LETTERS + 1..=REPLICA_SET_LETTERS).contains(&hash.len()) && is_random(hash) =>
        {
            ("deployment", name)
        }
        // A CronJob's Jobs are named after minutes since 1970.
        Some((name, minutes)) if minutes.len() >= 8 && is_number(minutes) => ("cronjob", name),
        _ => ("daemonset", stem),
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit())
}

fn is_random(text: &str) -> bool {
    text.chars().all(|letter| RANDOM_LETTERS.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads() {
        assert_eq!(workload("web-canary-6d4cf56db6-x2x4z"), "web-canary", "of a Deployment");
        assert_eq!(workload("postgres-0"), "postgres", "of a StatefulSet");
        assert_eq!(workload("node-exporter-kz9qv"), "node-exporter", "of a DaemonSet or a Job");
        assert_eq!(workload("nightly-29384756-4jx7k"), "nightly", "of a CronJob");
        assert_eq!(workload("kube-apiserver-node1"), "kube-apiserver-node1", "of no controller");
        assert_eq!(workload("my-shell"), "my-shell", "vowels are not random");
        assert_eq!((workload("web"), workload("")), ("web", ""));
    }
}
