//! A child that is seen in its last moment: when it is about to end, its memory and its mappings are still there. It is
//! traced by ptrace(2), which stops it then, and for each signal to its first thread, which is passed on at once; but it
//! runs at full speed otherwise. Only the first thread is traced: it is told to end whichever thread ends the process.
//! The thread that traces must be the one that started it.

use std::fs::File;
use std::io;

use crate::proc::Pid;
use crate::system::{self, ChildChange, HeldChild, Reaped, TraceRequest, TraceStop};

/// A child, traced or not.
pub struct TracedChild {
    pub pid: Pid,
    tracing: Tracing,
    error: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracing {
    /// The kernel did not allow it, or it is over.
    Untraced,
    Running,
    /// It stands still, about to end.
    Ending,
    /// It was let go on to its end.
    LetGo,
}

/// What is to be done about a child.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChildState {
    Running,
    /// It waits, about to end, until `let_go`; its memory can still be read.
    Ending,
    /// Of its first thread nothing is left, or soon.
    LetGo,
    Ended(Reaped),
    /// Somebody else was told how it ended.
    Gone,
}

impl TracedChild {
    /// Traces a child that has not executed its program yet. Returns the error if the kernel does not allow that; the child
    /// can be used all the same.
    pub fn seize(child: &HeldChild) -> io::Result<()> {
        system::trace(child.pid, TraceRequest::SeizeUntilExit)
    }

    /// Lets a child begin, for which `seize` succeeded or not.
    pub fn start(child: HeldChild, is_traced: bool) -> io::Result<TracedChild> {
        let pid = child.pid;
        let tracing = if is_traced { Tracing::Running } else { Tracing::Untraced };
        Ok(TracedChild { pid, tracing, error: child.go()? })
    }

    /// Whether its last moment will be seen.
    pub fn is_traced(&self) -> bool {
        self.tracing != Tracing::Untraced
    }

    /// Why the program could not be executed, of a child that has ended.
    pub fn exec_error(&self) -> Option<io::Error> {
        system::exec_error(&self.error)
    }

    /// What has happened. Takes note of orphans that ended, too.
    pub fn look(&mut self) -> ChildState {
        loop {
            match system::next_change() {
                Ok(Some(ChildChange::Ended(reaped))) if reaped.pid == self.pid => {
                    return ChildState::Ended(reaped)
                }
                Ok(Some(ChildChange::Ended(_))) => {}
                Ok(Some(ChildChange::Stopped(stop))) => self.answer(stop),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ChildState::Gone,
                Ok(None) => break,
            }
        }
        // Where another thread than the first executed a program, the first has ended, and that one has its identifier now.
        if self.tracing == Tracing::LetGo && system::trace(self.pid, TraceRequest::SeizeUntilExit).is_ok() {
            self.tracing = Tracing::Running;
        }
        match self.tracing {
            Tracing::Untraced | Tracing::Running => ChildState::Running,
            Tracing::Ending => ChildState::Ending,
            Tracing::LetGo => ChildState::LetGo,
        }
    }

    fn answer(&mut self, stop: TraceStop) {
        match answer_to(stop) {
            // It may have been killed meanwhile.
            Some(request) => drop(system::trace(stop.pid, request)),
            None => self.tracing = Tracing::Ending,
        }
    }

    /// Lets a child that is about to end do so.
    pub fn let_go(&mut self) {
        if self.tracing == Tracing::Ending {
            self.tracing = Tracing::LetGo;
            // It may have been killed meanwhile.
            let _ = system::trace(self.pid, TraceRequest::Continue(0));
        }
    }

    /// Ends tracing: the child goes on as any other once it is waited for as those are, by `Children`.
    pub fn release(&mut self) {
        let request = match std::mem::replace(&mut self.tracing, Tracing::Untraced) {
            Tracing::Untraced | Tracing::LetGo => return,
            Tracing::Ending => TraceRequest::Detach(0),
            Tracing::Running => TraceRequest::Interrupt,
        };
        // It may have been killed meanwhile.
        let _ = system::trace(self.pid, request);
    }
}

/// How a stop is answered; None: it is the last one.
fn answer_to(stop: TraceStop) -> Option<TraceRequest> {
    match stop.event {
        libc::PTRACE_EVENT_EXIT => None,
        libc::PTRACE_EVENT_STOP if is_stopping(stop.signal) => Some(TraceRequest::Listen),
        0 => Some(TraceRequest::Continue(stop.signal)),
        _ => Some(TraceRequest::Continue(0)),
    }
}

/// Whether a signal stops processes, as the terminal's Ctrl-Z does.
fn is_stopping(signal: i32) -> bool {
    [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_passed_on_and_stopped_processes_stay_so() {
        let answer = |signal, event| answer_to(TraceStop { pid: 7, signal, event });
        assert_eq!(answer(libc::SIGUSR1, 0), Some(TraceRequest::Continue(libc::SIGUSR1)));
        assert_eq!(answer(libc::SIGTRAP, 0), Some(TraceRequest::Continue(libc::SIGTRAP)));
        assert_eq!(answer(40, 0), Some(TraceRequest::Continue(40)), "a real-time signal");
        assert_eq!(answer(libc::SIGSTOP, 0), Some(TraceRequest::Continue(libc::SIGSTOP)));
        assert_eq!(answer(libc::SIGTSTP, libc::PTRACE_EVENT_STOP), Some(TraceRequest::Listen));
        assert_eq!(answer(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), Some(TraceRequest::Continue(0)));
        assert_eq!(answer(libc::SIGTRAP, libc::PTRACE_EVENT_EXIT), None);
    }
}
