//! Says whether a run went well, and if not, why.

use nix::sys::signal::Signal;

use crate::phases::{tail, with_ending};
use crate::request::{Request, RunEnd};
use snug_compare::results::{Loaded, Run};
use snug_process::system::Ending;

/// What was wrong with a run, of which something may be known already; None if nothing.
pub fn failure(request: &Request, followed: &RunEnd, run: &Run) -> Option<String> {
    failed_ending(request, followed).or_else(|| failed_measuring(request, run))
}

fn failed_ending(request: &Request, followed: &RunEnd) -> Option<String> {
    let log = || log_tail(request);
    match followed {
        RunEnd::Ended(ending, Some(phase)) => {
            let when = match *phase {
                "boot" => "before it was ready".to_string(),
                phase => format!("in the {phase} phase"),
            };
            let hint = match (ending, *phase) {
                (Ending::Exited(0), "boot") => " (did it go into the background? Keep it in the foreground)",
                _ => "",
            };
            Some(format!("the server {} {when}{hint}; {}", ending.text(), log()))
        }
        RunEnd::Ended(Ending::Exited(0), None) => None,
        RunEnd::Ended(ending, None) => Some(format!("the program {}; {}", ending.text(), log())),
        // SIGTERM is our own; exit codes after it say little.
        RunEnd::Served(Some(ending @ Ending::Signalled(signal))) if is_crash(*signal) => {
            Some(format!("the server {} when it was told to stop; {}", ending.text(), log()))
        }
        RunEnd::Served(_) => None,
        RunEnd::Failed(why) => Some(format!("{why}; of the server, {}", log())),
    }
}

fn failed_measuring(request: &Request, run: &Run) -> Option<String> {
    if let Some(known) = &run.failure {
        return Some(format!("{known}; {}", log_tail(request)));
    }
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
    if let Some(only) = request.settings.only.as_ref().filter(|_| run.processes.is_empty()) {
        return Some(format!("no process matched --only {only:?}"));
    }
    if loader_vouches(request, run) {
        return None;
    }
    let nowhere = nowhere_seen(request, run)?;
    let advice = if run.evidence.processes_unreadable > 0 {
        "run snug as a user that may look at the processes (root in a container needs CAP_SYS_PTRACE for it: docker run \
         --cap-add SYS_PTRACE), or measure only those of your own: --only REGEX"
    } else {
        "give the program more to do"
    };
    Some(format!("{} was {nowhere}. Nothing else shows that it was loaded: {advice}", request.label))
}

/// What to note of a run in which only the loader's word says that the allocator was loaded.
pub fn unseen(request: &Request, run: &Run) -> Option<String> {
    let nowhere = nowhere_seen(request, run).filter(|_| loader_vouches(request, run))?;
    Some(format!(
        "{nowhere}; it is only known that the loader accepts it for {}",
        request.program[0].to_string_lossy()
    ))
}

/// The loader accepted the library before the runs. It would not load it into the processes that may not be read.
fn loader_vouches(request: &Request, run: &Run) -> bool {
    request.probed && run.evidence.processes_unreadable == 0
}

/// That the allocator was to be loaded and was seen in no process.
fn nowhere_seen(request: &Request, run: &Run) -> Option<String> {
    let evidence = &run.evidence;
    if request.target.library.is_none() || evidence.processes_loaded > 0 {
        return None;
    }
    let parts = [
        (evidence.processes_too_short, "ended too soon"),
        (evidence.processes_unreadable, "may not be read"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<String> = parts.collect();
    let why = if parts.is_empty() { "there was none to look at".into() } else { parts.join(", ") };
    Some(format!("seen in no process ({why})"))
}

/// What to note about processes that did not end by themselves.
pub fn leftovers(request: &Request, followed: &RunEnd, outlived: &[String]) -> Option<String> {
    match (followed, request.plan) {
        (RunEnd::Served(None), Some(plan)) => Some(format!(
            "the server did not end within {} s of SIGTERM and was killed (--grace)",
            plan.grace.as_secs_f64()
        )),
        // Workers that outlive their server are stopped with it.
        (_, Some(_)) => None,
        (_, None) if outlived.is_empty() => None,
        (_, None) => Some(format!(
            "{} of its processes outlived the program and were stopped (for a server, give --ready and keep \
                it in the foreground): {}",
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::track::TrackOptions;
    use snug_compare::fixture;

    /// What is said of a run of which the loader was asked before, and in which so many processes loaded the allocator,
    /// were too short, and unreadable: the failure, and the note.
    fn judged(
        probed: bool,
        loaded: u32,
        too_short: u32,
        unreadable: u32,
    ) -> (Option<String>, Option<String>) {
        judged_as(probed, |run| {
            run.evidence.processes_loaded = loaded;
            run.evidence.processes_too_short = too_short;
            run.evidence.processes_unreadable = unreadable;
        })
    }

    fn judged_as(probed: bool, change: impl FnOnce(&mut Run)) -> (Option<String>, Option<String>) {
        let comparison = fixture::comparison(&[("snug", &[1.0])]);
        let program = ["ruby".into()];
        let request = Request {
            label: "snug",
            round: 1,
            program: &program,
            environment: &BTreeMap::new(),
            ask_allocator: false,
            profile: None,
            target: TrackOptions { library: Some("/l/libsnug.so".into()), ..TrackOptions::default() },
            settings: &comparison.settings,
            plan: None,
            probed,
            log: "/nonexistent/1-snug".into(),
        };
        let mut run = comparison.runs[0].clone();
        change(&mut run);
        let ending = RunEnd::Ended(Ending::Exited(0), None);
        (failure(&request, &ending, &run), unseen(&request, &run))
    }

    #[test]
    fn errors_that_nobody_counted_are_a_failure() {
        let known = "the program reported errors=NaN, which is not a finite number";
        let (failure, _) = judged_as(true, |run| {
            run.evidence.processes_loaded = 1;
            run.failure = Some(known.into());
        });
        assert!(failure.is_some_and(|failure| failure.starts_with(&format!("{known}; it wrote nothing"))));
    }

    #[test]
    fn an_allocator_that_nobody_saw_is_no_result() {
        assert_eq!(judged(false, 1, 2, 0), (None, None));
        let (failure, note) = judged(false, 0, 2, 0);
        assert_eq!(note, None);
        assert!(failure.unwrap().starts_with("snug was seen in no process (2 ended too soon)"));
        let (failure, _) = judged(true, 0, 1, 1);
        assert!(
            failure.unwrap().contains("1 ended too soon, 1 may not be read"),
            "the loader ignores it for setuid ones"
        );
        let (failure, note) = judged(true, 0, 2, 0);
        assert_eq!(failure, None, "the loader's word is enough for short programs");
        assert!(note.unwrap().ends_with("it is only known that the loader accepts it for ruby"));
    }
}
