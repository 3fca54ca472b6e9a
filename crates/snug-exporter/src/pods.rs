//! The container of a process, and its names in Kubernetes.
//!
//! The container's identifier is in the path of the control group, which everybody may read. Its names are those of the
//! files that a kubelet keeps in /var/log/containers for collectors of logs: POD_NAMESPACE_CONTAINER-ID.log, links of
//! which only the names are read. So neither the API server nor the kubelet has to be asked, and no token is needed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snug_process::pod_name;

/// So much of an identifier stands for a container without a name.
const ID_SHOWN: usize = 12;
/// How long containers that have no file are not looked for again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What a container is called. Empty where that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ContainerNames {
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

impl ContainerNames {
    /// The application, by the pod's name.
    pub(crate) fn app(&self) -> &str {
        pod_name::workload(&self.pod)
    }
}

/// Names of containers by their identifiers.
pub(crate) struct Pods {
    folder: PathBuf,
    names: HashMap<String, ContainerNames>,
    /// Looked for and not there.
    nameless: HashSet<String>,
    read_at: Option<Instant>,
}

impl Pods {
    /// `folder`: the node's /var/log/containers. It need not exist.
    pub(crate) fn new(folder: &Path) -> Pods {
        Pods { folder: folder.into(), names: HashMap::new(), nameless: HashSet::new(), read_at: None }
    }

    /// What a container is called; by the begin of its identifier, if nobody says.
    pub(crate) fn names(&mut self, id: &str) -> ContainerNames {
        let is_due = self.read_at.is_none_or(|read_at| read_at.elapsed() >= LOOK_AGAIN_AFTER);
        if !self.names.contains_key(id) && (is_due || !self.nameless.contains(id)) {
            self.read();
            if !self.names.contains_key(id) {
                self.nameless.insert(id.into());
            }
        }
        self.names.get(id).cloned().unwrap_or_else(|| ContainerNames {
            container: id.chars().take(ID_SHOWN).collect(),
            ..ContainerNames::default()
        })
    }

    fn read(&mut self) {
        self.read_at = Some(Instant::now());
        self.nameless.clear();
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        self.names = entries.filter_map(|entry| parse(entry.file_name().to_str()?)).collect();
    }
}

/// The identifier and the names in POD_NAMESPACE_CONTAINER-ID.log.
fn parse(file: &str) -> Option<(String, ContainerNames)> {
    let (names, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = names.splitn(3, '_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    Some((
        id.into(),
        ContainerNames { namespace: namespace.into(), pod: pod.into(), container: container.into() },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let id = "0123456789abcdef".repeat(4);
        let folder = std::env::temp_dir().join(format!("snug-pods-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut pods = Pods::new(&folder);
        let nameless = ContainerNames { container: "0123456789ab".into(), ..ContainerNames::default() };
        assert_eq!(pods.names(&id), nameless);
        std::fs::write(folder.join(format!("web-6d4cf56db6-x2x4z_shop_side-car-{id}.log")), "").unwrap();
        std::fs::write(folder.join("notes.txt"), "").unwrap();
        assert_eq!(pods.names(&id), nameless, "not looked for at every scrape");
        // Another container, which is new: all are read again.
        pods.names("another");
        let names = pods.names(&id);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((names.namespace.as_str(), names.pod.as_str()), ("shop", "web-6d4cf56db6-x2x4z"));
        assert_eq!((names.container.as_str(), names.app()), ("side-car", "web"));
    }

    #[test]
    fn other_files_are_none() {
        for file in ["a_b-12.log", "a.log", "a_b_c.log", "", "a_b_c-12"] {
            assert_eq!(parse(file), None, "{file}");
        }
    }
}
