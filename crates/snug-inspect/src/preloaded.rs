//! A program that is about to run under snug: found, looked at, and its environment set.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::kinds::Kind;
use crate::{library, program};
use snug_base::failure::{Failure, Result, NOT_EXECUTABLE, NOT_FOUND, NOT_STARTED};
use snug_base::machine;
use snug_process::wheel::{self, Hooks};

/// Tells the library to remove itself from LD_PRELOAD before the program's main, so that programs it starts do
/// not inherit it. Its value is the path to remove.
const THIS_ONLY: &str = "SNUG_THIS_ONLY";

/// A program, ready to be executed with snug preloaded.
pub struct Preloaded {
    pub command: Command,
    /// Those that could be switched on.
    hooks: Option<Hooks>,
    path: PathBuf,
}

/// Finds the program and the library. `this_only`: programs that it executes don't inherit snug. Failures have the exit
/// codes of `snug run`.
pub fn prepare(words: &[OsString], this_only: bool) -> Result<Preloaded> {
    let program = program::find(&words[0])?;
    let library = library::find_snug()?;
    if let Some(obstacle) = program::preload_obstacle(&program, &library.path, &library.elf) {
        return Err(obstacle.exit_code(NOT_STARTED));
    }
    if let Some(failure) = library::unusable_in_preload(&library.path) {
        return Err(failure
            .advise("copy libsnug.so to another directory and set SNUG_LIBRARY to it")
            .exit_code(NOT_STARTED));
    }
    let existing = std::env::var_os("LD_PRELOAD");
    for other in other_allocators(&existing.as_deref().unwrap_or_default().to_string_lossy()) {
        anstream::eprintln!("snug: warning: LD_PRELOAD also holds {other}; snug comes first and is used");
    }
    if let Some(old) = machine::old_kernel() {
        anstream::eprintln!("snug: warning: {old}");
    }
    let mut command = Command::new(&program.path);
    // The name as typed is what the program sees as its own.
    command.arg0(&words[0]).args(&words[1..]);
    command.env("LD_PRELOAD", library::prepend_preload(&library.path, existing.as_deref()));
    if this_only {
        command.env(THIS_ONLY, &library.path);
    } else {
        command.env_remove(THIS_ONLY);
    }
    Ok(Preloaded { command, hooks: wheel::hooks(words, &program.image), path: program.path })
}

impl Preloaded {
    /// Switches hooks on, unless they are unwanted. Returns what to say of it.
    pub fn switch_hooks(&mut self, wanted: bool) -> Option<String> {
        if !wanted {
            // For what the program starts, too, as long as it does not say otherwise.
            self.command.env(wheel::SWITCH, "0");
            return None;
        }
        if std::env::var_os(wheel::SWITCH).is_some_and(|value| value == "0") {
            return None;
        }
        let hooks = self.hooks.as_ref()?;
        let path = hooks.python_path(std::env::var_os("PYTHONPATH").as_deref())?;
        self.command.env("PYTHONPATH", path);
        let missing = hooks.variables.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        let missing: Vec<&(&str, &str)> = missing.collect();
        self.command.envs(missing.iter().map(|(name, value)| (name, value)));
        let malloc = missing.iter().find(|(name, _)| *name == "PYTHONMALLOC");
        let malloc = malloc.map_or_else(String::new, |(name, value)| format!(", with {name}={value}"));
        Some(format!("hooks for {} are on{malloc}; --no-hooks leaves them out", hooks.server))
    }

    /// Why it could not be executed after all.
    pub fn not_executed(&self, error: &io::Error) -> Failure {
        let exit_code = match error.raw_os_error() {
            Some(libc::ENOENT) => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        Failure::new(format!("cannot run {}: {error}", self.path.display())).exit_code(exit_code)
    }
}

/// Entries of LD_PRELOAD that are allocators other than snug.
fn other_allocators(existing: &str) -> Vec<&str> {
    let is_other = |path: &&str| {
        Kind::from_file_name(path).is_some_and(|kind| kind != Kind::Snug && !kind.is_c_library())
    };
    existing.split([':', ' ']).filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_allocators_are_noticed() {
        let preload = "/l/libjemalloc.so.2:/l/libsnug.so /l/libfoo.so";
        assert_eq!(other_allocators(preload), ["/l/libjemalloc.so.2"]);
        assert!(other_allocators("").is_empty());
    }
}
