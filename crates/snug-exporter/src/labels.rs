//! Labels of a process: few, and the same ones after a restart. Pure.
//!
//! A label that names a process by its PID makes new time series forever. Here a process is its role and its number
//! among those of that role: as its title says, or else the lowest number that is free.

use std::collections::{BTreeMap, HashMap, HashSet};

use regex_lite::Regex;

use crate::pods::ContainerNames;
use snug_base::terminal::printable;
use snug_process::proc::Pid;

/// Characters of a role at most: the name of a script may be any text.
const ROLE_MAX: usize = 40;

/// A process as far as its labels depend on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelSource<'a> {
    pub pid: Pid,
    pub parent: Pid,
    /// When it started: tells processes apart that had the same identifier.
    pub start_ticks: u64,
    pub role: &'a str,
    /// The application, as its title says; empty if it does not.
    pub app: &'a str,
    pub command: &'a str,
    /// Of the container that it runs in.
    pub names: ContainerNames,
}

/// Role and number of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub role: String,
    /// Of the title, or of the pod's name. Empty if neither says.
    pub app: String,
    pub names: ContainerNames,
    /// Empty if there is one process of that role, and its title has no number.
    pub worker: String,
}

/// Gives labels and remembers them as long as processes live.
#[derive(Default)]
pub(crate) struct Labeller {
    rules: Vec<(Regex, String)>,
    given: HashMap<(Pid, u64), Labels>,
}

impl Labeller {
    /// `rules`: expressions for command lines, and the role of those that match, with `$1` for a group.
    pub(crate) fn new(rules: &[(String, String)]) -> Labeller {
        let compiled = rules.iter().filter_map(|(text, name)| Some((Regex::new(text).ok()?, name.clone())));
        Labeller { rules: compiled.collect(), given: HashMap::new() }
    }

    /// The labels of all processes there are, in their order. No two are the same.
    pub(crate) fn label(&mut self, processes: &[LabelSource]) -> Vec<Labels> {
        let kin = Kin::new(processes);
        let wanted: Vec<Labels> = processes.iter().map(|process| self.wanted(process, &kin)).collect();
        let key = |process: &LabelSource| (process.pid, process.start_ticks);
        let alive: HashSet<(Pid, u64)> = processes.iter().map(key).collect();
        self.given.retain(|known, _| alive.contains(known));
        // A process keeps its labels, unless its role or number changed.
        for (process, wanted) in processes.iter().zip(&wanted) {
            let differs = |known: &Labels| {
                known.group() != wanted.group()
                    || (!wanted.worker.is_empty() && !starts_with_number(known, wanted))
            };
            if self.given.get(&key(process)).is_some_and(differs) {
                self.given.remove(&key(process));
            }
        }
        let mut taken: HashSet<Labels> = self.given.values().cloned().collect();
        let mut count: BTreeMap<LabelGroup, usize> = BTreeMap::new();
        wanted.iter().for_each(|wanted| *count.entry(wanted.group()).or_default() += 1);
        for (process, wanted) in processes.iter().zip(&wanted) {
            if self.given.contains_key(&key(process)) {
                continue;
            }
            let labels = free_labels(wanted, count[&wanted.group()] > 1, &taken);
            taken.insert(labels.clone());
            self.given.insert(key(process), labels);
        }
        processes.iter().map(|process| self.given[&key(process)].clone()).collect()
    }

    /// What its title and its relatives say.
    fn wanted(&self, process: &LabelSource, kin: &Kin) -> Labels {
        let app = cut(if process.app.is_empty() { process.names.app() } else { process.app });
        let names = process.names.clone();
        for (expression, name) in &self.rules {
            if let Some(captures) = expression.captures(process.command) {
                let mut role = String::new();
                captures.expand(name, &mut role);
                return Labels { app, names, ..split_number(&role) };
            }
        }
        let own = split_number(process.role);
        let (has_workers, is_worker) = (kin.has_workers(process), kin.is_worker(process));
        let named = own.role.contains(' ') && own.role != "celery worker";
        let role = match (has_workers, is_worker) {
            (true, false) if !named => format!("{} master", base(&own.role)),
            (_, true) if !named => format!("{} worker", base(&own.role)),
            _ => own.role,
        };
        Labels { role: cut(&role), app, names, worker: own.worker }
    }
}

/// Which processes look like their parents.
struct Kin {
    /// The role of each process, without number and "worker".
    bases: HashMap<Pid, String>,
    /// Processes with a child, and the base of its role.
    parents: HashSet<(Pid, String)>,
}

impl Kin {
    fn new(processes: &[LabelSource]) -> Kin {
        let base_of = |process: &LabelSource| base(&split_number(process.role).role).to_string();
        Kin {
            bases: processes.iter().map(|process| (process.pid, base_of(process))).collect(),
            parents: processes.iter().map(|process| (process.parent, base_of(process))).collect(),
        }
    }

    fn has_workers(&self, process: &LabelSource) -> bool {
        let own = self.bases.get(&process.pid);
        own.is_some_and(|own| self.parents.contains(&(process.pid, own.clone())))
    }

    fn is_worker(&self, process: &LabelSource) -> bool {
        self.bases.get(&process.parent).is_some_and(|parent| Some(parent) == self.bases.get(&process.pid))
    }
}

fn base(role: &str) -> &str {
    role.strip_suffix(" worker").unwrap_or(role)
}

/// Role, application and container: what is numbered together.
type LabelGroup<'a> = (&'a str, &'a str, &'a ContainerNames);

impl Labels {
    /// Those among which it has its number.
    fn group(&self) -> LabelGroup<'_> {
        (&self.role, &self.app, &self.names)
    }
}

/// `puma worker 2` is worker 2 of the role `puma worker`.
fn split_number(role: &str) -> Labels {
    match role.rsplit_once(' ') {
        Some((name, number)) if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) => {
            Labels { role: cut(name), worker: number.chars().take(8).collect(), ..Labels::default() }
        }
        _ => Labels { role: cut(role), ..Labels::default() },
    }
}

fn cut(role: &str) -> String {
    printable(role).chars().take(ROLE_MAX).collect()
}

/// Whether labels were given for this number: as it is, or with a suffix since there were two.
fn starts_with_number(known: &Labels, wanted: &Labels) -> bool {
    known.worker.split('.').next() == Some(wanted.worker.as_str())
}

/// The first labels that nobody has: the number of the title, and after it .2, .3; without one 1, 2, 3 in a group.
fn free_labels(wanted: &Labels, in_group: bool, taken: &HashSet<Labels>) -> Labels {
    let with = |worker: String| Labels { worker, ..wanted.clone() };
    let first = match (wanted.worker.is_empty(), in_group) {
        (false, _) => with(wanted.worker.clone()),
        (true, true) => with("1".into()),
        (true, false) => with(String::new()),
    };
    let others = (if wanted.worker.is_empty() && !in_group { 1 } else { 2 }..).map(|number: u32| {
        with(if wanted.worker.is_empty() {
            number.to_string()
        } else {
            format!("{}.{number}", wanted.worker)
        })
    });
    std::iter::once(first).chain(others).find(|labels| !taken.contains(labels)).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: Pid, parent: Pid, role: &'static str) -> LabelSource<'static> {
        LabelSource {
            pid,
            parent,
            start_ticks: pid as u64 * 10,
            role,
            app: "",
            command: "/srv/bin/jobs mail",
            names: ContainerNames::default(),
        }
    }

    fn texts(labels: &[Labels]) -> Vec<String> {
        labels.iter().map(|labels| format!("{}/{}", labels.role, labels.worker)).collect()
    }

    #[test]
    fn numbers_of_titles_are_kept() {
        let mut labeller = Labeller::default();
        let all = [process(1, 0, "puma"), process(2, 1, "puma worker 0"), process(3, 1, "puma worker 1")];
        assert_eq!(texts(&labeller.label(&all)), ["puma master/", "puma worker/0", "puma worker/1"]);
        // A worker is replaced; and a second cluster runs during a restart.
        let hostile = [process(4, 0, "\u{1b}[2J\u{202e}x\n")];
        assert_eq!(texts(&Labeller::default().label(&hostile)), ["\u{fffd}[2J\u{fffd}x\u{fffd}/"]);
        let all = [process(1, 0, "puma"), process(9, 1, "puma worker 0"), process(8, 7, "puma worker 0")];
        assert_eq!(texts(&labeller.label(&all)), ["puma master/", "puma worker/0", "puma worker/0.2"]);
        assert_eq!(texts(&labeller.label(&all)), ["puma master/", "puma worker/0", "puma worker/0.2"]);
    }

    #[test]
    fn the_lowest_free_number_is_given() {
        let mut labeller = Labeller::default();
        let all = [process(1, 0, "gunicorn"), process(2, 1, "gunicorn"), process(3, 1, "gunicorn")];
        assert_eq!(
            texts(&labeller.label(&all)),
            ["gunicorn master/", "gunicorn worker/1", "gunicorn worker/2"]
        );
        let all = [process(1, 0, "gunicorn"), process(3, 1, "gunicorn"), process(4, 1, "gunicorn")];
        assert_eq!(
            texts(&labeller.label(&all)),
            ["gunicorn master/", "gunicorn worker/2", "gunicorn worker/1"]
        );
        // The same identifier, another process.
        let mut again = process(3, 1, "gunicorn");
        again.start_ticks = 99;
        assert_eq!(texts(&labeller.label(&[process(1, 0, "gunicorn"), again]))[1], "gunicorn worker/");
    }

    #[test]
    fn celery_and_sidekiq() {
        let mut labeller = Labeller::default();
        let all = [
            process(1, 0, "celery worker"),
            process(2, 1, "celery worker"),
            process(3, 0, "celery main"),
            process(4, 3, "celery worker 7"),
            process(5, 0, "sidekiq"),
        ];
        let expected = ["celery master/", "celery worker/1", "celery main/", "celery worker/7", "sidekiq/"];
        assert_eq!(texts(&labeller.label(&all)), expected);
    }

    #[test]
    fn applications_have_workers_of_their_own() {
        let mut labeller = Labeller::default();
        let of = |pid, parent, role, app| LabelSource { app, ..process(pid, parent, role) };
        let all = [
            of(1, 0, "puma", "shop"),
            of(2, 1, "puma worker 0", "shop"),
            of(3, 0, "puma", "blog"),
            of(4, 3, "puma worker 0", "blog"),
        ];
        let labels = labeller.label(&all);
        let shown: Vec<String> =
            labels.iter().map(|one| format!("{}/{}/{}", one.app, one.role, one.worker)).collect();
        assert_eq!(
            shown,
            ["shop/puma master/", "shop/puma worker/0", "blog/puma master/", "blog/puma worker/0"]
        );
    }

    #[test]
    fn pods_have_workers_of_their_own() {
        let mut labeller = Labeller::default();
        let of = |pid, parent, pod: &str| LabelSource {
            names: ContainerNames { pod: pod.into(), ..ContainerNames::default() },
            ..process(pid, parent, "puma worker 0")
        };
        let all = [of(1, 0, "web-6d4cf56db6-x2x4z"), of(2, 0, "web-6d4cf56db6-9lqkz")];
        let labels = labeller.label(&all);
        assert_eq!(texts(&labels), ["puma worker/0", "puma worker/0"]);
        assert_eq!((labels[0].app.as_str(), labels[1].app.as_str()), ("web", "web"));
        let named = LabelSource { app: "shop", ..of(3, 0, "web-6d4cf56db6-9lqkz") };
        assert_eq!(labeller.label(&[named])[0].app, "shop", "the title knows better");
    }

    #[test]
    fn rules_come_first() {
        let mut labeller = Labeller::new(&[(r"bin/jobs (\w+)".into(), "jobs $1".into())]);
        assert_eq!(texts(&labeller.label(&[process(1, 0, "ruby")])), ["jobs mail/"]);
    }

    #[test]
    fn a_role_that_changes_is_followed() {
        let mut labeller = Labeller::default();
        assert_eq!(texts(&labeller.label(&[process(1, 0, "ruby")])), ["ruby/"]);
        assert_eq!(texts(&labeller.label(&[process(1, 0, "puma worker 3")])), ["puma worker/3"]);
        assert_eq!(texts(&labeller.label(&[process(1, 0, "puma worker 4")])), ["puma worker/4"]);
    }

    #[test]
    fn no_two_have_the_same() {
        let mut labeller = Labeller::default();
        let all: Vec<LabelSource> =
            (1..50).map(|pid| process(pid, 0, if pid % 3 == 0 { "x 1" } else { "x" })).collect();
        let labels = labeller.label(&all);
        assert_eq!(labels.iter().collect::<HashSet<_>>().len(), labels.len());
    }
}
