//! Has perf sample where the CPU time of running processes goes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid as NixPid;

use crate::analysis::attribution::{self, AllocatorCode};
use crate::analysis::results::{CpuSamples, ProcessSeen};
use crate::base::failure::{Failure, Result};
use crate::drive::phases::with_ending;
use crate::process::proc::Pid;
use crate::process::system;

/// Samples per second and CPU. Not a divisor of what timers like, so that work with a rhythm of its own is met fairly.
const SAMPLES_PER_S: &str = "--freq=499";

/// A perf that samples.
pub(super) struct Perf {
    pub pid: Pid,
    data: PathBuf,
    said: PathBuf,
    pub has_ended: bool,
}

impl Perf {
    /// Samples these processes and all that they start from now on. `stem` is where its files go, without their endings.
    pub(super) fn attach(pids: &[Pid], stem: &Path) -> io::Result<Perf> {
        let (data, said) = (with_ending(stem, "perf.data"), with_ending(stem, "perf.stderr"));
        let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
        let mut command = record(&data);
        command.arg(SAMPLES_PER_S).args(["--pid", &list.join(",")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        system::isolate(&mut command);
        let child = command.spawn()?;
        Ok(Perf { pid: child.id() as Pid, data, said, has_ended: false })
    }

    /// Asks it to end, which it may take a moment to do.
    pub(super) fn stop(&self) {
        if !self.has_ended {
            // It may have ended since.
            let _ = signal::kill(NixPid::from_raw(self.pid), Signal::SIGINT);
        }
    }

    /// What it saw of the measured processes, once it has ended; or why nothing. Its samples are large, and removed.
    pub(super) fn read(
        self,
        code: &AllocatorCode,
        measured: &[ProcessSeen],
    ) -> std::result::Result<CpuSamples, String> {
        let text = script(&self.data);
        // What can't be removed stays beside the logs.
        let _ = fs::remove_file(&self.data);
        let pids: HashSet<Pid> = measured.iter().map(|process| process.pid).collect();
        let counts = text.map(|text| attribution::attribute(&text, code, &|pid| pids.contains(&pid)));
        let counts = counts.ok().filter(|counts| counts.total > 0);
        counts.ok_or_else(|| {
            let said = fs::read_to_string(&self.said).unwrap_or_default();
            said.lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("there were no samples")
                .to_string()
        })
    }
}

fn record(data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "--quiet", "-g", "--output"]).arg(data);
    command
}

/// Its samples as `attribution::attribute` reads them.
fn script(data: &Path) -> io::Result<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "--fields", "pid,ip,sym,dso", "--force", "--input"]).arg(data);
    let Output { stdout, .. } = command.stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Fails, with what to do about it, if perf is not there or may not see what --profile is about: tried on a perf.
pub(crate) fn check() -> Result<()> {
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
        return Err(refused(
            said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it does not say why"),
        ));
    }
    match script(&data) {
        Ok(text) if !attribution::has_file_addresses(&text) => Err(Failure::usage(
            "--profile needs perf 5.9 or newer, and this one is older",
            "install a newer one",
        )),
        Ok(text) if attribution::names_the_kernel(&text) => Ok(()),
        Ok(_) => Err(refused("it sees no function of it by name")),
        Err(error) => Err(refused(&error.to_string())),
    }
}
