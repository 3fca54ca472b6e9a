//! `snug purge`: asks processes for a purge and says what came of it.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::checked::waiting_time;
use snug_base::failure::{Context, Failure, Result, FAILED};
use snug_base::progress;
use snug_live::control::{self, Silence};
use snug_live::outcome_text;
use snug_process::command_line::process_named as process;
use snug_process::tree;

/// Ask running processes under snug to give back all the memory they can
#[derive(Debug, Args)]
#[command(
    override_usage = "snug purge [OPTIONS] <PID|NAME>...",
    after_help = "Examples:
  snug purge 4711
  snug purge puma
  snug purge $(pgrep -f 'puma: cluster worker')

No signal is sent and nothing is stopped: the process does it on its allocator's next slow call, or its \
helper thread does. A sleeping process can't answer; snug gave its free memory back when it fell asleep. A \
process that does not answer in time is not purged later.

Exit codes: 0 every process was purged or is asleep; 1 a process uses another allocator, or did not answer \
though it is running; 2 the arguments are invalid; 3 no such process, or no permission."
)]
pub(crate) struct PurgeArguments {
    /// The processes; for a name, all of this user's
    #[arg(required = true, value_name = "PID|NAME", value_parser = process)]
    pub processes: Vec<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = waiting_time)]
    pub wait: Duration,
    /// Write JSON, one line for each process
    #[arg(long)]
    pub json: bool,
}

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
                outcome_text::of_purge(&outcome)
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
