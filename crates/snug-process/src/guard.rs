//! A process beside this one that ends what it leaves behind when it is killed outright, as by SIGKILL: the kernel then
//! ends its children, but not theirs.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

use crate::proc::Pid;

/// Reads the process groups to end, a line for all, in place of those before; ends them when the pipe is closed. It is
/// nobody's child here, and no key of the terminal reaches it.
const SCRIPT: &str = "exec 3<&0; (trap '' INT TERM HUP; groups=; while read -r line; do groups=$line; done; \
                      for group in $groups; do kill -s KILL -- -$group; done) <&3 >/dev/null 2>&1 &";

/// The guard. It ends with this process.
pub struct Guard {
    pipe: Option<ChildStdin>,
    groups: Vec<Pid>,
}

impl Guard {
    /// To be called before this process becomes the parent of orphans. Without a shell there is no guard.
    pub fn start() -> Guard {
        // Nobody outlives the first process of a container, and its orphans are its own.
        let start = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.env_remove("LD_PRELOAD").process_group(0).spawn().ok()?;
            let pipe = child.stdin.take();
            child.wait().ok()?;
            pipe
        };
        let pipe = if std::process::id() == 1 { None } else { start() };
        Guard { pipe, groups: Vec::new() }
    }

    /// From now on these process groups are to be ended, and no others.
    pub fn watch(&mut self, groups: &[Pid]) {
        if self.groups == groups {
            return;
        }
        self.groups = groups.to_vec();
        let line = groups.iter().map(Pid::to_string).collect::<Vec<_>>().join(" ");
        // A guard that has ended guards nothing, and measuring goes on.
        let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "{line}"));
    }
}
