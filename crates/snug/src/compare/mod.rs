//! `snug compare`: runs a program under several allocators and says what each does for it.
//!
//! `setup` settles what runs, `measure` runs it, `track` finds its processes, `sample` adds them up at a `pace`,
//! `reported` reads what they and their load print, `results` is what was measured, `summary` says what it means, `view`
//! what of it is shown, `shown_ratio` what of a ratio, and `table`, `csv`, `markdown`, `json`, `html` and `plot` write
//! it. `saved` reads comparisons back, `change` sets two side by side, and `condition` decides `--fail-if`.

pub(super) mod arguments;
mod inventory;
mod run_progress;
mod setup;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::arguments::refuse_unknown_option;
use crate::compare::arguments::CompareArguments;
use crate::compare::run_progress::RunProgress;
use crate::compare::setup::{before_start, choose_candidates, RunSetup};
use snug_base::failure::{Context, Failure, Result};
use snug_base::{machine, terminal, VERSION};
use snug_compare::change::Origin;
use snug_compare::condition::{self, Condition, Scope};
use snug_compare::results::{Allocator, Comparison, Run, Settings, Summary, FORMAT, FORMAT_VERSION};
use snug_compare::summary;
use snug_compare::until::{self, Goal};
use snug_inspect::library;
use snug_measure::measure::{Moment, Request, Supervisor};
use snug_measure::plan::{self, Candidate};
use snug_measure::serving;
use snug_measure::sets::Sets;
use snug_measure::track::TrackOptions;
use snug_process::cgroup::Group;
use snug_report::{output, table};

/// PSS is read at most this many times more rarely than RSS.
const DETAIL_EVERY: u64 = 10;
/// Measuring may take this share of one core.
const OVERHEAD_LIMIT: f64 = 0.008;

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> Result<()> {
    match measure(arguments, &mut |_, _| {})? {
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

/// Runs the comparison and writes its files. None if the arguments only listed or saved something. `observe` is told which allocator runs whenever memory was read, and what was seen.
pub(crate) fn measure(
    arguments: &CompareArguments,
    observe: &mut dyn FnMut(&Allocator, &Moment),
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
    observe: &mut dyn FnMut(&Allocator, &Moment),
) -> Result<Comparison> {
    check_until(arguments, candidates.len())?;
    let setup = RunSetup::prepare(arguments, candidates)?;
    let out = output_directory(arguments)?;
    let mut comparison = begin(arguments, &setup);
    let stopped = measure_all(arguments, &setup, &out, &mut comparison, observe)?;
    finish(arguments, comparison, &out, stopped)
}

/// Refuses what --until can't come to.
fn check_until(arguments: &CompareArguments, candidates: usize) -> Result<()> {
    if arguments.until.is_none() {
        return Ok(());
    }
    if candidates < 2 {
        return Err(Failure::usage(
            "--until is about ratios, and there is one allocator",
            "give two or more, as in --with glibc,snug",
        ));
    }
    if arguments.rounds() < until::FEWEST_ROUNDS {
        let fewest = until::FEWEST_ROUNDS;
        return Err(Failure::usage(
            format!(
                "--until needs {fewest} runs under each allocator, and --runs allows {}",
                arguments.rounds()
            ),
            format!("give --runs {fewest} or more, or leave it out"),
        ));
    }
    Ok(())
}

/// Makes all runs and adds them to the comparison. Returns why it stopped early, if it did.
fn measure_all(
    arguments: &CompareArguments,
    setup: &RunSetup,
    out: &Path,
    comparison: &mut Comparison,
    observe: &mut dyn FnMut(&Allocator, &Moment),
) -> Result<Option<Failure>> {
    let allocators = comparison.allocators.clone();
    let mut supervisor = Supervisor::new()?;
    let order = plan::order(setup.candidates.len(), arguments.rounds());
    let progress = RunProgress::new(order.len(), arguments.keep_going, arguments.until.is_some());
    progress.announce(&arguments.program, arguments.rounds(), &allocators);
    let mut stopped = None;
    for (index, (round, candidate_index)) in order.into_iter().enumerate() {
        let candidate = &setup.candidates[candidate_index];
        progress.start(index, round, arguments.rounds(), &candidate.label);
        let request = Request {
            label: &candidate.label,
            round,
            program: &arguments.program,
            environment: &setup.environments[candidate_index],
            target: TrackOptions {
                only: setup.only.clone(),
                library: candidate.library.as_ref().map(|l| l.path.clone()),
            },
            settings: &comparison.settings,
            plan: setup.plan.as_ref(),
            ask_allocator: arguments.ask_allocator,
            profile: setup.profiles.as_ref().map(|codes| &codes[candidate_index]),
            probed: setup.probed[candidate_index],
            log: out.join("logs").join(format!("{round}-{}", plan::file_stem(&candidate.label))),
        };
        match supervisor.run(&request, &mut |moment| {
            progress.update(&moment);
            observe(&allocators[candidate_index], &moment);
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
        let is_last_of_round = (index + 1) % setup.candidates.len() == 0;
        if is_last_of_round && comparison.runs.iter().all(|run| run.failure.is_some()) {
            break; // it can't run here
        }
        if let Some(goal) = arguments.until.as_ref().filter(|_| is_last_of_round) {
            match look(comparison, goal, round, arguments.rounds(), &progress) {
                Ok(false) => (),
                over => {
                    stopped = over.err();
                    break;
                }
            }
        }
    }
    progress.clear();
    Ok(stopped)
}

/// Looks whether the intervals are as narrow as --until asks, if it is time to. True if no more runs are needed; fails if
/// they never will be.
fn look(
    comparison: &mut Comparison,
    goal: &Goal,
    round: u32,
    most_rounds: u32,
    progress: &RunProgress,
) -> Result<bool> {
    if round > 1 && round < most_rounds && !until::is_look(round) {
        return Ok(false);
    }
    comparison.summary = summary::summarise(comparison);
    if round == 1 {
        return match until::obstacle(comparison, goal) {
            Some(obstacle) => Err(Failure::new(obstacle)),
            None => Ok(false),
        };
    }
    let until = until::state(comparison, goal, round, most_rounds);
    progress.looked(&until, comparison.allocators.len());
    let is_over = until.reached || round == most_rounds;
    if is_over {
        comparison.settings.rounds = round;
    }
    comparison.settings.until = Some(until);
    Ok(is_over)
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
    let baseline = summary::baseline(candidates.iter().map(Candidate::is_plain_glibc));
    let scope = |(place, candidate): (usize, &Candidate)| Scope {
        label: candidate.label.clone(),
        baseline: (place != baseline).then_some(baseline),
        ..Scope::default()
    };
    candidates.iter().enumerate().map(scope).collect()
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
        "results: {shown}/report.html, and beside it report.md, runs.csv, compare.json, plots as SVG, logs"
    );
    Ok(())
}

/// The directory for results: the one asked for, or a new one named after the time.
fn output_directory(arguments: &CompareArguments) -> Result<PathBuf> {
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => {
            let stamp: String = machine::now_utc().chars().filter(char::is_ascii_digit).collect();
            let name = format!("snug-compare-{}-{}", &stamp[..8], &stamp[8..]);
            let place = state_place(|name| std::env::var_os(name).map(PathBuf::from));
            new_directory(
                &place.filter(|place| fs::create_dir_all(place).is_ok()).unwrap_or_default().join(name),
            )?
        }
    };
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

/// Where results go that nobody asked for a place for: not among the user's files. None: here, as there is no such place.
fn state_place(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("snug"))
}

/// Makes a directory under this name, or with a number after it where there is something. No other comparison, and
/// nobody else where all may write, has put anything into it.
fn new_directory(name: &Path) -> Result<PathBuf> {
    let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", name.display())));
    let mut names = std::iter::once(name.to_path_buf()).chain(numbered);
    let made = names.find_map(|path| match fs::create_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        made => Some(made.map(|()| path)),
    });
    made.expect("there is always another number").cannot(|| format!("make the directory {}", name.display()))
}

/// A comparison without runs: all that is known before the first.
fn begin(arguments: &CompareArguments, setup: &RunSetup) -> Comparison {
    let settings = setup.environments.iter().zip(&setup.complaints);
    let allocators = setup.candidates.iter().zip(settings).map(|(candidate, (environment, complaints))| {
        let inherited = terminal::environment()
            .filter(|(name, _)| candidate.kind.reads_variable(name) && !environment.contains_key(name));
        let path = candidate.library.as_ref().map(|library| library.path.clone());
        let version_of = path.as_ref().or(setup.c_library.as_ref());
        Allocator {
            label: candidate.label.clone(),
            kind: candidate.kind,
            version: version_of.and_then(|path| library::version(candidate.kind, path)),
            library: path.map(|path| path.display().to_string()),
            environment: environment
                .iter()
                .map(|(name, value)| (name.clone(), value.to_string_lossy().into_owned()))
                .collect(),
            inherited: inherited.collect(),
            complaints: complaints.clone(),
        }
    });
    Comparison {
        format: FORMAT.into(),
        format_version: FORMAT_VERSION,
        snug_version: VERSION.into(),
        started_at: machine::now_utc(),
        invocation: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        directory: std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default(),
        program: terminal::texts(&arguments.program),
        machine: machine::describe(),
        settings: Settings {
            rounds: arguments.rounds(),
            planned_runs: None,
            until: None,
            interval_ms: arguments.interval_ms,
            detail_interval_ms: arguments.interval_ms * DETAIL_EVERY,
            overhead_limit: OVERHEAD_LIMIT,
            only: arguments.only.clone(),
            serving: setup.plan.as_ref().map(|plan| serving::describe(plan, &arguments.server)),
            no_cgroup_peak: Group::create(&format!("snug-compare-{}", std::process::id())).err(),
        },
        allocators: allocators.collect(),
        runs: Vec::new(),
        summary: Summary::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_go_where_state_is_kept() {
        let place = |variables: &[(&str, &str)]| {
            let variables: Vec<(String, PathBuf)> =
                variables.iter().map(|(name, value)| (name.to_string(), value.into())).collect();
            state_place(|name| variables.iter().find(|one| one.0 == name).map(|one| one.1.clone()))
        };
        let (home, state) = (("HOME", "/home/a"), ("XDG_STATE_HOME", "/s"));
        assert_eq!(place(&[home, state]), Some("/s/snug".into()));
        assert_eq!(place(&[home, ("XDG_STATE_HOME", "s")]), Some("/home/a/.local/state/snug".into()));
        assert_eq!((place(&[]), place(&[("HOME", "")])), (None, None));
    }

    #[test]
    fn results_go_into_a_directory_that_nobody_made() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("results");
        // A link that leads nowhere is there, too.
        std::os::unix::fs::symlink("elsewhere", &name).unwrap();
        let numbered = |number: u32| folder.path().join(format!("results-{number}"));
        assert_eq!(new_directory(&name).unwrap(), numbered(2));
        assert_eq!(new_directory(&name).unwrap(), numbered(3));
        assert!(new_directory(&folder.path().join("none/results")).is_err());
    }
}
