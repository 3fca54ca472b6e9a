//! `snug run`: becomes another program, with snug preloaded into it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use crate::allocator::kinds::Kind;
use crate::allocator::{library, program};
use crate::base::failure::{Failure, Result, NOT_EXECUTABLE, NOT_FOUND, NOT_STARTED};
use crate::commands::arguments::refuse_unknown_option;

/// Tells the library to remove itself from LD_PRELOAD before the program's main, so that programs it starts do
/// not inherit it. Its value is the path to remove.
const THIS_ONLY: &str = "SNUG_THIS_ONLY";

/// Run a program under snug
#[derive(Debug, Args)]
#[command(
    override_usage = "snug run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug run -- bundle exec puma
  snug run --this-only -- celery -A app worker
  SNUG=verbose:1 snug run -- ruby -e 1

libsnug.so is searched for next to this program, in ../lib and in ../lib/snug, unless SNUG_LIBRARY names it. \
It is put before anything already in LD_PRELOAD. snug then becomes the program, so signals and the exit code \
are the program's own.

Exit codes of snug itself: 125 the library is missing or can't be loaded into this program; 126 the program can't be \
executed; 127 it was not found."
)]
pub(crate) struct RunArguments {
    /// Don't pass snug on to programs that this one executes
    #[arg(long)]
    pub this_only: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

/// Runs the command. Returns only if the program can't be started.
pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    refuse_unknown_option("run", &arguments.program).map_err(|failure| failure.exit_code(NOT_STARTED))?;
    let program = program::find(&arguments.program[0], &std::env::var("PATH").unwrap_or_default())?;
    let library = library::find_snug()?;
    if let Some(obstacle) = program::preload_obstacle(&program, &library.path, &library.elf) {
        return Err(obstacle.exit_code(NOT_STARTED));
    }
    if let Some(failure) = library::unusable_in_preload(&library.path) {
        return Err(failure
            .advise("copy libsnug.so to another directory and set SNUG_LIBRARY to it")
            .exit_code(NOT_STARTED));
    }
    let existing = std::env::var("LD_PRELOAD").ok();
    for other in other_allocators(existing.as_deref()) {
        anstream::eprintln!("snug: warning: LD_PRELOAD also holds {other}; snug comes first and is used");
    }
    let mut command = Command::new(&program.path);
    // The name as typed is what the program sees as its own.
    command.arg0(&arguments.program[0]).args(&arguments.program[1..]);
    command.env("LD_PRELOAD", library::prepend_preload(&library.path, existing.as_deref()));
    if arguments.this_only {
        command.env(THIS_ONLY, &library.path);
    } else {
        command.env_remove(THIS_ONLY);
    }
    let error = command.exec();
    let exit_code = match error.raw_os_error() {
        Some(libc::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Err(Failure::new(format!("cannot run {}: {error}", program.path.display())).exit_code(exit_code))
}

/// Entries of LD_PRELOAD that are allocators other than snug.
fn other_allocators(existing: Option<&str>) -> Vec<&str> {
    let is_other = |path: &&str| {
        Kind::from_file_name(path).is_some_and(|kind| kind != Kind::Snug && !kind.is_c_library())
    };
    existing.unwrap_or_default().split([':', ' ']).filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_allocators_are_noticed() {
        let preload = Some("/l/libjemalloc.so.2:/l/libsnug.so /l/libfoo.so");
        assert_eq!(other_allocators(preload), ["/l/libjemalloc.so.2"]);
        assert!(other_allocators(None).is_empty());
    }
}
