//! The choice of processes to watch: by identifier, name, user or control group, or else by size.

use std::collections::HashSet;
use std::path::Path;

use crate::watch::{is_due, Watcher};
use snug_inspect::identity::Allocators;
use snug_process::command_line::name_matches;
use snug_process::proc::{Pid, Processes};
use snug_process::tree;

/// Without a choice, processes from this size on are shown.
const WORTH_SHOWING_BYTES: u64 = 8_000_000;

impl<P: Processes, A: Allocators> Watcher<P, A> {
    /// Decides who is shown, which finds out allocators where that matters. Returns their identifiers.
    pub fn chosen(&mut self) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.processes.iter().map(|(pid, _)| pid).collect();
        let by_choice = !self.choice.pids.is_empty() || !self.choice.names.is_empty();
        let chosen: Vec<Pid> = if let Some(directory) = &self.choice.cgroup {
            let members = cgroup_members(directory);
            pids.retain(|pid| members.contains(pid) && *pid != self.own);
            pids
        } else if by_choice {
            let mut roots = self.choice.pids.clone();
            if !self.choice.names.is_empty() {
                roots.extend(self.named(&pids));
            }
            let parents = self.processes.iter().map(|(pid, process)| (pid, process.stat.parent)).collect();
            let known = tree::descendants(&parents, &roots);
            known.into_iter().filter(|pid| self.processes.get(*pid).is_some() && *pid != self.own).collect()
        } else {
            pids.into_iter().filter(|pid| self.is_worth_showing(*pid)).collect()
        };
        let set: HashSet<Pid> = chosen.iter().copied().collect();
        for (pid, process) in self.processes.iter_mut() {
            process.note.shown = set.contains(&pid);
        }
        chosen
    }

    fn named(&mut self, pids: &[Pid]) -> Vec<Pid> {
        let all: Vec<(Pid, Pid, String)> = self
            .processes
            .iter()
            .map(|(pid, process)| (pid, process.stat.parent, process.stat.name.clone()))
            .collect();
        let above = tree::ancestors(&all, self.own);
        let mut named = Vec::new();
        for pid in pids.iter().copied().filter(|pid| !above.contains(pid)) {
            // Titles change: looked at again now and then.
            let known = self.processes.get(pid).and_then(|process| process.note.named);
            let is_named =
                known.filter(|_| !is_due(self.readings, pid)).unwrap_or_else(|| self.goes_by_name(pid));
            if let Some(process) = self.processes.get_mut(pid) {
                process.note.named = Some(is_named);
            }
            if is_named {
                named.push(pid);
            }
        }
        named
    }

    fn goes_by_name(&mut self, pid: Pid) -> bool {
        let executable = self.processes.source.executable(pid).unwrap_or_default();
        let arguments = self.arguments(pid);
        let Some(process) = self.processes.get(pid) else { return false };
        let name = &process.stat.name;
        self.choice.names.iter().any(|wanted| name_matches(wanted, name, &executable, &arguments))
    }

    fn is_worth_showing(&mut self, pid: Pid) -> bool {
        let Some(process) = self.processes.get(pid) else { return false };
        let rss_bytes = process.stat.rss_pages * self.page_size_bytes;
        if pid == self.own || rss_bytes == 0 {
            return false;
        }
        if process.note.identity.is_none() {
            if self.user.is_some() && self.allocators.owner(pid) != self.user {
                return false;
            }
            self.identify(pid);
        }
        let identity = self.processes.get(pid).and_then(|process| process.note.identity.as_ref());
        rss_bytes >= WORTH_SHOWING_BYTES || identity.is_some_and(|identity| !identity.is_c_library())
    }
}

/// The processes of a control group and those below it.
fn cgroup_members(directory: &Path) -> HashSet<Pid> {
    let text = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut members: HashSet<Pid> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        members.extend(cgroup_members(&entry.path()));
    }
    members
}
