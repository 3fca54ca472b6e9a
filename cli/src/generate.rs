//! `snug generate`: completions and man pages, made from the same description as `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, GenerateArguments, Generated, Shell};
use crate::failure::{Context, Result};

/// Runs the command.
pub fn run(arguments: &GenerateArguments) -> Result<()> {
    match &arguments.what {
        Generated::Completions { shell } => completions(*shell),
        Generated::Man { out: Some(directory) } => all_man_pages(directory),
        Generated::Man { out: None } => {
            let man = clap_mangen::Man::new(Arguments::command());
            man.render(&mut io::stdout()).cannot(|| "write to stdout".into())
        }
    }
}

fn completions(shell: Shell) -> Result<()> {
    use clap_complete::Shell as Target;
    let target = match shell {
        Shell::Bash => Target::Bash,
        Shell::Elvish => Target::Elvish,
        Shell::Fish => Target::Fish,
        Shell::Powershell => Target::PowerShell,
        Shell::Zsh => Target::Zsh,
    };
    clap_complete::generate(target, &mut Arguments::command(), "snug", &mut io::stdout());
    Ok(())
}

fn all_man_pages(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).cannot(|| format!("make the directory {}", directory.display()))?;
    let shown = directory.display();
    clap_mangen::generate_to(Arguments::command(), directory)
        .cannot(|| format!("write man pages into {shown}"))
}
