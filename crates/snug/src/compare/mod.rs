//! `snug compare`: runs a program under several allocators and says what each does for it.
//!
//! The arguments become a `ComparePlan`, snug-measure makes the runs, snug-compare says what they mean, snug-report writes
//! it.

pub(super) mod arguments;
mod inventory;
mod run_progress;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checked::refuse_unknown_option;
use crate::compare::arguments::CompareArguments;
use crate::compare::run_progress::RunProgress;
use snug_base::failure::{Context, Failure, Result};
use snug_base::{file, machine, terminal};
use snug_compare::change::Origin;
use snug_compare::condition::{self, Condition, Scope};
use snug_compare::results::{Allocator, Comparison, Run};
use snug_compare::{summary, until};
use snug_measure::comparison::{self, ComparePlan};
use snug_measure::plan::{self, Candidate};
use snug_measure::request::Moment;
use snug_measure::sets;
use snug_measure::setup::{before_start, RunSetup};
use snug_report::{output, table};

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

/// Runs the comparison and writes its files. None if the arguments only listed allocators. `observe` is told which
/// allocator runs whenever memory was read, and what was seen.
pub(crate) fn measure(
    arguments: &CompareArguments,
    observe: &mut dyn FnMut(&Allocator, &Moment),
) -> Result<Option<Measured>> {
    refuse_unknown_option::<CompareArguments>("compare", &arguments.program)?;
    output::check(&arguments.output)?;
    if arguments.list_allocators {
        return inventory::show().map(|()| None);
    }
    let candidates = choose_candidates(&arguments.with).map_err(before_start)?;
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
    let plan = arguments.plan()?;
    check_until(&plan, candidates.len())?;
    let setup = RunSetup::prepare(&plan, candidates)?;
    let out = output_directory(arguments)?;
    let mut comparison = comparison::begin(&plan, &setup);
    let mut progress = RunProgress::new(&plan, &comparison.allocators, observe);
    let stopped = comparison::measure_all(&plan, &setup, &out, &mut comparison, &mut progress);
    progress.clear();
    finish(arguments, comparison, &out, stopped?)
}

/// Refuses what --until can't come to.
fn check_until(plan: &ComparePlan, candidates: usize) -> Result<()> {
    if plan.until.is_none() {
        return Ok(());
    }
    if candidates < 2 {
        return Err(Failure::usage(
            "--until is about ratios, and there is one allocator",
            "give two or more, as in --with glibc,snug",
        ));
    }
    if plan.rounds < until::FEWEST_ROUNDS {
        let fewest = until::FEWEST_ROUNDS;
        return Err(Failure::usage(
            format!("--until needs {fewest} runs under each allocator, and --runs allows {}", plan.rounds),
            format!("give --runs {fewest} or more, or leave it out"),
        ));
    }
    Ok(())
}

/// Turns `--with` into allocators that exist here. Nothing is started before all of it is known to be right.
fn choose_candidates(lists: &[String]) -> Result<Vec<Candidate>> {
    let popular = [sets::POPULAR.to_string()];
    let entries = plan::parse_list(if lists.is_empty() { &popular } else { lists })?;
    let (found, missing) = plan::resolve_all(&entries)?;
    for failure in missing {
        let first_line = failure.message.lines().next().unwrap_or_default();
        let advice = failure.advice.map_or_else(String::new, |advice| format!(" ({advice})"));
        anstream::eprintln!("left out: {}{advice}", first_line.trim_end_matches("; looked for"));
    }
    Ok(found)
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
    for place in [&out, &logs] {
        file::refuse_foreign(place).cannot(|| format!("write into {}", place.display()))?;
    }
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
