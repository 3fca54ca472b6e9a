//! `snug leak`: runs or watches a program and says whether its memory grows forever, and why.
//!
//! `load` keeps the program at work, `watch` reads processes, `assemble` makes series of the readings, `trend` judges
//! one series and `verdict` all of them, `report` finds the words, `text`, `json` and `plot` write them. `simulate`
//! makes up series to test with.

pub(super) mod arguments;
mod root_end;

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::leak::arguments::{LeakArguments, LeakFailure};
use crate::leak::root_end::RootEnd;
use snug_base::failure::{Context, Failure, Result, FAILED, UNKNOWN, USAGE};
use snug_base::time::duration;
use snug_base::{json, progress, terminal};
use snug_heap::remote;
use snug_inspect::asker::{self, Asker};
use snug_inspect::inspector::Inspector;
use snug_inspect::program::{self, Program, Variables};
use snug_leak::assemble;
use snug_leak::growth_check::OtherMeasures;
use snug_leak::load::LoadDriver;
use snug_leak::report::{Findings, LeakReport, LoadMade, Remarks};
use snug_leak::size_growth::{GrowingSize, SizeGrowth};
use snug_leak::verdict::{self, Verdict};
use snug_live::record::{Recorder, Recording, Roots, SnugProcess};
use snug_measure::errand::{self, Errand};
use snug_measure::plan::{self, Candidate};
use snug_measure::sets::Sets;
use snug_measure::settings;
use snug_process::children::{Children, Waited};
use snug_process::pace::Pace;
use snug_process::proc::{Pid, ProcFilesystem};
use snug_process::system::{self, Ending};
use snug_process::tree;
use snug_profile::keeping::KeepingLine;
use snug_profile::sampling::WatchedSamples;
use snug_profile::sites;
use snug_report::{leak_plot, leak_text};

/// Readings in a watch, if nothing else is asked for; between these limits of the interval.
const READINGS: f64 = 600.0;
/// Fewer would not do for a verdict, whatever they cost.
const READINGS_AT_ANY_COST: f64 = 30.0;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(30);
/// Reading may take this share of one core.
const OVERHEAD_LIMIT: f64 = 0.01;
const OVERHEAD_ASKED_FOR: f64 = 0.5;
/// The part of the watch after which heaps under snug are looked into: what is allocated before may be there to stay, as
/// code is.
const LOOKED_INTO_FROM: f64 = 0.3;
/// Requests are counted at most this often: the command may be a request itself.
const COUNT_EVERY_S: f64 = 1.0;
/// A count of requests this old still stands for now, in intervals of counting.
const FRESH: f64 = 3.0;

/// Runs the command.
pub(crate) fn run(arguments: &LeakArguments) -> Result<()> {
    refuse_to_ask_a_running_process(arguments)?;
    let environment = arguments.program.first().map(|name| prepare(arguments, name)).transpose()?;
    let load = LoadDriver::of(&arguments.load, arguments.process.is_some())?;
    let mut children = Children::new()?;
    let root = match (&environment, &arguments.process) {
        (Some(environment), _) => start(&arguments.program, environment)?,
        (None, Some(process)) => tree::find_one(process)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let seen = Session::new(arguments, root, environment.is_some(), load)?.watch(&mut children)?;
    seen.remarks.notes.iter().for_each(|note| terminal::note(note));
    if seen.recording.processes.is_empty() {
        return Err(nothing_read(&seen.recording, root));
    }
    let failed = seen.failed;
    let report = judge(arguments, seen, root);
    write(arguments, &report)?;
    if failed || arguments.fail_on.iter().any(|failure| failure.includes(report.verdict)) {
        return Err(Failure::already_told(FAILED));
    }
    Ok(())
}

fn nothing_read(recording: &Recording, root: Pid) -> Failure {
    let failure = if recording.forbidden.is_empty() {
        Failure::new("the program ended before its memory could be read")
            .advise("give it more to do, or a smaller --interval")
    } else {
        Failure::new(format!("not permitted to read the memory of process {root}"))
            .advise("run snug leak as the user that owns it, or as root")
    };
    failure.exit_code(UNKNOWN)
}

/// Judges what was seen.
fn judge(arguments: &LeakArguments, seen: WatchOutcome, root: Pid) -> LeakReport {
    let WatchOutcome { recording, requests, load, remarks, lines, sizes, other_measures, .. } = seen;
    let assembled = assemble::assemble(&recording);
    let tolerance = arguments.tolerance_percent / 100.0;
    let request_unit = requests.unit;
    let by_moment = requests.by_moment();
    let requests: Vec<f64> =
        assembled.moments.iter().filter_map(|moment| by_moment.get(*moment).copied()).collect();
    LeakReport::new(Findings {
        subject: match arguments.process {
            Some(_) => format!("PID {root}: {}", recording.processes[0].command),
            None => terminal::shell_line(&arguments.program),
        },
        recording: &recording,
        assembled: &assembled,
        total: verdict::assess_with_requests(&assembled.total, &requests, tolerance),
        by_age: assembled.by_age.as_ref().map(|by_age| verdict::assess(&by_age.series, tolerance)),
        request_unit,
        requests,
        load,
        remarks,
        lines,
        sizes,
        other_measures,
    })
}

fn write(arguments: &LeakArguments, report: &LeakReport) -> Result<()> {
    if let Some(path) = &arguments.plot {
        leak_plot::write(report, path)?;
        anstream::eprintln!("plot: {}", path.display());
    }
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.json {
        json::write(json::LEAK, report, &mut stdout)
    } else {
        leak_text::write(report, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())
}

impl LeakFailure {
    /// Where live bytes are not known, growth may be either.
    fn includes(self, verdict: Verdict) -> bool {
        match self {
            LeakFailure::Leak => matches!(verdict, Verdict::Leak | Verdict::Growing),
            LeakFailure::Bloat => matches!(verdict, Verdict::Bloat | Verdict::Growing),
            LeakFailure::Fragmented => verdict == Verdict::Fragmented,
            LeakFailure::Unclear => verdict == Verdict::Unclear,
        }
    }
}

/// Finds the program and the allocator. Returns the variables to set.
fn prepare(arguments: &LeakArguments, name: &OsStr) -> Result<Variables> {
    let program = program::find(name)?;
    // Who asks the program's allocator means the one that it has.
    let default = if arguments.ask_allocator { "glibc" } else { "snug" };
    let with = arguments.with.clone().unwrap_or_else(|| default.into());
    let entries = plan::parse_list(&[with], &Sets::default())?;
    let [entry] = entries.as_slice() else {
        return Err(Failure::new("--with takes one allocator").exit_code(USAGE));
    };
    let candidate = plan::resolve(entry).map_err(|failure| match arguments.with {
        Some(_) => failure.exit_code(USAGE),
        None => failure,
    })?;
    if let Some(library) = &candidate.library {
        if let Some(obstacle) = program::preload_obstacle(&program, &library.path, &library.elf) {
            return Err(obstacle.exit_code(USAGE));
        }
    }
    let asker = arguments.ask_allocator.then(|| find_asker(&program, &candidate)).transpose()?;
    let existing = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
    let environment = plan::environment(&candidate, asker.as_ref(), existing.as_deref());
    for complaint in settings::refused(&candidate, &environment)? {
        terminal::note(&format!("{}: {complaint}", candidate.label));
    }
    Ok(environment)
}

/// Finds the asker, and says when it is of no use.
fn find_asker(program: &Program, candidate: &Candidate) -> Result<Asker> {
    let asker = Asker::find()?;
    if let Some(obstacle) = asker.obstacle(program) {
        return Err(obstacle.exit_code(USAGE));
    }
    if let Some(note) = asker::no_use(candidate.kind) {
        terminal::note(&note);
    }
    Ok(asker)
}

/// Nothing can be preloaded into what runs already.
fn refuse_to_ask_a_running_process(arguments: &LeakArguments) -> Result<()> {
    let Some(process) = arguments.process.as_deref().filter(|_| arguments.ask_allocator) else {
        return Ok(());
    };
    let asker = Asker::find()?;
    Err(Failure::usage(
        format!("the allocator of {process} can't be asked: it runs already"),
        format!(
            "start it with LD_PRELOAD={} (and behind that the allocator, if it is preloaded, too); then snug leak {process} \
             finds the answers without this option",
            asker.path().display()
        ),
    ))
}

/// Starts the program; what it writes goes to stderr.
fn start(arguments: &[OsString], environment: &Variables) -> Result<Pid> {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).envs(environment).stdin(Stdio::null()).stdout(Stdio::from(io::stderr()));
    system::isolate(&mut command);
    let child = command.spawn().cannot(|| format!("run {}", arguments[0].to_string_lossy()))?;
    Ok(child.id() as Pid)
}

/// Requests so far, by number of the moment; None until the first count is there. Empty if nobody counts them.
#[derive(Default)]
struct RequestCounts {
    counts: Vec<Option<f64>>,
    unit: &'static str,
}

impl RequestCounts {
    /// The counts, the first one standing for the moments before it: what counts them may have begun long ago.
    /// Empty if there never was one.
    fn by_moment(self) -> Vec<f64> {
        let Some(first) = self.counts.iter().find_map(|count| *count) else { return Vec::new() };
        self.counts.into_iter().map(|count| count.unwrap_or(first)).collect()
    }
}

/// What came of a watch.
struct WatchOutcome {
    recording: Recording,
    requests: RequestCounts,
    load: Option<LoadMade>,
    remarks: Remarks,
    /// The program ended by itself, and not well.
    failed: bool,
    lines: Vec<KeepingLine>,
    sizes: Vec<GrowingSize>,
    other_measures: OtherMeasures,
}

/// One watch.
struct Session<'a> {
    arguments: &'a LeakArguments,
    root: Pid,
    started: bool,
    recorder: Recorder<ProcFilesystem, Inspector>,
    begin: Instant,
    load: Option<LoadDriver>,
    counter: Option<Errand>,
    /// The last count of requests and when it was made.
    counted: Option<(f64, f64)>,
    requests: RequestCounts,
    /// How the program ended that was started here.
    ending: Option<Ending>,
    /// Of one that was not.
    root_end: Option<RootEnd>,
    progress: WatchProgress,
    samples: WatchedSamples,
    sizes: SizeGrowth,
}

impl<'a> Session<'a> {
    fn new(
        arguments: &'a LeakArguments,
        root: Pid,
        started: bool,
        load: Option<LoadDriver>,
    ) -> Result<Session<'a>> {
        let roots = Roots { root, own: started.then(|| std::process::id() as Pid) };
        let counter = arguments.requests_from.as_deref();
        let load_unit = load.as_ref().map_or("request", LoadDriver::unit);
        Ok(Session {
            arguments,
            root,
            started,
            recorder: Recorder::new(ProcFilesystem::new(), Inspector::new(String::new()), roots),
            begin: Instant::now(),
            load,
            counter: counter.map(|command| Errand::new(command, COUNT_EVERY_S)).transpose()?,
            counted: None,
            requests: RequestCounts {
                counts: Vec::new(),
                unit: if counter.is_some() { "request" } else { load_unit },
            },
            ending: None,
            root_end: if started { None } else { RootEnd::of_running(root) },
            progress: WatchProgress::new(arguments.watch_for),
            samples: WatchedSamples::default(),
            sizes: SizeGrowth::default(),
        })
    }

    fn now_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Watches to the end, and ends what was started here even if it can't.
    fn watch(mut self, children: &mut Children) -> Result<WatchOutcome> {
        let followed = self.follow(children);
        let seen = self.stop(children);
        followed.map(|()| seen)
    }

    /// Reads until the time is over, the program has ended, or a signal asks to stop.
    fn follow(&mut self, children: &mut Children) -> Result<()> {
        let interval = self.arguments.interval.unwrap_or_else(|| {
            self.arguments.watch_for.div_f64(READINGS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
        });
        // An interval given by hand is never changed.
        let share = if self.arguments.interval.is_some() { OVERHEAD_ASKED_FOR } else { OVERHEAD_LIMIT };
        let end_s = self.arguments.watch_for.as_secs_f64();
        let mut pace =
            Pace::new(interval.as_secs_f64(), share).with_longest_gap(end_s / READINGS_AT_ANY_COST);
        loop {
            while let Waited::Ended(reaped) = children.reap() {
                self.reaped(reaped.pid, reaped.ending);
            }
            let now_s = self.now_s();
            let over = now_s >= end_s || self.ending.is_some();
            let has_just_ended = self.root_end.as_mut().is_some_and(|end| end.has_just_come(now_s));
            if now_s >= pace.next_s || has_just_ended || (over && self.ending.is_none()) {
                // Of this thread: clients of the load have theirs.
                let before = system::thread_cpu();
                let (processes, rss_bytes) = self.recorder.read(now_s);
                self.note_requests(now_s, processes > 0);
                if now_s >= LOOKED_INTO_FROM * end_s {
                    self.look_into_heaps(now_s);
                }
                pace.looked(now_s, (system::thread_cpu() - before).as_secs_f64());
                self.progress.update(now_s, processes, rss_bytes);
                if processes == 0 && !self.started {
                    self.note_nothing_left(now_s);
                    return Ok(());
                }
            }
            if over {
                return Ok(());
            }
            self.run_errands()?;
            let load_s = self.load.as_ref().and_then(LoadDriver::next_s);
            let count_s = self.counter.as_ref().and_then(Errand::next_s);
            let next_s = [load_s, count_s].into_iter().flatten().fold(pace.next_s.min(end_s), f64::min);
            let wait = Duration::from_secs_f64((next_s - self.now_s()).max(0.0));
            let end = self.root_end.as_ref().and_then(RootEnd::to_come);
            if children.wait_beside(wait, end) {
                anstream::eprintln!("stopped after {}", duration(self.now_s()));
                return Ok(());
            }
        }
    }

    /// Takes note that no process can be read any more. If none ever was, that is a failure, which says so by itself.
    fn note_nothing_left(&mut self, now_s: f64) {
        let was_read = self.recorder.recording.processes.iter().any(|process| !process.readings.is_empty());
        match &mut self.root_end {
            Some(end) if was_read => end.nothing_left_s = Some(now_s),
            end => *end = None,
        }
    }

    fn run_errands(&mut self) -> Result<()> {
        let now_s = self.now_s();
        let load = self.load.as_mut().map(|load| load.start_if_due(now_s)).transpose()?;
        let counter = self.counter.as_mut().map(|counter| counter.start_if_due(now_s)).transpose()?;
        for group in [load, counter].into_iter().flatten().flatten() {
            self.recorder.leave_out(group);
        }
        Ok(())
    }

    fn reaped(&mut self, pid: Pid, ending: Ending) {
        let now_s = self.now_s();
        if pid == self.root {
            self.ending = Some(ending);
        }
        if let Some(load) = &mut self.load {
            load.ended(pid, ending, now_s);
        }
        if let Some(counter) = &mut self.counter {
            if counter.ended(pid, ending, now_s) && ending == Ending::Exited(0) {
                self.counted = errand::first_number(&counter.output()).map(|count| (now_s, count));
            }
        }
    }

    /// Notes the requests made so far for the moment that was just read.
    fn note_requests(&mut self, now_s: f64, alive: bool) {
        if let Some(load) = self.load.as_mut().filter(|_| alive) {
            load.look();
        }
        let last = self.requests.counts.last().copied().flatten();
        let count = match (&self.counter, &self.load) {
            (Some(_), _) => {
                let fresh = self.counted.filter(|(at_s, _)| now_s - at_s < FRESH * COUNT_EVERY_S.max(1.0));
                fresh.map(|(_, count)| count).or(last)
            }
            (None, Some(load)) => Some(load.succeeded() as f64),
            (None, None) => return,
        };
        self.requests.counts.push(count);
    }

    /// Of processes under snug: which sizes add up, and samples.
    fn look_into_heaps(&mut self, now_s: f64) {
        let processes = self.recorder.under_snug();
        for SnugProcess { pid, start_ticks, page } in &processes {
            // A process that can't be read any more has ended.
            if let Ok(account) = remote::read_account(*pid, *page, self.recorder.arenas) {
                self.sizes.note((*pid, *start_ticks), now_s, &account);
            }
        }
        if !self.arguments.no_lines {
            self.samples.look(&processes);
        }
    }

    /// What was forked since the last look has the setting from its parent.
    fn end_sampling(&mut self, now_s: f64) {
        if self.samples.is_empty() || self.started {
            return;
        }
        let (processes, _) = self.recorder.read(now_s);
        self.note_requests(now_s, processes > 0);
        self.samples.look(&self.recorder.under_snug());
        std::mem::take(&mut self.samples).finish();
    }

    /// Ends what was started here. Returns what was seen.
    fn stop(mut self, children: &mut Children) -> WatchOutcome {
        self.progress.bar.finish_and_clear();
        let now_s = self.now_s();
        let mut remarks = Remarks { ended: self.ending.is_some(), ..Remarks::default() };
        let failure = self.ending.and_then(Ending::failure);
        if let Some(failed) = &failure {
            let failed = format!("the program {failed}");
            remarks.notes.push(failed.clone());
            remarks.obstacles.push(failed);
        }
        if let Some(end) = &self.root_end {
            end.remark(&mut remarks);
        }
        if let Some(load) = &mut self.load {
            load.stop();
            load.remark(now_s, &mut remarks);
        }
        if self.counter.is_some() && self.counted.is_none() {
            remarks.notes.push("--requests-from printed no number".into());
        }
        let (lines, by_lines) = self.samples.lines();
        let frames = lines.iter().flat_map(|line| std::iter::once(&line.line).chain(&line.callers));
        remarks.notes.extend(sites::lacks_language(frames));
        self.end_sampling(now_s);
        let mut source = ProcFilesystem::new();
        children.stop_all(&mut |_| {}, &mut || tree::below_own(&mut source));
        let recording = self.recorder.finish();
        if let Some(unread) = recording.unread_text() {
            remarks.notes.push(format!("{unread}: run snug leak as the user that owns it, or as root"));
            remarks.obstacles.push(unread);
        }
        WatchOutcome {
            recording,
            requests: self.requests,
            load: self.load.as_ref().map(LoadDriver::made),
            remarks,
            failed: failure.is_some(),
            lines,
            sizes: self.sizes.growing(),
            other_measures: OtherMeasures { by_lines, by_sizes: self.sizes.in_all() },
        }
    }
}

/// The bar on a terminal, or else one line at the beginning.
struct WatchProgress {
    bar: ProgressBar,
    is_terminal: bool,
}

impl WatchProgress {
    fn new(watch_for: Duration) -> WatchProgress {
        let bar = progress::bar(Some(watch_for.as_secs().max(1)), "{bar:20} {wide_msg}");
        let is_terminal = progress::is_shown();
        if !is_terminal {
            anstream::eprintln!(
                "watching for {}; Ctrl-C ends it with the verdict so far",
                duration(watch_for.as_secs_f64())
            );
        }
        WatchProgress { bar, is_terminal }
    }

    fn update(&self, now_s: f64, processes: usize, rss_bytes: u64) {
        if self.is_terminal {
            self.bar.set_position(now_s as u64);
            self.bar.set_message(format!(
                "{}, {}, {} (Ctrl-C: verdict so far)",
                duration(now_s),
                terminal::counted(processes, "process"),
                terminal::bytes(rss_bytes as f64)
            ));
        }
    }
}
