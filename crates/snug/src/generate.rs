//! `snug generate`: completions and man pages, made from the same description as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use crate::complete;
use snug_base::failure::{Context, Result};
use snug_base::file;

/// Write shell completions or man pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug generate completions bash > /etc/bash_completion.d/snug
  snug generate man --out /usr/share/man/man1")]
pub(crate) struct GenerateArguments {
    #[command(subcommand)]
    pub what: Generated,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// Completions for a shell, on stdout
    Completions { shell: Shell },
    /// The man page of snug on stdout, or those of all commands in a directory
    Man {
        /// Write snug.1, snug-run.1 and so on into this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// Runs the command.
pub(crate) fn run(arguments: &GenerateArguments, line: clap::Command) -> Result<()> {
    match &arguments.what {
        Generated::Completions { shell } => completions(*shell).cannot(|| "write to stdout".into()),
        Generated::Man { out: Some(directory) } => all_man_pages(directory, line),
        Generated::Man { out: None } => {
            let pages = man_pages(line);
            let snug = pages.iter().find(|page| page.name == "snug.1").expect("snug has a page");
            io::stdout().write_all(&snug.content).cannot(|| "write to stdout".into())
        }
    }
}

fn completions(shell: Shell) -> io::Result<()> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Zsh => "zsh",
    };
    io::stdout().write_all(&complete::script(name)?)
}

fn all_man_pages(directory: &Path, line: clap::Command) -> Result<()> {
    fs::create_dir_all(directory).cannot(|| format!("make the directory {}", directory.display()))?;
    for page in man_pages(line) {
        let path = directory.join(page.name);
        file::write(&path, page.content)?;
    }
    Ok(())
}

/// A man page and the name of its file.
struct ManPage {
    name: String,
    content: Vec<u8>,
}

/// The page of snug and those of its commands.
fn man_pages(line: clap::Command) -> Vec<ManPage> {
    let mut snug = line.disable_help_subcommand(true);
    snug.build();
    let commands: Vec<&clap::Command> =
        snug.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let names: Vec<String> = commands.iter().map(|command| page_of(command)).collect();
    let page = |command: &clap::Command, others: &[String]| {
        let mut content = Vec::new();
        man_page(command, others, &mut content).expect("writing into memory never fails");
        ManPage { name: format!("{}.1", page_of(command)), content }
    };
    let of_commands = commands.iter().map(|command| page(command, &["snug".to_string()]));
    std::iter::once(page(&snug, &names)).chain(of_commands).collect()
}

fn page_of(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_string()
}

/// Writes a page with the sections of man-pages(7). What stands after the help of a command is examples, exit codes,
/// and text that belongs to the description.
fn man_page(command: &clap::Command, others: &[String], out: &mut Vec<u8>) -> io::Result<()> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<&str> = after.split("\n\n").collect();
    let is_exit = |paragraph: &&&str| paragraph.starts_with("Exit codes");
    let is_example = |paragraph: &&&str| paragraph.starts_with("Examples:");
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    for text in paragraphs.iter().filter(|paragraph| !is_exit(paragraph) && !is_example(paragraph)) {
        writeln!(out, ".PP\n{}", verbatim_where_indented(text))?;
    }
    man.render_options_section(out)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }
    for text in paragraphs.iter().filter(is_exit) {
        let codes = text.split_once(": ").map_or(*text, |(_, codes)| codes);
        writeln!(out, ".SH \"EXIT STATUS\"\n{}", escaped(codes))?;
    }
    for text in paragraphs.iter().filter(is_example) {
        let unindented = |line: &str| escaped(line.strip_prefix("  ").unwrap_or(line));
        let lines: Vec<String> = text.lines().skip(1).map(unindented).collect();
        writeln!(out, ".SH EXAMPLES\n.nf\n{}\n.fi", lines.join("\n"))?;
    }
    let library = "snug".to_string();
    let also: Vec<String> = others
        .iter()
        .map(|page| format!("\\fB{}\\fR(1)", escaped(page)))
        .chain([format!("\\fB{library}\\fR(3)")])
        .collect();
    writeln!(out, ".SH \"SEE ALSO\"\n{}", also.join(", "))
}

/// Lists keep their lines.
fn verbatim_where_indented(text: &str) -> String {
    match text.lines().all(|line| line.starts_with("  ")) {
        true => format!(".nf\n{}\n.fi", escaped(text)),
        false => escaped(text),
    }
}

/// Text as troff takes it: see groff_char(7) for hyphens, and groff(7) for what begins a line.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) {
            format!("\\&{line}")
        } else {
            line
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
