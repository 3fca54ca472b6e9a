//! `snug set`: changes settings of a running process.

use std::io::Write;

use crate::allocator::control::{self, SetOutcome, Silence};
use crate::base::failure::{Context, Failure, Result, FAILED};
use crate::base::progress;
use crate::commands::arguments::SetArguments;
use crate::process::proc::Pid;
use crate::process::tree;

/// Runs the command. The first setting that fails ends it.
pub(crate) fn run(arguments: &SetArguments) -> Result<()> {
    let pids = tree::find_all(std::slice::from_ref(&arguments.process))?;
    pids.into_iter().try_for_each(|pid| set(pid, arguments))
}

fn set(pid: Pid, arguments: &SetArguments) -> Result<()> {
    for (key, value) in &arguments.pairs {
        let waiting = format!("waiting for {pid} to take {key}={value}");
        let outcome = progress::during(&waiting, None, || control::set(pid, key, value, arguments.wait))?;
        let line = if arguments.json {
            serde_json::to_string(&outcome).cannot(|| "write JSON".into())?
        } else {
            sentence(&outcome)
        };
        writeln!(anstream::stdout(), "{line}").cannot(|| "write to stdout".into())?;
        if !matches!(outcome.silence, None | Some(Silence::Idle)) {
            return Err(Failure::already_told(FAILED));
        }
    }
    Ok(())
}

/// What came of it, for people.
pub(crate) fn sentence(outcome: &SetOutcome) -> String {
    let SetOutcome { pid, key, before, value, .. } = outcome;
    let why = match outcome.silence {
        None => return format!("{pid}: {key} is {value} now, was {before}"),
        Some(Silence::Idle) => "sleeps",
        Some(Silence::Busy) => "is running, but made no slow call into its allocator",
        Some(Silence::Stopped) => "is stopped",
    };
    format!("{pid}: {why}; it takes {key}={value} at its next slow call, and until then keeps {before}")
}
