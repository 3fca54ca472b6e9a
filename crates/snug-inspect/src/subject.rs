//! Subjects that can be checked without being a process: units and programs in root file systems.

use std::path::Path;

use crate::entry::{self, EntryCommand};
use crate::inspector::Inspector;
use crate::report::ProcessReport;
use crate::{judge, unit};
use snug_base::failure::{Failure, Result, NOT_FOUND};
use snug_base::root::{self, DirectoryRoot, Root};
use snug_process::place::Place;
use snug_process::proc::Pid;

/// What a unit is: its processes, or what its file would start.
pub enum UnitSubject {
    Running(Vec<Pid>),
    Stopped(Vec<ProcessReport>),
}

/// Looks at a unit.
pub fn unit(inspector: &mut Inspector, name: &str, huge_pages: &str) -> Result<UnitSubject> {
    let is_file = name.contains('/');
    let running = if is_file { Vec::new() } else { inspector.in_group(&unit::full_name(name)) };
    if !running.is_empty() {
        return Ok(UnitSubject::Running(running));
    }
    let (entries, root) = unit::entries(name)?;
    let root = DirectoryRoot(root);
    let judged =
        entries.into_iter().map(|entry| judge_entry(&root, &unit::with_usual_path(entry), huge_pages));
    Ok(UnitSubject::Stopped(judged.collect::<Result<Vec<ProcessReport>>>()?))
}

fn judge_entry(root: &dyn Root, entry: &EntryCommand, huge_pages: &str) -> Result<ProcessReport> {
    let facts = entry::facts(root, entry, huge_pages).map_err(|why| {
        let place = entry.place.text().unwrap_or_default();
        Failure::new(format!("`{}`, {place}: {why}", entry.command.join(" "))).exit_code(NOT_FOUND)
    })?;
    Ok(judge::judge(&facts))
}

/// Looks at what a command would start in the root file system of an image, which a directory holds.
pub fn image(name: &str, command: &[String], huge_pages: &str) -> Result<Vec<ProcessReport>> {
    let path = Path::new(name);
    if !path.is_dir() || !root::looks_like_root(path) {
        return Err(Failure::new(format!("{name} is not a directory with a root file system")).advise(
            "unpack the image first: docker export \"$(docker create IMAGE)\" | tar -x -C DIR, or \
             podman image mount IMAGE",
        ));
    }
    if command.is_empty() {
        let failure = Failure::new(format!(
            "{name} has no configuration, so the command that it would start is not known"
        ));
        return Err(failure.advise(format!("name it: snug check --image {name} -- PROGRAM")));
    }
    let entry = EntryCommand {
        command: command.to_vec(),
        environment: vec![("PATH".into(), entry::USUAL_PATH.into())],
        directory: "/".into(),
        place: Place::Image { name: name.to_string() },
    };
    Ok(vec![judge_entry(&DirectoryRoot(path.into()), &entry, huge_pages)?])
}
