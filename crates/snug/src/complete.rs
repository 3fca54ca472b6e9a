//! Completions for shells: the shell's script calls this program at each Tab, so that they know the allocators that are
//! installed, processes that run, and programs.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use snug_base::terminal::{is_plain, printable};
use snug_inspect::kinds::{Kind, ROWS};
use snug_measure::sets;
use snug_process::proc::{ProcFilesystem, Processes};
use snug_process::tree;

/// Set by the scripts, to the name of the shell.
const VARIABLE: &str = "SNUG_COMPLETE";

/// Answers the shell and ends the process, if a shell asks.
pub(crate) fn answer_if_asked(line: fn() -> Command) {
    CompleteEnv::with_factory(|| with_all_values(line())).var(VARIABLE).complete();
}

/// The script that has a shell ask.
pub(super) fn script(shell: &str) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(shell).expect("clap_complete knows all shells of ours");
    shell.write_registration(VARIABLE, "snug", "snug", "snug", &mut script)?;
    Ok(script)
}

/// The command line, whose arguments know their values by what they are called in the help.
fn with_all_values(line: Command) -> Command {
    line.mut_subcommands(|command| command.mut_args(with_values))
}

fn with_values(argument: Arg) -> Arg {
    let name = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match name.unwrap_or_default().as_str() {
        "ALLOCATOR" | "LIST" => argument.add(ArgValueCompleter::new(allocators)),
        name if name.starts_with("PID") => argument.add(ArgValueCompleter::new(processes)),
        "PROGRAM" => argument.add(ArgValueCompleter::new(programs)),
        _ => argument,
    }
}

/// Allocators, and sets of them; of a list that is separated by commas, the last.
fn allocators(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let (before, last) = begun.rsplit_once(',').map_or(("", &*begun), |(before, last)| (before, last));
    let before = if before.is_empty() { String::new() } else { format!("{before},") };
    let names = ROWS.iter().filter(|row| row.kind != Kind::Musl).map(|row| row.name).chain(sets::NAMES);
    let fitting = names.filter(|name| name.starts_with(last));
    fitting.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
}

/// Names of this user's processes, or their PIDs once a digit was written.
fn processes(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let whose = tree::own_user();
    let own = ProcFilesystem::new().all().into_iter();
    let own = own.filter(|(pid, _, _)| whose.is_none() || tree::owner(*pid) == whose);
    let mut found: Vec<(String, Option<String>)> = match begun.starts_with(|c: char| c.is_ascii_digit()) {
        true => own.map(|(pid, _, name)| (pid.to_string(), Some(name))).collect(),
        false => own.map(|(_, _, name)| (name, None)).collect(),
    };
    // Shells write a candidate into the line as it is: a process could give itself the name of a command to run.
    found.retain(|(value, _)| value.starts_with(&*begun) && is_plain(value));
    found.sort();
    found.dedup();
    let candidate = |(value, help): (String, Option<String>)| {
        CompletionCandidate::new(value).help(help.map(|name| printable(&name).into()))
    };
    found.into_iter().map(candidate).collect()
}

/// Programs in PATH. What holds a slash, or comes after the program, is left to the shell, which knows files.
fn programs(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    if begun.is_empty() || begun.contains('/') {
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let entries = std::env::split_paths(&path).filter_map(|directory| directory.read_dir().ok()).flatten();
    let is_fitting =
        |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(&*begun) && is_plain(name));
    let is_program = |entry: &std::fs::DirEntry| {
        let metadata = std::fs::metadata(entry.path());
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let fitting = entries.flatten().filter(|entry| is_fitting(&entry.file_name())).filter(is_program);
    let mut names: Vec<OsString> = fitting.map(|entry| entry.file_name()).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    fn values(candidates: Vec<CompletionCandidate>) -> Vec<String> {
        candidates.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_last_allocator_of_a_list_is_completed() {
        assert_eq!(values(allocators(OsStr::new("jem"))), ["jemalloc"]);
        assert_eq!(values(allocators(OsStr::new("glibc,tcm"))), ["glibc,tcmalloc"]);
        assert!(values(allocators(OsStr::new("pop"))).contains(&"popular".to_string()));
    }

    #[test]
    fn processes_and_programs_are_those_that_there_are() {
        let own = std::process::id().to_string();
        assert!(values(processes(OsStr::new(&own))).contains(&own));
        assert!(values(programs(OsStr::new("tru"))).contains(&"true".to_string()));
        assert!(values(programs(OsStr::new("/bin/tr"))).is_empty());
    }

    #[test]
    fn no_name_of_a_process_is_a_command_for_the_shell() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["zqx-plain", "zqx$(id)", "zqx;id", "zqx`id`", "zqx id", "zqx\nid"];
        let sleep = snug_base::testing::program("sleep").unwrap();
        let mut running: Vec<std::process::Child> = Vec::new();
        for name in names {
            let path = folder.path().join(name);
            std::fs::copy(&sleep, &path).unwrap();
            running.push(std::process::Command::new(path).arg("600").spawn().unwrap());
        }
        let found = values(processes(OsStr::new("zqx")));
        for process in &mut running {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert_eq!(found, ["zqx-plain"]);
    }

    #[test]
    fn arguments_are_found_by_their_names_in_the_help() {
        with_all_values(Arguments::command()).debug_assert();
        let known = |command: &Command| {
            command.get_arguments().filter(|argument| argument.get::<ArgValueCompleter>().is_some()).count()
        };
        let whole = with_all_values(Arguments::command());
        let of = |name: &str| whole.find_subcommand(name).map(known).unwrap_or_default();
        assert_eq!((of("leak"), of("check"), of("purge"), of("run"), of("profile")), (3, 3, 1, 1, 2));
    }
}
