//! One watch of a program, from its first reading to its last: `record` of snug-live reads the processes, `load` keeps the
//! program at work, `assemble` makes series of the readings, `trend` judges one series and `verdict` all of them, and
//! `report` finds the words.

use std::time::{Duration, Instant};

use crate::assemble;
use crate::growth_check::OtherMeasures;
use crate::load::LoadDriver;
use crate::report::{Findings, LeakReport, LoadMade, Remarks};
use crate::root_end::RootEnd;
use crate::size_growth::{GrowingSize, SizeGrowth};
use crate::verdict;
use snug_base::failure::Result;
use snug_heap::remote;
use snug_inspect::inspector::Inspector;
use snug_live::record::{Recorder, Recording, Roots, SnugProcess};
use snug_measure::errand::{self, Errand};
use snug_process::children::{Children, Waited};
use snug_process::pace::Pace;
use snug_process::proc::{Pid, ProcFilesystem};
use snug_process::system::{self, Ending};
use snug_process::tree;
use snug_profile::keeping::KeepingLine;
use snug_profile::sampling::WatchedSamples;
use snug_profile::sites;

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

/// How to watch.
#[derive(Debug)]
pub struct LeakPlan {
    pub watch_for: Duration,
    /// None: as often as it pays.
    pub interval: Option<Duration>,
    /// A command that prints how many requests there were.
    pub requests_from: Option<String>,
    /// Whether processes under snug are to sample, so that lines can be named.
    pub samples_lines: bool,
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
pub struct WatchOutcome {
    pub recording: Recording,
    requests: RequestCounts,
    load: Option<LoadMade>,
    pub remarks: Remarks,
    /// The program ended by itself, and not well.
    pub failed: bool,
    /// A signal ended the watch, so long after its begin.
    pub stopped_s: Option<f64>,
    lines: Vec<KeepingLine>,
    sizes: Vec<GrowingSize>,
    other_measures: OtherMeasures,
}

impl WatchOutcome {
    /// Judges what was seen of `subject`; growth below `tolerance`, a share of the level, counts as none.
    pub fn judge(self, subject: String, tolerance: f64) -> LeakReport {
        let WatchOutcome { recording, requests, load, remarks, lines, sizes, other_measures, .. } = self;
        let assembled = assemble::assemble(&recording);
        let request_unit = requests.unit;
        let by_moment = requests.by_moment();
        let requests: Vec<f64> =
            assembled.moments.iter().filter_map(|moment| by_moment.get(*moment).copied()).collect();
        LeakReport::new(Findings {
            subject,
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
}

/// One watch.
pub struct Session<'a> {
    plan: &'a LeakPlan,
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
    progress: &'a dyn Fn(f64, usize, u64),
    stopped_s: Option<f64>,
    samples: WatchedSamples,
    sizes: SizeGrowth,
}

impl<'a> Session<'a> {
    /// Of this process and all below it; `progress` is told at each reading when it was, of how many processes, and their
    /// memory.
    pub fn new(
        plan: &'a LeakPlan,
        root: Pid,
        started: bool,
        load: Option<LoadDriver>,
        progress: &'a dyn Fn(f64, usize, u64),
    ) -> Result<Session<'a>> {
        let roots = Roots { root, own: started.then(|| std::process::id() as Pid) };
        let counter = plan.requests_from.as_deref();
        let load_unit = load.as_ref().map_or("request", LoadDriver::unit);
        Ok(Session {
            plan,
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
            progress,
            stopped_s: None,
            samples: WatchedSamples::default(),
            sizes: SizeGrowth::default(),
        })
    }

    fn now_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Watches to the end, and ends what was started here even if it can't.
    pub fn watch(mut self, children: &mut Children) -> Result<WatchOutcome> {
        let followed = self.follow(children);
        let seen = self.stop(children);
        followed.map(|()| seen)
    }

    /// Reads until the time is over, the program has ended, or a signal asks to stop.
    fn follow(&mut self, children: &mut Children) -> Result<()> {
        let interval = self.plan.interval.unwrap_or_else(|| {
            self.plan.watch_for.div_f64(READINGS).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
        });
        // An interval given by hand is never changed.
        let share = if self.plan.interval.is_some() { OVERHEAD_ASKED_FOR } else { OVERHEAD_LIMIT };
        let end_s = self.plan.watch_for.as_secs_f64();
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
                (self.progress)(now_s, processes, rss_bytes);
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
                self.stopped_s = Some(self.now_s());
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
        if self.plan.samples_lines {
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
            stopped_s: self.stopped_s,
            lines,
            sizes: self.sizes.growing(),
            other_measures: OtherMeasures { by_lines, by_sizes: self.sizes.in_all() },
        }
    }
}
