//! The answer of `snug leak` as plain data. Pure.

use serde::Serialize;

use crate::allocator::kinds::Kind;
use crate::allocator::record::Recording;
use crate::analysis::assemble::{Assembled, LiveSource, Measure};
use crate::analysis::keeping::KeepingLine;
use crate::analysis::size_growth::GrowingSize;
use crate::analysis::trend;
use crate::analysis::verdict::{Assessment, Series, Verdict};

/// The answer of one call.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LeakReport {
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
pub(crate) struct LoadMade {
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
pub(crate) struct Growth {
    pub bytes_per_s: f64,
    pub bytes_per_s_interval: (f64, f64),
    pub bytes_per_request: Option<f64>,
    pub bytes_per_request_interval: Option<(f64, f64)>,
}

/// What was read, summed over processes; one element per moment.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Points {
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
pub(crate) struct Remarks {
    /// What the user should know.
    pub notes: Vec<String>,
    /// Why memory that does not grow proves nothing: nothing was asked of the program, or not all of it was seen.
    pub obstacles: Vec<String>,
}

/// What the report is made from.
pub(crate) struct Findings<'a> {
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
}

impl LeakReport {
    /// Puts everything together.
    pub(crate) fn new(findings: Findings) -> LeakReport {
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
        } = findings;
        let hidden = |judgement: &Assessment| {
            matches!(judgement.verdict, Verdict::Leak | Verdict::Growing | Verdict::Bloat)
        };
        let decided_by_age = by_age.as_ref().is_some_and(hidden) && !hidden(&total);
        let decisive = if decided_by_age { by_age.clone().unwrap_or(total.clone()) } else { total.clone() };
        let leaks = decisive.verdict == Verdict::Leak;
        let mut allocators: Vec<Kind> =
            recording.processes.iter().filter_map(|process| process.kind).collect();
        allocators.sort();
        allocators.dedup();
        let made = requests.last().zip(requests.first()).map(|(last, first)| last - first);
        let mut report = LeakReport {
            subject,
            verdict: decisive.verdict,
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
            lines: if leaks || decisive.verdict == Verdict::Unclear { lines } else { Vec::new() },
            sizes: if leaks { sizes } else { Vec::new() },
            judgement: total,
            judgement_by_age: by_age,
            decided_by_age,
            series: Points::new(assembled, requests),
        };
        let lives = assembled.by_age.as_ref().map(|by_age| (by_age.lives, by_age.age_s));
        report.growth = report.growth_of(&decisive, &assembled.total);
        report.answer = report.answer_to(&decisive, lives);
        report.evidence = report.evidence_for(&decisive, lives);
        report.advice = report.advice_for(&decisive);
        let settled = matches!(decisive.verdict, Verdict::Plateau | Verdict::Fragmented);
        if let (true, Some(obstacle)) = (settled, remarks.obstacles.first()) {
            report.verdict = Verdict::Unclear;
            report.answer = format!("Not enough data: memory does not grow, but {obstacle}.");
            report.advice = vec!["fix that and watch again; this watch proves nothing".into()];
        }
        report
    }

    /// `total` is the series of the whole program.
    fn growth_of(&self, judgement: &Assessment, total: &Series) -> Option<Growth> {
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
        let (bytes_per_s, bytes_per_s_interval) = trend.growth_per(trend.span_s);
        Some(Growth {
            bytes_per_s,
            bytes_per_s_interval,
            bytes_per_request: per_request.map(|(growth, _)| growth),
            bytes_per_request_interval: per_request.map(|(_, interval)| interval),
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
mod tests {
    use super::*;
    use crate::allocator::record::RecordedProcess;
    use crate::analysis::assemble::ByAge;
    use crate::analysis::simulate::{draw, BEHAVIOURS};
    use crate::analysis::sites::Frame;
    use crate::analysis::verdict::assess;

    fn report(series: Series, live_source: LiveSource, by_age: Option<(Series, usize)>) -> LeakReport {
        report_with(series, live_source, by_age, Remarks::default())
    }

    fn report_with(
        series: Series,
        live_source: LiveSource,
        by_age: Option<(Series, usize)>,
        remarks: Remarks,
    ) -> LeakReport {
        let readings = series.time_s.len();
        let judgement = assess(&series, 0.05);
        let by_age = by_age.map(|(series, lives)| ByAge { series, lives, age_s: 60.0 });
        let judgement_by_age = by_age.as_ref().map(|by_age| assess(&by_age.series, 0.05));
        let assembled = Assembled {
            measure: Measure::Rss,
            live_source,
            processes: vec![1; readings],
            moments: (0..readings).collect(),
            total: series,
            by_age,
        };
        let process = RecordedProcess { kind: Some(Kind::Snug), ..RecordedProcess::example() };
        let recording = Recording { processes: vec![process], ..Recording::default() };
        LeakReport::new(Findings {
            subject: "ruby app.rb".into(),
            recording: &recording,
            assembled: &assembled,
            total: judgement,
            by_age: judgement_by_age,
            requests: (0..readings).map(|moment| 10.0 * moment as f64).collect(),
            request_unit: "request",
            load: None,
            remarks,
            lines: vec![KeepingLine {
                bytes_per_s: 1.0,
                bytes_per_s_interval: (0.5, 1.5),
                samples: 16,
                line: Frame { function: "keeps".into(), file: "a.rb".into(), line: 3 },
                callers: Vec::new(),
            }],
            sizes: Vec::new(),
        })
    }

    /// 600 readings, one per second, of a program that grows evenly by so many bytes.
    fn line(growth: f64) -> Series {
        let time_s: Vec<f64> = (0..600).map(f64::from).collect();
        let used: Vec<f64> = time_s.iter().map(|time_s| 100e6 + growth * time_s / 599.0).collect();
        let memory = used.iter().map(|used| used + 20e6).collect();
        Series { time_s, memory, live: used.clone(), heap: used.clone(), used }
    }

    #[test]
    fn a_leak_is_stated_per_hour_and_per_request() {
        let report = report(line(59.9e6), LiveSource::Counted, None);
        assert_eq!(report.verdict, Verdict::Leak);
        assert!(report.answer.contains("360 MB per hour"), "{}", report.answer);
        assert!(report.answer.contains("10.0 kB per request"), "{}", report.answer);
        assert!(report.advice[0].contains("find what is kept"), "{:?}", report.advice);
    }

    /// The pace of requests, and so of growth, falls to a half on the way.
    #[test]
    fn growth_per_request_is_right_at_any_pace_of_requests() {
        let fast_then_slow = |second: u32| f64::from(second.min(300) * 20 + second.saturating_sub(300) * 10);
        let requests: Vec<f64> = (0..600).map(fast_then_slow).collect();
        let values: Vec<f64> = requests.iter().map(|requests| 100e6 + 10_000.0 * requests).collect();
        let (growth, (low, high)) = growth_per_request(&requests, &values).unwrap();
        assert!((growth / 10_000.0 - 1.0).abs() < 0.01, "{growth}");
        assert!(low < 10_000.1 && high > 9_999.9 && high - low < 500.0, "{low} {high}");
        let seldom: Vec<f64> = (0..600).map(|second: u32| f64::from(second / 60)).collect();
        assert_eq!(growth_per_request(&seldom, &values), None);
    }

    #[test]
    fn growth_in_the_programs_own_mappings_is_said_to_be_there() {
        let mut series = line(59.9e6);
        series.live = vec![50e6; 600];
        series.heap = vec![55e6; 600];
        let report = report(series, LiveSource::Counted, None);
        assert!(report.advice[0].contains("tracemalloc"), "{:?}", report.advice);
    }

    #[test]
    fn restarts_do_not_hide_a_leak() {
        let report = report(line(0.0), LiveSource::Counted, Some((line(59.9e6), 7)));
        assert_eq!((report.verdict, report.decided_by_age), (Verdict::Leak, true));
        assert!(report.answer.contains("7 were, at the age of 60 s"), "{}", report.answer);
    }

    #[test]
    fn a_plateau_of_a_program_that_was_asked_nothing_is_none() {
        let remarks = || Remarks { notes: vec![], obstacles: vec!["the load failed all 9 times".into()] };
        let steady = report_with(line(0.0), LiveSource::Counted, None, remarks());
        assert_eq!(steady.verdict, Verdict::Unclear);
        assert!(steady.answer.contains("the load failed all 9 times"), "{}", steady.answer);
        let grows = report_with(line(59.9e6), LiveSource::Counted, None, remarks());
        assert_eq!(grows.verdict, Verdict::Leak, "growth is growth");
    }

    #[test]
    fn a_plateau_says_since_when() {
        let mut series = line(0.0);
        for (index, value) in series.used.iter_mut().enumerate() {
            *value -= 50e6 * (-(index as f64) / 40.0).exp();
        }
        let report = report(series, LiveSource::Counted, None);
        assert_eq!(report.verdict, Verdict::Plateau);
        let says = |text| report.answer.contains(text);
        assert!(says(" s and ") && says(" requests"), "{}", report.answer);
    }

    #[test]
    fn without_live_bytes_a_leak_is_only_growth() {
        let mut series = line(59.9e6);
        (series.used, series.live, series.heap) = (vec![], vec![], vec![]);
        let report = report(series, LiveSource::Unknown, None);
        assert_eq!(report.verdict, Verdict::Growing);
        assert!(report.advice[0].contains("snug leak -- PROGRAM"), "{:?}", report.advice);
        let asked = LeakReport { allocators: vec![Kind::Jemalloc], ..report };
        assert!(asked.advice_for(&asked.judgement)[0].contains("--ask-allocator"), "{:?}", asked.advice);
    }

    #[test]
    fn every_verdict_has_words() {
        for (behaviour, seed) in
            BEHAVIOURS.into_iter().flat_map(|behaviour| (0..5).map(move |seed| (behaviour, seed)))
        {
            let report = report(draw(behaviour, seed), LiveSource::Counted, None);
            assert!(report.answer.ends_with('.') && !report.answer.contains("NaN"), "{}", report.answer);
            assert!(report.evidence.len() >= 3, "{:?}", report.evidence);
            assert_eq!(report.advice.is_empty(), report.verdict == Verdict::Plateau, "{:?}", report.advice);
        }
    }
}
