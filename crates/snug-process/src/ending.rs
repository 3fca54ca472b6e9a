//! The end of a process that is no child of this one, and how it came. Its parent hears of that once, and by default
//! nobody else does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::proc::{self, Pid};
use crate::system::{self, Ending};

/// How long to ask: between the moments at which a process ends and at which its end is told it may have to wait for a CPU.
const ASK_FOR: Duration = Duration::from_secs(5);
/// Time between two looks whether it has ended, where the kernel does not tell it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Stays with a process, whoever gets its PID later.
pub struct EndingTold {
    pid: Pid,
    start_ticks: u64,
    /// None on a kernel before Linux 5.3, and where a filter of system calls does not know it.
    descriptor: Option<OwnedFd>,
}

impl EndingTold {
    /// Call while the process runs; its start, in clock ticks, says which process of that PID it is.
    pub fn open(pid: Pid, start_ticks: u64) -> io::Result<EndingTold> {
        let descriptor = match system::open_process(pid) {
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => return Err(error),
            opened => opened.ok(),
        };
        Ok(EndingTold { pid, start_ticks, descriptor })
    }

    /// The same of the process that has the PID now.
    pub fn of_running(pid: Pid) -> io::Result<EndingTold> {
        let stat = proc::parse_stat(&std::fs::read(format!("/proc/{pid}/stat"))?);
        EndingTold::open(pid, stat.ok_or(Errno::ESRCH)?.start_ticks)
    }

    /// Can be read from once the process has ended. None: the kernel has no such thing.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process has ended; its parent may not have asked for it yet.
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Whether it ends within a time.
    pub fn ends_within(&self, time: Duration) -> bool {
        if let Some(descriptor) = &self.descriptor {
            return system::ends_within(descriptor, time);
        }
        let begin = Instant::now();
        while !self.is_gone() {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        true
    }

    /// How long to wait at most before asking again whether it has ended.
    pub fn ask_within(&self) -> Duration {
        if self.descriptor.is_some() {
            Duration::MAX
        } else {
            LOOK_EVERY
        }
    }

    /// The same as `has_ended`, by what /proc says. What it does not say is no end.
    fn is_gone(&self) -> bool {
        match std::fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(text) => proc::parse_stat(&text).is_some_and(|stat| {
                stat.start_ticks != self.start_ticks || (stat.has_ended() && stat.threads <= 1)
            }),
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
            }
        }
    }

    /// How a process ended that has done so. None: the kernel is older than Linux 6.15, and its parent was quicker.
    pub fn ending(&self) -> Option<Ending> {
        let begin = Instant::now();
        loop {
            // The kernel tells it by the descriptor from when its parent has asked, and in /proc up to then.
            let told = self.descriptor.as_ref().map(system::ending_of);
            if let Some(Ok(Some(ending))) = told {
                return Some(ending);
            }
            if let Some(ending) = self.of_zombie() {
                return Some(ending);
            }
            // It is between the two.
            let may_come = matches!(told, Some(Ok(None)));
            if !may_come || begin.elapsed() >= ASK_FOR {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How it ended, if its parent has not asked yet.
    fn of_zombie(&self) -> Option<Ending> {
        let text = std::fs::read(format!("/proc/{}/stat", self.pid)).ok()?;
        let stat = proc::parse_stat(&text)?;
        // The first thread of several may have ended alone.
        let is_it = stat.start_ticks == self.start_ticks && stat.has_ended() && stat.threads <= 1;
        // To those who may not know the kernel says 0.
        let may_know =
            || stat.wait_status != 0 || std::fs::read_link(format!("/proc/{}/ns/user", self.pid)).is_ok();
        (is_it && may_know()).then(|| Ending::from_wait_status(stat.wait_status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
    use snug_base::need;

    const ENDINGS: [(&str, Ending); 3] = [
        ("exit 0", Ending::Exited(0)),
        ("exit 3", Ending::Exited(3)),
        ("kill -9 $$; read x", Ending::Signalled(9)),
    ];

    /// Waits for a line, and then ends that way.
    fn start(script: &str) -> (Child, EndingTold) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read x; {script}")]).stdin(Stdio::piped());
        let child = command.spawn().unwrap();
        let told = open(child.id() as Pid);
        (child, told)
    }

    fn open(pid: Pid) -> EndingTold {
        EndingTold::of_running(pid).unwrap()
    }

    /// Waits until a process has ended; its parent may not have asked yet.
    fn await_end(told: &EndingTold) {
        let Some(descriptor) = told.descriptor() else {
            while told.of_zombie().is_none() {
                std::thread::yield_now();
            }
            return;
        };
        while poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], PollTimeout::from(60_000_u16)) != Ok(1)
        {
        }
    }

    /// Whether the kernel tells it after the parent has asked, too.
    fn told_later() -> Result<(), String> {
        let (mut child, told) = start("exit 0");
        drop(child.stdin.take());
        child.wait().unwrap();
        told.ending().map(|_| ()).ok_or("this kernel does not tell it then".into())
    }

    #[test]
    fn the_kernel_and_proc_say_alike_whether_it_has_ended() {
        let (mut child, told) = start("exit 0");
        let asked = EndingTold { pid: told.pid, start_ticks: told.start_ticks, descriptor: None };
        let other = EndingTold { pid: told.pid, start_ticks: told.start_ticks + 1, descriptor: None };
        assert!(!told.has_ended() && !asked.has_ended() && other.has_ended());
        let begin = Instant::now();
        assert!(!asked.ends_within(Duration::from_millis(250)));
        assert!(begin.elapsed() >= Duration::from_millis(250));
        drop(child.stdin.take());
        for ending in [&told, &asked] {
            assert!(ending.ends_within(Duration::from_secs(60)), "its parent has not asked");
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it is not waited for when it has ended");
        child.wait().unwrap();
        assert!(told.has_ended() && asked.has_ended());
        assert_eq!(EndingTold::of_running(told.pid).map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// Its first thread ends, and another one works on.
    #[test]
    fn a_process_ends_with_its_last_thread() {
        let script = "import ctypes, os, threading, time\nthreading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()\n\
            ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)";
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as Pid;
        let asked = EndingTold { descriptor: None, ..open(pid) };
        let state = || proc::parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap();
        while !state().has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!asked.has_ended());
        drop(child.stdin.take());
        assert!(asked.ends_within(Duration::from_secs(60)));
        child.wait().unwrap();
    }

    #[test]
    fn an_end_that_its_parent_has_not_heard_of() {
        for (script, ending) in ENDINGS {
            let (mut child, told) = start(script);
            drop(child.stdin.take());
            await_end(&told);
            assert_eq!(told.ending(), Some(ending), "{script}");
            child.wait().unwrap();
        }
    }

    #[test]
    fn an_end_that_its_parent_has_heard_of() {
        need!(told_later());
        for (script, ending) in ENDINGS {
            let (mut child, told) = start(script);
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(told.ending(), Some(ending), "{script}");
        }
    }

    /// The kernel tells nothing for a moment, which only many tries find.
    #[test]
    fn an_end_of_which_its_parent_hears_meanwhile() {
        need!(told_later());
        for _ in 0..100 {
            for (script, ending) in ENDINGS {
                let (mut child, told) = start(script);
                drop(child.stdin.take());
                std::thread::scope(|scope| {
                    scope.spawn(|| child.wait().unwrap());
                    await_end(&told);
                    assert_eq!(told.ending(), Some(ending), "{script}");
                });
            }
        }
    }

    #[test]
    fn an_end_that_its_parent_ignores() {
        need!(told_later());
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' CHLD; exec sh -c '(read x; exit 3) <&3 & echo $!; exec 3<&-; wait' 3<&0"]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let told = open(line.trim().parse().unwrap());
        drop(child.stdin.take());
        await_end(&told);
        assert_eq!(told.ending(), Some(Ending::Exited(3)));
        child.wait().unwrap();
    }

    #[test]
    fn a_stranger_with_the_same_number_is_not_asked() {
        let (mut child, told) = start("exit 3");
        let other = EndingTold { pid: told.pid, start_ticks: told.start_ticks + 1, descriptor: None };
        drop(child.stdin.take());
        await_end(&told);
        assert_eq!(other.ending(), None);
        child.wait().unwrap();
    }
}
