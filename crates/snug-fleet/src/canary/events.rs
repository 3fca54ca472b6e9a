//! Restarts and kills of two groups of pods. A pod counts once, however often it restarts: one that fails to start again
//! and again is one event of the fleet's. The share of such pods is exact (Clopper and Pearson), whatever the numbers.

use statrs::distribution::{Beta, ContinuousCDF};

use crate::canary::{Answer, Judgement};

/// Fewer pods with an event say nothing.
const PODS_LEAST: u64 = 4;

/// What happened in a group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Happened {
    pub events: f64,
    /// Pods that had any.
    pub pods: u64,
    /// How long all pods were watched together, each until its first event, in s.
    pub watched_s: f64,
}

/// How often events met pods of the canary, compared with those of the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct EventEffect {
    /// How many times the baseline; None if that has none.
    pub ratio: Option<f64>,
    /// Its 95 % interval, of one look; None for an end that nothing bounds.
    pub interval: (f64, Option<f64>),
    /// The wider one from which the answer follows.
    pub decisive: (f64, Option<f64>),
    pub answer: Answer,
}

/// Compares the groups; None if there are too few pods to which anything happened, or a group was not watched.
pub fn compare(canary: Happened, baseline: Happened, judgement: Judgement) -> Option<EventEffect> {
    let all = canary.pods + baseline.pods;
    if all < PODS_LEAST || canary.watched_s <= 0.0 || baseline.watched_s <= 0.0 {
        return None;
    }
    let times = baseline.watched_s / canary.watched_s;
    let ratio_of = |share: f64| (share < 1.0).then(|| share / (1.0 - share) * times);
    let around = |tail: f64| {
        let (low, high) = share_interval(canary.pods, all, tail);
        (ratio_of(low).unwrap_or(0.0), ratio_of(high))
    };
    // Both ends, and as looks are many, only half of that.
    let decisive = around(judgement.alpha / 4.0);
    let ratio = ratio_of(canary.pods as f64 / all as f64);
    let is = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
    let answer = judgement.answer(is(ratio), (decisive.0, is(decisive.1)));
    Some(EventEffect { ratio, interval: around(0.025), decisive, answer })
}

/// Of a share of so many, with this probability beyond either end. An end beyond a value means that the binomial
/// distribution of that value has less than `tail` there.
fn share_interval(part: u64, all: u64, tail: f64) -> (f64, f64) {
    let quantile = |a: u64, b: u64, probability: f64| {
        Beta::new(a as f64, b as f64).map_or(f64::NAN, |beta| beta.inverse_cdf(probability))
    };
    let low = if part == 0 { 0.0 } else { quantile(part, all - part + 1, tail) };
    let high = if part == all { 1.0 } else { quantile(part + 1, all - part, 1.0 - tail) };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGEMENT: Judgement = Judgement { effect: 0.1, tolerance: 0.02, alpha: 0.00625 };

    fn happened(pods: u64, hours: f64) -> Happened {
        Happened { events: pods as f64, pods, watched_s: hours * 3600.0 }
    }

    #[test]
    fn shares_are_clopper_and_pearsons() {
        let (low, high) = share_interval(2, 10, 0.025);
        assert!((low - 0.0252).abs() < 5e-4 && (high - 0.5561).abs() < 5e-4, "{low} {high}");
        assert_eq!((share_interval(0, 5, 0.025).0, share_interval(5, 5, 0.025).1), (0.0, 1.0));
    }

    #[test]
    fn rates_are_compared_not_counts() {
        // Ten times as long, ten times as many.
        let same = compare(happened(4, 100.0), happened(40, 1000.0), JUDGEMENT).unwrap();
        assert!((same.ratio.unwrap() - 1.0).abs() < 1e-9 && same.answer == Answer::NotEnoughData);
        let worse = compare(happened(12, 100.0), happened(3, 1000.0), JUDGEMENT).unwrap();
        assert!(worse.answer == Answer::Worse && worse.interval.0 > 5.0);
        let better = compare(happened(0, 500.0), happened(30, 500.0), JUDGEMENT).unwrap();
        assert_eq!((better.answer, better.ratio, better.interval.0), (Answer::Better, Some(0.0), 0.0));
        assert_eq!(compare(happened(0, 9.0), happened(0, 9.0), JUDGEMENT), None);
        assert_eq!(compare(happened(3, 9.0), happened(0, 9.0), JUDGEMENT), None, "3 pods say nothing");
        let unbounded = compare(happened(4, 9.0), happened(0, 9.0), JUDGEMENT).unwrap();
        assert_eq!(
            (unbounded.ratio, unbounded.interval.1, unbounded.answer),
            (None, None, Answer::NotEnoughData)
        );
    }
}
