//! Has perf sample where the CPU time of running processes goes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::fcntl::{self, FcntlArg, FdFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{self, Signal};
use nix::unistd::{self, Pid as NixPid};

use crate::phases::with_ending;
use snug_base::failure::{Failure, Result};
use snug_base::file;
use snug_compare::attribution::{self, AllocatorCode};
use snug_compare::results::CpuSamples;
use snug_process::proc::Pid;
use snug_process::system::{self, Ending};

/// Samples per second and CPU. Not a divisor of what timers like, so that work with a rhythm of its own is met fairly.
const SAMPLES_PER_S: &str = "--freq=499";

/// How long perf may take until it answers for the first time, in milliseconds.
const ANSWERS_WITHIN_MS: u16 = 30_000;

/// A perf that samples, or waits to be told to. Its samples are large, and removed with it.
pub struct Perf {
    pub pid: Pid,
    data: PathBuf,
    said: PathBuf,
    control: File,
    /// Open as long as it may answer: it would end by SIGPIPE.
    answers: File,
    samples: bool,
    ending: Option<Ending>,
    was_killed: bool,
}

impl Drop for Perf {
    fn drop(&mut self) {
        // What can't be removed stays beside the logs.
        let _ = fs::remove_file(&self.data);
    }
}

impl Perf {
    /// Attaches to this thread, and so to all that it starts from now on: whatever forks while perf is on its way to it
    /// would be missed. Not to other threads: once one has ended, perf does not wait any more, and takes a CPU. It samples
    /// nothing before `sample`. `stem` is where its files go, without their endings.
    pub fn attach(stem: &Path) -> io::Result<Perf> {
        let (data, said) = (with_ending(stem, "perf.data"), with_ending(stem, "perf.stderr"));
        let (commands, control) = unistd::pipe()?;
        let (answers, answer) = unistd::pipe()?;
        for ours in [&control, &answers] {
            fcntl::fcntl(ours, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        let mut command = record(&data);
        let descriptors = format!("--control=fd:{},{}", commands.as_raw_fd(), answer.as_raw_fd());
        command.args([
            SAMPLES_PER_S,
            "--inherit",
            "--delay=-1",
            &descriptors,
            "--tid",
            &unistd::gettid().to_string(),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file::create(&said)?);
        system::isolate(&mut command);
        let mut child = command.spawn()?;
        drop((commands, answer));
        let (control, answers) = (File::from(control), File::from(answers));
        let (samples, ending, was_killed) = (false, None, false);
        let pid = child.id() as Pid;
        let mut perf = Perf { pid, data, said, control, answers, samples, ending, was_killed };
        match perf.answers_to("disable") {
            Ok(true) => Ok(perf),
            failed => {
                // It would be taken for a process of the program. Both may fail only because it has ended.
                let _ = child.kill();
                let _ = child.wait();
                let why = failed.err().map_or("perf does not answer".into(), |error| error.to_string());
                Err(io::Error::other(perf.reason().unwrap_or(why)))
            }
        }
    }

    /// Tells it something, and waits for its answer: it comes once perf is attached, and if it can't be the pipe closes.
    fn answers_to(&mut self, word: &str) -> io::Result<bool> {
        self.tell(word)?;
        let mut descriptors = [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
        let answered = poll(&mut descriptors, PollTimeout::from(ANSWERS_WITHIN_MS))? > 0;
        Ok(answered && self.answers.read(&mut [0; 16])? > 0)
    }

    /// Lets it sample, or not.
    pub fn sample(&mut self, wanted: bool) {
        if self.samples != wanted && self.tell(if wanted { "enable" } else { "disable" }).is_ok() {
            self.samples = wanted;
        }
    }

    fn tell(&mut self, word: &str) -> io::Result<()> {
        self.control.write_all(format!("{word}\n").as_bytes())
    }

    pub fn is_running(&self) -> bool {
        self.ending.is_none()
    }

    pub fn ended(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// Asks it to end, which it may take a moment to do.
    pub fn stop(&self) {
        self.send(Signal::SIGINT);
    }

    /// Ends it at once; its samples are lost.
    pub fn kill(&mut self) {
        self.was_killed = true;
        self.send(Signal::SIGKILL);
    }

    fn send(&self, signal: Signal) {
        if self.is_running() {
            // It may have ended since.
            let _ = signal::kill(NixPid::from_raw(self.pid), signal);
        }
    }

    /// What it saw, once it has ended, of the processes that are measured, without `load` and what that started; or why
    /// nothing.
    pub fn read(
        self,
        codes: &[AllocatorCode],
        load: HashSet<Pid>,
        is_measured: &dyn Fn(Pid) -> bool,
    ) -> std::result::Result<CpuSamples, String> {
        if self.was_killed {
            return Err("perf took too long to write its samples".into());
        }
        let counts = count(&self.data, codes, load, is_measured).ok().filter(|counts| counts.total > 0);
        counts.ok_or_else(|| self.reason().unwrap_or_else(|| "there were no samples".into()))
    }

    fn reason(&self) -> Option<String> {
        reason(&fs::read_to_string(&self.said).ok()?).map(String::from)
    }
}

/// Why perf failed, of what it wrote: the first line that says something else than what it says each time.
fn reason(said: &str) -> Option<&str> {
    const USUAL: &[&str] = &["[ perf record", "Events disabled", "Events enabled"];
    let mut lines = said.lines().map(str::trim);
    lines.find(|line| {
        !line.is_empty() && *line != "Error:" && !USUAL.iter().any(|usual| line.starts_with(usual))
    })
}

/// Without --quiet, which would keep errors back, too; and without the ids of files, since perf would read all samples once
/// more for them and copy each file below ~/.debug.
fn record(data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "--no-buildid", "-g", "--output"]).arg(data);
    command
}

/// What writes samples as `attribution::attribute` reads them.
fn script(data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "--fields", "pid,ip,sym,dso", "--force", "--input"]).arg(data);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn count(
    data: &Path,
    codes: &[AllocatorCode],
    load: HashSet<Pid>,
    is_measured: &dyn Fn(Pid) -> bool,
) -> io::Result<CpuSamples> {
    let mut child = script(data).arg("--show-task-events").stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().map(BufReader::new);
    let counts = output
        .map_or(Ok(CpuSamples::default()), |output| attribution::attribute(output, codes, load, is_measured));
    child.wait()?;
    counts
}

/// Fails, with what to do about it, if perf is not there or may not see what --profile is about: tried on a perf.
pub fn check() -> Result<()> {
    let folder =
        tempfile::tempdir().map_err(|error| Failure::new(format!("can't make a directory: {error}")))?;
    let data = folder.path().join("perf.data");
    let tried = record(&data).args(["--freq=max", "--", "perf", "--version"]).stdin(Stdio::null()).output();
    let tried = tried.map_err(|error| {
        Failure::usage(
            format!("--profile needs perf, which can't be run: {error}"),
            "install it: linux-perf on Debian, linux-tools-$(uname -r) on Ubuntu, perf on Fedora",
        )
    })?;
    let refused = |why: &str| {
        Failure::usage(
            format!("--profile: perf can't sample the kernel here: {why}"),
            "run snug as root, or: sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0; a container also needs \
             --cap-add PERFMON",
        )
    };
    if !tried.status.success() {
        let said = String::from_utf8_lossy(&tried.stderr).into_owned();
        return Err(refused(reason(&said).unwrap_or("it does not say why")));
    }
    let text =
        script(&data).output().map(|Output { stdout, .. }| String::from_utf8_lossy(&stdout).into_owned());
    match text {
        Ok(text) if !attribution::has_file_addresses(&text) => Err(Failure::usage(
            "--profile needs perf 5.10 or newer, and this one is older",
            "install a newer one",
        )),
        Ok(text) if attribution::names_the_kernel(&text) => Ok(()),
        Ok(_) => Err(refused("it sees no function of it by name")),
        Err(error) => Err(refused(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_line_that_says_one() {
        let refused = "Error:\nAccess to performance monitoring is limited.\nTry /bin/dmesg | grep -i perf\n";
        assert_eq!(reason(refused), Some("Access to performance monitoring is limited."));
        assert_eq!(reason("Events disabled\n[ perf record: Woken up 1 times to write data ]\n"), None);
    }
}
