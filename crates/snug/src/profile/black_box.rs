//! `snug profile --black-box`: writes the black box of a process that runs already, until it ends.

use std::path::Path;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::profile::{running, ProfileArguments};
use snug_base::failure::{Context, Failure, Result, FAILED};
use snug_base::{progress, terminal};
use snug_process::proc::Pid;
use snug_profile::black_box_folder;
use snug_profile::black_box_writer::BlackBoxWatch;

/// Watches the process in the foreground.
pub(super) fn run(folder: &Path, pid: Pid, arguments: &ProfileArguments) -> Result<()> {
    let folder = black_box_folder::check(folder)?;
    let mut signals = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block().cannot(|| "block signals".into())?;
    let signals = SignalFd::new(&signals).cannot(|| "open a signal descriptor".into())?;
    let tree = running::begin(pid, arguments)?;
    let left_out: Vec<String> = tree.left_out().into_iter().map(String::from).collect();
    running::tell_left_out(&left_out);
    let mut watch = BlackBoxWatch::new(&folder, pid)?;
    let message = format!("watching {pid} until it ends; Ctrl-C ends the watch");
    let problem = progress::during(&message, None, || watch.run(Some(&signals)));
    tree.finish(arguments.keep);
    let path = watch.path().display().to_string();
    if let Some(problem) = problem {
        return Err(Failure::new(format!("cannot write {path}: {problem}")).exit_code(FAILED));
    }
    terminal::note(&format!("written: {path}; `snug blame {path}` shows it"));
    Ok(())
}
