//! `snug canary`: from Prometheus' data, whether the pods of a canary are better or worse than the others.

pub mod arguments;
mod queries;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::canary::conclusion::{conclude, Conclusion, Question};
use crate::canary::Answer;
use crate::canary_text;
use crate::command_canary::arguments::{CanaryArguments, Required};
use snug_base::failure::{Context, Failure, Result, FAILED, UNKNOWN};
use snug_base::{json, progress, terminal};
use snug_client::prometheus::{range, utc, Prometheus, TimeRange};

/// What JSON has.
#[derive(Serialize)]
struct CanaryReport<'a> {
    prometheus: &'a str,
    selector: &'a str,
    canary: &'a str,
    baseline: Option<&'a str>,
    /// UTC, as 2026-11-21T02:03:04Z.
    from: String,
    to: String,
    step_s: u64,
    effect: f64,
    tolerance: f64,
    #[serde(flatten)]
    conclusion: &'a Conclusion,
}

/// Runs the command.
pub fn run(arguments: &CanaryArguments) -> Result<()> {
    if arguments.tolerance >= arguments.effect {
        return Err(Failure::usage(
            "--tolerance is not below --effect",
            "differences up to --tolerance don't matter, those from --effect on must be found",
        ));
    }
    if arguments.pods.canary.trim().trim_matches(['{', '}']).trim().is_empty() {
        return Err(Failure::usage("--canary is empty", "write it as --canary 'pod=~\"web-canary-.*\"'"));
    }
    let server = Prometheus::new(&arguments.pods.server)?;
    let (range, conclusion) = answered(arguments, &server)?;
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.pods.json {
        json::write(json::CANARY, &report(arguments, &server, range, &conclusion), &mut stdout)
    } else {
        canary_text::write(&conclusion, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())?;
    match conclusion.answer {
        Answer::NotEnoughData | Answer::NoneHappened => Err(Failure::already_told(UNKNOWN)),
        Answer::Worse => Err(Failure::already_told(FAILED)),
        Answer::NoDifference if arguments.require == Required::Better => Err(Failure::already_told(FAILED)),
        Answer::Better | Answer::NoDifference => Ok(()),
    }
}

/// Asks, and if it may wait, again until there is an answer. A server that answered once may fail meanwhile.
fn answered(arguments: &CanaryArguments, server: &Prometheus) -> Result<(TimeRange, Conclusion)> {
    let begin = Instant::now();
    let mut last = ask(arguments, server)?;
    while last.1.answer == Answer::NotEnoughData {
        let left = arguments.wait.and_then(|wait| wait.checked_sub(begin.elapsed()));
        let Some(left) = left.filter(|left| !left.is_zero()) else { break };
        let sentence = canary_text::sentence(&last.1);
        anstream::eprintln!("{}", sentence);
        let pause = arguments.every.max(Duration::from_millis(100)).min(left);
        progress::during(&sentence, None, || std::thread::sleep(pause));
        match ask(arguments, server) {
            Ok(answer) => last = answer,
            Err(failure) => anstream::eprintln!("{failure}"),
        }
    }
    Ok(last)
}

fn ask(arguments: &CanaryArguments, server: &Prometheus) -> Result<(TimeRange, Conclusion)> {
    let end = arguments.pods.end.unwrap_or_else(SystemTime::now);
    let end_s = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let range = range(arguments.pods.window, arguments.pods.step, end_s);
    let asking = format!("asking {}", server.name());
    let readings = progress::during(&asking, None, || queries::read(arguments, server, range))?;
    let question = Question {
        effect: arguments.effect / 100.0,
        tolerance: arguments.tolerance / 100.0,
        warm_up_s: arguments.warm_up.as_secs_f64(),
    };
    Ok((range, conclude(&readings, question)))
}

fn report<'a>(
    arguments: &'a CanaryArguments,
    server: &'a Prometheus,
    range: TimeRange,
    conclusion: &'a Conclusion,
) -> CanaryReport<'a> {
    CanaryReport {
        prometheus: server.name(),
        selector: &arguments.pods.selector,
        canary: &arguments.pods.canary,
        baseline: arguments.baseline.as_deref(),
        from: utc(range.from_s),
        to: utc(range.to_s),
        step_s: range.step_s,
        effect: arguments.effect / 100.0,
        tolerance: arguments.tolerance / 100.0,
        conclusion,
    }
}
