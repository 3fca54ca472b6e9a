//! Checks of arguments that several commands share.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;

use snug_base::failure::{Failure, Result};
use snug_base::time::time_between;
use snug_inspect::kinds::closest;

/// Refuses a program whose name is an option: one that was misspelt, and taken for the program.
pub(crate) fn refuse_unknown_option<A: Args>(command: &str, program: &[OsString]) -> Result<()> {
    let Some(word) = program.first().filter(|word| word.len() > 1 && word.as_bytes().starts_with(b"-"))
    else {
        return Ok(());
    };
    // An explicit `--` means that the word is the program.
    let mut before = std::env::args_os().take_while(|argument| argument != word);
    if before.any(|argument| argument == "--") {
        return Ok(());
    }
    let all = A::augment_args(clap::Command::new("snug"));
    let names: Vec<&str> = all.get_arguments().filter_map(clap::Arg::get_long).collect();
    let word = word.to_string_lossy();
    let written = word.split('=').next().unwrap_or(&word).trim_start_matches('-');
    let guess = closest(written, names.iter().copied());
    let guess = guess.map_or_else(String::new, |name| format!("did you mean --{name}? "));
    let message = format!("unknown option {word}");
    Err(Failure::usage(
        message,
        format!("{guess}`snug {command} --help` lists the options; they stand before the program"),
    ))
}

/// How long to wait for the answer of a process.
pub(crate) fn waiting_time(text: &str) -> std::result::Result<Duration, String> {
    time_between(text, 0.0, 3600.0)
}
