//! Places of processes: their control group, their container, and whether that is of the canary. Remembered while they
//! live: a process that moves to another control group is rare.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::metrics::FleetGroup;
use crate::pods::{ContainerNames, Pods};
use snug_inspect::kinds::Kind;
use snug_live::watch::Reading;
use snug_process::memory_group::{self, MemoryGroup};
use snug_process::place;
use snug_process::proc::{self, Pid, ProcFilesystem, Processes};

/// What the library is called, whatever is around it.
const LIBRARY: &str = "libsnug";

/// Where a process runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessPlace {
    pub memory: Option<MemoryGroup>,
    pub names: ContainerNames,
    pub group: FleetGroup,
}

/// What is remembered of a process.
#[derive(Clone, Default)]
struct KnownPlace {
    memory: Option<MemoryGroup>,
    container: Option<String>,
    /// It was started with a preload of snug, whether that took effect or not.
    asks_for_snug: bool,
}

/// Looks places up.
pub(crate) struct Places {
    cgroup_root: PathBuf,
    pods: Pods,
    /// By PID and start.
    known: HashMap<(Pid, u64), KnownPlace>,
    /// By /proc/PID/cgroup, which all processes of a container share.
    memory: HashMap<String, Option<MemoryGroup>>,
}

impl Places {
    /// `host`: where the root of the host's file system is.
    pub(crate) fn new(host: &Path) -> Places {
        Places {
            cgroup_root: host.join("sys/fs/cgroup"),
            pods: Pods::new(&host.join("var/log/containers")),
            known: HashMap::new(),
            memory: HashMap::new(),
        }
    }

    /// The place of each process. A container is of the canary if any of its processes uses snug, or was to: so what is not
    /// active where it should be is in the canary, with another allocator. Without containers it is each for itself.
    pub(crate) fn look(&mut self, readings: &[Reading]) -> Vec<ProcessPlace> {
        let key = |reading: &Reading| (reading.pid, reading.stat.start_ticks);
        let alive: HashSet<(Pid, u64)> = readings.iter().map(key).collect();
        self.known.retain(|known, _| alive.contains(known));
        let used: HashSet<MemoryGroup> =
            self.known.values().filter_map(|known| known.memory.clone()).collect();
        self.memory.retain(|_, memory| memory.as_ref().is_some_and(|memory| used.contains(memory)));
        let mut source = ProcFilesystem::new();
        let all: Vec<KnownPlace> = readings
            .iter()
            .map(|reading| match self.known.get(&key(reading)) {
                Some(known) => known.clone(),
                None => {
                    let known = self.find(reading.pid, &mut source);
                    self.known.insert(key(reading), known.clone());
                    known
                }
            })
            .collect();
        let is_canary =
            |reading: &Reading, known: &KnownPlace| known.asks_for_snug || reading.kind() == Some(Kind::Snug);
        let canaries: HashSet<String> = readings
            .iter()
            .zip(&all)
            .filter(|(reading, known)| is_canary(reading, known))
            .filter_map(|(_, known)| known.container.clone())
            .collect();
        let of_canary = |reading: &Reading, known: &KnownPlace| match &known.container {
            Some(container) => canaries.contains(container),
            None => is_canary(reading, known),
        };
        readings
            .iter()
            .zip(all)
            .map(|(reading, known)| ProcessPlace {
                group: if of_canary(reading, &known) { FleetGroup::Canary } else { FleetGroup::Baseline },
                names: known.container.map(|id| self.pods.names(&id)).unwrap_or_default(),
                memory: known.memory,
            })
            .collect()
    }

    fn find(&mut self, pid: Pid, source: &mut ProcFilesystem) -> KnownPlace {
        let mut buffer = Vec::new();
        let environment = source.read(pid, "environ", &mut buffer);
        let asks_for_snug = environment.is_ok()
            && proc::parse_environment(&buffer)
                .unwrap_or_default()
                .iter()
                .any(|(name, value)| name == "LD_PRELOAD" && value.contains(LIBRARY));
        if source.read(pid, "cgroup", &mut buffer).is_err() {
            return KnownPlace { asks_for_snug, ..KnownPlace::default() };
        }
        let text = String::from_utf8_lossy(&buffer).into_owned();
        let container = place::container_id(&text);
        let root = &self.cgroup_root;
        let memory =
            self.memory.entry(text).or_insert_with_key(|text| memory_group::place(text, root)).clone();
        KnownPlace { memory, container, asks_for_snug }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_of_the_canary_as_a_whole() {
        let reading = |pid| Reading { pid, ..Reading::default() };
        let mut places = Places::new(Path::new("/nowhere"));
        let known = |container: Option<&str>, asks_for_snug| KnownPlace {
            container: container.map(String::from),
            asks_for_snug,
            ..KnownPlace::default()
        };
        let all = [
            known(Some("a"), true),
            known(Some("a"), false),
            known(Some("b"), false),
            known(None, true),
            known(None, false),
        ];
        let readings: Vec<Reading> = (1..=all.len() as Pid).map(reading).collect();
        places.known = readings.iter().map(|one| (one.pid, one.stat.start_ticks)).zip(all).collect();
        let groups: Vec<FleetGroup> = places.look(&readings).into_iter().map(|place| place.group).collect();
        assert_eq!(
            groups,
            [
                FleetGroup::Canary,
                FleetGroup::Canary,
                FleetGroup::Baseline,
                FleetGroup::Canary,
                FleetGroup::Baseline
            ]
        );
    }
}
