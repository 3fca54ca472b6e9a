//! How pods that run under snug get the sizes that are enough, without being made anew: patches for Kubernetes. Pure.
//!
//! The API server refuses a resize that changes a pod's class of service, or takes a limit or request away; a request
//! that is the limit stays so, and one that is not stays below it.

use serde::Serialize;

use super::{Need, PodMemory, GRAIN_BYTES};

/// Bytes of one container; None: it has none of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sizes {
    pub request_bytes: Option<f64>,
    pub limit_bytes: Option<f64>,
}

/// A change of the pods under snug that run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resize {
    /// Those that do not have these sizes yet.
    pub pods: Vec<String>,
    pub from: Sizes,
    pub to: Sizes,
    /// For the subresource `resize` of each pod, and how it becomes what it was.
    pub patch: String,
    pub patch_back: String,
    /// For the workload, so that new pods follow. It rolls them out.
    pub template_patch: String,
    /// What is in use must be below this before a limit falls.
    pub room_bytes: Option<f64>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoResize {
    /// They are as they should be, or none runs.
    NothingToChange,
    /// Neither is set or known: a first one would change the class of service.
    NoRequest,
    /// Not as Kubernetes has names, so no command may hold them.
    OddName,
}

/// Share of a new limit that may be in use before: what is in use moves until the limit is there.
const ROOM_SHARE: f64 = 0.95;
/// The kernel rounds limits down to a multiple of this; on machines with larger pages, of theirs.
const PAGE_BYTES: f64 = 4096.0;

impl Sizes {
    /// Whether the limit is below that of others.
    pub fn lowers_limit_of(&self, others: &Sizes) -> bool {
        self.limit_bytes.zip(others.limit_bytes).is_some_and(|(to, from)| to < from)
    }

    /// As Kubernetes takes them.
    fn resources(&self) -> String {
        let part = |name: &str, bytes: Option<f64>| {
            bytes.map(|bytes| format!("\"{name}\":{{\"memory\":\"{}\"}}", quantity(bytes)))
        };
        let parts = [part("requests", self.request_bytes), part("limits", self.limit_bytes)];
        format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// The change that gives pods under snug what they need. `pods`: those that run.
pub fn resize(pods: &[&PodMemory], need: &Need) -> Result<Resize, NoResize> {
    let mut names = pods.iter().flat_map(|pod| [&pod.namespace, &pod.pod, &pod.container]);
    if !names.all(|name| is_name(name)) {
        return Err(NoResize::OddName);
    }
    let size = |sizes: &Sizes| sizes.limit_bytes.or(sizes.request_bytes).unwrap_or(0.0);
    let others: Vec<(&str, Sizes)> = pods
        .iter()
        .map(|pod| (pod.pod.as_str(), of(pod)))
        .filter(|(_, from)| *from != enough(need, from))
        .collect();
    let Some((_, from)) = others.iter().max_by(|a, b| size(&a.1).total_cmp(&size(&b.1))) else {
        let none_asks = !pods.is_empty() && pods.iter().all(|pod| of(pod).request_bytes.is_none());
        return Err(if none_asks { NoResize::NoRequest } else { NoResize::NothingToChange });
    };
    let to = enough(need, from);
    let container = &pods[0].container;
    let spec = |sizes: &Sizes| {
        format!(
            "{{\"spec\":{{\"containers\":[{{\"name\":\"{container}\",\"resources\":{}}}]}}}}",
            sizes.resources()
        )
    };
    Ok(Resize {
        pods: others.iter().filter(|(_, sizes)| sizes == from).map(|(pod, _)| (*pod).into()).collect(),
        patch: spec(&to),
        patch_back: spec(from),
        template_patch: format!("{{\"spec\":{{\"template\":{}}}}}", spec(&to)),
        room_bytes: to
            .limit_bytes
            .filter(|_| to.lowers_limit_of(from))
            .map(|limit| (ROOM_SHARE * limit).floor()),
        from: *from,
        to,
    })
}

/// What a pod asks for and may use. A limit that was read from the kernel is in whole pages, and may be below the request
/// that it is meant to equal.
fn of(pod: &PodMemory) -> Sizes {
    let request_bytes = pod.request_bytes.or(pod.limit_bytes);
    let is_request =
        |limit: &f64| request_bytes.is_some_and(|request| (0.0..PAGE_BYTES).contains(&(request - limit)));
    let limit_bytes =
        pod.limit_bytes.map(|limit| request_bytes.filter(|_| is_request(&limit)).unwrap_or(limit));
    Sizes { request_bytes, limit_bytes }
}

/// The sizes that are enough, in the class of service that these have.
fn enough(need: &Need, from: &Sizes) -> Sizes {
    let below = |limit: f64| need.request_bytes.min(limit - GRAIN_BYTES).max(GRAIN_BYTES / 2.0);
    let request_bytes = match (from.request_bytes, from.limit_bytes) {
        (Some(request), Some(limit)) if request == limit => Some(need.limit_bytes),
        (Some(_), Some(_)) => Some(below(need.limit_bytes)),
        (request, _) => request.map(|_| need.request_bytes),
    };
    Sizes { request_bytes, limit_bytes: from.limit_bytes.map(|_| need.limit_bytes) }
}

/// Bytes as Kubernetes writes them back.
pub fn quantity(bytes: f64) -> String {
    let (mut number, mut unit) = (bytes.round() as u64, 0);
    while unit < 4 && number > 0 && number % 1024 == 0 {
        (number, unit) = (number / 1024, unit + 1);
    }
    format!("{number}{}", ["", "Ki", "Mi", "Gi", "Ti"][unit])
}

/// Whether it is a name of Kubernetes', which needs no quotes in a shell or in JSON.
fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    text.starts_with(is_letter)
        && text.chars().all(|letter| is_letter(letter) || letter == '-' || letter == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    fn pod(number: usize, request_mib: Option<f64>, limit_mib: Option<f64>) -> PodMemory {
        let bytes = |mib: Option<f64>| mib.map(|mib| mib * MIB);
        PodMemory {
            namespace: "shop".into(),
            pod: format!("web-{number}"),
            container: "app".into(),
            request_bytes: bytes(request_mib),
            limit_bytes: bytes(limit_mib),
            ..PodMemory::default()
        }
    }

    fn resized(pods: &[PodMemory], request_mib: f64, limit_mib: f64) -> Result<Resize, NoResize> {
        let need =
            Need { pods: 9, peak_bytes: 0.0, request_bytes: request_mib * MIB, limit_bytes: limit_mib * MIB };
        resize(&pods.iter().collect::<Vec<_>>(), &need)
    }

    #[test]
    fn the_class_of_service_stays() {
        let patch = |request, limit, wanted_request, wanted_limit| {
            resized(&[pod(0, request, limit)], wanted_request, wanted_limit).map(|found| {
                let (_, resources) = found.patch.split_once("\"resources\":").unwrap();
                resources.strip_suffix("}]}}").unwrap().to_string()
            })
        };
        let both = |request: &str, limit: &str| {
            Ok(format!("{{\"requests\":{{\"memory\":\"{request}\"}},\"limits\":{{\"memory\":\"{limit}\"}}}}"))
        };
        assert_eq!(patch(Some(768.0), Some(1024.0), 336.0, 384.0), both("336Mi", "384Mi"));
        assert_eq!(patch(Some(768.0), Some(1024.0), 2048.0, 2048.0), both("2032Mi", "2Gi"), "not guaranteed");
        assert_eq!(patch(Some(1024.0), Some(1024.0), 336.0, 384.0), both("384Mi", "384Mi"), "guaranteed");
        assert_eq!(patch(None, Some(1024.0), 336.0, 384.0), both("384Mi", "384Mi"), "as Kubernetes takes it");
        assert_eq!(
            patch(Some(768.0), None, 336.0, 384.0),
            Ok("{\"requests\":{\"memory\":\"336Mi\"}}".into())
        );
        assert_eq!(patch(None, None, 336.0, 384.0), Err(NoResize::NoRequest));
        let rounded = 999_997_440.0 / MIB; /* 1G in whole pages */
        assert_eq!(patch(Some(1e9 / MIB), Some(rounded), 336.0, 384.0), both("384Mi", "384Mi"), "guaranteed");
        assert_eq!(patch(Some(336.0), Some(384.0), 336.0, 384.0), Err(NoResize::NothingToChange));
    }

    #[test]
    fn pods_that_have_their_sizes_are_left_alone() {
        let mut pods = vec![pod(0, Some(336.0), Some(384.0)), pod(1, Some(768.0), Some(1024.0))];
        pods.push(pod(2, Some(768.0), Some(1024.0)));
        let found = resized(&pods, 336.0, 384.0).unwrap();
        assert_eq!(found.pods, ["web-1", "web-2"]);
        assert!(found.patch_back.contains("\"limits\":{\"memory\":\"1Gi\"}"), "{}", found.patch_back);
        assert!(found.template_patch.contains(found.patch.as_str()), "{}", found.template_patch);
        assert_eq!(found.room_bytes, Some((0.95 * 384.0 * MIB).floor()));
        assert_eq!(
            resized(&pods[1..2], 900.0, 2048.0).unwrap().room_bytes,
            None,
            "a limit that rises needs no room"
        );
        assert_eq!(resized(&[], 336.0, 384.0), Err(NoResize::NothingToChange));
    }

    #[test]
    fn what_no_shell_may_see_is_no_name() {
        for odd in ["a b", "$(reboot)", "web;x", "", "-x", "Web", "web\n", "web'", "web\""] {
            let pods = [PodMemory { pod: odd.into(), ..pod(0, Some(768.0), Some(1024.0)) }];
            assert_eq!(resized(&pods, 336.0, 384.0), Err(NoResize::OddName), "{odd}");
        }
    }

    #[test]
    fn quantities_are_as_kubernetes_writes_them_back() {
        let cases =
            [(384.0 * MIB, "384Mi"), (1024.0 * MIB, "1Gi"), (1e9, "1000000000"), (1e9 + 1.0, "1000000001")];
        for (bytes, text) in cases {
            assert_eq!(quantity(bytes), text);
        }
    }
}
