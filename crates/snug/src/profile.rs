//! `snug profile`: which code allocated the memory of a process, by samples that snug takes in it.

mod black_box;
mod diff;
mod program;
mod running;
mod views;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use regex_lite::Regex;
use serde::Serialize;

use crate::profile::views::ProfileView;
use snug_base::failure::{Context, Failure, Result, FAILED};
use snug_base::terminal::{self, bytes, bytes_range, bytes_within, counted};
use snug_base::time::{duration, time_between};
use snug_base::{file, json, machine};
use snug_process::command_line::process_named as process;
use snug_process::proc::Pid;
use snug_process::tree;
use snug_profile::lines::{SampledSum, StackFilter};
use snug_profile::sites::{self, Branch, Site};
use snug_profile::{heap_v2, pprof};
use snug_report::flame;
use snug_report::profile_text::{self, Extent};

/// How long a process is sampled, unless the command line says otherwise.
const WATCH_FOR: Duration = Duration::from_secs(30);
/// What JSON has.
#[derive(Serialize)]
struct Report<'a> {
    pid: Pid,
    /// Those that were measured together.
    processes: usize,
    view: ProfileView,
    measured_s: f64,
    mean_bytes: u64,
    samples: u64,
    dropped: u64,
    total_bytes: f64,
    sites: &'a [Site],
}

impl<'a> Report<'a> {
    fn new(measured: &MeasuredProfile, shown: &'a MeasuredView) -> Report<'a> {
        Report {
            pid: measured.pid,
            processes: measured.processes,
            view: shown.view,
            measured_s: measured.duration.as_secs_f64(),
            mean_bytes: measured.mean_bytes,
            samples: shown.sites.iter().map(|site| site.samples).sum(),
            dropped: shown.dropped,
            total_bytes: shown.sites.iter().fold(0.0, |sum, site| sum + site.bytes), // sum() of none is -0.0
            sites: &shown.sites,
        }
    }
}

/// Show which code allocated the memory of a process under snug
#[derive(Debug, Args)]
#[command(
    override_usage = "snug profile [OPTIONS] <PID|NAME>\n       snug profile [OPTIONS] -- PROGRAM [ARGS]...\n       \
        snug profile --diff <OLD> <NEW>",
    after_help = "Examples:
  snug profile 4711
  snug profile -- ruby script.rb
  snug profile puma --for 5m
  snug profile 4712 --alone
  snug profile 4711 --view allocated --pprof profile.pb
  snug profile puma --for 5m --view peak
  snug profile puma --focus 'app/models' --ignore 'Logger'
  snug profile puma --for 5m --html profile.html
  snug profile puma --for 5m --heap-v2 profile.heap
  snug profile 4711 --for 1m --json | jq '.sites[0]'
  snug profile 4711 --view live --keep --json > old.json
  snug profile 4711 --view live --json > new.json
  snug profile --diff old.json new.json
  snug profile puma --black-box /volume
  snug profile puma --for 50s --pprof - | curl --data-binary @- 'http://pyroscope:4040/ingest?format=pprof&name=shop'

No restart is needed: snug switches sampling on in the process and all below it, such as a server's workers, for the time \
that --for gives or until Ctrl-C, and adds up what they allocate. Then sampling goes off again, within 15 seconds even if \
snug is killed. About one block in every 512 KiB allocated becomes a sample, at most 100 a second, and after the first 30 s at most 25 or \
0.5 % of the process's CPU time, with the stack that asked \
for it: native frames, and the Ruby (3.0 to 4.1) or Python code (3.11 to 3.15) that ran. The numbers are estimates, \
each with the samples behind it and the interval in which the true one lies with 95 % confidence. The files for flame \
graphs, pprof and jeprof hold function names. The page (--html) has all \
views, with a switch between them. The library keeps no peak: --view peak shows the highest of the moments at which this \
program looked, ten times a second or less often.

With --, the program is started under snug and sampled from its start until it ends; --for or Ctrl-C ends it earlier. \
snug shows the peak, because a program frees most of its memory before it ends. \
The profile follows what the program writes; with --json the program's output goes to stderr. It covers the first process \
alone; programs that this one executes or starts are sampled as well, for `snug profile PID --view live`. The program is traced \
(ptrace(2)) so that it can be read at its end, and no other debugger can be attached. Where that is not permitted it is \
read while it runs, and what it allocated last is missing.

To see everything since the start of a server, run it with SNUG=profile:1, and use --view live.

With --pprof -, the profile for pprof is all that goes to stdout, and the rest to stderr.

Exit codes: 0 shown; 1 the process uses another allocator, or the program failed by itself; 2 the arguments or files are \
invalid; 3 no such process, no permission to look at it, or it ended before it could be read; 125 libsnug.so is missing or \
can't be loaded into this program; 126, 127 the program can't be run."
)]
pub(crate) struct ProfileArguments {
    /// The process and all below it; for a name, the topmost process of that name
    #[arg(
        value_name = "PID|NAME",
        value_parser = process,
        required_unless_present_any = ["diff", "program"],
        conflicts_with = "program"
    )]
    pub process: Option<String>,
    /// Instead of measuring, show which lines grew from one saved profile (--json) to the next
    #[arg(
        long,
        num_args = 2,
        value_names = ["OLD", "NEW"],
        conflicts_with_all =
            ["process", "program", "watch_for", "view", "mean_bytes", "keep", "html", "pprof", "heap_v2", "folded"]
    )]
    pub diff: Vec<PathBuf>,
    /// Instead of showing anything, write what is live into this folder whenever memory is near the container's limit or at
    /// a new high, until the process ends: `snug blame` shows it
    #[arg(
        long,
        value_name = "DIR",
        value_hint = clap::ValueHint::DirPath,
        requires = "process",
        conflicts_with_all = ["watch_for", "view", "html", "pprof", "folded", "json", "diff", "program"]
    )]
    pub black_box: Option<PathBuf>,
    /// How long to sample [default: 30s; of a PROGRAM, until it ends]
    #[arg(long = "for", value_name = "TIME", value_parser = measuring_time)]
    pub watch_for: Option<Duration>,
    /// What to show [default: grown; of a PROGRAM, peak]
    #[arg(long, value_enum)]
    pub view: Option<ProfileView>,
    /// Only stacks with a function, file or line that matches
    #[arg(long, value_name = "REGEX", value_parser = pattern, conflicts_with_all = ["diff", "black_box"])]
    pub focus: Option<Regex>,
    /// No stacks with a function, file or line that matches
    #[arg(long, value_name = "REGEX", value_parser = pattern, conflicts_with_all = ["diff", "black_box"])]
    pub ignore: Option<Regex>,
    /// How many lines to show, of those that allocated most by themselves [default: 10]
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["json", "black_box"])]
    pub top: Option<usize>,
    /// Show all lines, and the whole tree
    #[arg(long, conflicts_with_all = ["top", "json", "black_box"])]
    pub all: bool,
    /// Bytes between two samples, on average [default: 524288]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=1_073_741_824))]
    pub mean_bytes: Option<u32>,
    /// Only the process itself, none of those below it
    #[arg(long, requires = "process")]
    pub alone: bool,
    /// Leave sampling on afterwards
    #[arg(long, conflicts_with = "program")]
    pub keep: bool,
    /// Also write a page with a flame graph of each view, for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the profile for pprof, Pyroscope and speedscope; - is stdout, and the rest goes to stderr
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Also write the profile for jeprof and others that read jemalloc's
    #[arg(long, value_name = "FILE")]
    pub heap_v2: Option<PathBuf>,
    /// Also write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// A program to start and sample
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

fn measuring_time(text: &str) -> std::result::Result<Duration, String> {
    time_between(text, 0.1, 86_400.0)
}

fn pattern(text: &str) -> std::result::Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

/// What was measured of a process.
struct MeasuredProfile {
    pid: Pid,
    /// That one and others below it.
    processes: usize,
    /// What it is called where it is shown.
    subject: String,
    /// Its command line.
    command: String,
    duration: Duration,
    /// The one that was asked for first; the others, if a page shows them.
    views: Vec<MeasuredView>,
    mean_bytes: u64,
    /// The same at the beginning.
    first_mean_bytes: u64,
    hides_small_objects: bool,
    /// It is a program that was started for this, and failed by itself.
    failed: bool,
}

struct MeasuredView {
    view: ProfileView,
    sites: Vec<Site>,
    /// With the sites that were not to be shown; None: there are none.
    whole_bytes: Option<f64>,
    dropped: u64,
}

impl ProfileArguments {
    /// The view that is shown. A program that is started for it has mostly freed all at its end.
    fn view(&self) -> ProfileView {
        let usual = if self.program.is_empty() { ProfileView::Grown } else { ProfileView::Peak };
        self.view.unwrap_or(usual)
    }

    /// Whether the process is to be looked at while it is sampled.
    fn wants_peak(&self) -> bool {
        self.view() == ProfileView::Peak || self.html.is_some()
    }

    /// The views that are shown: the one that was asked for first.
    fn views(&self) -> impl Iterator<Item = ProfileView> + '_ {
        let shown = self.view();
        let others = ProfileView::value_variants().iter().filter(|_| self.html.is_some());
        std::iter::once(shown).chain(others.copied().filter(move |view| *view != shown))
    }

    /// What is shown of all sites of a view.
    fn chosen(&self, view: ProfileView, all: Vec<Site>, dropped: u64) -> MeasuredView {
        let filter = StackFilter { focus: self.focus.clone(), ignore: self.ignore.clone() };
        let whole_bytes = (!filter.is_none()).then(|| SampledSum::of(&all).bytes);
        let sites = all.into_iter().filter(|site| filter.wants(site)).collect();
        MeasuredView { view, sites, whole_bytes, dropped }
    }

    /// Whether the profile for pprof is what stdout is for; then it is all of that.
    fn pprof_takes_stdout(&self) -> bool {
        self.pprof.as_deref() == Some(Path::new("-"))
    }

    /// How much of it is written for people.
    fn extent(&self) -> Extent {
        let usual = Extent::usual(terminal::stdout_columns());
        match self.all {
            true => Extent::ALL,
            false => Extent { top: self.top.unwrap_or(usual.top), ..usual },
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &ProfileArguments) -> Result<()> {
    if !arguments.diff.is_empty() {
        return diff::run(&arguments.diff, arguments.json, &arguments.extent());
    }
    if let (Some(folder), Some(process)) = (&arguments.black_box, &arguments.process) {
        return black_box::run(folder, tree::find_one(process)?, arguments);
    }
    check_places(arguments)?;
    let measured = match &arguments.process {
        Some(process) => running::measure(tree::find_one(process)?, arguments)?,
        None => program::measure(arguments)?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = now.saturating_sub(measured.duration);
    write(&measured, arguments, began)?;
    if measured.failed {
        return Err(Failure::already_told(FAILED));
    }
    Ok(())
}

/// Writes the files that were asked for, and the profile to stdout. `began`: when the measurement did, since the epoch.
fn write(measured: &MeasuredProfile, arguments: &ProfileArguments, began: Duration) -> Result<()> {
    let shown = &measured.views[0];
    let all = &shown.sites;
    if let Some(path) = &arguments.pprof {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        let (began_ns, duration_ns) = (nanoseconds(began), nanoseconds(measured.duration));
        let names = if shown.view == ProfileView::Allocated { pprof::ALLOCATED } else { pprof::LIVE };
        let encoded = pprof::encode(all, names, began_ns, duration_ns, measured.mean_bytes);
        match arguments.pprof_takes_stdout() {
            true => std::io::stdout().write_all(&encoded).cannot(|| "write to stdout".into())?,
            false => file::write(path, encoded)?,
        }
    }
    if let Some(path) = &arguments.heap_v2 {
        let mut text = Vec::new();
        heap_v2::write(all, &mut text).cannot(|| "write the heap profile".into())?;
        file::write(path, &text)?;
    }
    if let Some(path) = &arguments.folded {
        let mut text = Vec::new();
        profile_text::write_folded(all, &mut text).cannot(|| "write folded stacks".into())?;
        file::write(path, &text)?;
    }
    let report = Report::new(measured, shown);
    if let Some(path) = &arguments.html {
        file::write(path, &page_of(measured)?)?;
    }
    // A profile that has stdout must be all that is there.
    let (mut out, colours): (Box<dyn Write>, bool) = match arguments.pprof_takes_stdout() {
        true => (Box::new(anstream::stderr().lock()), false),
        false => (Box::new(anstream::stdout().lock()), terminal::stdout_colours()),
    };
    let written = if arguments.json {
        json::write(json::PROFILE, &report, &mut out)
    } else {
        writeln!(out, "{}: {}", measured.subject, summary(&report, measured))
            .and_then(|()| profile_text::write(all, &arguments.extent(), colours, &mut out))
    };
    written.cannot(|| "write the profile".into())?;
    tell_distance(measured, arguments);
    if let Some(note) = sites::lacks_language(all.iter().flat_map(|site| &site.frames)) {
        terminal::note(&note);
    }
    if measured.hides_small_objects {
        terminal::note(
            "Python keeps objects of up to 512 bytes in memory that it maps itself, and they are not in here; \
             started with PYTHONMALLOC=malloc, it takes all from malloc",
        );
    }
    Ok(())
}

/// Says that samples were further apart than they were asked to be.
fn tell_distance(measured: &MeasuredProfile, arguments: &ProfileArguments) {
    let asked = arguments.mean_bytes.map_or(u64::MAX, u64::from);
    if measured.mean_bytes > asked && measured.mean_bytes > measured.first_mean_bytes {
        let (asked, used) = (bytes(asked as f64), bytes(measured.mean_bytes as f64));
        terminal::note(&format!(
            "the samples are not {asked} apart, as --mean-bytes asks, but up to {used}: more than 100 a second, or 0.2 % of \
             the CPU time, are never taken"
        ));
    }
}

/// A view as --view takes it.
fn view_name(view: ProfileView) -> String {
    view.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

/// The page with a flame graph for each view.
fn page_of(measured: &MeasuredProfile) -> Result<Vec<u8>> {
    let process = format!("{} {}", measured.pid, measured.command);
    let ended_at = machine::now_utc();
    let reports: Vec<Report> = measured.views.iter().map(|view| Report::new(measured, view)).collect();
    let summaries: Vec<String> = reports.iter().map(|report| summary(report, measured)).collect();
    let trees: Vec<Branch> = reports.iter().map(|report| sites::tree(report.sites)).collect();
    let views =
        reports.iter().zip(&summaries).zip(&trees).map(|((report, summary), root)| flame::FlameView {
            name: view_name(report.view),
            about: flame::About {
                process: &process,
                ended_at: &ended_at,
                summary,
                samples: report.samples,
                dropped: report.dropped,
            },
            sites: report.sites,
            root,
        });
    let mut page = Vec::new();
    flame::write_views(&views.collect::<Vec<_>>(), &mut page).cannot(|| "write the page".into())?;
    Ok(page)
}

/// Refuses files that can't be made, before the measurement.
fn check_places(arguments: &ProfileArguments) -> Result<()> {
    let files = [
        ("--html", &arguments.html),
        ("--pprof", &arguments.pprof),
        ("--heap-v2", &arguments.heap_v2),
        ("--folded", &arguments.folded),
    ];
    let mut wanted = files.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    wanted.try_for_each(|(option, path)| file::check_place(option, path))
}

fn summary(report: &Report<'_>, measured: &MeasuredProfile) -> String {
    let estimate = SampledSum::of(report.sites);
    let time = duration(report.measured_s);
    let total = bytes_within(estimate.bytes, estimate.uncertainty());
    let what = match report.view {
        ProfileView::Grown => format!("{total} allocated in {time} and still live"),
        ProfileView::Kept => {
            format!("{total} of what was allocated in {time} is kept, without what may still be garbage")
        }
        ProfileView::Live => format!("{total} live of what was allocated since sampling began"),
        ProfileView::Allocated => format!("{total} allocated in {time}"),
        ProfileView::Peak => format!("{total} live when it was seen to be most, within {time}"),
    };
    if report.mean_bytes == 0 {
        return "no samples, as the process made no slow call into its allocator".into();
    }
    let (first, last) = (measured.first_mean_bytes as f64, report.mean_bytes as f64);
    let distance = match first < last {
        true => format!("{} to {} apart", bytes(first), bytes(last)),
        false => format!("{} apart", bytes(last)),
    };
    let (low, high) = estimate.interval();
    let range = bytes_range(low, high);
    let samples = counted(estimate.samples as usize, "sample");
    let mut text = format!("{what} ({range} with 95 % confidence), by {samples} {distance}");
    if let Some(whole) =
        measured.views.iter().find(|view| view.view == report.view).and_then(|view| view.whole_bytes)
    {
        text.push_str(&format!("; of {}, the stacks that were asked for", bytes(whole)));
    }
    if report.dropped > 0 {
        text.push_str(&format!("; {} samples found no room", report.dropped));
    }
    text
}
