//! The tool `snug`: says which allocator a program uses, runs it under another, and compares them.

#![deny(unsafe_code)]

mod access;
mod advise;
mod allocator;
mod arguments;
mod cgroup;
mod chart;
mod check;
mod children;
mod compare;
mod control;
mod counters;
mod deploy;
mod elf;
mod exporter;
mod failure;
mod generate;
mod glibc_heap;
mod leak;
mod library;
mod machine;
mod proc;
mod program;
mod progress;
mod purge;
mod remote;
mod report;
mod role;
mod run;
mod set;
mod stats;
#[allow(unsafe_code)]
mod system;
mod terminal;
mod top;
mod tree;
mod watch;

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
        Subcommands::Report(arguments) => report::run(arguments),
        Subcommands::Top(arguments) => top::run(arguments),
        Subcommands::Stats(arguments) => stats::run(arguments),
        Subcommands::Purge(arguments) => purge::run(arguments),
        Subcommands::Set(arguments) => set::run(arguments),
        Subcommands::Exporter(arguments) => exporter::run(arguments),
        Subcommands::Advise(arguments) => advise::run(arguments),
        Subcommands::Leak(arguments) => leak::run(arguments),
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
