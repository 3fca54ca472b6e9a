//! The calls that have no safe wrapper. All `unsafe` of the tool is in this file.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;
use nix::time::ClockId;

use crate::proc::Pid;

/// How a child ended and what it and its waited-for children used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reaped {
    pub pid: Pid,
    pub ending: Ending,
    pub user: Duration,
    pub system: Duration,
    pub minor_faults: u64,
    pub major_faults: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Signalled(i32),
}

impl Ending {
    /// By what wait(2) tells.
    pub fn from_wait_status(status: i32) -> Ending {
        match libc::WIFSIGNALED(status) {
            true => Ending::Signalled(libc::WTERMSIG(status)),
            false => Ending::Exited(libc::WEXITSTATUS(status)),
        }
    }

    /// Says how it was.
    pub fn text(self) -> String {
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
    pub fn failure(self) -> Option<String> {
        (self != Ending::Exited(0)).then(|| self.text())
    }
}

/// Whether a file has capabilities (capabilities(7)), which its process gets.
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a NUL and live through the call; no buffer is given, so nothing is written.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

/// What wait4 tells of a child.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChildChange {
    Ended(Reaped),
    Stopped(TraceStop),
}

/// A child that this process traces stands still until it is told what to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceStop {
    pub pid: Pid,
    /// What is about to be delivered, or stopped it.
    pub signal: i32,
    /// PTRACE_EVENT_..., 0: a signal is about to be delivered.
    pub event: i32,
}

impl TraceStop {
    /// Ends tracing here; a signal that was about to be delivered is.
    fn leave(self) {
        let signal = if self.event == 0 { self.signal } else { 0 };
        // It may have been killed meanwhile.
        let _ = trace(self.pid, TraceRequest::Detach(signal));
    }
}

/// Waits for any child without blocking. None if children exist but none has ended; an error of kind
/// `ECHILD` if there are no children at all. A child that was traced and stops goes on, and is traced no more.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    loop {
        match next_change()? {
            Some(ChildChange::Ended(reaped)) => return Ok(Some(reaped)),
            Some(ChildChange::Stopped(stop)) => stop.leave(),
            None => return Ok(None),
        }
    }
}

/// The same for children that are traced, whose stops are to be answered.
pub fn next_change() -> io::Result<Option<ChildChange>> {
    let mut status = 0;
    // SAFETY: rusage is plain data for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable locals of the right types.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ if libc::WIFSTOPPED(status) => Ok(Some(ChildChange::Stopped(TraceStop {
            pid,
            signal: libc::WSTOPSIG(status),
            event: status >> 16,
        }))),
        _ => Ok(Some(ChildChange::Ended(Reaped {
            pid,
            ending: Ending::from_wait_status(status),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        }))),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// CPU time that this process has used so far, all its threads together.
pub fn own_cpu() -> Duration {
    clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that this thread has used so far. Exact, unlike getrusage(RUSAGE_THREAD), which lags by up to a tick.
pub fn thread_cpu() -> Duration {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The clock that only goes forward, by which processes on one machine agree.
pub fn monotonic_time() -> Duration {
    clock(ClockId::CLOCK_MONOTONIC)
}

fn clock(id: ClockId) -> Duration {
    // These clocks exist on every Linux.
    nix::time::clock_gettime(id).map(Duration::from).unwrap_or_default()
}

/// Makes this process the one that inherits every orphan below it, so that daemons stay in its tree.
pub fn adopt_orphans() -> io::Result<()> {
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
pub fn isolate(command: &mut Command) {
    command.process_group(0);
    attach(command);
}

/// The same, but what the terminal sends to us reaches the child, too: it may read from there.
pub fn attach(command: &mut Command) {
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
pub fn unblock_signals(command: &mut Command) {
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

/// A child that will become a program once it is told to go on.
pub struct HeldChild {
    pub pid: Pid,
    /// Closed without a word: it ends.
    go: File,
    /// Says why the program could not be executed.
    error: File,
}

impl HeldChild {
    /// Lets the child execute its program. Returns the pipe that holds, when the child has ended, what `exec_error` reads.
    pub fn go(mut self) -> io::Result<File> {
        self.go.write_all(&[1])?;
        Ok(self.error)
    }
}

/// Why a child that has ended could not execute its program; None: it could.
pub fn exec_error(mut pipe: &File) -> Option<io::Error> {
    let mut errno = [0; 4];
    pipe.read_exact(&mut errno).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
}

/// Starts a child that waits, before it executes its program. Command::spawn would return only when it has. Call while
/// this process has one thread: the child uses locks and memory as they were left.
pub fn spawn_held(command: &mut Command) -> io::Result<HeldChild> {
    let (go_read, go_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (error_read, error_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: there is one thread, so the child finds no lock held and may do whatever this process may.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => {
            Ok(HeldChild { pid: child.as_raw(), go: go_write.into(), error: error_read.into() })
        }
        nix::unistd::ForkResult::Child => {
            drop(go_write);
            if File::from(go_read).read_exact(&mut [0]).is_ok() {
                let error = command.exec().raw_os_error().unwrap_or(libc::ENOEXEC);
                // Nobody may listen any more.
                let _ = File::from(error_write).write_all(&error.to_ne_bytes());
            }
            // SAFETY: nothing is run at exit, which would be the parent's.
            unsafe { libc::_exit(127) }
        }
    }
}

/// Forks a process that no wait(2) of this process tells of, nor of the program that it executes: it ends without a signal
/// to its parent. Returns its PID; in the new process None. Call while this process has one thread.
pub fn fork_unseen() -> io::Result<Option<Pid>> {
    // SAFETY: without CLONE_VM this is a fork; there is one thread, so the new process finds no lock held.
    match unsafe { libc::syscall(libc::SYS_clone, 0usize, 0usize, 0usize, 0usize, 0usize) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as Pid)),
    }
}

/// Ends this process at once; nothing is run at exit, which would be its parent's.
pub fn exit_now() -> ! {
    // SAFETY: this touches no memory.
    unsafe { libc::_exit(0) }
}

/// Gives this process another name than its program's, until it executes one.
pub fn set_name(name: &CStr) {
    // SAFETY: the kernel copies up to 16 bytes of a string that ends in a NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Lets a process read the memory of this one where the module Yama keeps that to parents.
pub fn allow_reader(pid: Pid) {
    // SAFETY: this option takes an integer and touches no memory. Without Yama the kernel refuses it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0) };
}

/// Lets go of all files that were inherited, but for this one: stdin, stdout and stderr become /dev/null.
pub fn leave_files(kept: RawFd) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let entries = std::fs::read_dir("/proc/self/fd")?.flatten();
    let open: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open {
        // SAFETY: nothing of this process uses them any more; closing one that is closed does nothing.
        unsafe {
            match descriptor {
                0..=2 => libc::dup2(null.as_raw_fd(), descriptor),
                _ if descriptor != kept && descriptor != null.as_raw_fd() => libc::close(descriptor),
                _ => 0,
            };
        }
    }
    Ok(())
}

/// A descriptor that stays with a process, whoever gets its PID later; it can be read once the process has ended.
pub fn open_process(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Whether a process ends within a time, zero for at once.
pub fn ends_within(process: &OwnedFd, time: Duration) -> bool {
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout) == Ok(1)
}

/// How a process ended that has left its PID, whoever's child it was. None: it has not. Fails on a kernel before Linux
/// 6.15, which does not say.
pub fn ending_of(process: &OwnedFd) -> io::Result<Option<Ending>> {
    // `struct pidfd_info` of linux/pidfd.h in its first size: mask, then at 60 the exit code.
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    const PIDFD_INFO_EXIT: u64 = 8;
    let mut info = [0u64; 8];
    info[0] = PIDFD_INFO_EXIT;
    // SAFETY: the request tells the kernel that 64 bytes are ours to write, as they are.
    let result = unsafe { libc::ioctl(process.as_raw_fd(), PIDFD_GET_INFO as _, info.as_mut_ptr()) };
    if result == -1 {
        let error = io::Error::last_os_error();
        // It leaves its PID at this very moment.
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(None) } else { Err(error) };
    }
    let bytes = info[7].to_ne_bytes();
    let status = i32::from_ne_bytes(bytes[4..].try_into().expect("four bytes"));
    Ok((info[0] & PIDFD_INFO_EXIT != 0).then(|| Ending::from_wait_status(status)))
}

/// What ptrace is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceRequest {
    /// Trace a process that runs; it is told to stop when it is about to end, and for nothing else but its signals.
    SeizeUntilExit,
    /// Go on from a stop, with this signal; 0: without any.
    Continue(i32),
    /// Stay stopped as SIGSTOP and its like ask for.
    Listen,
    /// Stop for the tracer.
    Interrupt,
    /// Go on from a stop, with this signal or 0, and be traced no more.
    Detach(i32),
}

/// Asks the kernel something about a child that this thread traces, or is about to.
pub fn trace(pid: Pid, request: TraceRequest) -> io::Result<()> {
    let (request, data) = match request {
        TraceRequest::SeizeUntilExit => (libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXIT),
        TraceRequest::Continue(signal) => (libc::PTRACE_CONT, signal),
        TraceRequest::Listen => (libc::PTRACE_LISTEN, 0),
        TraceRequest::Interrupt => (libc::PTRACE_INTERRUPT, 0),
        TraceRequest::Detach(signal) => (libc::PTRACE_DETACH, signal),
    };
    // SAFETY: these requests take two integers and touch no memory of ours.
    let result = unsafe { libc::ptrace(request, pid, 0usize, data as usize) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets a child join a control group, whose `cgroup.procs` is open for writing, before it executes its program. If it
/// can't, the program runs where it is.
pub fn join_group(command: &mut Command, processes_file: std::fs::File) {
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
