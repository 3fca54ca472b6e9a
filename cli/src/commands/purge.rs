//! `snug purge`: asks processes for a purge and says what came of it.

use std::io::Write;

use crate::allocator::control::{self, PurgeOutcome, Silence};
use crate::base::failure::{Context, Failure, Result, FAILED};
use crate::base::progress;
use crate::base::terminal::bytes;
use crate::commands::arguments::PurgeArguments;
use crate::process::tree;

/// Runs the command. The first process that fails is told at the end; the others are asked all the same.
pub(crate) fn run(arguments: &PurgeArguments) -> Result<()> {
    let mut first_failure = None;
    let pids = tree::find_all(&arguments.processes)?;
    for (index, pid) in pids.iter().enumerate() {
        let which = match pids.len() {
            1 => String::new(),
            count => format!(", {} of {count}", index + 1),
        };
        let waiting = format!("waiting for {pid} to answer{which}");
        let outcome = progress::during(&waiting, None, || control::purge(*pid, arguments.wait));
        let told = outcome.and_then(|outcome| {
            let line = if arguments.json {
                serde_json::to_string(&outcome).cannot(|| "write JSON".into())?
            } else {
                sentence(&outcome)
            };
            writeln!(anstream::stdout(), "{line}").cannot(|| "write to stdout".into())?;
            match outcome.silence {
                None | Some(Silence::Idle) => Ok(()),
                Some(_) => Err(Failure::already_told(FAILED)),
            }
        });
        if let Err(failure) = told {
            if failure.is_broken_pipe() {
                return Err(failure);
            }
            if pids.len() > 1 && !failure.message.is_empty() {
                anstream::eprintln!("snug: {failure}");
                first_failure.get_or_insert(Failure::already_told(failure.exit_code));
            } else {
                first_failure.get_or_insert(failure);
            }
        }
    }
    first_failure.map_or(Ok(()), Err)
}

/// What came of it, for people.
pub(crate) fn sentence(outcome: &PurgeOutcome) -> String {
    let pid = outcome.pid;
    let held = bytes(outcome.held_bytes as f64);
    let (before, after) = (bytes(outcome.rss_before_bytes as f64), bytes(outcome.rss_after_bytes as f64));
    match (outcome.given_back_bytes, outcome.silence) {
        (Some(given_back), _) => {
            format!("{pid}: gave back {}; RSS {before} before, {after} now", bytes(given_back as f64))
        }
        (None, Some(Silence::Stopped)) => {
            format!("{pid}: is stopped and can't answer; RSS {after}, {held} of it free; continue it: kill -CONT {pid}")
        }
        (None, Some(Silence::Busy)) => format!(
            "{pid}: is running, but made no slow call into its allocator; RSS {after}, {held} of it free; \
             wait longer with --wait"
        ),
        (None, _) if outcome.background => format!(
            "{pid}: is asleep and can't answer; its free memory went back when it fell asleep. \
             RSS {after}, {held} of it free"
        ),
        (None, _) => format!(
            "{pid}: is asleep and can't answer; with background:0 what was free then stays. \
             RSS {after}, {held} of it free; `snug set {pid} background=on` works from its next calls on"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_told_as_they_are() {
        let mut outcome = PurgeOutcome {
            pid: 7,
            given_back_bytes: Some(5_000_000),
            silence: None,
            rss_before_bytes: 25_000_000,
            rss_after_bytes: 20_000_000,
            held_bytes: 1000,
            background: true,
        };
        assert_eq!(sentence(&outcome), "7: gave back 5.00 MB; RSS 25.0 MB before, 20.0 MB now");
        outcome.given_back_bytes = None;
        outcome.silence = Some(Silence::Idle);
        assert!(sentence(&outcome).contains("went back when it fell asleep. RSS 20.0 MB, 1.00 kB of it free"));
        outcome.background = false;
        assert!(sentence(&outcome).contains("background:0"));
        outcome.silence = Some(Silence::Stopped);
        assert!(sentence(&outcome).contains("kill -CONT 7"));
    }
}
