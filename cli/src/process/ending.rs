//! How a process ended that is no child of this one. Its parent hears of that once, and by default nobody else does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::process::proc::{self, Pid};
use crate::process::system::{self, Ending};

/// How long to ask: between the moments at which a process ends and at which its end is told it may have to wait for a CPU.
const ASK_FOR: Duration = Duration::from_secs(5);

/// Stays with a process, whoever gets its PID later.
pub(crate) struct EndingTold {
    pid: Pid,
    start_ticks: u64,
    /// None on a kernel before Linux 5.3.
    descriptor: Option<OwnedFd>,
}

impl EndingTold {
    /// Call while the process runs; its start, in clock ticks, says which process of that PID it is.
    pub(crate) fn open(pid: Pid, start_ticks: u64) -> io::Result<EndingTold> {
        let descriptor = match system::open_process(pid) {
            Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) => None,
            opened => Some(opened?),
        };
        Ok(EndingTold { pid, start_ticks, descriptor })
    }

    /// Can be read from once the process has ended. None: the kernel has no such thing.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// How a process ended that has done so. None: the kernel is older than Linux 6.15, and its parent was quicker.
    pub(crate) fn ending(&self) -> Option<Ending> {
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
        let stat = proc::parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap();
        EndingTold::open(pid, stat.start_ticks).unwrap()
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
    fn is_told_later() -> bool {
        let (mut child, told) = start("exit 0");
        drop(child.stdin.take());
        child.wait().unwrap();
        told.ending().is_some()
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
        if !is_told_later() {
            return;
        }
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
        if !is_told_later() {
            return;
        }
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
        if !is_told_later() {
            return;
        }
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
