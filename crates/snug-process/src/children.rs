//! Waiting for the processes below this one, and stopping them. Signals are read from a descriptor rather than
//! interrupting, so that Ctrl-C is an event like any other and nothing is left behind.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{self, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid as NixPid;

use crate::proc::Pid;
use crate::system::{self, Reaped};
use snug_base::failure::{Context, Result};
use snug_base::terminal;

/// When the time to end by itself is over, that after SIGTERM, and that after SIGKILL, for which a process may be too
/// deep in the kernel.
const PHASE_ENDS: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(3200), Duration::from_millis(8200)];

/// The processes below this one, orphans included.
pub struct Children {
    signals: SignalFd,
}

/// What became of waiting.
pub enum Waited {
    Ended(Reaped),
    /// There are children, but none has ended.
    Running,
    /// There are no children.
    Nobody,
}

impl Children {
    /// Takes over the signals of this process and the orphans below it. Call once, before any thread starts.
    pub fn new() -> Result<Children> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().cannot(|| "block signals".into())?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).cannot(|| "open a signal descriptor".into())?;
        system::adopt_orphans().cannot(|| "become the parent of orphans".into())?;
        Ok(Children { signals })
    }

    /// Takes the exit status of a child that has ended, without waiting.
    pub fn reap(&mut self) -> Waited {
        loop {
            match system::reap_any() {
                Ok(Some(reaped)) => return Waited::Ended(reaped),
                Ok(None) => return Waited::Running,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Waited::Nobody,
            }
        }
    }

    /// Waits until a signal arrives or the time is over. True if it asks this program to stop.
    pub fn wait_for_signal(&mut self, time: Duration) -> bool {
        self.wait_beside(time, None)
    }

    /// The same, or until something can be read from there.
    pub fn wait_beside(&mut self, time: Duration, other: Option<BorrowedFd<'_>>) -> bool {
        // Rounded up: poll counts in milliseconds, and waking too early would spin.
        let milliseconds = time.as_micros().div_ceil(1000).min(60_000) as i32;
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let descriptors = std::iter::once(self.signals.as_fd()).chain(other);
        let mut descriptors: Vec<PollFd> =
            descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        // A failure here is an early return from waiting, and the caller looks again anyway.
        let _ = poll(&mut descriptors, timeout);
        let mut stop = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            stop |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        stop
    }

    /// Ends every process that is left: leaves them alone for a moment, then SIGTERM, then SIGKILL. Each signal that asks
    /// this program to stop goes on to the next. Who does not end, or may not be ended by us, is named and left. `alive`
    /// lists them; `ended` is told of each. Returns those that did not end by themselves.
    pub fn stop_all(
        &mut self,
        ended: &mut dyn FnMut(&Reaped),
        alive: &mut dyn FnMut() -> Vec<Pid>,
    ) -> Vec<Pid> {
        let begin = Instant::now();
        let mut told: Vec<Pid> = Vec::new();
        let mut hurries = 0;
        loop {
            match self.reap() {
                Waited::Ended(reaped) => {
                    ended(&reaped);
                    continue;
                }
                Waited::Nobody => return told,
                Waited::Running => {}
            }
            let waited = begin.elapsed();
            let phase = PHASE_ENDS.iter().filter(|end| waited > **end).count().max(hurries);
            if phase > 0 {
                let kill = phase > 1;
                let left = alive();
                let mut refused = 0;
                for pid in &left {
                    // SIGTERM once each; SIGKILL again and again, for processes born meanwhile.
                    let is_new = !told.contains(pid);
                    if is_new {
                        told.push(*pid);
                    }
                    if is_new || kill {
                        let signal = if kill { Signal::SIGKILL } else { Signal::SIGTERM };
                        // Else it may have ended since it was listed.
                        refused +=
                            usize::from(signal::kill(NixPid::from_raw(*pid), signal) == Err(Errno::EPERM));
                    }
                }
                let is_in_vain = kill && refused > 0 && refused == left.len();
                if is_in_vain || phase == PHASE_ENDS.len() {
                    name_left(&left);
                    return told;
                }
            }
            hurries = (hurries + usize::from(self.wait_for_signal(Duration::from_millis(20))))
                .min(PHASE_ENDS.len());
        }
    }
}

/// Says which processes still run.
fn name_left(left: &[Pid]) {
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|pid| with_name(*pid)).collect();
        terminal::note(&format!("could not be ended and still runs: process {}", left.join(", ")));
    }
}

/// A process for people. The kernel cuts names off, also inside a character.
fn with_name(pid: Pid) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", String::from_utf8_lossy(&name).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::CutName;

    #[test]
    fn a_name_that_was_cut_off_is_shown() {
        let process = CutName::start();
        assert_eq!(with_name(process.pid()), format!("{} (ééééééé\u{fffd})", process.pid()));
    }
}
