//! A comparison: its runs, in rounds of one under each allocator, as a `ComparePlan` says. `setup` settles before the first
//! what can be known, `measure` makes each run, `until` of snug-compare says when they are enough.

use std::path::Path;

use crate::measure::Supervisor;
use crate::request::{Moment, Request};
pub use crate::setup::ComparePlan;
use crate::setup::RunSetup;
use crate::track::TrackOptions;
use crate::{plan, serving};
use snug_base::failure::{Failure, Result};
use snug_base::{machine, terminal, VERSION};
use snug_compare::results::{Allocator, Comparison, Run, Settings, Summary, Until, FORMAT, FORMAT_VERSION};
use snug_compare::summary;
use snug_compare::until::{self, Goal};
use snug_inspect::library;
use snug_process::cgroup::Group;

/// PSS is read at most this many times more rarely than RSS.
const DETAIL_EVERY: u64 = 10;
/// Measuring may take this share of one core.
const OVERHEAD_LIMIT: f64 = 0.008;

/// Is told how a comparison goes on.
pub trait Follower {
    fn starts(&mut self, index: usize, round: u32, label: &str);
    /// Memory was read.
    fn sees(&mut self, allocator: &Allocator, moment: &Moment);
    fn finished(&mut self, run: &Run);
    /// Intervals were looked at.
    fn looked(&mut self, until: &Until, allocators: usize);
}

/// Makes all runs and adds them to the comparison. Returns why it stopped early, if it did.
pub fn measure_all(
    plan: &ComparePlan,
    setup: &RunSetup,
    out: &Path,
    comparison: &mut Comparison,
    follower: &mut dyn Follower,
) -> Result<Option<Failure>> {
    let allocators = comparison.allocators.clone();
    let mut supervisor = Supervisor::new()?;
    let order = plan::order(setup.candidates.len(), plan.rounds);
    let mut stopped = None;
    for (index, (round, candidate_index)) in order.into_iter().enumerate() {
        let candidate = &setup.candidates[candidate_index];
        follower.starts(index, round, &candidate.label);
        let request = Request {
            label: &candidate.label,
            round,
            program: &plan.program,
            environment: &setup.environments[candidate_index],
            target: TrackOptions {
                only: plan.only.clone(),
                library: candidate.library.as_ref().map(|l| l.path.clone()),
            },
            settings: &comparison.settings,
            plan: plan.serving.as_ref(),
            ask_allocator: plan.ask_allocator,
            profile: setup.profiles.as_ref().map(|codes| &codes[candidate_index]),
            probed: setup.probed[candidate_index],
            log: out.join("logs").join(format!("{round}-{}", plan::file_stem(&candidate.label))),
        };
        match supervisor.run(&request, &mut |moment| follower.sees(&allocators[candidate_index], &moment)) {
            Ok(run) => {
                follower.finished(&run);
                let failure = run.failure.clone();
                comparison.runs.push(run);
                if let (Some(failure), false) = (failure, plan.keep_going) {
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
        if let Some(goal) = plan.until.as_ref().filter(|_| is_last_of_round) {
            match look(comparison, goal, round, plan.rounds, follower) {
                Ok(false) => (),
                over => {
                    stopped = over.err();
                    break;
                }
            }
        }
    }
    Ok(stopped)
}

/// Looks whether the intervals are as narrow as --until asks, if it is time to. True if no more runs are needed; fails if
/// they never will be.
fn look(
    comparison: &mut Comparison,
    goal: &Goal,
    round: u32,
    most_rounds: u32,
    follower: &mut dyn Follower,
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
    follower.looked(&until, comparison.allocators.len());
    let is_over = until.reached || round == most_rounds;
    if is_over {
        comparison.settings.rounds = round;
    }
    comparison.settings.until = Some(until);
    Ok(is_over)
}

/// A comparison without runs: all that is known before the first.
pub fn begin(plan: &ComparePlan, setup: &RunSetup) -> Comparison {
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
        program: terminal::texts(&plan.program),
        machine: machine::describe(),
        settings: Settings {
            rounds: plan.rounds,
            planned_runs: None,
            until: None,
            interval_ms: plan.interval_ms,
            detail_interval_ms: plan.interval_ms * DETAIL_EVERY,
            overhead_limit: OVERHEAD_LIMIT,
            only: plan.only.as_ref().map(|only| only.as_str().into()),
            serving: plan.serving.as_ref().map(serving::describe),
            no_cgroup_peak: Group::create(&format!("snug-compare-{}", std::process::id())).err(),
        },
        allocators: allocators.collect(),
        runs: Vec::new(),
        summary: Summary::default(),
    }
}
