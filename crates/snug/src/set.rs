//! `snug set`: changes settings of a running process.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::checked::waiting_time;
use snug_base::failure::{Context, Failure, Result, FAILED};
use snug_base::progress;
use snug_base::terminal::printable;
use snug_live::control::{self, Silence};
use snug_live::outcome_text;
use snug_process::command_line::process_named as process;
use snug_process::proc::Pid;
use snug_process::tree;

/// Change a setting of a running process under snug
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug set 4711 purge_cpu_percent=5
  snug set puma background=off

The options are those of the variable SNUG; `SNUG=help snug run true` lists them. Those that only matter at \
startup can't be set. Children forked from now on inherit the new value; existing ones keep theirs. A \
sleeping process takes its settings when it next runs; if an option was set twice by then, the last value counts. \
profile=0 also ends the samples of a snug profile or snug leak that is running.

Exit codes: 0 set, or waiting in a sleeping process; 1 the process uses another allocator, or did not answer \
though it is running; 2 no such option or value; 3 no such process, or no permission.")]
pub(crate) struct SetArguments {
    /// The process; for a name, all of this user's
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub process: String,
    /// Options and their values
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    pub pairs: Vec<(String, String)>,
    /// How long to wait for each answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = waiting_time)]
    pub wait: Duration,
    /// Write JSON, one line for each option
    #[arg(long)]
    pub json: bool,
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write it as KEY=VALUE".into()),
    }
}

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
            printable(&outcome_text::of_set(&outcome))
        };
        writeln!(anstream::stdout(), "{line}").cannot(|| "write to stdout".into())?;
        if !matches!(outcome.silence, None | Some(Silence::Idle)) {
            return Err(Failure::already_told(FAILED));
        }
    }
    Ok(())
}
