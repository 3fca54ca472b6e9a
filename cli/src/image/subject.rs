//! What can be checked without being a process: units and the entry commands of images.

use std::path::Path;

use serde_json::Value;

use crate::allocator::inspect::Inspector;
use crate::allocator::judge;
use crate::allocator::report::ProcessReport;
use crate::base::failure::{Failure, Result, NOT_FOUND};
#[cfg(feature = "images")]
use crate::base::progress;
use crate::base::root::{self, DirectoryRoot, Root};
use crate::image::entry::{self, EntryCommand};
use crate::image::unit;
#[cfg(feature = "images")]
use crate::image::{archive, docker};
use crate::process::place::Place;
use crate::process::proc::Pid;

/// What a unit is: its processes, or what its file would start.
pub(crate) enum UnitSubject {
    Running(Vec<Pid>),
    Stopped(Vec<ProcessReport>),
}

/// Looks at a unit.
pub(crate) fn unit(inspector: &mut Inspector, name: &str, huge_pages: &str) -> Result<UnitSubject> {
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

/// Looks at the entry command of an image: an unpacked root file system, an archive, an OCI layout, or the name of an
/// image that docker has. `command` replaces what the image would start.
pub(crate) fn image(name: &str, command: &[String], huge_pages: &str) -> Result<Vec<ProcessReport>> {
    let path = Path::new(name);
    let is_layout = path.join("index.json").is_file() || path.join("manifest.json").is_file();
    if path.is_dir() && !is_layout {
        if !root::looks_like_root(path) {
            return Err(Failure::new(format!("{name} is neither a root file system nor an OCI layout")));
        }
        if command.is_empty() {
            return Err(Failure::new(format!(
                "what {name} would start is not known: it has no configuration"
            ))
            .advise(format!("name it: snug check --image {name} -- PROGRAM")));
        }
        let entry = entry_of(&Value::Null, command, name);
        return Ok(vec![judge_entry(&DirectoryRoot(path.into()), &entry, huge_pages)?]);
    }
    packed(path, name, command, huge_pages)
}

#[cfg(not(feature = "images"))]
fn packed(_: &Path, name: &str, _: &[String], _: &str) -> Result<Vec<ProcessReport>> {
    Err(Failure::new(format!("cannot look into {name}: this snug was built without archives of images"))
        .advise("give a directory with its root file system, or build snug with --features images"))
}

/// The same of an archive, an OCI layout, or what docker has.
#[cfg(feature = "images")]
fn packed(path: &Path, name: &str, command: &[String], huge_pages: &str) -> Result<Vec<ProcessReport>> {
    let saved = if path.exists() { None } else { Some(docker::save(name)?) };
    let archive = saved.as_ref().map_or_else(|| path.to_path_buf(), docker::archive);
    let (root, config) = progress::during("unpacking the image", None, || archive::open(&archive))?;
    let entry = entry_of(&config["config"], command, name);
    if entry.command.is_empty() {
        return Err(Failure::new(format!("the image {name} has neither Entrypoint nor Cmd"))
            .advise(format!("name what it is to start: snug check --image {name} -- PROGRAM")));
    }
    Ok(vec![judge_entry(&root, &entry, huge_pages)?])
}

/// What the configuration of an image says about its start.
fn entry_of(config: &Value, command: &[String], name: &str) -> EntryCommand {
    let words = |key: &str| -> Vec<String> {
        config[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
    };
    let arguments = if command.is_empty() { words("Cmd") } else { command.to_vec() };
    let variables = words("Env");
    let mut environment: Vec<(String, String)> = variables
        .iter()
        .filter_map(|variable| variable.split_once('='))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    if !environment.iter().any(|(name, _)| name == "PATH") {
        environment.push(("PATH".into(), entry::USUAL_PATH.into()));
    }
    let directory = config["WorkingDir"].as_str().filter(|directory| !directory.is_empty());
    EntryCommand {
        command: words("Entrypoint").into_iter().chain(arguments).collect(),
        environment,
        directory: directory.unwrap_or("/").to_string(),
        place: Place::Image { name: name.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_say_what_is_started() {
        let config = serde_json::json!({
            "Entrypoint": ["/entry"], "Cmd": ["puma", "-C"], "Env": ["A=1=2", "PATH=/x"], "WorkingDir": "/app",
        });
        let entry = entry_of(&config, &[], "shop");
        assert_eq!(entry.command, ["/entry", "puma", "-C"]);
        assert_eq!(entry.environment[0], ("A".to_string(), "1=2".to_string()));
        assert_eq!((entry.directory.as_str(), entry.environment.len()), ("/app", 2));
        let entry = entry_of(&config, &["sidekiq".to_string()], "shop");
        assert_eq!(entry.command, ["/entry", "sidekiq"]);
        assert_eq!(entry_of(&Value::Null, &[], "x").environment[0].1, entry::USUAL_PATH);
    }
}
