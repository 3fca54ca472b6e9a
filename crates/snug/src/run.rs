//! `snug run`: becomes another program, with snug preloaded into it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::Args;

use crate::checked::refuse_unknown_option;
use snug_base::failure::{Result, NOT_STARTED};
use snug_inspect::preloaded;
use snug_profile::black_box_writer;
use snug_profile::sampling::{with_sampling, MEAN_BYTES, VARIABLE};

/// Run a program under snug
#[derive(Debug, Args)]
#[command(
    override_usage = "snug run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug run -- bundle exec puma
  snug run -- celery -A app worker
  snug run --black-box /volume -- bundle exec puma
  snug run --this-only -- python3 -m celery -A app worker
  SNUG=verbose:1 snug run -- ruby -e 1

libsnug.so is searched for next to this program, in ../lib and in ../lib/snug, unless SNUG_LIBRARY names it. \
It is put before anything already in LD_PRELOAD. snug then becomes the program, so signals and the exit code \
are the program's own.

Where snug's wheel is installed for the program's Python, hooks for celery, gunicorn and uwsgi are switched on, as \
`python -m snug run` does, by PYTHONPATH and PYTHONMALLOC=malloc; what is set stays. In Ruby `gem \"snug\"` in the Gemfile \
does it. docs/how-to/hooks.md says what they are for.

With --black-box a second process, snug-black-box, watches the program and its workers. It is a child of the program, but \
wait(2) never reports it; it holds none of the program's files open, ends with the program, and no snug command counts it among \
the program's processes. DIR must exist, and should outlive the container.

Exit codes of snug itself: 125 the library is missing or can't be loaded into this program, or nothing can be written in \
DIR; 126 the program can't be executed; 127 it was not found."
)]
pub(crate) struct RunArguments {
    /// Sample the program, and write into this folder what is live whenever memory is near the container's limit or at a
    /// new high: `snug blame DIR` shows it, also after the program was killed
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub black_box: Option<PathBuf>,
    /// Don't pass snug on to programs that this one executes
    #[arg(long)]
    pub this_only: bool,
    /// Leave the hooks for Celery, gunicorn, uWSGI, Puma and Sidekiq out, as SNUG_HOOKS=0 does
    #[arg(long)]
    pub no_hooks: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs the command. Returns only if the program can't be started.
pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    refuse_unknown_option::<RunArguments>("run", &arguments.program)
        .map_err(|failure| failure.exit_code(NOT_STARTED))?;
    let mut prepared = preloaded::prepare(&arguments.program, arguments.this_only)?;
    if let Some(said) = prepared.switch_hooks(!arguments.no_hooks) {
        anstream::eprintln!("snug: {said}");
    }
    if let Some(folder) = &arguments.black_box {
        let existing = std::env::var_os(VARIABLE).unwrap_or_default();
        if let Some(settings) = with_sampling(&existing, MEAN_BYTES) {
            prepared.command.env(VARIABLE, settings);
        }
        black_box_writer::watch_this_process(folder).map_err(|failure| failure.exit_code(NOT_STARTED))?;
    }
    let error = prepared.command.exec();
    Err(prepared.not_executed(&error))
}
