//! `snug install`: copies the tool and its libraries into a directory, or removes them.

use std::io::Write;

use crate::allocator::installation;
use crate::base::failure::{Context, Result};
use crate::base::terminal::bytes;
use crate::commands::arguments::InstallArguments;

/// Runs the command.
pub(crate) fn run(arguments: &InstallArguments) -> Result<()> {
    let directory = installation::open(&arguments.directory)?;
    let shown = directory.path().display();
    if arguments.uninstall {
        let removed = directory.remove()?;
        let what = match removed.is_empty() {
            true => format!("nothing of snug in {shown}"),
            false => format!("removed from {shown}: {}", removed.join(", ")),
        };
        return writeln!(anstream::stdout(), "{what}").cannot(|| "write to stdout".into());
    }
    let parts = installation::parts(arguments.jemalloc)?;
    let placed = directory.place(&parts)?;
    if directory.forbids_execution() {
        anstream::eprintln!("snug: warning: {shown} is mounted noexec: nothing can be loaded from there");
    }
    let size = parts.iter().map(|part| part.size_bytes() as f64).sum();
    match placed.is_empty() {
        true => anstream::eprintln!("snug {} was in {shown} already", crate::VERSION),
        false => anstream::eprintln!(
            "snug {} is in {shown} ({}): {}",
            crate::VERSION,
            bytes(size),
            placed.join(", ")
        ),
    }
    let library = directory.path().join(installation::LIBRARY);
    writeln!(anstream::stdout(), "LD_PRELOAD={}", library.display()).cannot(|| "write to stdout".into())
}
