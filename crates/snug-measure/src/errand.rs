//! Commands that run beside the program: one that makes the load, again and again, and one that counts requests.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Command, Stdio};

use nix::fcntl::{fcntl, FcntlArg, OFlag};

use crate::log;
use snug_base::failure::{Context, Result};
use snug_process::proc::Pid;
use snug_process::system::{self, Ending};

/// After a failed run, the next one waits this long: the server may be starting.
const AFTER_FAILURE_S: f64 = 0.5;
/// Output of a run that has come to more than this is cut to its end, which is what is shown of it.
const OUTPUT_MAX_BYTES: u64 = 1 << 20;
const OUTPUT_END_BYTES: u64 = 64 << 10;

/// A command line for the shell that is run again whenever it has ended.
pub struct Errand {
    /// As it was asked for.
    pub command: String,
    /// Seconds from the end of a run to the begin of the next.
    pause_s: f64,
    running: Option<Pid>,
    started_s: f64,
    next_s: f64,
    output: File,
    /// Runs that ended well, and those that did not.
    pub succeeded: u64,
    pub failed: u64,
    /// Runs that failed since the first one that ended well: before that, the server was only starting.
    pub failed_later: u64,
    /// How long the longest run took that failed, in seconds.
    longest_failed_s: f64,
}

impl Errand {
    /// Nothing is started yet.
    pub fn new(command: &str, pause_s: f64) -> Result<Errand> {
        // Linux has them since 3.17; a temporary file without a name does as well, where there is room for one.
        let in_memory = nix::sys::memfd::memfd_create(c"snug-errand", nix::sys::memfd::MFdFlags::MFD_CLOEXEC);
        let output = in_memory.map_or_else(|_| tempfile::tempfile(), |file| Ok(File::from(file)));
        let output = output.cannot(|| "make a file for the output of a command".into())?;
        // Whoever writes goes on behind what is left of a file that was cut, and not behind a hole.
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_APPEND))
            .cannot(|| "append to the output of a command".into())?;
        Ok(Errand {
            command: command.to_string(),
            pause_s,
            running: None,
            started_s: 0.0,
            next_s: 0.0,
            output,
            succeeded: 0,
            failed: 0,
            failed_later: 0,
            longest_failed_s: 0.0,
        })
    }

    /// Starts the command if it is time. Returns the process group of what was started.
    pub fn start_if_due(&mut self, now_s: f64) -> Result<Option<Pid>> {
        if self.running.is_some() || now_s < self.next_s {
            return Ok(None);
        }
        self.output.set_len(0).cannot(|| "empty the file of a command's output".into())?;
        self.output.seek(SeekFrom::Start(0)).cannot(|| "use the file of a command's output".into())?;
        let clone = || self.output.try_clone().cannot(|| "use the file of a command's output".into());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.command]).stdin(Stdio::null()).stdout(clone()?).stderr(clone()?);
        system::isolate(&mut command);
        let child = command.spawn().cannot(|| "run /bin/sh".into())?;
        self.running = Some(child.id() as Pid);
        self.started_s = now_s;
        Ok(self.running)
    }

    /// Takes note of a child that has ended. True if it was this command.
    pub fn ended(&mut self, pid: Pid, ending: Ending, now_s: f64) -> bool {
        if self.running != Some(pid) {
            return false;
        }
        self.running = None;
        if ending == Ending::Exited(0) {
            self.succeeded += 1;
            self.next_s = now_s + self.pause_s;
        } else {
            self.failed += 1;
            self.longest_failed_s = self.longest_failed_s.max(now_s - self.started_s);
            self.failed_later += u64::from(self.succeeded > 0);
            self.next_s = now_s + self.pause_s.max(AFTER_FAILURE_S);
        }
        true
    }

    /// Whether all its runs failed: none ended well, nor goes on for longer than the failed ones did.
    pub fn always_failed(&self, now_s: f64) -> bool {
        let goes_on = self.running.is_some() && now_s - self.started_s > self.longest_failed_s;
        self.failed > 0 && self.succeeded == 0 && !goes_on
    }

    /// When to look at it again at the latest; None while it runs, whose end is a signal.
    pub fn next_s(&self) -> Option<f64> {
        self.running.is_none().then_some(self.next_s)
    }

    /// Leaves the end of what the run has written, if that is much: one that never ends would fill the memory. What it
    /// writes meanwhile may be lost.
    pub fn trim(&mut self) {
        // What can't be cut now is cut at the next look, or stays.
        let _ = self.cut_output();
    }

    fn cut_output(&mut self) -> io::Result<()> {
        let length = self.output.metadata()?.len();
        if length <= OUTPUT_MAX_BYTES {
            return Ok(());
        }
        log::cut_out(&self.output, 0..length - OUTPUT_END_BYTES, "")
    }

    /// What the last run wrote; of much that it wrote, the end.
    pub fn output(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.output.seek(SeekFrom::Start(0)).and_then(|_| self.output.read_to_end(&mut text));
        read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }
}

/// The first number in a text: what a command that counts requests printed.
pub fn first_number(text: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
    text.split(|c: char| !is_part(c)).find_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_tools_print() {
        assert_eq!(first_number("1234 log/production.log\n"), Some(1234.0));
        assert_eq!(first_number("http_requests_total 5.5e+06\n"), Some(5.5e6));
        assert_eq!(first_number("connection refused\n"), None);
    }

    #[test]
    fn much_output_of_a_run_that_goes_on_is_cut_to_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        let [written, go_on] = ["written", "go-on"].map(|name| scratch.path().join(name));
        let command = format!(
            "head -c 200000000 /dev/zero; : > {}; until [ -e {} ]; do sleep 0.01; done; echo the end; exec sleep 60",
            written.display(),
            go_on.display()
        );
        let mut errand = Errand::new(&command, 0.0).unwrap();
        let group = errand.start_if_due(0.0).unwrap().unwrap();
        let begin = std::time::Instant::now();
        let wait_until = |errand: &mut Errand, is_so: &dyn Fn(&mut Errand) -> bool| {
            while !is_so(errand) && begin.elapsed().as_secs() < 50 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        // What is written while it is cut may be lost, so the end comes after that.
        wait_until(&mut errand, &|errand| {
            errand.trim();
            written.exists()
        });
        errand.trim();
        let left = errand.output.metadata().unwrap().len();
        std::fs::write(&go_on, "").unwrap();
        wait_until(&mut errand, &|errand| errand.output().ends_with("the end\n"));
        let (all, output) = (errand.output.metadata().unwrap().len(), errand.output());
        nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::SIGKILL).unwrap();
        assert!(left <= OUTPUT_MAX_BYTES, "{left} bytes are left");
        assert!(output.ends_with("the end\n") && all == left + 8, "it writes behind what was left");
    }

    #[test]
    fn failures_before_the_first_success_are_a_server_that_starts() {
        let mut errand = Errand::new("true", 0.0).unwrap();
        errand.running = Some(7);
        assert!(!errand.ended(8, Ending::Exited(0), 1.0));
        assert!(errand.ended(7, Ending::Exited(1), 1.0));
        assert_eq!((errand.failed_later, errand.next_s()), (0, Some(1.5)));
        assert!(errand.always_failed(1.5));
        (errand.running, errand.started_s) = (Some(7), 1.5);
        assert!(errand.always_failed(2.0) && !errand.always_failed(3.0), "it goes on for longer than before");
        for ending in [Ending::Exited(0), Ending::Signalled(15)] {
            errand.running = Some(7);
            errand.ended(7, ending, 2.0);
        }
        assert_eq!((errand.succeeded, errand.failed, errand.failed_later), (1, 2, 1));
    }
}
