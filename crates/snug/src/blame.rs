//! `snug blame`: which code held the memory of a program that has ended, by its black box.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use snug_base::failure::{Context, Result};
use snug_base::{file, json, terminal};
use snug_process::proc::Pid;
use snug_profile::black_box::{BlackBox, WatchedProcess};
use snug_profile::difference::{self, LineGrowth, SavedProfile};
use snug_profile::sites::{self, Site};
use snug_profile::{black_box_folder, pprof};
use snug_report::blame_text::{self, BlameAnswer};
use snug_report::{flame, profile_text};

/// What JSON has.
#[derive(Serialize)]
struct BlameReport<'a> {
    file: String,
    is_watched: bool,
    answer: String,
    /// PIDs of the processes that the sites are of.
    accused: Vec<Pid>,
    sites: &'a [Site],
    grown: &'a [LineGrowth],
    black_box: &'a BlackBox,
}

/// Show which code held the memory of a program that was killed, from its black box
#[derive(Debug, Args)]
#[command(
    override_usage = "snug blame [OPTIONS] DIR|FILE",
    after_help = "Examples:
  snug run --black-box /volume -- bundle exec puma
  snug blame /volume
  snug blame /volume --html blame.html
  snug blame /volume --json | jq -r '.answer, .sites[0].frames[0]'

`snug run --black-box DIR` and `snug profile --black-box DIR` write into DIR what is live in a program and its workers, by \
line, whenever memory passes nine tenths of the container's limit or reaches a new high. DIR must outlive the program: use \
a volume. If it holds several files, the newest whose program has ended is shown. The lines are those of the processes that \
the kernel OOM-killed or, if there are none, of all that ran when the file was last written.

If the kernel kills the first process of a container, everything else in it dies at the same moment, and nothing is left \
to record how it ended: the file holds the last snapshot before.

Exit codes: 0 shown; 2 the arguments or the file are invalid; 3 there is no file, or it can't be read."
)]
pub(crate) struct BlameArguments {
    /// The folder that --black-box named, or a file in it
    #[arg(value_name = "DIR|FILE", value_hint = clap::ValueHint::AnyPath)]
    pub place: PathBuf,
    /// Also write a page with a flame graph, for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the profile for pprof and speedscope
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Also write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &BlameArguments) -> Result<()> {
    let wanted =
        [("--html", &arguments.html), ("--pprof", &arguments.pprof), ("--folded", &arguments.folded)];
    for (option, path) in wanted.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?))) {
        file::check_place(option, path)?;
    }
    let found = black_box_folder::read(&arguments.place)?;
    let accused = found.black_box.accused();
    let sites = sites::merge(accused.iter().flat_map(|process| process.live.sites.iter().cloned()));
    let grown = grown(&accused);
    let tree = sites::tree(&sites);
    let answer = BlameAnswer {
        black_box: &found.black_box,
        is_watched: found.is_watched,
        columns: terminal::stdout_columns(),
        accused: &accused,
        sites: &sites,
        tree: &tree,
        grown: &grown,
    };
    write_files(arguments, &answer)?;
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.json {
        let report = BlameReport {
            file: found.path.display().to_string(),
            is_watched: found.is_watched,
            answer: found.black_box.verdict(found.is_watched),
            accused: accused.iter().map(|process| process.pid).collect(),
            sites: &sites,
            grown: &grown,
            black_box: &found.black_box,
        };
        json::write(json::BLAME, &report, &mut stdout)
    } else {
        blame_text::write(&answer, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())?;
    if let Some(note) = sites::lacks_language(sites.iter().flat_map(|site| &site.frames)) {
        terminal::note(&note);
    }
    if accused.iter().any(|process| process.hides_small_objects) {
        terminal::note(
            "Python's own memory for objects of up to 512 bytes is not in here; PYTHONMALLOC=malloc shows it",
        );
    }
    if !found.others.is_empty() && !arguments.json {
        let others: Vec<String> = found.others.iter().map(|path| path.display().to_string()).collect();
        terminal::note(&format!("this is {}; there are also {}", found.path.display(), others.join(", ")));
    }
    Ok(())
}

/// What grew in these processes since the first writing of each.
fn grown(accused: &[&WatchedProcess]) -> Vec<LineGrowth> {
    let saved = |sites: Vec<Site>| SavedProfile {
        pid: 0,
        view: "live".into(),
        measured_s: 0.0,
        total_bytes: 0.0,
        dropped: 0,
        sites,
    };
    // One that was written once has grown by nothing that is known.
    let twice = accused.iter().filter_map(|process| Some((process.first.as_ref()?, &process.live)));
    let twice: Vec<_> = twice.filter(|(first, live)| first.at != live.at).collect();
    let old = twice.iter().flat_map(|(first, _)| first.sites.iter().cloned()).collect();
    let new = twice.iter().flat_map(|(_, live)| live.sites.iter().cloned()).collect();
    difference::difference(&saved(old), &saved(new)).map_or_else(|_| Vec::new(), |found| found.lines)
}

fn write_files(arguments: &BlameArguments, answer: &BlameAnswer<'_>) -> Result<()> {
    let (sites, black_box) = (answer.sites, answer.black_box);
    if let Some(path) = &arguments.pprof {
        let mean = answer.accused.iter().map(|process| process.mean_bytes).max().unwrap_or(0);
        let written = humantime::parse_rfc3339(&black_box.written_at).ok();
        let since = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        file::write(
            path,
            pprof::encode(sites, pprof::LIVE, since.as_nanos() as u64, (black_box.ran_s * 1e9) as u64, mean),
        )?;
    }
    if let Some(path) = &arguments.folded {
        let mut text = Vec::new();
        profile_text::write_folded(sites, &mut text).cannot(|| "write folded stacks".into())?;
        file::write(path, &text)?;
    }
    if let Some(path) = &arguments.html {
        let command = black_box.root().map_or("", |root| root.command.as_str());
        let about = flame::About {
            process: &format!("{} {command}", black_box.pid),
            ended_at: &black_box.written_at,
            summary: &black_box.verdict(answer.is_watched),
            samples: sites.iter().map(|site| site.samples).sum(),
            dropped: answer.accused.iter().map(|process| process.dropped).sum(),
        };
        let mut page = Vec::new();
        flame::write(&about, sites, answer.tree, &mut page).cannot(|| "write the page".into())?;
        file::write(path, &page)?;
    }
    Ok(())
}
