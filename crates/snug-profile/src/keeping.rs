//! Lines that keep what they allocate, from samples of blocks that stayed.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Gamma};

use crate::sites::{self, Frame};

/// Probability that the true value lies beyond one end of an interval.
const BEYOND: f64 = 0.025;

/// What a stack of one process allocated and did not free, by samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeptAtStack {
    /// An estimate: the sum over samples.
    pub bytes_per_s: f64,
    /// Of that estimate: the sum over samples of the square of each, as they come as a compound Poisson process.
    pub variance: f64,
    /// The largest that one of the samples could have been.
    pub largest: f64,
    /// How many there are.
    pub samples: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

impl KeptAtStack {
    /// Adds one sample. `now`: what it would be, had it been taken when the watch ended.
    pub fn add(&mut self, bytes_per_s: f64, now: f64) {
        self.bytes_per_s += bytes_per_s;
        self.variance += bytes_per_s * bytes_per_s;
        self.largest = self.largest.max(bytes_per_s).max(now);
        self.samples += 1;
    }

    /// Adds the samples of another stack.
    fn extend(&mut self, other: &KeptAtStack) {
        self.bytes_per_s += other.bytes_per_s;
        self.variance += other.variance;
        self.largest = self.largest.max(other.largest);
        self.samples += other.samples;
    }

    /// The 95 % interval of a sum of weights that come as a Poisson process, by the gamma distribution with their mean and
    /// variance (Fay and Feuer, 1997); of equal weights that of a Poisson count (Garwood, 1936). Its upper end allows for
    /// one more of the largest weight that there may have been, not only of those that were seen.
    fn interval(&self) -> (f64, f64) {
        let low = gamma_quantile(self.bytes_per_s, self.variance, BEYOND);
        let (one_more, its_variance) =
            (self.bytes_per_s + self.largest, self.variance + self.largest.powi(2));
        (low, gamma_quantile(one_more, its_variance, 1.0 - BEYOND))
    }
}

/// Quantile of the gamma distribution with this mean and variance: of a distribution whose scale is 1, since the search
/// for the quantile of one with a scale of millions may end at no number.
fn gamma_quantile(mean: f64, variance: f64, probability: f64) -> f64 {
    let scale = variance / mean;
    Gamma::new(mean / scale, 1.0).map_or(mean, |gamma| scale * gamma.inverse_cdf(probability))
}

/// Of the time in which blocks were sampled, the part whose blocks count as kept if they live at its end. What is younger
/// may be garbage that no collection has seen.
const OLD_ENOUGH: f64 = 0.75;
/// Blocks that a collection spared are born evenly, garbage since the last one: where the rate of births that are still
/// there rises by chance alone as much as this (twice the logarithm of the ratio of likelihoods), it has not risen.
const RISE: f64 = 9.0;
/// What is left before a rise: at least this part of the time, and so many samples of equal weight.
const LEFT: f64 = 0.1;
const SAMPLES_LEFT: f64 = 4.0;

/// Until when blocks must have been allocated to count as kept. `births`: of each sampled block that lives at the end,
/// when it was allocated, from 0 to `span`, and what it stands for.
///
/// Garbage since the last collection outnumbers what is kept, so that births rise where the collection was; those before
/// it are kept. A collector that frees step by step, or old objects more rarely, makes several rises: the first counts.
pub fn kept_until(mut births: Vec<(f64, f64)>, span: f64) -> f64 {
    births.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut end = span;
    while let Some(earlier) = last_rise(&births, end, span * LEFT) {
        end = earlier;
        births.retain(|(time, _)| *time < end);
    }
    end.min(span * OLD_ENOUGH)
}

/// Where the rate of births rises most before `end`; None: chance may have made it. Births are in order.
fn last_rise(births: &[(f64, f64)], end: f64, least: f64) -> Option<f64> {
    let (sum, squares) = births
        .iter()
        .fold((0.0, 0.0), |(sum, squares), (_, weight)| (sum + weight, squares + weight * weight));
    // Of a compound Poisson process: as many samples of equal weight as tell as much.
    let unit = squares / sum;
    let all = sum / unit;
    let mut before = 0.0;
    let (mut best, mut found) = (RISE, None);
    for pair in births.windows(2) {
        before += pair[0].1 / unit;
        let (time, after) = (pair[1].0, all - before);
        if time < least || before < SAMPLES_LEFT || time >= end || after / (end - time) <= before / time {
            continue;
        }
        let likelihood = |count: f64, length: f64| count * (count / length).ln();
        let ratio = 2.0 * (likelihood(before, time) + likelihood(after, end - time) - likelihood(all, end));
        if ratio > best {
            (best, found) = (ratio, Some(time));
        }
    }
    found
}

/// A line, and how fast what it allocated and did not free adds up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeepingLine {
    /// An estimate.
    pub bytes_per_s: f64,
    /// The rate lies in here with 95 % confidence.
    pub bytes_per_s_interval: (f64, f64),
    /// Samples behind it.
    pub samples: u64,
    /// The function and its line.
    pub line: Frame,
    /// The callers in the stack that keeps most, the nearest first.
    pub callers: Vec<Frame>,
}

/// What all lines of a watch keep, by its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeptInAll {
    /// An estimate.
    pub bytes_per_s: f64,
    /// The rate lies in here with 95 % confidence.
    pub bytes_per_s_interval: (f64, f64),
    /// Samples behind it.
    pub samples: u64,
}

/// None: nothing was kept.
pub fn kept_in_all(stacks: &[KeptAtStack]) -> Option<KeptInAll> {
    let mut all = KeptAtStack::default();
    stacks.iter().for_each(|stack| all.extend(stack));
    let interval = (all.samples > 0).then(|| all.interval())?;
    Some(KeptInAll { bytes_per_s: all.bytes_per_s, bytes_per_s_interval: interval, samples: all.samples })
}

/// The lines that stacks lead to, the fastest first.
pub fn keeping_lines(stacks: &[KeptAtStack]) -> Vec<KeepingLine> {
    let mut by_line: BTreeMap<&Frame, (KeptAtStack, &KeptAtStack)> = BTreeMap::new();
    for stack in stacks {
        let Some(line) = stack.frames.get(sites::telling_frame(&stack.frames)) else { continue };
        let (sum, most) = by_line.entry(line).or_insert_with(|| (KeptAtStack::default(), stack));
        sum.extend(stack);
        if stack.bytes_per_s > most.bytes_per_s {
            *most = stack;
        }
    }
    let line = |(line, (sum, most)): (&Frame, (KeptAtStack, &KeptAtStack))| KeepingLine {
        bytes_per_s: sum.bytes_per_s,
        bytes_per_s_interval: sum.interval(),
        samples: sum.samples,
        line: line.clone(),
        callers: most.frames[sites::telling_frame(&most.frames) + 1..].to_vec(),
    };
    let mut lines: Vec<KeepingLine> = by_line.into_iter().map(line).collect();
    lines.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;

    fn stack(samples: &[f64], frames: &[(&str, u32)]) -> KeptAtStack {
        let frame = |(name, line): &(&str, u32)| Frame::new(*name, "a.rb", *line);
        let mut stack = KeptAtStack { frames: frames.iter().map(frame).collect(), ..KeptAtStack::default() };
        samples.iter().for_each(|bytes_per_s| stack.add(*bytes_per_s, *bytes_per_s));
        stack
    }

    #[test]
    fn stacks_that_lead_to_a_line_add_up() {
        let stacks = [
            stack(&[10.0; 3], &[("malloc'ing", 0), ("keep", 7), ("one", 1)]),
            stack(&[20.0, 20.0, 30.0], &[("keep", 7), ("two", 2)]),
            stack(&[5.0], &[("native", 0)]),
        ];
        let lines = keeping_lines(&stacks);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].bytes_per_s, lines[0].samples), (100.0, 6));
        assert_eq!((lines[0].line.function.as_str(), lines[0].callers[0].function.as_str()), ("keep", "two"));
        let (low, high) = lines[0].bytes_per_s_interval;
        assert!(low > 30.0 && low < 50.0 && high > 200.0 && high < 260.0, "{low} {high}");
    }

    /// Of tables of Garwood's intervals: for 1, 10 and 100 events.
    #[test]
    fn intervals_of_equal_samples_are_those_of_a_poisson_count() {
        for (samples, low, high) in [(1, 0.0253, 5.572), (10, 4.795, 18.390), (100, 81.364, 121.627)] {
            let (found_low, found_high) = stack(&vec![7.0; samples], &[]).interval();
            assert!(
                (found_low / 7.0 - low).abs() < 1e-3 && (found_high / 7.0 - high).abs() < 1e-3,
                "{samples}"
            );
        }
    }

    #[test]
    fn intervals_have_two_ends_that_enclose_the_rate() {
        let mut random = Random::new(7);
        for samples in (1..400).chain([1_000, 10_000, 100_000]) {
            let scale = random.log_between(1.0, 1e8);
            let weights: Vec<f64> = (0..samples).map(|_| scale * random.between(1.0, 2.0)).collect();
            let stack = stack(&weights, &[]);
            let (low, high) = stack.interval();
            let holds =
                low.is_finite() && high.is_finite() && low < stack.bytes_per_s && stack.bytes_per_s < high;
            assert!(holds, "{samples} samples of {scale}: {low} {} {high}", stack.bytes_per_s);
        }
    }

    /// Born at random, `rate` a second, of those that live at the end.
    fn births(random: &mut Random, rate: f64, from: f64, to: f64) -> Vec<(f64, f64)> {
        let mut births = Vec::new();
        let mut time = from;
        loop {
            time += -(1.0 - random.between(0.0, 1.0)).ln() / rate;
            if time >= to {
                return births;
            }
            births.push((time, random.between(1.0, 2.0)));
        }
    }

    #[test]
    fn garbage_since_the_last_collection_does_not_count_as_kept() {
        let mut random = Random::new(11);
        let (mut even, mut cut, mut twice) = (0, 0, 0);
        for _ in 0..200 {
            let kept = births(&mut random, 8.0, 0.0, 8.0);
            even += u32::from(kept_until(kept.clone(), 8.0) == 6.0);
            // Collected at 5 s.
            let garbage = births(&mut random, 40.0, 5.0, 8.0);
            let until = kept_until([kept.clone(), garbage.clone()].concat(), 8.0);
            cut += u32::from((3.0..5.5).contains(&until));
            // And old objects at 2.5 s.
            let old = births(&mut random, 16.0, 2.5, 5.0);
            let until = kept_until([kept, old, garbage].concat(), 8.0);
            twice += u32::from((1.0..3.5).contains(&until));
        }
        // Of 200. The rise is found at the first births after it, and sometimes a few later.
        assert!(even >= 190 && cut >= 190 && twice >= 160, "{even} {cut} {twice}");
    }

    #[test]
    fn few_births_are_cut_by_age_alone() {
        assert_eq!(kept_until(vec![], 8.0), 6.0);
        assert_eq!(kept_until(vec![(7.0, 1.0), (7.5, 1.0), (7.9, 1.0)], 8.0), 6.0);
        // All at once, late: there is nothing before.
        assert_eq!(
            kept_until((0..100).map(|index| (7.0 + f64::from(index) / 200.0, 1.0)).collect(), 8.0),
            6.0
        );
    }

    /// Samples of blocks of several sizes, at two means: the truth lies in 95 % of the intervals, or a little more.
    #[test]
    fn intervals_hold_the_truth() {
        let mut random = Random::new(7);
        for truth in [2.0, 6.0, 20.0, 80.0] {
            let held = (0..2000).filter(|_| {
                let mut stack = KeptAtStack::default();
                for weight in [0.5, 1.0, 3.0] {
                    let mut left = truth / 3.0 / weight + random.between(0.0, 1.0).ln();
                    while left > 0.0 {
                        stack.add(weight, weight);
                        left += random.between(0.0, 1.0).ln();
                    }
                }
                let (low, high) = stack.interval();
                stack.samples == 0 || (low..=high).contains(&truth)
            });
            let share = held.count() as f64 / 2000.0;
            assert!((0.94..1.0).contains(&share), "{share} of {truth}");
        }
    }
}
