//! The tool `snug`: says which allocator a program uses, runs it under another, and compares them.

#![deny(unsafe_code)]

mod allocator;
mod arguments;
mod chart;
mod check;
mod children;
mod compare;
mod counters;
mod elf;
mod failure;
mod generate;
mod library;
mod machine;
mod proc;
mod program;
mod run;
#[allow(unsafe_code)]
mod system;
mod terminal;

use std::process::ExitCode;

use arguments::{Arguments, Subcommands};
use clap::Parser;

/// The one version of the project.
const VERSION: &str = include_str!("../../VERSION").trim_ascii();

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Subcommands::Run(arguments) => run::run(arguments),
        Subcommands::Check(arguments) => check::run(arguments),
        Subcommands::Compare(arguments) => compare::run(arguments),
        Subcommands::Generate(arguments) => generate::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.message.is_empty() {
                return ExitCode::from(failure.exit_code);
            }
            anstream::eprintln!("{} {failure}", terminal::styled("snug:", terminal::BAD, true));
            ExitCode::from(failure.exit_code)
        }
    }
}
