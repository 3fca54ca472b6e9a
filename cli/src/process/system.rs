//! The calls that have no safe wrapper. All `unsafe` of the tool is in this file.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::time::ClockId;

use crate::process::proc::Pid;

/// How a child ended and what it and its waited-for children used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reaped {
    pub pid: Pid,
    pub ending: Ending,
    pub user: Duration,
    pub system: Duration,
    pub minor_faults: u64,
    pub major_faults: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(i32),
    Signalled(i32),
}

impl Ending {
    /// Says how it was.
    pub(crate) fn text(self) -> String {
        match self {
            Ending::Exited(code) => format!("exited with code {code}"),
            Ending::Signalled(signal) => {
                let name =
                    Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
                format!("was killed by {name}")
            }
        }
    }

    /// The same of a failure; None if it was none.
    pub(crate) fn failure(self) -> Option<String> {
        (self != Ending::Exited(0)).then(|| self.text())
    }
}

/// Whether a file has capabilities (capabilities(7)), which its process gets.
pub(crate) fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a NUL and live through the call; no buffer is given, so nothing is written.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

/// Waits for any child without blocking. None if children exist but none has ended; an error of kind
/// `ECHILD` if there are no children at all.
pub(crate) fn reap_any() -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: rusage is plain data for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable locals of the right types.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(Reaped {
            pid,
            ending: if libc::WIFSIGNALED(status) {
                Ending::Signalled(libc::WTERMSIG(status))
            } else {
                Ending::Exited(libc::WEXITSTATUS(status))
            },
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        })),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// CPU time that this process has used so far, all its threads together.
pub(crate) fn own_cpu() -> Duration {
    clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that this thread has used so far. Exact, unlike getrusage(RUSAGE_THREAD), which lags by up to a tick.
pub(crate) fn thread_cpu() -> Duration {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The clock that only goes forward, by which processes on one machine agree.
pub(crate) fn monotonic_time() -> Duration {
    clock(ClockId::CLOCK_MONOTONIC)
}

fn clock(id: ClockId) -> Duration {
    // These clocks exist on every Linux.
    nix::time::clock_gettime(id).map(Duration::from).unwrap_or_default()
}

/// Makes this process the one that inherits every orphan below it, so that daemons stay in its tree.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this option takes one integer and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Prepares a child that is measured: no signal is blocked in it (they are in us), it leads a process group of
/// its own so that the terminal's Ctrl-C reaches only us, and it dies if we are killed outright.
pub(crate) fn isolate(command: &mut Command) {
    command.process_group(0);
    unblock_signals(command);
    // SAFETY: the closure runs between fork and exec and makes one async-signal-safe call.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// Lets a child receive the signals that are blocked in us.
pub(crate) fn unblock_signals(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls on its own locals.
    unsafe {
        command.pre_exec(|| {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Whether this process was told to ignore a signal, as nohup(1) does.
#[cfg(feature = "images")]
pub(crate) fn is_ignored(signal: Signal) -> bool {
    // SAFETY: sigaction is plain data for which all zeros is a valid value, and only read into.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as i32, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Lets a child join a control group, whose `cgroup.procs` is open for writing, before it executes its program. If it
/// can't, the program runs where it is.
pub(crate) fn join_group(command: &mut Command, processes_file: std::fs::File) {
    use std::os::fd::AsRawFd;
    // SAFETY: the closure runs between fork and exec and makes one async-signal-safe call on a descriptor it owns.
    unsafe {
        command.pre_exec(move || {
            libc::write(processes_file.as_raw_fd(), b"0".as_ptr().cast(), 1);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_grows() {
        let before = own_cpu();
        let mut sum = 0u64;
        let thread_before = thread_cpu();
        for _ in 0..1000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_cpu() > before && thread_cpu() > thread_before && thread_cpu() < own_cpu());
    }
}
