//! The ratio of a quantity between two groups of pods, with an interval that pods give.
//!
//! A regression of the logarithms of means on the group, beside the block of time and the age; its error is worked out
//! from sums over pods, with the correction CR2 (Bell and McCaffrey, Survey Methodology 28, 2002). Where all pods ran all
//! the time this is Welch's test of their means. It may be asked at any time and again: how much is asked of an early
//! look shrinks with the information there is, by the constant boundary of O'Brien and Fleming for looks without
//! number (Jennison and Turnbull, Group Sequential Methods, 2000, 2.5 and 7.2).

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::canary::groups::{Block, Matched};
use crate::canary::{Answer, Judgement, Missing};
use snug_stats as statistics;

/// Fewer pods of either group say nothing about how much pods differ.
pub const PODS_LEAST: usize = 3;
/// How surely an effect is found in the time that is told.
const POWER: f64 = 0.8;
/// Rounds in which times and ages are taken out of each other, and when that is enough.
const ROUNDS: usize = 200;
const SETTLED: f64 = 1e-7;
/// So many degrees of freedom are as good as any number.
const NORMAL_FROM: f64 = 1000.0;
/// However early the look: what is less probable than this is no chance.
const TAIL_LEAST: f64 = 1e-6;
/// How much more pods are tried next, and how often.
const POD_STEP: f64 = 1.05;
const POD_STEPS: i32 = 300;
/// Nobody waits longer than this for an answer, in s: two weeks.
const WAIT_MOST_S: f64 = 14.0 * 86_400.0;

/// How a quantity differs between canary and baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEffect {
    /// How many times the baseline.
    pub ratio: f64,
    /// Its 95 % interval, of one look.
    pub interval: (f64, f64),
    /// The wider one from which the answer follows: it holds however often one asks.
    pub decisive: (f64, f64),
    /// What is typical of a pod of the baseline, a geometric mean over the blocks that both have, and before it what
    /// would be typical of the canary at the same times and ages: that, times the ratio.
    pub typical: (f64, f64),
    pub answer: Answer,
    /// What it would take if there were no answer.
    pub missing: Missing,
}

/// The difference of logarithms, and how well it is known.
#[derive(Debug, Clone, Copy)]
struct Fitted {
    difference: f64,
    /// Squared standard error: what each group adds to it.
    parts: (f64, f64),
    /// How much of it more time would take away.
    shrinking: f64,
}

/// Compares the groups; what is missing if that can't be done. `span_s`: the time that was looked at.
pub fn effect(matched: &Matched, span_s: f64, judgement: Judgement) -> Result<PodEffect, Missing> {
    if let Some(obstacle) = &matched.obstacle {
        return Err(Missing::Overlap(obstacle.clone()));
    }
    let (canary, baseline) = matched.pods;
    if canary.min(baseline) < PODS_LEAST {
        return Err(Missing::FewestPods {
            canary: canary.max(PODS_LEAST),
            baseline: baseline.max(PODS_LEAST),
        });
    }
    let fitted = fit(&matched.blocks).ok_or_else(|| {
        Missing::Overlap("times and ages tell the groups apart as well as the canary does".into())
    })?;
    let half = student_quantile(0.975, freedom(fitted, matched.pods)) * error(fitted);
    let decisive_half = decisive_half(fitted, matched.pods, judgement);
    let bound = |difference: f64| difference.exp();
    let around = |half: f64| (bound(fitted.difference - half), bound(fitted.difference + half));
    let of_baseline = matched.blocks.iter().filter(|block| !block.is_canary);
    let logarithms: Vec<f64> = of_baseline.map(|block| block.logarithm).collect();
    let typical = statistics::mean(&logarithms);
    Ok(PodEffect {
        ratio: bound(fitted.difference),
        interval: around(half),
        decisive: around(decisive_half),
        typical: (bound(typical + fitted.difference), bound(typical)),
        answer: judgement.answer(bound(fitted.difference), around(decisive_half)),
        missing: missing(fitted, matched.pods, span_s, judgement),
    })
}

fn error(fitted: Fitted) -> f64 {
    (fitted.parts.0 + fitted.parts.1).sqrt()
}

/// Degrees of freedom, by Satterthwaite.
fn freedom(fitted: Fitted, pods: (usize, usize)) -> f64 {
    let part = |variance: f64, pods: usize| variance * variance / (pods as f64 - 1.0);
    let sum = part(fitted.parts.0, pods.0) + part(fitted.parts.1, pods.1);
    if sum > 0.0 {
        (fitted.parts.0 + fitted.parts.1).powi(2) / sum
    } else {
        f64::INFINITY
    }
}

/// Takes means over times and ages out of the values, in turn, until nothing changes: the residuals of a regression on
/// both.
fn without_times_and_ages(blocks: &[Block], mut values: Vec<f64>) -> Vec<f64> {
    let mut levels: [BTreeMap<i64, usize>; 2] = Default::default();
    let mut places: [Vec<usize>; 2] = Default::default();
    for block in blocks {
        for (which, key) in [block.time, i64::from(block.age)].into_iter().enumerate() {
            let next = levels[which].len();
            places[which].push(*levels[which].entry(key).or_insert(next));
        }
    }
    for _ in 0..ROUNDS {
        let mut changed: f64 = 0.0;
        for (places, levels) in places.iter().zip(&levels) {
            let mut sums = vec![(0.0, 0.0); levels.len()];
            for (value, place) in values.iter().zip(places) {
                sums[*place] = (sums[*place].0 + value, sums[*place].1 + 1.0);
            }
            for (value, place) in values.iter_mut().zip(places) {
                let mean = sums[*place].0 / sums[*place].1;
                *value -= mean;
                changed = changed.max(mean.abs());
            }
        }
        if changed < SETTLED {
            break;
        }
    }
    values
}

/// None if times and ages leave nothing of the difference between the groups.
fn fit(blocks: &[Block]) -> Option<Fitted> {
    let values = without_times_and_ages(blocks, blocks.iter().map(|block| block.logarithm).collect());
    let group = without_times_and_ages(
        blocks,
        blocks.iter().map(|block| f64::from(u8::from(block.is_canary))).collect(),
    );
    let spread: f64 = group.iter().map(|value| value * value).sum();
    if spread < 1e-6 * blocks.len() as f64 {
        return None;
    }
    let difference = values.iter().zip(&group).map(|(value, group)| value * group).sum::<f64>() / spread;
    let mut at_time: BTreeMap<i64, f64> = BTreeMap::new();
    blocks.iter().for_each(|block| *at_time.entry(block.time).or_default() += 1.0);
    let middle = middle_time(blocks);
    // Of each pod: its part of the difference, its leverage, and the same part of either half of the time.
    let mut pods: BTreeMap<usize, PodPart> = BTreeMap::new();
    for ((block, value), group) in blocks.iter().zip(&values).zip(&group) {
        let pod = pods.entry(block.pod).or_default();
        let part = group * (value - difference * group) / spread;
        pod.is_canary = block.is_canary;
        pod.part += part;
        pod.halves[usize::from(block.time >= middle)] += part;
        pod.leverage += group * group / spread + 1.0 / at_time[&block.time] / at_time.len() as f64;
    }
    let squares = |is_canary| {
        let group = pods.values().filter(|pod| pod.is_canary == is_canary);
        group.map(|pod| pod.part * pod.part / (1.0 - pod.leverage).max(0.05)).sum::<f64>()
    };
    let parts = (squares(true), squares(false));
    let (halves, wholes) = pods.values().fold((0.0, 0.0), |(halves, wholes), pod| {
        (halves + (pod.halves[0] - pod.halves[1]).powi(2), wholes + pod.part * pod.part)
    });
    // What two halves differ by is what time averages out: it is the same in their sum.
    let shrinking = if wholes > 0.0 { (halves / wholes).min(1.0) } else { 0.0 };
    Some(Fitted { difference, parts, shrinking })
}

#[derive(Debug, Default)]
struct PodPart {
    is_canary: bool,
    part: f64,
    halves: [f64; 2],
    leverage: f64,
}

fn middle_time(blocks: &[Block]) -> i64 {
    let times = || blocks.iter().map(|block| block.time);
    (times().min().unwrap_or(0) + times().max().unwrap_or(0) + 1) / 2
}

fn normal_quantile(probability: f64) -> f64 {
    Normal::new(0.0, 1.0).map_or(f64::INFINITY, |normal| normal.inverse_cdf(probability))
}

/// Of Student's distribution, which from here on is the normal one.
fn student_quantile(probability: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) if freedom < NORMAL_FROM => distribution.inverse_cdf(probability),
        _ => normal_quantile(probability),
    }
}

/// The boundary: a Brownian motion leaves it before time 1 with a probability of at most `alpha`, because it ends
/// beyond it in half of these cases (the reflection principle).
fn boundary(alpha: f64) -> f64 {
    normal_quantile(1.0 - alpha / 4.0)
}

/// How small the error must be to find the effect.
fn wanted_error(judgement: Judgement) -> f64 {
    judgement.effect.ln_1p() / (boundary(judgement.alpha) + normal_quantile(POWER))
}

/// Half the width of the interval that decides, at this look.
fn decisive_half(fitted: Fitted, pods: (usize, usize), judgement: Judgement) -> f64 {
    let error = error(fitted);
    // Information, of that which finds the effect.
    let fraction = (wanted_error(judgement) / error).powi(2).min(1.0);
    let tail = upper_tail(boundary(judgement.alpha) / fraction.sqrt());
    -student_quantile(tail.max(TAIL_LEAST), freedom(fitted, pods)) * error
}

fn upper_tail(quantile: f64) -> f64 {
    Normal::new(0.0, 1.0).map_or(0.0, |normal| normal.sf(quantile))
}

/// What would make the error small enough: to find the effect, or if the difference lies between none and that, to tell
/// it from either.
fn missing(fitted: Fitted, pods: (usize, usize), span_s: f64, judgement: Judgement) -> Missing {
    let (large, boundary) = (judgement.effect.ln_1p(), boundary(judgement.alpha));
    let (wanted, error_now) = (wanted_error(judgement), error(fitted));
    // Past what finds the effect: the nearer of none and the effect is to be left out.
    let nearer = fitted.difference.abs().max(large - fitted.difference.abs()) / boundary;
    let wanted = if error_now <= wanted * 1.05 { wanted.min(nearer) * 0.95 } else { wanted };
    // Few pods ask for more than a normal distribution does, the more the farther out the boundary is.
    let quantile = |fitted, pods| -student_quantile(upper_tail(boundary), freedom(fitted, pods)) / boundary;
    let (now, enough) = ((error_now * quantile(fitted, pods)).powi(2), wanted * wanted);
    let stays = now * (1.0 - fitted.shrinking);
    let more_s = span_s * ((now - stays) / (enough - stays) - 1.0);
    if stays < enough && more_s < WAIT_MOST_S {
        return Missing::Seconds(more_s.max(span_s / 10.0));
    }
    // With more pods a group's part of the error shrinks, and what few pods ask for besides.
    let is_enough = |more: (usize, usize)| {
        let part = |part: f64, pods: usize, more: usize| part * pods as f64 / more as f64;
        let parts = (part(fitted.parts.0, pods.0, more.0), part(fitted.parts.1, pods.1, more.1));
        let then = Fitted { parts, ..fitted };
        error(then) * quantile(then, more) <= wanted
    };
    let many = |pods: usize, step: i32| (pods as f64 * POD_STEP.powi(step)).ceil() as usize;
    // More of the canary is the cheaper way, up to as many as the baseline has.
    let of_canary = (0..POD_STEPS).map(|step| (many(pods.0, step), pods.1));
    let of_canary = of_canary.take_while(|more| more.0 <= pods.1.max(2 * pods.0));
    let of_both = (0..POD_STEPS).map(|step| (many(pods.0, step), many(pods.1, step)));
    let (canary, baseline) =
        of_canary.chain(of_both).find(|more| is_enough(*more)).unwrap_or((usize::MAX, usize::MAX));
    Missing::Pods { canary, baseline }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGEMENT: Judgement = Judgement { effect: 0.1, tolerance: 0.02, alpha: 0.025 };

    fn blocks(values: &[&[f64]], canaries: usize) -> Matched {
        let of = |(pod, values): (usize, &&[f64])| {
            let block = |(time, value): (usize, &f64)| Block {
                pod,
                is_canary: pod < canaries,
                time: time as i64,
                age: 0,
                logarithm: value.ln(),
            };
            values.iter().enumerate().map(block).collect::<Vec<_>>()
        };
        Matched {
            blocks: values.iter().enumerate().flat_map(of).collect(),
            pods: (canaries, values.len() - canaries),
            ..Matched::default()
        }
    }

    /// Where pods run all the time the interval is Welch's of their means.
    #[test]
    fn it_is_welchs_of_pods() {
        let canary = [50.0, 56.0, 47.0];
        let baseline = [100.0, 91.0, 105.0];
        let pods: Vec<[f64; 3]> = canary.iter().chain(&baseline).map(|value| [*value; 3]).collect();
        let rows: Vec<&[f64]> = pods.iter().map(|pod| &pod[..]).collect();
        let found = effect(&blocks(&rows, 3), 3600.0, JUDGEMENT).unwrap();
        let wanted = statistics::ratio(&canary, &baseline).unwrap().interval.unwrap();
        assert!((found.interval.0 - wanted.0).abs() < 1e-3, "{found:?} {wanted:?}");
        assert!((found.interval.1 - wanted.1).abs() < 1e-3, "{found:?} {wanted:?}");
    }

    #[test]
    fn more_readings_of_the_same_pods_do_not_narrow_it() {
        let width = |count| {
            let pods: Vec<Vec<f64>> =
                [50.0, 60.0, 40.0, 99.0, 80.0, 120.0].map(|level| vec![level; count]).into();
            let rows: Vec<&[f64]> = pods.iter().map(|pod| &pod[..]).collect();
            let found = effect(&blocks(&rows, 3), 3600.0, JUDGEMENT).unwrap();
            found.interval.1 / found.interval.0
        };
        assert!((width(2) - width(200)).abs() < 1e-6);
    }

    #[test]
    fn a_day_with_a_peak_is_no_difference() {
        // The canary came at noon, when all pods hold twice as much.
        let day: &[f64] = &[100.0, 100.0, 200.0, 200.0];
        let mut matched = blocks(&[day; 12], 6);
        for (index, block) in matched.blocks.iter_mut().enumerate() {
            block.logarithm += 0.01 * ((index * 7) % 5) as f64;
        }
        matched.blocks.retain(|block| !block.is_canary || block.time >= 2);
        let found = effect(&matched, 4.0 * 3600.0, JUDGEMENT).unwrap();
        assert!((found.ratio - 1.0).abs() < 0.02 && found.answer == Answer::NoDifference, "{found:?}");
    }

    /// Most pods of the canary run in the hour in which all hold twice as much, most of the baseline in the other.
    #[test]
    fn what_is_typical_is_at_the_same_hours() {
        let hours: &[f64] = &[100.0, 200.0];
        let mut matched = blocks(&[hours; 10], 5);
        for block in &mut matched.blocks {
            let noise = 0.01 * ((block.pod * 7) % 5) as f64;
            block.logarithm += noise + if block.is_canary { 0.8f64.ln() } else { 0.0 };
        }
        matched.blocks.retain(|block| (block.time == 1) == (block.is_canary == (block.pod % 5 != 4)));
        let found = effect(&matched, 7200.0, JUDGEMENT).unwrap();
        assert!((found.ratio - 0.8).abs() < 0.02 && found.answer == Answer::Better, "{found:?}");
        let (canary, baseline) = found.typical;
        assert!((canary / baseline - found.ratio).abs() < 1e-9, "{found:?}");
        // One of five pods in the hour of 200.
        let wanted = 100.0 * 2f64.powf(0.2);
        assert!((baseline / wanted - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn few_pods_are_asked_for_more() {
        let pair: [&[f64]; 2] = [&[1.0, 1.0], &[2.0, 2.0]];
        assert_eq!(
            effect(&blocks(&pair, 1), 3600.0, JUDGEMENT),
            Err(Missing::FewestPods { canary: PODS_LEAST, baseline: PODS_LEAST })
        );
        // Pods that keep their levels, whose levels differ much: time does not help.
        let levels = [100.0, 200.0, 50.0, 110.0, 180.0, 60.0];
        let pods: Vec<[f64; 4]> = levels.map(|level| [level; 4]).into();
        let rows: Vec<&[f64]> = pods.iter().map(|pod| &pod[..]).collect();
        let found = effect(&blocks(&rows, 3), 3600.0, JUDGEMENT).unwrap();
        let Missing::Pods { canary, baseline } = found.missing else { panic!("{found:?}") };
        assert!(found.answer == Answer::NotEnoughData && canary > 100 && baseline > 100);
    }
}
