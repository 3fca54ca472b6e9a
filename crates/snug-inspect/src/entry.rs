//! The program that a command of an image or of a unit would really start, and its allocator: shells, scripts and small
//! launchers are followed to the program that stays. Nothing is run.

use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use crate::facts::Facts;
use crate::kinds::Kind;
use crate::report::{Problem, Severity, SHELL};
use crate::{loading, packages};
use snug_base::file::{self, file_name};
use snug_base::root::{self, Node, Root};
use snug_process::place::Place;

/// Launchers that become, or start and wait for, the command that follows their options.
const LAUNCHERS: &[&str] = &[
    "tini",
    "dumb-init",
    "catatonit",
    "docker-init",
    "env",
    "exec",
    "gosu",
    "su-exec",
    "nice",
    "ionice",
    "setpriv",
];
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "busybox"];
/// Where a program is looked for when nothing says so.
pub const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command and where it would run.
#[derive(Debug, Clone, Default)]
pub struct EntryCommand {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub directory: String,
    pub place: Place,
}

/// What became of following a command.
struct Followed {
    /// The arguments of the program that stays.
    command: Vec<String>,
    environment: Vec<(String, String)>,
    /// The file that the kernel executes for it.
    image: String,
    notes: Vec<Problem>,
}

/// The facts about the program that stays. An error says why there is none.
pub fn facts(root: &dyn Root, entry: &EntryCommand, transparent_huge_pages: &str) -> Result<Facts, String> {
    let followed = follow(root, entry)?;
    let elf = loading::read_elf(root, &followed.image)
        .ok_or_else(|| format!("{} is neither a program nor a script that starts with #!", followed.image))?;
    let loading = loading::simulate(root, &followed.image, &elf, &followed.environment);
    let mut notes = followed.notes;
    notes.extend(glibc_too_old(root, &followed.image, &loading));
    let mode = root::file(root, &followed.image)
        .and_then(|path| root.file(&path).ok())
        .and_then(|path| std::fs::metadata(path).ok())
        .map_or(0, |metadata| metadata.mode());
    let system_preload = file::read_text_below(root, "/etc/ld.so.preload").unwrap_or_default();
    Ok(Facts {
        command: followed.command.join(" "),
        arguments: followed.command,
        executable: loading::image(root, &followed.image, Rc::clone(&elf)),
        setuid: mode & 0o6000 != 0,
        objects: loading.objects,
        environment: Some(followed.environment),
        system_preload: system_preload.split_whitespace().map(String::from).collect(),
        malloc_conf_link: malloc_conf_link(root),
        preload_files: loading.preload_files,
        missing: loading.missing,
        notes,
        place: entry.place.clone(),
        transparent_huge_pages: transparent_huge_pages.to_string(),
        ..Facts::default()
    })
}

/// The text of /etc/malloc.conf, if it is the link that jemalloc reads.
fn malloc_conf_link(root: &dyn Root) -> Option<String> {
    match root.node("/etc/malloc.conf")? {
        Node::Link(text) => Some(text),
        _ => None,
    }
}

/// A library that wants a newer glibc than there is ends the program before it starts, or is left out.
fn glibc_too_old(root: &dyn Root, program: &str, loading: &loading::Loading) -> Option<Problem> {
    let libc = loading.objects.iter().find(|object| object.path.ends_with("/libc.so.6"))?;
    let has = loading::glibc_version(root, &libc.path)?;
    let preloads = loading.preload_files.iter().map(|(path, _)| path.as_str());
    let wants =
        preloads.chain([program]).filter_map(|path| Some((path, loading::glibc_version(root, path)?)));
    let (path, wanted) = wants.max_by_key(|(_, version)| *version)?;
    (wanted > has).then(|| Problem {
        id: "glibc-too-old",
        severity: Severity::Error,
        message: format!(
            "{path} was built for glibc {}.{} or newer, and there is {}.{}: it is not loaded",
            wanted.0, wanted.1, has.0, has.1
        ),
        fix: "build it on the system that it runs on, or on an older one".into(),
    })
}

/// Follows a command to the program that stays.
fn follow(root: &dyn Root, entry: &EntryCommand) -> Result<Followed, String> {
    let mut command = entry.command.clone();
    let mut environment = entry.environment.clone();
    let mut notes = Vec::new();
    for _ in 0..8 {
        let name = command.first().ok_or("the command is empty")?.clone();
        let path = variable(&environment, "PATH").unwrap_or(USUAL_PATH).to_string();
        let program = root::find_program(root, &name, &path, &entry.directory)
            .ok_or_else(|| format!("there is no program {name} in it (PATH={path})"))?;
        let start = file::read_below(root, &program, 256).unwrap_or_default();
        let script = crate::program::parse_script_start(&start);
        let image = match &script {
            None => program.clone(),
            Some(interpreter) => root::find_program(root, &interpreter.to_string_lossy(), &path, "/")
                .ok_or_else(|| {
                    format!("{program} is a script for {}, which is not in it", interpreter.to_string_lossy())
                })?,
        };
        let next = if script.is_some() && is_shell(&image) {
            let text = file::read_text_below(root, &program).unwrap_or_default();
            notes.extend(preload_in_script(root, &program, &text, &mut environment));
            after_script(&text, &command)
        } else if script.is_none() {
            after_launcher(&program, &command, &mut environment)
        } else {
            None
        };
        let is_there = |words: &Vec<String>| {
            let path = variable(&environment, "PATH").unwrap_or(USUAL_PATH);
            words.first().is_some_and(|name| root::find_program(root, name, path, &entry.directory).is_some())
        };
        match next.filter(|words| is_there(words)) {
            Some(words) => command = words,
            None => {
                if is_shell(&image) {
                    notes.push(note(
                        SHELL,
                        format!(
                            "{} is started by a shell, and what that starts can't be seen from outside",
                            command.join(" ")
                        ),
                        "look at the processes when it runs: snug check PID",
                    ));
                }
                return Ok(Followed { command, environment, image, notes });
            }
        }
    }
    Err("its scripts start each other in a loop".into())
}

fn note(id: &'static str, message: String, fix: &str) -> Problem {
    Problem { id, severity: Severity::Note, message, fix: fix.into() }
}

fn variable<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

fn set_variable(environment: &mut Vec<(String, String)>, name: &str, value: &str) {
    environment.retain(|(other, _)| other != name);
    environment.push((name.to_string(), value.to_string()));
}

fn is_shell(path: &str) -> bool {
    SHELLS.contains(&file_name(path))
}

/// The command that a launcher or `sh -c` starts; assignments in front of it go into the environment.
fn after_launcher(
    program: &str,
    command: &[String],
    environment: &mut Vec<(String, String)>,
) -> Option<Vec<String>> {
    let launcher = file_name(program);
    let launched = if is_shell(program) {
        let at = command.iter().position(|word| word.starts_with('-') && word.ends_with('c'))?;
        last_command(command.get(at + 1)?)
    } else if LAUNCHERS.contains(&launcher) {
        let mut rest =
            command[1..].iter().skip_while(|word| word.starts_with('-') && *word != "--").peekable();
        rest.next_if(|word| *word == "--");
        if matches!(launcher, "gosu" | "su-exec") {
            rest.next();
        }
        rest.cloned().collect()
    } else {
        return None;
    };
    Some(without_assignments(launched, environment))
}

fn without_assignments(words: Vec<String>, environment: &mut Vec<(String, String)>) -> Vec<String> {
    let mut words = words.into_iter().peekable();
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    while let Some(word) = words.peek() {
        match word.split_once('=') {
            Some((name, value)) if is_name(name) => set_variable(environment, name, value),
            _ if word == "exec" => {}
            _ => break,
        }
        words.next();
    }
    words.collect()
}

/// The words of the last simple command of a line of shell: `cd x && A=1 exec puma -C y` is `A=1 exec puma -C y`.
fn last_command(line: &str) -> Vec<String> {
    let last = line.rsplit(['&', ';', '|', '\n']).find(|part| !part.trim().is_empty()).unwrap_or_default();
    let unquoted = |word: &str| word.trim_matches(['"', '\'']).to_string();
    last.split_whitespace().map(unquoted).collect()
}

/// What a shell script of an image goes on to: its own arguments by `exec "$@"`, or the command of its last `exec`.
fn after_script(text: &str, command: &[String]) -> Option<Vec<String>> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    let last = lines.iter().rev().find(|line| line.starts_with("exec "))?;
    let words = last_command(last);
    match words.get(1).map(String::as_str) {
        Some("$@" | "${@}" | "$*") => Some(command[1..].to_vec()),
        Some(word) if !word.contains('$') => Some(
            words[1..]
                .iter()
                .flat_map(|word| match word.as_str() {
                    "$@" | "${@}" => command[1..].to_vec(),
                    word => vec![word.to_string()],
                })
                .collect(),
        ),
        _ => None,
    }
}

/// Scripts that set LD_PRELOAD, as the one that Rails generates, name the library somewhere in that line.
fn preload_in_script(
    root: &dyn Root,
    script: &str,
    text: &str,
    environment: &mut Vec<(String, String)>,
) -> Option<Problem> {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.starts_with('#') && line.contains("LD_PRELOAD=") && line.contains(".so"))?;
    // `if [ -z "${LD_PRELOAD+x}" ]` leaves alone what is set already.
    let only_if_unset = text.contains("-z \"$LD_PRELOAD") || text.contains("-z \"${LD_PRELOAD");
    if only_if_unset && variable(environment, "LD_PRELOAD").is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let library = line.split([' ', '"', '\'', '=', '(', ')', ':', ';']).find(|word| word.contains(".so"))?;
    let found = match library.starts_with('/') {
        true => root::file(root, library).map(|_| library.to_string()),
        false => find_below(root, "/usr/lib", library, 3)
            .or_else(|| find_below(root, "/usr/local/lib", library, 2)),
    };
    match found {
        Some(path) => {
            set_variable(environment, "LD_PRELOAD", &path);
            Some(note(
                "preload-in-script",
                format!("{script} sets LD_PRELOAD to {path} by itself"),
                "nothing to do; a process started without this script does not have it",
            ))
        }
        None => Some(Problem {
            id: "preload-in-script",
            severity: Severity::Error,
            message: format!("{script} preloads {library}, which is missing"),
            fix: match Kind::from_file_name(library).and_then(Kind::row) {
                Some(row) => format!("install it ({})", packages::install(row)),
                None => "install it, or remove that line".into(),
            },
        }),
    }
}

/// A file of this name below a directory, as find(1) would.
fn find_below(root: &dyn Root, directory: &str, name: &str, depth: u32) -> Option<String> {
    let names = root.list(directory);
    if names.iter().any(|other| other == name) {
        return Some(format!("{directory}/{name}"));
    }
    if depth == 0 {
        return None;
    }
    names.iter().find_map(|below| match root.node(&format!("{directory}/{below}")) {
        Some(root::Node::Directory) => find_below(root, &format!("{directory}/{below}"), name, depth - 1),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    #[test]
    fn launchers_are_looked_through() {
        let mut environment = Vec::new();
        let mut after = |program: &str, command: &[&str]| {
            let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
            after_launcher(program, &command, &mut environment)
        };
        assert_eq!(after("/usr/bin/tini", &["tini", "-g", "--", "puma"]), Some(words("puma")));
        assert_eq!(after("/bin/sh", &["sh", "-c", "cd /app && exec puma -C x"]), Some(words("puma -C x")));
        assert_eq!(after("/usr/bin/env", &["env", "A=1", "ruby", "x"]), Some(words("ruby x")));
        assert_eq!(after("/usr/local/bin/gosu", &["gosu", "app", "ruby"]), Some(words("ruby")));
        assert_eq!(after("/usr/bin/ruby", &["ruby", "x"]), None);
        assert_eq!(environment, [("A".to_string(), "1".to_string())]);
    }

    #[test]
    fn scripts_end_in_exec() {
        let command = words("entry.sh rails server");
        let after = |text| after_script(text, &command);
        assert_eq!(after("#!/bin/sh\nset -e\n# exec no\nexec \"$@\"\n"), Some(words("rails server")));
        assert_eq!(after("exec \"${@}\""), Some(words("rails server")));
        assert_eq!(after("exec tini -- \"$@\""), Some(words("tini -- rails server")));
        assert_eq!(after("if x; then\n  exec puma -C y\nfi\n"), Some(words("puma -C y")));
        assert_eq!(after("exec $COMMAND"), None);
        assert_eq!(after("puma"), None);
    }
}
