//! The answer of `snug leak` as plain data. Pure.

use serde::Serialize;

use crate::assemble::{Assembled, LiveSource, Measure};
use crate::growth_check::OtherMeasures;
use crate::size_growth::GrowingSize;
use crate::trend::{self, Trend};
use crate::verdict::{Assessment, JudgedOver, Series, Verdict};
use snug_inspect::kinds::Kind;
use snug_live::record::Recording;
use snug_profile::keeping::KeepingLine;

/// What to do about a process that ended while its memory was steady, or in doubt.
pub const WATCH_ANOTHER: &str =
    "the process ended: watch one that runs longer, under a load that repeats itself";

/// The answer of one call.
#[derive(Debug, Clone, Serialize)]
pub struct LeakReport {
    /// The program, or `PID n: its command`.
    pub subject: String,
    pub verdict: Verdict,
    /// The verdict in one sentence.
    pub answer: String,
    /// Sentences with the numbers it rests on.
    pub evidence: Vec<String>,
    /// What to do now.
    pub advice: Vec<String>,
    /// What else was noticed: a load that failed, processes that could not be read.
    pub notes: Vec<String>,
    pub allocators: Vec<Kind>,
    /// Where live bytes come from.
    pub live_source: LiveSource,
    pub measure: Measure,
    pub watched_s: f64,
    pub requests: Option<f64>,
    /// What a request is: "request" or "run of the load".
    pub request_unit: &'static str,
    /// What kept the program at work; None if nothing of ours did.
    pub load: Option<LoadMade>,
    pub judgement: Assessment,
    /// The same for one worker over its age, where workers are replaced; it decided if `decided_by_age`.
    pub judgement_by_age: Option<Assessment>,
    pub decided_by_age: bool,
    pub growth: Option<Growth>,
    /// Of a leak, and of what may be one: the lines that keep what they allocate, the fastest first, where samples told.
    pub lines: Vec<KeepingLine>,
    /// Of a leak under snug: sizes of blocks that add up, the fastest first.
    pub sizes: Vec<GrowingSize>,
    pub series: Points,
}

/// The load as it was asked for, and what came of it. Headers and passwords are not told.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoadMade {
    /// The command that was run again and again; None for requests of our own.
    pub command: Option<String>,
    /// Requests of our own: where to, which, and how many at a time.
    pub url: Option<String>,
    pub paths: Vec<String>,
    pub concurrency: Option<u32>,
    /// Runs of the command, or requests, that went well.
    pub succeeded: u64,
    /// Those that did not. Once one went well, without those before: the server was starting.
    pub failed: u64,
}

/// How fast that grows which the verdict is about. Each with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Growth {
    pub bytes_per_s: f64,
    pub bytes_per_s_interval: (f64, f64),
    pub bytes_per_request: Option<f64>,
    pub bytes_per_request_interval: Option<(f64, f64)>,
    /// The lines, or the sizes of blocks, tell of another growth, and the intervals were widened to hold it.
    pub is_doubtful: bool,
}

/// What was read, summed over processes; one element per moment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Points {
    pub time_s: Vec<f64>,
    pub memory_bytes: Vec<u64>,
    /// Live blocks and what the program maps itself; empty if not known.
    pub used_bytes: Vec<u64>,
    pub live_bytes: Vec<u64>,
    pub heap_bytes: Vec<u64>,
    pub processes: Vec<usize>,
    pub requests: Vec<f64>,
}

/// What was noticed beside the memory.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    /// What the user should know.
    pub notes: Vec<String>,
    /// Why memory that does not grow proves nothing: nothing was asked of the program, or not all of it was seen.
    pub obstacles: Vec<String>,
    /// How a process ended that was not started here: it proves nothing, either, and there is nothing to fix.
    pub end: Option<String>,
    /// The watch was over early because what was watched had ended: a longer one would have seen no more.
    pub ended: bool,
}

/// What the report is made from.
pub struct Findings<'a> {
    pub subject: String,
    pub recording: &'a Recording,
    pub assembled: &'a Assembled,
    pub total: Assessment,
    pub by_age: Option<Assessment>,
    /// Requests so far at each of the moments that were assembled; empty if nobody counts them.
    pub requests: Vec<f64>,
    pub request_unit: &'static str,
    pub load: Option<LoadMade>,
    pub remarks: Remarks,
    pub lines: Vec<KeepingLine>,
    pub sizes: Vec<GrowingSize>,
    pub other_measures: OtherMeasures,
}

/// What the words of the answer rest on.
pub struct Grounds {
    /// The judgement that decides: about the whole program, or about one worker over its age.
    pub judgement: Assessment,
    pub by_age: bool,
    /// Trend of what is live where that was judged, over the same as what is in use; None if it is not known.
    pub live: Option<Trend>,
    /// What is live and what the allocator holds for it, there and at the end.
    pub heap: Option<(f64, f64)>,
    /// Processes that were replaced, and their middle age at the end, in seconds.
    pub replaced: Option<(usize, f64)>,
    /// As of `Remarks`.
    pub ended: bool,
    /// Of the growth of all that is in use.
    pub other_measures: OtherMeasures,
}

impl Grounds {
    fn of(findings: &Findings) -> Grounds {
        let Findings { assembled, total, by_age, requests, remarks, other_measures, .. } = findings;
        let grows = |verdict: Verdict| matches!(verdict, Verdict::Leak | Verdict::Growing | Verdict::Bloat);
        let lives = assembled.by_age.as_ref();
        let of_worker = by_age.as_ref().zip(lives);
        let of_worker = of_worker.filter(|(judgement, _)| grows(judgement.verdict) && !grows(total.verdict));
        let (judgement, series) = match of_worker {
            Some((judgement, lives)) => (judgement, &lives.series),
            None => (total, &assembled.total),
        };
        let x = match judgement.over {
            JudgedOver::Time => &series.time_s,
            JudgedOver::Requests => requests,
        };
        let used = judgement.used.as_ref();
        let live = used.map(|used| trend::classify(x, &series.live, 0.0, used.margin));
        // Of one worker over its age they say nothing.
        let growths = used.zip(live.as_ref()).filter(|_| of_worker.is_none());
        let mapped = growths.map(|(used, live)| (used.growth - live.growth) / used.span_s.max(1e-3));
        Grounds {
            judgement: judgement.clone(),
            by_age: of_worker.is_some(),
            live,
            other_measures: mapped.map(|mapped| other_measures.beside(mapped)).unwrap_or_default(),
            heap: series.heap_at_end(),
            replaced: lives.map(|lives| (lives.lives, lives.age_s)),
            ended: remarks.ended,
        }
    }
}

impl LeakReport {
    /// Puts everything together.
    pub fn new(findings: Findings) -> LeakReport {
        let grounds = Grounds::of(&findings);
        let Findings {
            subject,
            recording,
            assembled,
            total,
            by_age,
            requests,
            request_unit,
            load,
            remarks,
            lines,
            sizes,
            ..
        } = findings;
        let verdict = grounds.judgement.verdict;
        let leaks = verdict == Verdict::Leak;
        let mut allocators: Vec<Kind> =
            recording.processes.iter().filter_map(|process| process.kind).collect();
        allocators.sort();
        allocators.dedup();
        let made = requests.last().zip(requests.first()).map(|(last, first)| last - first);
        let mut report = LeakReport {
            subject,
            verdict,
            answer: String::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
            notes: remarks.notes,
            allocators,
            live_source: assembled.live_source,
            measure: assembled.measure,
            watched_s: total.memory.span_s,
            requests: made.filter(|made| *made > 0.0),
            request_unit,
            load,
            growth: None,
            lines: if leaks || verdict == Verdict::Unclear { lines } else { Vec::new() },
            sizes: if leaks { sizes } else { Vec::new() },
            judgement: total,
            judgement_by_age: by_age,
            decided_by_age: grounds.by_age,
            series: Points::new(assembled, requests),
        };
        report.growth = report.growth_of(&grounds, &assembled.total);
        report.answer = report.answer_to(&grounds);
        report.evidence = report.evidence_for(&grounds);
        report.advice = report.advice_for(&grounds);
        let settled = matches!(verdict, Verdict::Plateau | Verdict::Fragmented);
        let obstacle =
            remarks.obstacles.first().zip(Some("fix that and watch again; this watch proves nothing"));
        let obstacle = obstacle.or(remarks.end.as_ref().zip(Some(WATCH_ANOTHER)));
        if let (true, Some((obstacle, advice))) = (settled, obstacle) {
            report.verdict = Verdict::Unclear;
            report.answer = format!("Not enough data: memory does not grow, but {obstacle}.");
            report.advice = vec![advice.into()];
        }
        report
    }

    /// `total` is the series of the whole program.
    fn growth_of(&self, grounds: &Grounds, total: &Series) -> Option<Growth> {
        let judgement = &grounds.judgement;
        let (trend, values) = match (judgement.verdict, &judgement.used) {
            (Verdict::Leak, Some(used)) => (used, &total.used),
            (Verdict::Growing | Verdict::Bloat, _) => (&judgement.memory, &total.memory),
            _ => return None,
        };
        // Over the age of a worker there are no requests to count.
        let made = self.requests.filter(|_| !self.decided_by_age);
        let per_request = made.map(|made| {
            growth_per_request(&self.series.requests, values).unwrap_or_else(|| trend.growth_per(made))
        });
        let (bytes_per_s, interval) = trend.growth_per(trend.span_s);
        let others = grounds.other_measures;
        let widened = others.widened(bytes_per_s, interval).filter(|_| judgement.verdict == Verdict::Leak);
        let wider = |end: fn((f64, f64)) -> f64| widened.map_or(1.0, |all| end(all) / end(interval));
        let (low, high) = (wider(|ends| ends.0), wider(|ends| ends.1));
        Some(Growth {
            bytes_per_s,
            bytes_per_s_interval: widened.unwrap_or(interval),
            bytes_per_request: per_request.map(|(growth, _)| growth),
            bytes_per_request_interval: per_request.map(|(_, ends)| (ends.0 * low, ends.1 * high)),
            is_doubtful: widened.is_some(),
        })
    }
}

impl Points {
    fn new(assembled: &Assembled, requests: Vec<f64>) -> Points {
        let whole = |values: &[f64]| values.iter().map(|value| value.max(0.0) as u64).collect::<Vec<u64>>();
        let series = &assembled.total;
        Points {
            time_s: series.time_s.iter().map(|time_s| (time_s * 1e3).round() / 1e3).collect(),
            memory_bytes: whole(&series.memory),
            used_bytes: whole(&series.used),
            live_bytes: whole(&series.live),
            heap_bytes: whole(&series.heap),
            processes: assembled.processes.clone(),
            requests,
        }
    }
}

/// Growth per request, and its 95 % interval, in bytes: judged over requests as it is over time, since requests may come
/// faster or slower during a watch. None: there were too few at different moments.
fn growth_per_request(requests: &[f64], values: &[f64]) -> Option<(f64, (f64, f64))> {
    if !trend::suffices(requests) {
        return None;
    }
    let trend = trend::classify(requests, values, 0.0, 0.0);
    Some(trend.growth_per(trend.span_s))
}

#[cfg(test)]
mod tests;
