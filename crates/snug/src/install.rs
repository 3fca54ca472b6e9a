//! `snug install`: copies the tool and its libraries into a directory, or removes them.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use snug_base::failure::{Context, Result};
use snug_base::machine;
use snug_base::terminal::bytes;
use snug_inspect::installation;

/// Copy snug into a directory from which other containers or users load it
#[derive(Debug, Args)]
#[command(
    override_usage = "snug install [OPTIONS] DIR",
    after_help = "Examples:
  snug install /opt/snug
  snug install --jemalloc /volume
  snug install --uninstall /opt/snug

DIR, which must exist, gets this tool, libsnug.so and asker.so, readable for everybody. They are found where `snug run` \
finds them. The line to set goes to stdout: LD_PRELOAD=DIR/libsnug.so. In an init container DIR is the volume that \
the program's container mounts; give LD_PRELOAD the path that it has there.

Each file is written in full before it is renamed into place, so upgrading under running processes is safe: they keep \
the file that they started with. Other files in DIR stay untouched. If something fails before all files are written, \
DIR is left as it was. Nothing outside of DIR is needed, neither a shell nor a C library.

Exit codes: 0 all is in place; 1 DIR can't be written, or something else has one of the names; 2 the arguments are \
invalid; 125 libsnug.so is missing."
)]
pub(crate) struct InstallArguments {
    /// Also install libjemalloc.so.2: snug under jemalloc's name, for programs that look for it
    #[arg(long, conflicts_with = "uninstall")]
    pub jemalloc: bool,
    /// Remove what this command installed into DIR, and nothing else
    #[arg(long)]
    pub uninstall: bool,
    /// The directory
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub directory: PathBuf,
}

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
    if let Some(old) = machine::old_kernel() {
        anstream::eprintln!("snug: warning: {old}");
    }
    let size = parts.iter().map(|part| part.size_bytes() as f64).sum();
    match placed.is_empty() {
        true => anstream::eprintln!("snug {} was in {shown} already", snug_base::VERSION),
        false => anstream::eprintln!(
            "snug {} is in {shown} ({}): {}",
            snug_base::VERSION,
            bytes(size),
            placed.join(", ")
        ),
    }
    let library = directory.path().join(installation::LIBRARY);
    writeln!(anstream::stdout(), "LD_PRELOAD={}", library.display()).cannot(|| "write to stdout".into())
}
