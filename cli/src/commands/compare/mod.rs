//! `snug compare`: runs a program under several allocators and says what each does for it.
//!
//! `plan` decides what runs, `measure` runs it, `track` finds its processes, `sample` adds them up at a `pace`,
//! `reported` reads what they and their load print, `results` is what was measured, `summary` says what it means, `view`
//! what of it is shown, and `table`, `csv`, `markdown`, `json`, `html` and `plot` write it. `saved` reads comparisons
//! back, `change` sets two side by side, and `condition` decides `--fail-if`.

pub(super) mod arguments;
mod inventory;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use regex_lite::Regex;

use crate::allocator::asker::Asker;
use crate::allocator::kinds::Kind;
use crate::allocator::library;
use crate::allocator::program::{self, Program};
use crate::analysis::change::Origin;
use crate::analysis::condition::{self, Condition, Scope};
use crate::analysis::results::{Allocator, Comparison, Run, Settings, Summary, FORMAT, FORMAT_VERSION};
use crate::analysis::summary;
use crate::base::failure::{Context, Failure, Result, USAGE};
use crate::base::{machine, progress, terminal};
use crate::commands::arguments::refuse_unknown_option;
use crate::commands::compare::arguments::CompareArguments;
use crate::drive::measure::{Moment, Request, Supervisor};
use crate::drive::plan::{self, Candidate};
use crate::drive::serving;
use crate::drive::sets::{self, Sets};
use crate::drive::track::TrackOptions;
use crate::process::cgroup::Group;
use crate::show::{output, plot, table};
use crate::VERSION;

/// PSS is read at most this many times more rarely than RSS.
const DETAIL_EVERY: u64 = 10;
/// To who compares a server as if it were a program that ends.
const SERVER_HINT: &str = "hint: the program waits for connections and may never end by itself. If it is a server, press \
                           Ctrl-C and say when it is ready, and what is its load: snug compare --ready PORT --requests N";
/// Measuring may take this share of one core.
const OVERHEAD_LIMIT: f64 = 0.008;

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> Result<()> {
    match measure(arguments, &mut |_| {})? {
        Some(measured) => measured.check(),
        None => Ok(()),
    }
}

/// A comparison that was made and written, with the conditions of --fail-if, which are still to be judged.
pub(crate) struct Measured {
    pub comparison: Comparison,
    conditions: Vec<Condition>,
    scopes: Vec<Scope>,
}

impl Measured {
    /// Fails if a condition holds, or can't be decided.
    pub(crate) fn check(&self) -> Result<()> {
        let measured = self.comparison.summary.allocators.iter().zip(&self.scopes);
        let scopes: Vec<Scope> =
            measured.map(|(row, scope)| Scope { quantities: row.medians(), ..scope.clone() }).collect();
        condition::check(&self.conditions, &scopes)
    }
}

/// Does all that the arguments ask for and writes the results, for another command to go on with; None if they ask for
/// no run. `observe` is told which allocator runs whenever memory was read.
pub(crate) fn measure(
    arguments: &CompareArguments,
    observe: &mut dyn FnMut(&Allocator),
) -> Result<Option<Measured>> {
    refuse_unknown_option("compare", &arguments.program)?;
    output::check(&arguments.output)?;
    let mut sets = Sets::load()?;
    if arguments.list_allocators {
        return inventory::show(&sets).map(|()| None);
    }
    let candidates = choose_candidates(&arguments.with, &sets).map_err(before_start)?;
    if let Some(name) = &arguments.save_set {
        save_set(&mut sets, name, &arguments.with)?;
        if arguments.program.is_empty() {
            return Ok(None);
        }
    }
    let scopes = scopes(&candidates);
    let conditions = condition::parse_all(&arguments.fail_if, &scopes)?;
    let comparison = measure_candidates(arguments, &candidates, observe)?;
    Ok(Some(Measured { comparison, conditions, scopes }))
}

fn measure_candidates(
    arguments: &CompareArguments,
    candidates: &[Candidate],
    observe: &mut dyn FnMut(&Allocator),
) -> Result<Comparison> {
    let only = arguments.only.as_deref().map(parse_only).transpose()?;
    let plan = serving::plan(&arguments.server)?;
    let program = program::find(&arguments.program[0], &std::env::var("PATH").unwrap_or_default())?;
    let existing_preload = std::env::var("LD_PRELOAD").ok().filter(|value| !value.is_empty());
    refuse_preloaded_allocator(existing_preload.as_deref())?;
    let asker = arguments.ask_allocator.then(|| find_asker(&program)).transpose()?;
    let environments: Vec<BTreeMap<String, String>> = candidates
        .iter()
        .map(|candidate| plan::environment(candidate, asker.as_ref(), existing_preload.as_deref()))
        .collect();
    let mut probed = Vec::new();
    for (candidate, environment) in candidates.iter().zip(&environments) {
        probed.push(probe(&program, candidate, environment).map_err(before_start)?);
    }
    let mut complaints = Vec::new();
    for (candidate, environment) in candidates.iter().zip(&environments) {
        complaints.push(settings_refused(candidate, environment)?);
    }
    let out = output_directory(arguments)?;
    let mut comparison = begin(arguments, plan.as_ref(), candidates, &environments);
    for (allocator, complaints) in comparison.allocators.iter_mut().zip(complaints) {
        allocator.complaints = complaints;
    }
    let requests = RunSetup { candidates, environments: &environments, probed: &probed, only, plan };
    let stopped = measure_all(arguments, &requests, &out, &mut comparison, observe)?;
    finish(arguments, comparison, &out, stopped)
}

/// What all runs are made of; one element for each candidate.
struct RunSetup<'a> {
    candidates: &'a [Candidate],
    environments: &'a [BTreeMap<String, String>],
    probed: &'a [bool],
    only: Option<Regex>,
    plan: Option<serving::Plan>,
}

/// Makes all runs and adds them to the comparison. Returns why it stopped early, if it did.
fn measure_all(
    arguments: &CompareArguments,
    requests: &RunSetup,
    out: &Path,
    comparison: &mut Comparison,
    observe: &mut dyn FnMut(&Allocator),
) -> Result<Option<Failure>> {
    let allocators = comparison.allocators.clone();
    let mut supervisor = Supervisor::new()?;
    let order = plan::order(requests.candidates.len(), arguments.runs);
    let progress = RunProgress::new(order.len(), arguments.keep_going);
    progress.announce(&arguments.program, arguments.runs, &allocators);
    let mut stopped = None;
    for (index, (round, candidate_index)) in order.into_iter().enumerate() {
        let candidate = &requests.candidates[candidate_index];
        progress.start(index, round, arguments.runs, &candidate.label);
        let request = Request {
            label: &candidate.label,
            round,
            program: &arguments.program,
            environment: &requests.environments[candidate_index],
            target: TrackOptions {
                only: requests.only.clone(),
                library: candidate.library.as_ref().map(|l| l.path.clone()),
            },
            settings: &comparison.settings,
            plan: requests.plan.as_ref(),
            ask_allocator: arguments.ask_allocator,
            probed: requests.probed[candidate_index],
            log: out.join("logs").join(format!("{round}-{}", plan::file_stem(&candidate.label))),
        };
        match supervisor.run(&request, &mut |moment| {
            progress.update(&moment);
            observe(&allocators[candidate_index]);
        }) {
            Ok(run) => {
                progress.finished(&run);
                let failure = run.failure.clone();
                comparison.runs.push(run);
                if let (Some(failure), false) = (failure, arguments.keep_going) {
                    stopped = Some(
                        Failure::new(format!("run {round} under {} failed: {failure}", candidate.label))
                            .advise("with --keep-going the other allocators are still measured"),
                    );
                    break;
                }
            }
            Err(failure) => {
                stopped = Some(failure);
                break;
            }
        }
    }
    progress.clear();
    Ok(stopped)
}

/// Saves what --with names.
fn save_set(sets: &mut Sets, name: &str, with: &[String]) -> Result<()> {
    let entries = plan::parse_list(with, sets)?.iter().map(plan::Entry::label).collect();
    let path = sets.save(name, entries)?;
    anstream::eprintln!("saved in {}; use it with --with {name}", path.display());
    Ok(())
}

/// What conditions may speak of, before anything was measured.
fn scopes(candidates: &[Candidate]) -> Vec<Scope> {
    let scope = |candidate: &Candidate| Scope { label: candidate.label.clone(), ..Scope::default() };
    candidates.iter().map(scope).collect()
}

/// Writes what was measured, also when not all could be, and turns failed runs into a failure.
fn finish(
    arguments: &CompareArguments,
    mut comparison: Comparison,
    out: &Path,
    stopped: Option<Failure>,
) -> Result<Comparison> {
    comparison.summary = summary::summarise(&comparison);
    if comparison.runs.iter().any(|run| run.failure.is_none()) {
        write_all(arguments, &comparison, out)?;
    }
    if let Some(failure) = stopped {
        return Err(failure);
    }
    let failed: Vec<&Run> = comparison.runs.iter().filter(|run| run.failure.is_some()).collect();
    match failed.first() {
        Some(run) => Err(Failure::new(format!(
            "{} of {} runs failed; the first: run {} under {}: {}",
            failed.len(),
            comparison.runs.len(),
            run.round,
            run.allocator,
            run.failure.as_deref().unwrap_or_default()
        ))),
        None => Ok(comparison),
    }
}

fn write_all(arguments: &CompareArguments, comparison: &Comparison, out: &Path) -> Result<()> {
    let origin = Origin::default();
    output::write_directory(out, comparison, &origin)?;
    if !output::write_wanted(&arguments.output, comparison, &origin)? {
        let mut stdout = anstream::stdout().lock();
        table::write(comparison, terminal::stdout_colours(), &mut stdout)
            .cannot(|| "write to stdout".into())?;
    }
    let shown = out.display();
    anstream::eprintln!(
        "results: {shown}/report.html, and beside it report.md, runs.csv, compare.json, plots as SVG and PNG, logs"
    );
    Ok(())
}

/// Turns `--with` into allocators that exist here. Nothing is started before all of it is known to be right.
fn choose_candidates(lists: &[String], sets: &Sets) -> Result<Vec<Candidate>> {
    let popular = [sets::POPULAR.to_string()];
    let entries = plan::parse_list(if lists.is_empty() { &popular } else { lists }, sets)?;
    let (found, missing) = plan::resolve_all(&entries)?;
    for failure in missing {
        let first_line = failure.message.lines().next().unwrap_or_default();
        let advice = failure.advice.map_or_else(String::new, |advice| format!(" ({advice})"));
        anstream::eprintln!("left out: {}{advice}", first_line.trim_end_matches("; looked for"));
    }
    Ok(found)
}

/// What can't be done is a mistake in the request as long as nothing was run.
fn before_start(failure: Failure) -> Failure {
    failure.exit_code(USAGE)
}

fn parse_only(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        Failure::new(format!("--only {pattern:?} is not a regular expression: {error}")).exit_code(USAGE)
    })
}

fn find_asker(program: &Program) -> Result<Asker> {
    let asker = Asker::find().map_err(before_start)?;
    match asker.obstacle(program) {
        Some(obstacle) => Err(before_start(obstacle)),
        None => Ok(asker),
    }
}

/// A preload of the caller's that is itself an allocator would be part of every row.
fn refuse_preloaded_allocator(existing: Option<&str>) -> Result<()> {
    let paths = existing.unwrap_or_default().split([':', ' ']);
    for path in paths {
        if let Some(kind) = Kind::from_file_name(path).filter(|kind| !kind.is_c_library()) {
            return Err(Failure::new(format!(
                "LD_PRELOAD already holds {} ({path}): it would be in every run, also under glibc",
                kind.name()
            ))
            .advise("unset LD_PRELOAD; snug compare sets it for each run")
            .exit_code(USAGE));
        }
    }
    Ok(())
}

/// Asks the dynamic loader whether it would load the library into this program, without running the program.
/// True if it would; false if the loader can't be asked.
fn probe(program: &Program, candidate: &Candidate, environment: &BTreeMap<String, String>) -> Result<bool> {
    let Some(library) = &candidate.library else { return Ok(false) };
    if let Some(obstacle) = program::preload_obstacle(program, &library.path, &library.elf) {
        return Err(obstacle);
    }
    let listing = program::list_libraries(program, environment)?;
    if listing.libraries.is_empty() {
        return Ok(false);
    }
    if listing.libraries.contains(&library.path) {
        return Ok(true);
    }
    let said = if listing.complaint.is_empty() { "nothing" } else { &listing.complaint };
    Err(Failure::new(format!(
        "{} would not be loaded into {}; the loader said: {said}",
        library.path.display(),
        program.image.display(),
    ))
    .advise("check that the library was built for this system, and its dependencies with ldd"))
}

/// What an allocator says against the settings it was given: asked by letting it start with a program that does nothing.
/// Of snug that is a mistake in the request, of others a note for the reader.
fn settings_refused(candidate: &Candidate, environment: &BTreeMap<String, String>) -> Result<Vec<String>> {
    /// Words of those who do not take a setting.
    const REFUSALS: &[&str] =
        &["invalid", "unknown", "warning", "malformed", "error", "unrecognized", "ignor"];
    const COMPLAINTS_MAX: usize = 5;
    let mut complaints = plan::unread_variables(candidate);
    if candidate.library.is_none() || candidate.variables.is_empty() {
        return Ok(complaints);
    }
    let mut nothing = std::process::Command::new("/bin/true");
    // Where there is no such program nothing can be asked.
    let Ok(output) = nothing.envs(environment).stdin(std::process::Stdio::null()).output() else {
        return Ok(complaints);
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if candidate.kind == Kind::Snug {
        let warned = said.lines().find_map(|line| line.strip_prefix("snug: warning: "));
        if let Some(warning) = warned {
            let message = format!("--with {}: {}", candidate.label, warning.replace(" (ignored)", ""));
            return Err(Failure::usage(message, "`SNUG=help snug run true` lists the options"));
        }
    }
    let refuses = |line: &&str| {
        let line = line.to_lowercase();
        REFUSALS.iter().any(|word| line.contains(word))
    };
    complaints
        .extend(said.lines().filter(refuses).take(COMPLAINTS_MAX).map(|line| format!("it says {line:?}")));
    Ok(complaints)
}

/// The directory for results: the one asked for, or a new one named after the time.
fn output_directory(arguments: &CompareArguments) -> Result<PathBuf> {
    let out = arguments.out.clone().unwrap_or_else(|| {
        let stamp: String = machine::now_utc().chars().filter(char::is_ascii_digit).collect();
        let name = format!("snug-compare-{}-{}", &stamp[..8], &stamp[8..]);
        let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
        let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
        names.find(|path| !path.exists()).unwrap_or_default()
    });
    if !arguments.force && out.join("compare.json").exists() {
        return Err(Failure::usage(
            format!("{} holds the results of a comparison already", out.display()),
            "give another directory, or --force to overwrite them",
        ));
    }
    let logs = out.join("logs");
    fs::create_dir_all(&logs).cannot(|| format!("make the directory {}", logs.display()))?;
    Ok(out)
}

/// A comparison without runs: all that is known before the first.
fn begin(
    arguments: &CompareArguments,
    plan: Option<&serving::Plan>,
    candidates: &[Candidate],
    environments: &[BTreeMap<String, String>],
) -> Comparison {
    let allocators = candidates.iter().zip(environments).map(|(candidate, environment)| {
        let inherited = terminal::environment()
            .filter(|(name, _)| candidate.kind.reads_variable(name) && !environment.contains_key(name));
        let path = candidate.library.as_ref().map(|library| library.path.clone());
        let version_of = path.clone().or_else(c_library);
        Allocator {
            label: candidate.label.clone(),
            kind: candidate.kind,
            version: version_of.and_then(|path| library::version(candidate.kind, &path)),
            library: path.map(|path| path.display().to_string()),
            environment: environment.clone(),
            inherited: inherited.collect(),
            complaints: Vec::new(),
        }
    });
    Comparison {
        format: FORMAT.into(),
        format_version: FORMAT_VERSION,
        snug_version: VERSION.into(),
        started_at: machine::now_utc(),
        invocation: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        directory: std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default(),
        program: arguments.program.clone(),
        machine: machine::describe(),
        settings: Settings {
            rounds: arguments.runs,
            planned_runs: None,
            interval_ms: arguments.interval_ms,
            detail_interval_ms: arguments.interval_ms * DETAIL_EVERY,
            overhead_limit: OVERHEAD_LIMIT,
            only: arguments.only.clone(),
            serving: plan.map(|plan| serving::describe(plan, &arguments.server)),
            no_cgroup_peak: Group::create(&format!("snug-compare-{}", std::process::id())).err(),
        },
        allocators: allocators.collect(),
        runs: Vec::new(),
        summary: Summary::default(),
    }
}

/// The C library of this process, whose version stands for the system's.
pub(crate) fn c_library() -> Option<PathBuf> {
    let maps = crate::process::proc::parse_maps(&fs::read("/proc/self/maps").ok()?);
    let found = maps.iter().find(|mapping| Kind::from_file_name(&mapping.path) == Some(Kind::Glibc));
    found.map(|mapping| PathBuf::from(&mapping.path))
}

/// The bar on a terminal, or else one line per run on stderr.
struct RunProgress {
    bar: ProgressBar,
    is_terminal: bool,
    /// A failed run is not the last: say so at once.
    keeps_going: bool,
    /// A server that is compared as a program that ends.
    has_hinted: Cell<bool>,
}

impl RunProgress {
    fn new(runs: usize, keeps_going: bool) -> RunProgress {
        let template = "{bar:20} {pos}/{len} runs, {elapsed}  {wide_msg}";
        let bar = progress::bar(Some(runs as u64), template);
        RunProgress { bar, is_terminal: progress::is_shown(), keeps_going, has_hinted: Cell::new(false) }
    }

    /// Without a bar nothing would be seen before the first run has ended.
    fn announce(&self, program: &[String], rounds: u32, allocators: &[Allocator]) {
        if !self.is_terminal {
            anstream::eprintln!("{}", announcement(program, rounds, allocators));
        }
    }

    fn start(&self, index: usize, round: u32, rounds: u32, label: &str) {
        self.bar.set_position(index as u64);
        self.bar.set_prefix(format!("round {round}/{rounds} {label}"));
        self.bar.set_message(self.bar.prefix());
    }

    fn update(&self, moment: &Moment) {
        if moment.waits && !self.has_hinted.replace(true) {
            self.bar.suspend(|| anstream::eprintln!("{SERVER_HINT}"));
        }
        if self.is_terminal {
            let (time_s, size) = (moment.time_s, terminal::bytes(moment.rss_bytes as f64));
            let phase = moment.phase.map_or_else(String::new, |phase| format!(" {phase}"));
            // There is nothing to go by before the first run has ended.
            let left = match self.bar.position() {
                0 => String::new(),
                _ => format!(", about {} s left", self.bar.eta().as_secs()),
            };
            self.bar.set_message(format!("{}:{phase} {time_s:.0} s, {size}{left}", self.bar.prefix()));
        }
    }

    fn finished(&self, run: &Run) {
        let result = match &run.failure {
            None => {
                let mean = run.memory.get("rss_mean_bytes").copied().unwrap_or(0.0);
                format!("{:.2} s, mean RSS {}", run.wall_s, terminal::bytes(mean))
            }
            Some(failure) => format!("FAILED: {failure}"),
        };
        if !self.is_terminal && run.failure.is_none() || run.failure.is_some() && self.keeps_going {
            self.bar.suspend(|| anstream::eprintln!("round {} {}: {result}", run.round, run.allocator));
        }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is going to be run.
fn announcement(program: &[String], rounds: u32, allocators: &[Allocator]) -> String {
    let program = plot::shorten(&terminal::shell_line(program), 80);
    let runs = rounds as usize * allocators.len();
    let runs = if runs == 1 { "1 run".into() } else { format!("{runs} runs") };
    match allocators {
        [only] => format!("{runs} of {program} under {}", only.label),
        _ => format!("{runs} of {program}: {rounds} under each of {} allocators", allocators.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture;

    #[test]
    fn what_will_be_run_is_said_in_a_line() {
        let said = |labels: &[(&str, &[f64])], rounds| {
            let comparison = fixture::comparison(labels);
            announcement(&comparison.program, rounds, &comparison.allocators)
        };
        assert_eq!(said(&[("glibc", &[1.0])], 1), "1 run of ruby app.rb under glibc");
        assert_eq!(
            said(&[("glibc", &[1.0]), ("snug", &[1.0])], 3),
            "6 runs of ruby app.rb: 3 under each of 2 allocators"
        );
    }
}
