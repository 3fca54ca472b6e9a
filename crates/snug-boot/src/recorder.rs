//! Starts a program of Ruby or Python with a hook that tells what is required, and reads its memory at each of these
//! moments, while the program waits.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, Pid as NixPid};

use crate::report::{BootMemory, BootRecorder, BootReport, Told};
use snug_base::failure::{Context, Failure, Result, UNKNOWN};
use snug_base::{machine, terminal};
use snug_heap::remote;
use snug_inspect::{access, preloaded};
use snug_process::children::{Children, Waited};
use snug_process::proc::{self, Pid, ProcFilesystem, Processes};
use snug_process::system::{self, Reaped};
use snug_process::tree;

const RUBY_HOOK: &str = include_str!("recorder/hook.rb");
const PYTHON_HOOK: &str = include_str!("recorder/hook.py");
/// Names the hook's folder to the hook, and whether to count objects.
const FOLDER: &str = "SNUG_BOOT";
const OBJECTS: &str = "SNUG_BOOT_OBJECTS";
/// Of Python: which of its allocators is used.
const PYTHON_MALLOC: &str = "PYTHONMALLOC";
/// How long to wait at most for a word of the hook, or the end of the program.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After Ctrl-C, which the terminal sends to the program, too: until SIGTERM, and then until it is ended.
const UNTIL_SIGTERM: Duration = Duration::from_secs(3);
const UNTIL_END: Duration = Duration::from_secs(15);
/// The time of the plan begins when the hook is heard. If it is not, the program has so much more.
const UNTIL_HOOK: Duration = Duration::from_secs(120);
/// Lines of the hook are shorter.
const LINE_MOST_BYTES: usize = 1 << 16;

/// How a program is to be measured.
pub struct BootPlan<'a> {
    pub program: &'a [OsString],
    pub with_objects: bool,
    /// What the program writes goes to stderr.
    pub keeps_stdout: bool,
    /// None: until it ends.
    pub time: Option<Duration>,
}

/// What was measured.
pub struct MeasuredBoot {
    pub report: BootReport,
    /// How the program failed, unless that was because of us.
    pub failure: Option<String>,
    /// Whether it told all that a program tells which ends by itself.
    pub is_whole: bool,
}

/// Runs the program to its end, or for a time.
pub fn measure(plan: &BootPlan<'_>) -> Result<MeasuredBoot> {
    let mut prepared = preloaded::prepare(plan.program, false)?;
    let folder = tempfile::Builder::new().prefix("snug-boot.").tempdir().cannot(|| "make a folder".into())?;
    let hook = Hook::install(folder.path())?;
    let command = &mut prepared.command;
    let existing = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let before = |own: String, name: &str, separator: &str| {
        let others = existing(name);
        let words: Vec<OsString> = std::iter::once(own.into()).chain(others).collect();
        words.join(OsStr::new(separator))
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    command.env(FOLDER, folder.path());
    command.env("RUBYLIB", before(path("ruby"), "RUBYLIB", ":"));
    command.env("RUBYOPT", before("-rsnug_boot_hook".into(), "RUBYOPT", " "));
    command.env("PYTHONPATH", before(path("python"), "PYTHONPATH", ":"));
    if existing(PYTHON_MALLOC).is_none() {
        command.env(PYTHON_MALLOC, "malloc");
    }
    match plan.with_objects {
        true => command.env(OBJECTS, "1"),
        false => command.env_remove(OBJECTS),
    };
    if plan.keeps_stdout {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().cannot(|| "copy stderr".into())?;
        command.stdout(Stdio::from(stderr));
    }
    let children = Children::new()?;
    system::attach(command);
    let child = command.spawn().map_err(|error| prepared.not_executed(&error))?;
    let mut watch = BootWatch {
        plan,
        pid: child.id() as Pid,
        children,
        hook,
        recorder: BootRecorder::default(),
        place: None,
        problem: None,
        begin: Instant::now(),
        heard: None,
        stopped: None,
        has_sigterm: false,
    };
    let ended = watch.follow();
    let is_stopped = watch.stopped.is_some();
    let BootWatch { recorder, problem, .. } = watch;
    if let Some(problem) = problem {
        return Err(problem);
    }
    let failure = ended.filter(|_| !is_stopped).and_then(|reaped| reaped.ending.failure());
    if !recorder.has_started() {
        if let Some(failure) = failure {
            return Err(Failure::new(format!("the program {failure} before Ruby or Python began")));
        }
        return Err(no_hook());
    }
    let report = recorder.report(&terminal::shell_line(plan.program));
    Ok(MeasuredBoot { report, failure, is_whole: recorder.is_done() })
}

fn no_hook() -> Failure {
    Failure::new("neither Ruby nor Python told what it requires")
        .advise(
            "give a program of one of them, such as `snug boot -- bundle exec rails runner 1`; options as Ruby's \
             --disable=rubyopt and Python's -I, -E and -S keep them from being asked",
        )
        .exit_code(UNKNOWN)
}

/// The ends of the two pipes, which have names.
struct Hook {
    requests: File,
    replies: File,
    /// Of a line that has not ended.
    buffer: Vec<u8>,
}

impl Hook {
    fn install(folder: &Path) -> Result<Hook> {
        let problem = || format!("write into {}", folder.display());
        for (name, file, text) in
            [("ruby", "snug_boot_hook.rb", RUBY_HOOK), ("python", "sitecustomize.py", PYTHON_HOOK)]
        {
            fs::create_dir(folder.join(name)).cannot(problem)?;
            fs::write(folder.join(name).join(file), text).cannot(problem)?;
        }
        let open = |name: &str, waits: bool| {
            let path = folder.join(name);
            mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
            let flags = libc::O_CLOEXEC | if waits { 0 } else { libc::O_NONBLOCK };
            // For both ways, so that opening waits for nobody, and the program may execute another one.
            std::os::unix::fs::OpenOptionsExt::custom_flags(File::options().read(true).write(true), flags)
                .open(path)
        };
        let (requests, replies) =
            (open("requests", false).cannot(problem)?, open("replies", true).cannot(problem)?);
        Ok(Hook { requests, replies, buffer: Vec::new() })
    }

    /// The next line, if there is a whole one.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut bytes = [0; 8192];
            match self.requests.read(&mut bytes) {
                Ok(count) if count > 0 && self.buffer.len() < LINE_MOST_BYTES => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }

    fn reply(&mut self) {
        // A pipe has room for thousands of these.
        let _ = self.replies.write_all(b".");
    }
}

/// Where to read the program that tells.
struct HookedProcess {
    pid: Pid,
    page: u64,
    arenas: u32,
}

struct BootWatch<'a> {
    plan: &'a BootPlan<'a>,
    pid: Pid,
    children: Children,
    hook: Hook,
    recorder: BootRecorder,
    place: Option<HookedProcess>,
    /// Why the program can't be measured, if so.
    problem: Option<Failure>,
    begin: Instant,
    /// When the hook was heard first.
    heard: Option<Instant>,
    /// When it was asked to end.
    stopped: Option<Instant>,
    has_sigterm: bool,
}

impl BootWatch<'_> {
    /// Listens until the program has ended. Returns how that was; None: it had to be ended.
    fn follow(&mut self) -> Option<Reaped> {
        let mut ended = None;
        while ended.is_none() {
            self.listen();
            match self.children.reap() {
                Waited::Ended(reaped) if reaped.pid == self.pid => ended = Some(reaped),
                Waited::Ended(_) => continue,
                Waited::Nobody => break,
                Waited::Running => {}
            }
            if ended.is_some() || self.problem.is_some() || !self.stop_in_time() {
                break;
            }
            if self.children.wait_beside(LOOK_EVERY, Some(self.hook.requests.as_fd()))
                && self.stopped.is_none()
            {
                self.stopped = Some(Instant::now());
            }
        }
        self.listen();
        let mut source = ProcFilesystem::new();
        self.children.stop_all(&mut |_| {}, &mut || tree::below_own(&mut source));
        ended
    }

    /// Asks the program to end, if the time for that has come. False: it has had long enough.
    fn stop_in_time(&mut self) -> bool {
        let ran = self
            .heard
            .map_or_else(|| self.begin.elapsed().saturating_sub(UNTIL_HOOK), |heard| heard.elapsed());
        if self.stopped.is_none() && self.plan.time.is_some_and(|time| ran >= time) {
            self.stopped = Some(Instant::now());
            self.send_sigterm();
        }
        let Some(since) = self.stopped.map(|stopped| stopped.elapsed()) else { return true };
        if since >= UNTIL_SIGTERM {
            self.send_sigterm();
        }
        since < UNTIL_END
    }

    fn send_sigterm(&mut self) {
        if !self.has_sigterm {
            self.has_sigterm = true;
            // It may have ended by now.
            let _ = kill(NixPid::from_raw(self.pid), Signal::SIGTERM);
        }
    }

    /// Takes all lines that are there.
    fn listen(&mut self) {
        while let Some(line) = self.hook.line() {
            if let Some(pid) = BootRecorder::pid_of_start(&line) {
                self.find(pid);
            }
            let memory = match BootRecorder::wants_memory(&line) {
                true => self.memory().unwrap_or_default(),
                false => BootMemory::default(),
            };
            if self.recorder.take(&line, memory) == Told::More {
                self.heard.get_or_insert_with(Instant::now);
                self.hook.reply();
            }
        }
    }

    /// Finds where the counters of a program are, which has just begun.
    fn find(&mut self, pid: Pid) {
        self.place = None;
        match access::look_at(pid) {
            Ok(found) => match found.counters_at {
                Some(page) => self.place = Some(HookedProcess { pid, page, arenas: 1 }),
                None => {
                    let text =
                        format!("the program uses {}, so its live bytes can't be read", found.allocator_text);
                    self.problem = Some(Failure::new(text).exit_code(UNKNOWN));
                }
            },
            Err(failure) => self.problem = Some(failure),
        }
    }

    /// None: it has just ended.
    fn memory(&mut self) -> Option<BootMemory> {
        let place = self.place.as_mut()?;
        let account = remote::read_account(place.pid, place.page, place.arenas).ok()?;
        place.arenas = account.head.arena_count;
        let mut statm = Vec::new();
        ProcFilesystem::new().read(place.pid, "statm", &mut statm).ok()?;
        let rss_bytes = proc::parse_resident_pages(&statm)? * machine::page_size_bytes();
        Some(BootMemory { live_bytes: account.live_bytes(), rss_bytes })
    }
}
