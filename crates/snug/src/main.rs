//! The tool `snug`: says which allocator a program uses, runs it under another, and compares them.

// An unwrap has no reason to tell; an expect says what makes it safe.
#![deny(clippy::unwrap_used)]

mod advise;
mod arguments;
mod blame;
mod boot;
mod check;
mod checked;
mod compare;
mod complete;
mod generate;
mod install;
mod leak;
mod profile;
mod purge;
mod report;
mod run;
mod set;
mod stats;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::arguments::{Arguments, Subcommands};
use snug_base::{failure, terminal};
use snug_exporter as exporter;
use snug_fleet::{command_canary as canary, command_fleet as fleet};
use snug_top as top;

fn main() -> ExitCode {
    complete::answer_if_asked(Arguments::command);
    let matches = arguments::command_line().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match &arguments.command {
        Subcommands::Run(arguments) => run::run(arguments),
        Subcommands::Check(arguments) => check::run(arguments),
        Subcommands::Compare(arguments) => compare::run(arguments),
        Subcommands::Report(arguments) => report::run(arguments),
        Subcommands::Top(arguments) => top::run(arguments),
        Subcommands::Stats(arguments) => stats::run(arguments),
        Subcommands::Profile(arguments) => profile::run(arguments),
        Subcommands::Blame(arguments) => blame::run(arguments),
        Subcommands::Boot(arguments) => boot::run(arguments),
        Subcommands::Purge(arguments) => purge::run(arguments),
        Subcommands::Set(arguments) => set::run(arguments),
        Subcommands::Exporter(arguments) => exporter::run(arguments),
        Subcommands::Canary(arguments) => canary::run(arguments),
        Subcommands::Fleet(arguments) => fleet::run(arguments),
        Subcommands::Advise(arguments) => advise::run(arguments),
        Subcommands::Leak(arguments) => leak::run(arguments),
        Subcommands::Install(arguments) => install::run(arguments),
        Subcommands::Generate(arguments) => generate::run(arguments, Arguments::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // `snug check PID | head -1`: the reader has seen enough.
        Err(failure) if failure.is_broken_pipe() => ExitCode::from(failure::READER_GONE),
        Err(failure) => {
            if failure.message.is_empty() {
                return ExitCode::from(failure.exit_code);
            }
            anstream::eprintln!("{} {failure}", terminal::styled("snug:", terminal::BAD, true));
            ExitCode::from(failure.exit_code)
        }
    }
}
