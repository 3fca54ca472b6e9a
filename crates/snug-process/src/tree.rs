//! Processes that belong together: by PID, by name, and everything below them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use crate::command_line::name_matches;
use crate::proc::{hiding_text, missing, need_processes, parse_stat, Pid, ProcFilesystem, Processes, Stat};
use crate::role::role;
use snug_base::failure::{Failure, Result, UNKNOWN};

/// This user; None for root, who looks at everybody's.
pub fn own_user() -> Option<u32> {
    Some(nix::unistd::geteuid().as_raw()).filter(|user| *user != 0)
}

/// The user whose process it is; None: it has ended.
pub fn owner(pid: Pid) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid())
}

/// The processes that a PID or a name stands for: by name those of this user alone, where one is given.
pub fn find_roots(
    source: &mut impl Processes,
    all: &[(Pid, Pid, String)],
    wanted: &str,
    user: Option<u32>,
) -> Result<Vec<Pid>> {
    if let Ok(pid) = wanted.parse::<Pid>() {
        if all.iter().any(|(other, _, _)| *other == pid) {
            return Ok(vec![pid]);
        }
        return Err(missing(pid));
    }
    let own = ancestors(all, std::process::id() as Pid);
    let mut found = Vec::new();
    for (pid, _, name) in all {
        if own.contains(pid) {
            continue;
        }
        let executable = source.executable(*pid).unwrap_or_default();
        if name_matches(wanted, name, &executable, &source.arguments(*pid)) {
            found.push(*pid);
        }
    }
    let of_all = found.len();
    found.retain(|pid| user.is_none() || owner(*pid) == user);
    if found.is_empty() && of_all > 0 {
        return Err(Failure::new(format!(
            "none of your processes is called '{wanted}', but {of_all} of other users"
        ))
        .advise("give a PID, or --all-users if the command has it")
        .exit_code(UNKNOWN));
    }
    if found.is_empty() {
        return Err(Failure::new(format!("no process is called '{wanted}'{}", hiding_text()))
            .advise("give its PID, the name of its program, or `-- PROGRAM` to start it")
            .exit_code(UNKNOWN));
    }
    Ok(found)
}

/// All processes that PIDs and names stand for, each once.
pub fn find_all(wanted: &[String]) -> Result<Vec<Pid>> {
    need_processes()?;
    let mut source = ProcFilesystem::new();
    let all = source.all();
    let mut found: Vec<Pid> = Vec::new();
    for wanted in wanted {
        let more = find_roots(&mut source, &all, wanted, own_user())?;
        more.into_iter().for_each(|pid| {
            if !found.contains(&pid) {
                found.push(pid);
            }
        });
    }
    Ok(found)
}

/// The one process that a PID or a name stands for: of a name, that above all others of it.
pub fn find_one(wanted: &str) -> Result<Pid> {
    need_processes()?;
    let mut source = ProcFilesystem::new();
    let all = source.all();
    let found = find_roots(&mut source, &all, wanted, own_user())?;
    let is_top =
        |pid: &&Pid| !ancestors(&all, **pid).iter().any(|above| above != *pid && found.contains(above));
    let tops: Vec<Pid> = found.iter().filter(is_top).copied().collect();
    match tops.as_slice() {
        [one] => Ok(*one),
        several => {
            let list: Vec<String> = several.iter().map(Pid::to_string).collect();
            Err(Failure::usage(
                format!("{} processes are called '{wanted}': {}", several.len(), list.join(", ")),
                "name one of them by its PID",
            ))
        }
    }
}

/// This process and all above it: `snug check puma` is not itself a puma, nor is the shell that runs it.
pub fn ancestors(all: &[(Pid, Pid, String)], own: Pid) -> HashSet<Pid> {
    let mut ancestors = HashSet::new();
    let mut at = own;
    while ancestors.insert(at) {
        match all.iter().find(|(pid, _, _)| *pid == at) {
            Some((_, parent, _)) => at = *parent,
            None => break,
        }
    }
    ancestors
}

/// Everything below this process, parents before children.
pub fn below_own(source: &mut impl Processes) -> Vec<Pid> {
    let own = std::process::id() as Pid;
    let parents = source.all().into_iter().map(|(pid, parent, _)| (pid, parent)).collect();
    descendants(&parents, &[own]).into_iter().filter(|pid| *pid != own).collect()
}

/// Those below a process, with what each is for.
pub fn below(pid: Pid) -> Vec<(Pid, String)> {
    let mut source = ProcFilesystem::new();
    let all = source.all();
    let parents = all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
    let below = descendants(&parents, &[pid]).into_iter().filter(|other| *other != pid);
    let names: HashMap<Pid, &String> = all.iter().map(|(pid, _, name)| (*pid, name)).collect();
    below
        .map(|other| (other, role(&source.arguments(other), names.get(&other).map_or("", |name| name))))
        .collect()
}

/// Whether a process has threads that are not about to end.
pub fn has_threads(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| parse_stat(&std::fs::read(thread.path().join("stat")).ok()?));
    stats.into_iter().any(|stat| !stat.is_ending())
}

/// The roots and everything below them, parents before children.
pub fn descendants(parents: &BTreeMap<Pid, Pid>, roots: &[Pid]) -> Vec<Pid> {
    let wanted: HashSet<Pid> = roots.iter().copied().collect();
    let is_below_another = |pid: Pid| {
        let mut at = pid;
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if wanted.contains(parent) => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    let mut order = Vec::new();
    let mut stack: Vec<Pid> = roots.iter().copied().filter(|root| !is_below_another(*root)).rev().collect();
    stack.dedup();
    while let Some(pid) = stack.pop() {
        if order.contains(&pid) {
            continue;
        }
        order.push(pid);
        let children = parents.iter().filter(|(_, parent)| **parent == pid).map(|(child, _)| *child);
        let mut children: Vec<Pid> = children.collect();
        children.sort_unstable_by(|left, right| right.cmp(left));
        stack.extend(children);
    }
    order
}

/// Puts processes that were just found into an order in which each comes after its parent, if that is among them:
/// numbers come again, so a parent's may be higher than its child's.
pub fn parents_first(found: &mut [(Pid, Stat)]) {
    let parents: HashMap<Pid, Pid> = found.iter().map(|(pid, stat)| (*pid, stat.parent)).collect();
    found.sort_by_cached_key(|(pid, _)| {
        let chain = std::iter::successors(Some(*pid), |at| parents.get(at).copied());
        chain.take(parents.len() + 1).count() // no chain is longer, unless /proc changed while it was read
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_come_parents_first_and_once() {
        let parents = BTreeMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(descendants(&parents, &[11, 10, 20]), [10, 11, 12, 20]);
        assert_eq!(descendants(&parents, &[12]), [12]);
    }

    #[test]
    fn parents_come_first_whatever_their_numbers() {
        let stat = |parent| Stat { parent, ..Stat::default() };
        let mut found = [(2, stat(40)), (9, stat(2)), (40, stat(7)), (7, stat(1)), (1, stat(0))];
        parents_first(&mut found);
        assert_eq!(found.map(|(pid, _)| pid), [1, 7, 40, 2, 9]);
        // What /proc can't say, were it read at one moment: it must end all the same.
        let mut circle = [(2, stat(3)), (3, stat(2))];
        parents_first(&mut circle);
        assert_eq!(circle.len(), 2);
    }
}
