//! Says whether a run went well, and if not, why.

use nix::sys::signal::Signal;

use super::drive::{tail, with_ending};
use super::measure::{Followed, Request};
use super::results::{Loaded, Run};
use crate::system::Ending;

/// What was wrong with a run; None if nothing.
pub fn judge(request: &Request, followed: &Followed, run: &Run) -> Option<String> {
    failed_ending(request, followed).or_else(|| failed_measuring(request, run))
}

fn failed_ending(request: &Request, followed: &Followed) -> Option<String> {
    let log = || log_tail(request);
    match followed {
        Followed::Ended(ending, Some(phase)) => {
            let when = match *phase {
                "boot" => "before it was ready".to_string(),
                phase => format!("in the {phase} phase"),
            };
            Some(format!("the server {} {when}; {}", describe(*ending), log()))
        }
        Followed::Ended(Ending::Exited(0), None) => None,
        Followed::Ended(ending, None) => Some(format!("the program {}; {}", describe(*ending), log())),
        // SIGTERM is our own; exit codes after it say little.
        Followed::Served(Some(ending @ Ending::Signalled(signal))) if is_crash(*signal) => {
            Some(format!("the server {} when it was told to stop; {}", describe(*ending), log()))
        }
        Followed::Served(_) => None,
        Followed::Failed(why) => Some(format!("{why}; of the server, {}", log())),
    }
}

fn failed_measuring(request: &Request, run: &Run) -> Option<String> {
    if let Some(errors) = run.metrics.get("errors").filter(|errors| **errors > 0.0) {
        return Some(format!("the program reported {errors} errors; {}", log_tail(request)));
    }
    if let Some(process) = run.processes.iter().find(|process| process.allocator_loaded == Loaded::No) {
        return Some(format!(
            "{} was not loaded in process {} ({}): something removed LD_PRELOAD from its environment, or it is \
             a static program. Measure only the processes that you mean: --only REGEX",
            request.label, process.pid, process.command
        ));
    }
    let only = request.settings.only.as_ref().filter(|_| run.processes.is_empty());
    only.map(|only| format!("no process matched --only {only:?}"))
}

/// What to note about processes that did not end by themselves.
pub fn leftovers(request: &Request, followed: &Followed, outlived: &[String]) -> Option<String> {
    match (followed, request.plan) {
        (Followed::Served(None), Some(plan)) => Some(format!(
            "the server did not end within {} s of SIGTERM and was killed (--grace)",
            plan.grace.as_secs_f64()
        )),
        // Workers that outlive their server are stopped with it.
        (_, Some(_)) => None,
        (_, None) if outlived.is_empty() => None,
        (_, None) => Some(format!(
            "{} of its processes outlived the program and were stopped: {}",
            outlived.len(),
            outlived.join("; ")
        )),
    }
}

/// Signals that a process gets for its own mistakes.
fn is_crash(signal: i32) -> bool {
    use Signal::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    let crashes = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];
    Signal::try_from(signal).is_ok_and(|signal| crashes.contains(&signal))
}

fn describe(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("exited with code {code}"),
        Ending::Signalled(signal) => {
            let name =
                Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            format!("was killed by {name}")
        }
    }
}

/// The end of what the program wrote: to stderr, or else to stdout, where many servers log.
fn log_tail(request: &Request) -> String {
    for stream in ["stderr", "stdout"] {
        let path = with_ending(&request.log, stream);
        let text = tail(&path);
        if !text.is_empty() {
            return format!("the end of its {stream} ({}):\n{text}", path.display());
        }
    }
    format!("it wrote nothing (to {}.stderr and .stdout)", request.log.display())
}
