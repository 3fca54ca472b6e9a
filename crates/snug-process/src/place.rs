//! The place of a process: its container or its systemd unit, from its namespaces and control group. Pure.

use serde::Serialize;

use crate::proc::Pid;

/// Where a process runs, as far as it matters to paths and to how it is deployed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Place {
    #[default]
    Host,
    /// In namespaces of its own. Paths of its report are those inside.
    Container {
        /// As the control group names it.
        id: Option<String>,
        /// Its identifier inside.
        pid_inside: Option<Pid>,
    },
    /// In a systemd unit, running or not.
    Unit { name: String },
    /// The entry command of an image, not running.
    Image { name: String },
}

impl Place {
    /// One line for people; None where there is nothing to say.
    pub fn text(&self) -> Option<String> {
        match self {
            Place::Host => None,
            Place::Container { id, pid_inside } => {
                let id = id.as_deref().map_or(String::new(), |id| format!(" {}", &id[..id.len().min(12)]));
                let inside = pid_inside.map_or(String::new(), |pid| format!(", where it is PID {pid}"));
                Some(format!("in the container{id}{inside}; paths are those inside"))
            }
            Place::Unit { name } => Some(format!("of the unit {name}")),
            Place::Image { name } => {
                Some(format!("entry command of the image {name}; paths are those inside"))
            }
        }
    }
}

/// What tells the place of a process.
pub struct Signs<'a> {
    /// `/proc/PID/cgroup`.
    pub cgroup: &'a str,
    /// `/proc/PID/status`.
    pub status: &'a str,
    /// It has another PID namespace than this program.
    pub other_pid_namespace: bool,
}

/// The place of a process.
pub fn place(signs: &Signs) -> Place {
    let id = container_id(signs.cgroup);
    if id.is_some() || signs.other_pid_namespace {
        let pid_inside = pid_inside(signs.status).filter(|_| signs.other_pid_namespace);
        return Place::Container { id, pid_inside };
    }
    match unit(signs.cgroup) {
        Some(name) => Place::Unit { name },
        None => Place::Host,
    }
}

/// Components of the paths of all control groups of a process.
pub fn components(cgroup: &str) -> impl Iterator<Item = &str> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).flat_map(|path| path.split('/'))
}

/// Docker, containerd, CRI-O and Podman name groups after containers: 64 hexadecimal digits, with or without more
/// around them.
pub fn container_id(cgroup: &str) -> Option<String> {
    let words = components(cgroup).flat_map(|component| component.split(['-', '.', ':']));
    let is_id = |word: &&str| word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
    words.into_iter().find(is_id).map(String::from)
}

/// The innermost service, but for the manager of a user's session itself.
fn unit(cgroup: &str) -> Option<String> {
    let services: Vec<&str> =
        components(cgroup).filter(|component| component.ends_with(".service")).collect();
    services.last().filter(|name| !name.starts_with("user@")).map(|name| name.to_string())
}

/// The identifier in the innermost namespace.
fn pid_inside(status: &str) -> Option<Pid> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cgroup: &str, other_pid_namespace: bool) -> Place {
        place(&Signs { cgroup, status: "Name:\tx\nNSpid:\t4711\t7\n", other_pid_namespace })
    }

    #[test]
    fn containers_and_units() {
        let id = "0123456789abcdef".repeat(4);
        let container = |pid_inside| Place::Container { id: Some(id.clone()), pid_inside };
        assert_eq!(of(&format!("0::/system.slice/docker-{id}.scope\n"), true), container(Some(7)));
        assert_eq!(of(&format!("3:cpu:/kubepods/burstable/pod1/{id}\n"), true), container(Some(7)));
        assert_eq!(of(&format!("0::/docker/{id}"), false), container(None), "with the host's PIDs");
        assert_eq!(of("0::/\n", true), Place::Container { id: None, pid_inside: Some(7) });
        assert_eq!(of("0::/system.slice/puma.service\n", false), Place::Unit { name: "puma.service".into() });
        assert_eq!(of("0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope", false), Place::Host);
        assert_eq!(of("0::/\n", false), Place::Host);
    }
}
