//! All quantities of a canary together, and the one word.
//!
//! At most 5 % of fleets without a difference are called better or worse, whichever quantity it is and however often
//! they are looked at: memory, which the canary is about, has half of that, and the others share the other half.

use serde::Serialize;

use crate::canary::effect::{effect, PodEffect};
use crate::canary::events::{compare, Happened};
use crate::canary::groups::{matched, Grouping, PodSeries, Starts};
use crate::canary::{Answer, Judgement, Missing};
use snug_base::terminal::{bytes, number_in, three_digits};
use snug_compare::shown_ratio::of_shown;
use snug_stats::Ratio;

/// How often chance alone may give an answer that there is a difference.
const ALPHA: f64 = 0.05;
const DAY_S: f64 = 86_400.0;

/// What a canary is asked about. This is the one table of its quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    Memory,
    Cpu,
    Latency,
    Restarts,
    OomKills,
}

impl Aspect {
    /// Its name in JSON, with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Memory => "memory_bytes",
            Aspect::Cpu => "cpu_cores",
            Aspect::Latency => "latency_s",
            Aspect::Restarts => "restarts_per_hour",
            Aspect::OomKills => "oom_kills_per_hour",
        }
    }

    /// Its name for people.
    pub fn heading(self) -> &'static str {
        match self {
            Aspect::Memory => "memory",
            Aspect::Cpu => "CPU",
            Aspect::Latency => "latency",
            Aspect::Restarts => "restarts",
            Aspect::OomKills => "OOM kills",
        }
    }

    /// A value for people.
    pub fn written(self, value: f64) -> String {
        match self {
            Aspect::Memory => bytes(value),
            Aspect::Cpu => format!("{} cores", three_digits(value)),
            Aspect::Latency if value < 1.0 => format!("{} ms", three_digits(1000.0 * value)),
            Aspect::Latency => format!("{} s", three_digits(value)),
            Aspect::Restarts | Aspect::OomKills if value == 0.0 => "0 /h".into(),
            Aspect::Restarts | Aspect::OomKills => format!("{} /h", three_digits(value)),
        }
    }
}

/// What was read of the fleet.
#[derive(Debug, Clone, Default)]
pub struct FleetReadings {
    /// Levels: memory, CPU, latency.
    pub levels: Vec<(Aspect, Vec<PodSeries>)>,
    /// When containers started; without readings nobody knows of restarts.
    pub starts: Vec<PodSeries>,
    /// Counters of OOM kills.
    pub oom_kills: Vec<PodSeries>,
    pub step_s: f64,
    pub span_s: f64,
}

/// What is asked of the readings.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    pub effect: f64,
    pub tolerance: f64,
    pub warm_up_s: f64,
}

/// One quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryRow {
    pub name: &'static str,
    #[serde(skip)]
    pub aspect: Aspect,
    /// Of the canary and of the baseline: of a level what is typical of a pod, of the canary's at the times and ages of
    /// the baseline's; of events how often they meet one.
    pub canary: Option<f64>,
    pub baseline: Option<f64>,
    pub ratio: Option<f64>,
    /// 95 %, of one look; the upper end may be missing.
    pub interval: Option<(f64, Option<f64>)>,
    /// The one from which the answer follows: it holds over all quantities, however often one asks.
    pub decisive_interval: Option<(f64, Option<f64>)>,
    pub answer: Answer,
    pub missing: Option<Missing>,
    /// Pods that were compared.
    pub canary_pods: usize,
    pub baseline_pods: usize,
    /// Pods that were not: too few readings, or none at times and ages of the other group.
    pub pods_left_out: usize,
}

impl CanaryRow {
    /// With the answer that follows from the numbers as they are printed.
    fn by_printed_numbers(self, judgement: Judgement) -> CanaryRow {
        let shown = self.shown_ratio();
        let answer = shown.and_then(|ratio| Some(judgement.answer(ratio.value, ratio.interval?)));
        let answer = answer.unwrap_or(self.answer);
        let missing = self.missing.clone().filter(|_| answer == Answer::NotEnoughData);
        CanaryRow { answer, missing, ..self }
    }

    /// The ratio of the two numbers as they are written, with the interval that decides, which holds it. Its upper end may
    /// be infinite.
    pub fn shown_ratio(&self) -> Option<Ratio> {
        let number = |value: Option<f64>| number_in(&self.aspect.written(value?));
        let (low, high) = self.decisive_interval?;
        let interval = Some((low, high.unwrap_or(f64::INFINITY)));
        let measured = Ratio { value: self.ratio?, interval, ..Ratio::default() };
        of_shown(number(self.canary)?, number(self.baseline)?, measured)
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conclusion {
    pub answer: Answer,
    /// What memory lacks for an answer.
    pub missing: Option<Missing>,
    pub quantities: Vec<CanaryRow>,
    pub notes: Vec<String>,
}

/// Works out the answer about all quantities that there are readings of.
pub fn conclude(readings: &FleetReadings, question: Question) -> Conclusion {
    let starts = Starts::of(&readings.starts);
    let events = [
        (Aspect::Restarts, happened_in(&readings.starts, readings.step_s, |pod| pod_restarts(pod, &starts))),
        (Aspect::OomKills, happened_in(&readings.oom_kills, readings.step_s, increases)),
    ];
    let events: Vec<_> =
        events.into_iter().filter(|(_, groups)| groups.0.watched_s + groups.1.watched_s > 0.0).collect();
    let guards =
        readings.levels.iter().filter(|(aspect, _)| *aspect != Aspect::Memory).count() + events.len();
    let judgement = |aspect| Judgement {
        effect: question.effect,
        tolerance: question.tolerance,
        alpha: if aspect == Aspect::Memory { ALPHA / 2.0 } else { ALPHA / 2.0 / guards as f64 },
    };
    let levels = readings.levels.iter().map(|(aspect, series)| {
        let grouping = Grouping::of(readings.span_s, readings.step_s, question.warm_up_s);
        let matched = matched(series, &starts, grouping);
        let found = effect(&matched, readings.span_s, judgement(*aspect));
        level_row(*aspect, found, matched.pods, matched.left_out, judgement(*aspect))
    });
    let events = events.iter().map(|(aspect, groups)| event_row(*aspect, *groups, judgement(*aspect)));
    let quantities: Vec<CanaryRow> = levels.chain(events).collect();
    let memory = quantities.iter().find(|row| row.aspect == Aspect::Memory);
    let worse = quantities.iter().any(|row| row.answer == Answer::Worse);
    let answer = memory.map_or(Answer::NotEnoughData, |row| row.answer);
    Conclusion {
        answer: if worse { Answer::Worse } else { answer },
        missing: memory.filter(|_| !worse).and_then(|row| row.missing.clone()),
        notes: notes(readings, memory),
        quantities,
    }
}

fn level_row(
    aspect: Aspect,
    found: Result<PodEffect, Missing>,
    pods: (usize, usize),
    left_out: usize,
    judgement: Judgement,
) -> CanaryRow {
    let row = CanaryRow {
        name: aspect.name(),
        aspect,
        canary: None,
        baseline: None,
        ratio: None,
        interval: None,
        decisive_interval: None,
        answer: Answer::NotEnoughData,
        missing: None,
        canary_pods: pods.0,
        baseline_pods: pods.1,
        pods_left_out: left_out,
    };
    match found {
        Err(missing) => CanaryRow { missing: Some(missing), ..row },
        Ok(effect) => CanaryRow {
            canary: Some(effect.typical.0),
            baseline: Some(effect.typical.1),
            ratio: Some(effect.ratio),
            interval: Some((effect.interval.0, Some(effect.interval.1))),
            decisive_interval: Some((effect.decisive.0, Some(effect.decisive.1))),
            answer: effect.answer,
            missing: Some(effect.missing),
            ..row
        }
        .by_printed_numbers(judgement),
    }
}

/// What happened to each group, and how many pods it has.
type Groups = (Happened, Happened, usize, usize);

fn happened_in(series: &[PodSeries], step_s: f64, events: impl Fn(&PodSeries) -> Vec<f64>) -> Groups {
    let mut groups = Groups::default();
    for pod in series.iter().filter(|pod| pod.readings.len() > 1) {
        let found = events(pod);
        let until = found.first().copied().unwrap_or(f64::INFINITY);
        let watched = pod.readings.iter().skip(1).filter(|(time, _)| *time <= until).count();
        let (group, pods) =
            if pod.is_canary { (&mut groups.0, &mut groups.2) } else { (&mut groups.1, &mut groups.3) };
        *pods += 1;
        group.events += found.len() as f64;
        group.pods += u64::from(!found.is_empty());
        group.watched_s += watched as f64 * step_s;
    }
    groups
}

fn pod_restarts(pod: &PodSeries, starts: &Starts) -> Vec<f64> {
    starts.restarts(&pod.unit)
}

/// Times at which a counter rose, which starts again from 0 with its container.
fn increases(pod: &PodSeries) -> Vec<f64> {
    let rose = |pair: &[(f64, f64)]| match pair[1].1 < pair[0].1 {
        true => pair[1].1 > 0.0,
        false => pair[1].1 > pair[0].1,
    };
    pod.readings.windows(2).filter(|pair| rose(pair)).map(|pair| pair[1].0).collect()
}

fn event_row(aspect: Aspect, groups: Groups, judgement: Judgement) -> CanaryRow {
    let (canary, baseline, canary_pods, baseline_pods) = groups;
    let rate =
        |group: Happened| (group.watched_s > 0.0).then(|| group.pods as f64 / (group.watched_s / 3600.0));
    let found = compare(canary, baseline, judgement);
    CanaryRow {
        name: aspect.name(),
        aspect,
        canary: rate(canary),
        baseline: rate(baseline),
        ratio: found.as_ref().and_then(|found| found.ratio),
        interval: found.as_ref().map(|found| found.interval),
        decisive_interval: found.as_ref().map(|found| found.decisive),
        answer: match found {
            Some(found) => found.answer,
            None if canary.pods + baseline.pods == 0 => Answer::NoneHappened,
            None => Answer::NotEnoughData,
        },
        missing: None,
        canary_pods,
        baseline_pods,
        pods_left_out: 0,
    }
    .by_printed_numbers(judgement)
}

fn notes(readings: &FleetReadings, memory: Option<&CanaryRow>) -> Vec<String> {
    let mut notes = Vec::new();
    if readings.span_s < DAY_S {
        notes.push(format!(
            "these are {:.1} hours: what other hours of the day bring is not in the interval",
            readings.span_s / 3600.0
        ));
    }
    if readings.starts.iter().all(|pod| pod.readings.is_empty()) {
        notes.push("no times of starts: neither restarts nor ages of the pods are known".into());
    }
    if readings.oom_kills.iter().all(|pod| pod.readings.is_empty()) {
        notes.push("no counter of OOM kills".into());
    }
    if let Some(left_out) = memory.map(|row| row.pods_left_out).filter(|count| *count > 0) {
        notes.push(format!(
            "{left_out} pods are left out: too few readings, or none at times and ages of the other group"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question { effect: 0.1, tolerance: 0.02, warm_up_s: 600.0 };

    /// Pods of both groups over six hours, every five minutes; `value` by pod and reading.
    fn pods(count: usize, value: impl Fn(usize, bool, usize) -> f64) -> Vec<PodSeries> {
        let pod = |(is_canary, number): (bool, usize)| PodSeries {
            unit: format!("{is_canary} {number}"),
            is_canary,
            readings: (0..72).map(|index| (index as f64 * 300.0, value(number, is_canary, index))).collect(),
        };
        (0..2 * count).map(|index| (index < count, index % count)).map(pod).collect()
    }

    fn readings(memory: impl Fn(usize, bool, usize) -> f64) -> FleetReadings {
        FleetReadings {
            levels: vec![(Aspect::Memory, pods(8, memory))],
            starts: pods(8, |_, _, _| -1000.0),
            oom_kills: pods(8, |_, _, _| 0.0),
            step_s: 300.0,
            span_s: 21_600.0,
        }
    }

    /// A level of each pod, and a little noise.
    fn level(number: usize, index: usize) -> f64 {
        1e8 * (1.0 + 0.01 * (number % 4) as f64 + 0.002 * ((index * 7 + number) % 5) as f64)
    }

    #[test]
    fn memory_decides() {
        let better = conclude(
            &readings(|number, canary, index| level(number, index) * if canary { 0.8 } else { 1.0 }),
            QUESTION,
        );
        assert_eq!(better.answer, Answer::Better, "{better:?}");
        assert!((better.quantities[0].ratio.unwrap() - 0.8).abs() < 0.01);
        let same = conclude(&readings(|number, _, index| level(number, index)), QUESTION);
        assert_eq!(same.answer, Answer::NoDifference, "{same:?}");
        let worse = conclude(
            &readings(|number, canary, index| level(number, index) * if canary { 1.2 } else { 1.0 }),
            QUESTION,
        );
        assert_eq!(worse.answer, Answer::Worse);
    }

    #[test]
    fn a_guard_that_is_worse_outweighs_memory() {
        let mut readings =
            readings(|number, canary, index| level(number, index) * if canary { 0.8 } else { 1.0 });
        readings.oom_kills = pods(8, |_, canary, index| if canary && index > 30 { 1.0 } else { 0.0 });
        let found = conclude(&readings, QUESTION);
        let kills = found.quantities.iter().find(|row| row.aspect == Aspect::OomKills).unwrap();
        assert_eq!((found.answer, kills.answer), (Answer::Worse, Answer::Worse), "{kills:?}");
        assert_eq!(kills.baseline, Some(0.0));
    }

    #[test]
    fn a_counter_that_starts_again_is_no_kill() {
        let counter = |values: &[f64]| PodSeries {
            unit: "a".into(),
            is_canary: true,
            readings: values.iter().enumerate().map(|(index, value)| (index as f64, *value)).collect(),
        };
        assert_eq!(increases(&counter(&[2.0, 0.0, 0.0, 1.0, 1.0])), [3.0]);
        assert_eq!(increases(&counter(&[2.0, 1.0])), [1.0]);
    }

    #[test]
    fn what_never_happened_is_no_answer() {
        let found = conclude(&readings(|number, _, index| level(number, index)), QUESTION);
        let of = |found: &Conclusion, aspect| {
            found.quantities.iter().find(|row| row.aspect == aspect).unwrap().answer
        };
        assert_eq!(of(&found, Aspect::Restarts), Answer::NoneHappened, "{found:?}");
        assert_eq!(of(&found, Aspect::OomKills), Answer::NoneHappened);
        let mut once = readings(|number, _, index| level(number, index));
        once.oom_kills =
            pods(8, |number, canary, index| if canary && number == 0 && index > 30 { 1.0 } else { 0.0 });
        assert_eq!(of(&conclude(&once, QUESTION), Aspect::OomKills), Answer::NotEnoughData);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut readings = readings(|number, _, index| level(number, index));
        (readings.starts, readings.oom_kills) = (Vec::new(), Vec::new());
        let found = conclude(&readings, QUESTION);
        assert_eq!((found.quantities.len(), found.notes.len()), (1, 3), "{:?}", found.notes);
    }
}
