//! Takes a server through its phases: boot, warm, load, idle. Says at each step how long to wait for the next; the
//! caller measures meanwhile.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid as NixPid;

use crate::http::Clients;
use crate::log::Log;
use crate::probe::{self, Probe};
use crate::serving::{Amount, Load, Plan, Ready};
use snug_base::failure::{Context, Failure, Result};
use snug_base::file;
use snug_compare::results::{Latency, Phase};
use snug_process::proc::Pid;
use snug_process::system::{self, Ending};

/// How often to look whether clients are done or the server is ready.
const LOOK_EVERY_S: f64 = 0.02;
/// A command that was told to stop may write its results for so long.
const COMMAND_STOPS_S: f64 = 5.0;

/// A server on its way through its phases.
pub struct Drive<'a> {
    plan: &'a Plan,
    logs: Logs<'a>,
    stage: Stage,
    /// When the present phase began.
    begun_s: f64,
    pub phases: Vec<Phase>,
    pub latency: Option<Latency>,
    pub notes: Vec<String>,
}

/// Files into which the server and the load write.
struct Logs<'a> {
    stem: &'a Path,
    /// Those of a load command, in the phase that it makes.
    load: Option<LoadLogs>,
}

struct LoadLogs {
    stdout: Log,
    stderr: Log,
}

enum Stage {
    Boot(Probe),
    Warm(Work),
    Load(Work),
    Idle,
    Over,
}

/// A load at work.
enum Work {
    Clients(Clients),
    Command(CommandLoad),
}

/// A load command that runs again and again.
struct CommandLoad {
    pid: Pid,
    runs_left: u64,
    /// When to tell it to stop; and when to insist, once told.
    stop_s: Option<f64>,
    told: bool,
    ended: Option<Ending>,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Look again after this many seconds at the latest.
    Wait(f64),
    /// A phase has ended: take a sample now.
    NextPhase,
    /// All phases are over.
    Over,
    /// The run has failed, for this reason.
    Failed(String),
}

impl<'a> Drive<'a> {
    /// Call just before the server is started. Fails if somebody else serves its address already.
    pub fn begin(plan: &'a Plan, log_stem: &'a Path) -> Result<Drive<'a>> {
        if let Some(address) = probe::served(plan.ready.addresses()) {
            return Err(Failure::new(format!(
                "something was listening on {address} before the server was started"
            ))
            .advise("stop it, or let the server listen on another port"));
        }
        let logs = Logs { stem: log_stem, load: None };
        for ending in ["stdout", "stderr"] {
            // What an earlier run left must not be taken for this one's.
            file::create(&logs.path(ending)).cannot(|| format!("write {}", logs.path(ending).display()))?;
        }
        let probe = Probe::start(&plan.ready, vec![logs.path("stdout"), logs.path("stderr")])?;
        let stage = Stage::Boot(probe);
        Ok(Drive { plan, logs, stage, begun_s: 0.0, phases: Vec::new(), latency: None, notes: Vec::new() })
    }

    /// To be called when nothing writes any more: cuts the logs of the load to what is kept of them.
    pub fn close_logs(&mut self) -> Result<()> {
        self.logs.close_load()
    }

    /// The name of the present phase.
    pub fn phase(&self) -> &'static str {
        match self.stage {
            Stage::Boot(_) => "boot",
            Stage::Warm(_) => "warm",
            Stage::Load(_) => "load",
            Stage::Idle | Stage::Over => "idle",
        }
    }

    /// The process that makes the load now; it leads a process group.
    pub fn load_process(&self) -> Option<Pid> {
        match &self.stage {
            Stage::Warm(Work::Command(command)) | Stage::Load(Work::Command(command)) => Some(command.pid),
            _ => None,
        }
    }

    /// To be told of every process that ended.
    pub fn ended(&mut self, pid: Pid, ending: Ending) {
        if let Stage::Warm(Work::Command(command)) | Stage::Load(Work::Command(command)) = &mut self.stage {
            if command.pid == pid {
                command.ended = Some(ending);
            }
        }
    }

    /// Does what is due.
    pub fn step(&mut self, now_s: f64) -> Result<Step> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Boot(probe) => self.boot(probe, now_s),
            Stage::Warm(work) => match self.work(work, now_s, Stage::Warm)? {
                Step::Over => self.next_phase("warm", now_s),
                other => Ok(other),
            },
            Stage::Load(work) => match self.work(work, now_s, Stage::Load)? {
                Step::Over => self.next_phase("load", now_s),
                other => Ok(other),
            },
            Stage::Idle => {
                let left_s = self.begun_s + self.plan.idle.as_secs_f64() - now_s;
                if left_s > 0.0 {
                    self.stage = Stage::Idle;
                    return Ok(Step::Wait(left_s));
                }
                self.next_phase("idle", now_s)
            }
            Stage::Over => Ok(Step::Over),
        }
    }

    fn boot(&mut self, probe: Probe, now_s: f64) -> Result<Step> {
        if probe.is_ready() {
            return self.next_phase("boot", now_s);
        }
        let timeout_s = self.plan.ready_timeout.as_secs_f64();
        if now_s >= timeout_s {
            return Ok(Step::Failed(format!(
                "the server was not ready after {timeout_s} s: {} (--ready-timeout){}",
                self.plan.ready,
                self.logs.celery_hint(&self.plan.ready)
            )));
        }
        self.stage = Stage::Boot(probe);
        Ok(Step::Wait(LOOK_EVERY_S))
    }

    /// Ends one phase and begins the next that there is.
    fn next_phase(&mut self, ended: &str, now_s: f64) -> Result<Step> {
        self.phases.push(Phase { name: ended.into(), start_s: self.begun_s, end_s: now_s });
        self.begun_s = now_s;
        let following =
            ["warm", "load", "idle"].into_iter().skip_while(|name| ended != "boot" && *name != ended);
        for name in following.filter(|name| *name != ended) {
            let (amount, stage): (Amount, fn(Work) -> Stage) = match name {
                "warm" => (self.plan.warm, Stage::Warm),
                "load" => (self.plan.load_amount, Stage::Load),
                _ if self.plan.idle.is_zero() => continue,
                _ => {
                    self.stage = Stage::Idle;
                    return Ok(Step::NextPhase);
                }
            };
            if let (Some(load), false) = (&self.plan.load, amount.is_none()) {
                self.stage = stage(self.start(load, amount, now_s)?);
                return Ok(Step::NextPhase);
            }
        }
        self.stage = Stage::Over;
        Ok(Step::Over)
    }

    fn start(&mut self, load: &Load, amount: Amount, now_s: f64) -> Result<Work> {
        Ok(match load {
            Load::Requests(target) => Work::Clients(Clients::start(target, amount)?),
            Load::Command(line) => Work::Command(CommandLoad {
                pid: self.logs.start_command(line, true)?,
                // Without a number it runs until the time is over.
                runs_left: amount.count.unwrap_or(u64::MAX) - 1,
                stop_s: amount.time.map(|time| now_s + time.as_secs_f64()),
                told: false,
                ended: None,
            }),
        })
    }

    /// Goes on with a load; `Over` when it is done.
    fn work(&mut self, work: Work, now_s: f64, stage: fn(Work) -> Stage) -> Result<Step> {
        match work {
            Work::Clients(clients) if !clients.are_done() => {
                self.stage = stage(Work::Clients(clients));
                Ok(Step::Wait(LOOK_EVERY_S))
            }
            Work::Clients(clients) => {
                let outcome = clients.finish();
                let (made, failed) = (outcome.latency.requests, outcome.latency.failed);
                self.latency = Some(outcome.latency);
                if failed > 0 || made == 0 {
                    let first =
                        outcome.first_failure.unwrap_or_else(|| "no request was answered in time".into());
                    return Ok(Step::Failed(format!(
                        "{failed} of {made} requests failed; the first: {first}"
                    )));
                }
                Ok(Step::Over)
            }
            Work::Command(command) => self.command(command, now_s, stage),
        }
    }

    fn command(&mut self, mut command: CommandLoad, now_s: f64, stage: fn(Work) -> Stage) -> Result<Step> {
        self.logs.trim_load();
        let Some(ending) = command.ended else {
            let left_s = command.stop_s.map_or(f64::INFINITY, |stop_s| stop_s - now_s);
            if left_s <= 0.0 {
                // Tools that make load write what they have at SIGINT, as at Ctrl-C.
                let signal = if command.told { Signal::SIGKILL } else { Signal::SIGINT };
                // It may have ended since we looked.
                let _ = signal::killpg(NixPid::from_raw(command.pid), signal);
                command.told = true;
                command.stop_s = Some(now_s + COMMAND_STOPS_S);
            }
            self.stage = stage(Work::Command(command));
            return Ok(Step::Wait(left_s.clamp(LOOK_EVERY_S, 1.0)));
        };
        let is_over = command.told || command.runs_left == 0;
        if let (false, Some(how)) = (command.told, ending.failure()) {
            return Ok(Step::Failed(format!("the load {how}; {}", self.logs.load_tail())));
        }
        // A shell dies of SIGINT at once, and what it had started still writes its report.
        let has_others = || signal::killpg(NixPid::from_raw(command.pid), None).is_ok();
        if command.told && command.stop_s.is_some_and(|stop_s| now_s < stop_s) && has_others() {
            self.stage = stage(Work::Command(command));
            return Ok(Step::Wait(LOOK_EVERY_S));
        }
        if is_over {
            // What it left in the background.
            let _ = signal::killpg(NixPid::from_raw(command.pid), Signal::SIGKILL);
            self.logs.close_load()?;
            return Ok(Step::Over);
        }
        let Some(Load::Command(line)) = &self.plan.load else { return Ok(Step::Over) };
        command.pid = self.logs.start_command(line, false)?;
        command.runs_left -= 1;
        command.ended = None;
        self.stage = stage(Work::Command(command));
        Ok(Step::NextPhase)
    }
}

impl Logs<'_> {
    fn path(&self, ending: &str) -> PathBuf {
        with_ending(self.stem, ending)
    }

    /// Starts the load. What it writes is kept beside what the server writes; the first of a phase begins anew.
    fn start_command(&mut self, line: &str, first: bool) -> Result<Pid> {
        if first {
            let begin = |ending: &str| {
                let path = self.path(ending);
                let begun = file::create(&path).and_then(|_| Log::open(&path));
                begun.cannot(|| format!("write {}", path.display()))
            };
            self.load = Some(LoadLogs { stdout: begin("load.stdout")?, stderr: begin("load.stderr")? });
        }
        let open = |ending: &str| {
            let path = self.path(ending);
            // What runs on in the background writes behind what is left of a log that was cut, and not behind a hole.
            File::options().append(true).open(&path).cannot(|| format!("write {}", path.display()))
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).stdin(Stdio::null());
        command.stdout(open("load.stdout")?).stderr(open("load.stderr")?);
        system::isolate(&mut command);
        let child = command.spawn().cannot(|| format!("run the load {line:?}"))?;
        Ok(child.id() as Pid)
    }

    /// Bounds what is kept of what the load writes.
    fn trim_load(&mut self) {
        if let Some(LoadLogs { stdout, stderr }) = &mut self.load {
            stdout.trim();
            stderr.trim();
        }
    }

    fn close_load(&mut self) -> Result<()> {
        let Some(LoadLogs { stdout, stderr }) = self.load.take() else { return Ok(()) };
        let closed = stdout.close().and_then(|()| stderr.close());
        closed.cannot(|| format!("write the log {}", self.path("load").display()))
    }

    /// Celery says that it is ready only if it is told to write so much.
    fn celery_hint(&self, ready: &Ready) -> &'static str {
        let is_celery = |ending| tail(&self.path(ending)).contains("-- celery@");
        if matches!(ready, Ready::Line(_)) && ["stdout", "stderr"].into_iter().any(is_celery) {
            return "; Celery writes that it is ready at the level INFO: add -l info to its command";
        }
        ""
    }

    fn load_tail(&self) -> String {
        let stderr = tail(&self.path("load.stderr"));
        let (path, text) = if stderr.is_empty() {
            (self.path("load.stdout"), tail(&self.path("load.stdout")))
        } else {
            (self.path("load.stderr"), stderr)
        };
        if text.is_empty() {
            return "it wrote nothing".into();
        }
        format!("the end of what it wrote ({}):\n{text}", path.display())
    }
}

/// `stem.ending`; the stem may hold dots.
pub fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let name = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
    stem.with_file_name(format!("{name}.{ending}"))
}

/// The last lines of a file, indented; empty if there are none. The file may be long, and have a hole in it.
pub fn tail(path: &Path) -> String {
    const LINES: usize = 10;
    const COLUMNS: usize = 200;
    const BYTES: u64 = 64 << 10;
    let mut content = Vec::new();
    let read = File::open(path).and_then(|mut file| -> io::Result<usize> {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        file.take(BYTES).read_to_end(&mut content)
    });
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&content);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES)..];
    let cut = |line: &&str| match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("    {} ...", &line[..end]),
        None => format!("    {line}"),
    };
    shown.iter().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_short() {
        let path = std::env::temp_dir().join(format!("snug-tail-{}", std::process::id()));
        std::fs::write(&path, (0..100).map(|line| format!("line {line}\n")).collect::<String>()).unwrap();
        let shown = tail(&path);
        assert_eq!(shown.lines().count(), 10);
        assert!(shown.ends_with("line 99"));
        // As of a log whose middle was taken out while it grew: nothing could hold so much.
        let mut file = File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(1 << 40)).unwrap();
        std::io::Write::write_all(&mut file, b"\nthe end\n").unwrap();
        assert!(tail(&path).ends_with("    the end") && tail(&path).len() < 1 << 20);
        std::fs::write(&path, "é".repeat(30_000)).unwrap();
        assert_eq!(tail(&path).chars().count(), 4 + 200 + 4);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tail(&path), "");
    }

    #[test]
    fn endings_are_added() {
        assert_eq!(with_ending(Path::new("/x/1-a.b"), "stdout"), Path::new("/x/1-a.b.stdout"));
    }
}
