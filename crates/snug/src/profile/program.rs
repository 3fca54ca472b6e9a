//! `snug profile -- PROGRAM`: samples of a program that is started for it, read when it is about to end.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::profile::views::{Looks, SeenBlocks};
use crate::profile::{MeasuredProfile, MeasuredView, ProfileArguments};
use snug_base::failure::{Context, Failure, Result, FAILED, UNKNOWN};
use snug_base::{machine, terminal};
use snug_heap::profile::Profile;
use snug_heap::remote;
use snug_inspect::{access, preloaded};
use snug_process::children::{Children, Waited};
use snug_process::maps::Mapping;
use snug_process::pace::Pace;
use snug_process::proc::{self, Pid, ProcFilesystem, Processes};
use snug_process::symbols::Symbols;
use snug_process::system::{self, Ending, HeldChild, Reaped};
use snug_process::traced::{ChildState, TracedChild};
use snug_process::tree;
use snug_profile::sampling::{
    hides_small_objects, maps_beside, monotonic_ns, read, with_sampling, MEAN_BYTES, VARIABLE,
};

/// Time between two readings of a program that can't be read at its end, and the share of a core that they may take.
const READ_EVERY_S: f64 = 0.1;
const READING_SHARE: f64 = 0.01;
/// How long to wait for a signal: the end of the program is one.
const WAIT: Duration = Duration::from_secs(60);
/// The same while the first thread has ended and others have not: another program may begin without one.
const WAIT_AFTER_FIRST_THREAD: Duration = Duration::from_millis(20);
/// How long a program may take to end after Ctrl-C, which the terminal sends to it as well.
const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// What threads allocated for this long after the first one's end is not worth a word.
const UNREAD: Duration = Duration::from_secs(1);

/// What was read of the program.
struct Snapshot {
    at: Duration,
    command: String,
    cpu: Duration,
    hides_small_objects: bool,
}

/// What was seen of the program.
struct Watch<'a> {
    arguments: &'a ProfileArguments,
    pid: Pid,
    begin: Instant,
    looks: Looks,
    /// Where its counters were, and its command line then.
    found: Option<(u64, String)>,
    last: Option<Snapshot>,
    /// Why the last reading failed, if it did.
    failure: Option<Failure>,
    interrupted: bool,
    /// Other threads run on though the first has ended.
    runs_on: bool,
}

/// Starts the program and samples it.
pub(super) fn measure(arguments: &ProfileArguments) -> Result<MeasuredProfile> {
    let mut prepared = preloaded::prepare(&arguments.program, false)?;
    let command = &mut prepared.command;
    if let Some(settings) = settings_for(arguments) {
        command.env(VARIABLE, settings);
    }
    if arguments.json || arguments.pprof_takes_stdout() {
        let stderr = io::stderr().as_fd().try_clone_to_owned().cannot(|| "copy stderr".into())?;
        command.stdout(Stdio::from(stderr));
    }
    let mut children = Children::new()?;
    system::attach(command);
    let (begin, begin_ns) = (Instant::now(), monotonic_ns());
    let run = || format!("run {}", arguments.program[0].to_string_lossy());
    let held = system::spawn_held(command).cannot(run)?;
    let refusal = TracedChild::seize(&held).err();
    if refusal.is_some() && !is_readable(&held) {
        return Err(access::explain_refused(held.pid, &access::ptrace_scope()));
    }
    let mut child = TracedChild::start(held, refusal.is_none()).cannot(run)?;
    let mut watch = Watch {
        arguments,
        pid: child.pid,
        begin,
        looks: Looks::new(begin_ns, None),
        found: None,
        last: None,
        failure: None,
        interrupted: false,
        runs_on: false,
    };
    let ended = watch.follow(&mut child, &mut children);
    let duration = begin.elapsed();
    if ended.is_none() {
        watch.stop(&mut child, &mut children);
    }
    if let Some(error) = ended.and_then(|_| child.exec_error()) {
        return Err(prepared.not_executed(&error));
    }
    let failed = watch.tell_ending(ended);
    let last = watch.last.take().ok_or_else(|| watch.nothing_read(ended, refusal.is_some()))?;
    watch.tell_gaps(&last, ended, duration, refusal.as_ref());
    let mut symbols = Symbols::of_ended(watch.pid, Vec::new()).with_lines();
    let view_of = |view| {
        let sites = watch.looks.sites(view, watch.pid, &mut symbols, &mut SeenBlocks::default());
        arguments.chosen(view, sites, watch.looks.dropped(view))
    };
    let views: Vec<MeasuredView> = arguments.views().map(view_of).collect();
    if views[0].sites.is_empty() {
        terminal::note(match watch.looks.last().taken {
            0 => "it allocated too little for a sample; a smaller --mean-bytes takes more",
            _ if arguments.focus.is_some() || arguments.ignore.is_some() => {
                "no stack is left by --focus and --ignore"
            }
            _ => "nothing that was sampled was live when it was looked at; --view allocated shows what was freed, too",
        });
    }
    Ok(MeasuredProfile {
        pid: child.pid,
        processes: 1,
        subject: terminal::shell_line(&arguments.program),
        command: last.command,
        duration: last.at,
        views,
        mean_bytes: watch.looks.last().mean_bytes,
        first_mean_bytes: arguments.mean_bytes.unwrap_or(MEAN_BYTES).into(),
        hides_small_objects: last.hides_small_objects,
        failed,
    })
}

/// The value of SNUG that switches sampling on; None: what the user set does already.
fn settings_for(arguments: &ProfileArguments) -> Option<OsString> {
    let existing = std::env::var_os(VARIABLE).unwrap_or_default();
    let settings = with_sampling(&existing, arguments.mean_bytes.unwrap_or(MEAN_BYTES));
    if settings.is_none() && arguments.mean_bytes.is_some() {
        terminal::note("SNUG switches sampling on already, so --mean-bytes has no effect");
    }
    settings
}

/// Whether the memory of a child can be read that is a copy of this process still.
fn is_readable(child: &HeldChild) -> bool {
    static PROBE: u64 = 1;
    remote::read_memory(child.pid, std::ptr::from_ref(&PROBE) as u64, size_of::<u64>()).is_ok()
}

fn without_snug(allocator: &str) -> Failure {
    Failure::new(format!("the program uses {allocator}, not snug"))
        .advise(
            "it executed another program: one without LD_PRELOAD in its environment, or one that is static",
        )
        .exit_code(FAILED)
}

impl Watch<'_> {
    /// Follows the program until it has ended, the time is over, or a signal asks to stop. Returns how it ended.
    fn follow(&mut self, child: &mut TracedChild, children: &mut Children) -> Option<Reaped> {
        let mut pace = Pace::new(READ_EVERY_S, READING_SHARE);
        loop {
            let wait = match child.look() {
                ChildState::Ended(reaped) => return Some(reaped),
                ChildState::Gone => return None,
                ChildState::Ending => {
                    // That of another program, which a thread has executed since.
                    self.last = None;
                    self.read();
                    child.let_go();
                    WAIT_AFTER_FIRST_THREAD
                }
                ChildState::LetGo => {
                    self.runs_on = self.runs_on || self.has_run_on();
                    WAIT_AFTER_FIRST_THREAD
                }
                ChildState::Running if child.is_traced() && !self.arguments.wants_peak() => WAIT,
                ChildState::Running => self.read_if_due(&mut pace),
            };
            let left = self.arguments.watch_for.map(|time| time.saturating_sub(self.begin.elapsed()));
            if left.is_some_and(|left| left.is_zero()) || self.interrupted {
                self.read();
                return None;
            }
            self.interrupted = children.wait_for_signal(left.map_or(wait, |left| wait.min(left)));
        }
    }

    /// Whether threads work on long after the first one's end. A large process may take as long to end.
    fn has_run_on(&self) -> bool {
        let unread =
            self.begin.elapsed().saturating_sub(self.last.as_ref().map_or(Duration::ZERO, |last| last.at));
        unread > UNREAD && tree::has_threads(self.pid)
    }

    /// Returns the time until the next reading.
    fn read_if_due(&mut self, pace: &mut Pace) -> Duration {
        let now_s = self.begin.elapsed().as_secs_f64();
        if now_s >= pace.next_s {
            let before = system::thread_cpu();
            self.read();
            pace.looked(now_s, (system::thread_cpu() - before).as_secs_f64());
        }
        Duration::from_secs_f64((pace.next_s - self.begin.elapsed().as_secs_f64()).max(0.0))
    }

    /// Reads the program. What was read before stays where that fails.
    fn read(&mut self) {
        match self.snapshot() {
            Ok((snapshot, profile, maps)) => {
                self.looks.add(profile, maps);
                (self.last, self.failure) = (Some(snapshot), None);
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    fn snapshot(&mut self) -> Result<(Snapshot, Profile, Vec<Mapping>)> {
        let pid = self.pid;
        let known = self.found.clone();
        let again = known.and_then(|found| Some((found.clone(), read(pid, found.0).ok()??)));
        let again = again.filter(|(_, profile)| profile.started_ns == self.looks.last().started_ns);
        let ((page, command), profile) = match again {
            Some(read) => read,
            // It has just started, or executed another program.
            None => {
                let found = access::look_at(pid)?;
                let page = found.counters_at.ok_or_else(|| without_snug(&found.allocator_text))?;
                ((page, found.report.command), read(pid, page)?.unwrap_or_default())
            }
        };
        self.found = Some((page, command.clone()));
        let mut stat = Vec::new();
        ProcFilesystem::new().read(pid, "stat", &mut stat).cannot(|| format!("read the times of {pid}"))?;
        let ticks = proc::parse_stat(&stat).map_or(0, |stat| stat.ticks());
        let cpu = Duration::from_secs_f64(ticks as f64 / machine::ticks_per_second());
        let hides_small_objects = hides_small_objects(pid, &profile);
        let maps = maps_beside(pid, page, &profile)?;
        let at = self.begin.elapsed();
        Ok((Snapshot { at, command, cpu, hides_small_objects }, profile, maps))
    }

    /// Ends the program, and what it started.
    fn stop(&self, child: &mut TracedChild, children: &mut Children) {
        child.release();
        let begin = Instant::now();
        let is_in_time = || self.interrupted && begin.elapsed() < ENDS_WITHIN;
        while is_in_time() && !matches!(children.reap(), Waited::Nobody) {
            if children.wait_for_signal(Duration::from_millis(20)) {
                break;
            }
        }
        let mut source = ProcFilesystem::new();
        children.stop_all(&mut |_| {}, &mut || tree::below_own(&mut source));
    }

    /// Says how the program failed, if it did by itself. Returns whether.
    fn tell_ending(&self, ended: Option<Reaped>) -> bool {
        let failure = ended.filter(|_| !self.interrupted).and_then(|reaped| reaped.ending.failure());
        if let Some(failed) = &failure {
            terminal::note(&format!("the program {failed}"));
        }
        failure.is_some()
    }

    fn nothing_read(&mut self, ended: Option<Reaped>, is_untraced: bool) -> Failure {
        let early = Failure::new("the program ended before its samples could be read").exit_code(UNKNOWN);
        let is_killed = ended.is_some_and(|reaped| reaped.ending == Ending::Signalled(libc::SIGKILL));
        match self.failure.take() {
            _ if ended.is_some() && is_untraced => {
                early.advise("ptrace(2) is not permitted here, so it can only be read while it runs")
            }
            Some(failure) => failure,
            None if is_killed => early.advise("SIGKILL leaves no time for that"),
            None => early,
        }
    }

    /// Says what the profile lacks.
    fn tell_gaps(
        &self,
        last: &Snapshot,
        ended: Option<Reaped>,
        duration: Duration,
        refusal: Option<&io::Error>,
    ) {
        let missed = duration.saturating_sub(last.at);
        let missed_text = format!("{:.1} s", missed.as_secs_f64());
        match refusal {
            Some(error) if ended.is_some() => terminal::note(&format!(
                "the program could not be traced ({error}), so its last {missed_text} are missing"
            )),
            None if self.runs_on => terminal::note(&format!(
                "its first thread ended {missed_text} before the others, whose allocations since are missing"
            )),
            _ => {}
        }
        let of_children = ended.map_or(Duration::ZERO, |reaped| reaped.user + reaped.system);
        if of_children > 2 * last.cpu + Duration::from_millis(100) {
            terminal::note(
                "processes that it started used most of its CPU time; the profile is of the first process alone",
            );
        }
    }
}
