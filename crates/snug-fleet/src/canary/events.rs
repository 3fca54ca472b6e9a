//! Restarts and kills of two groups of pods. A pod counts once, however often it restarts: one that fails to start again
//! and again is one event of the fleet's. The share of such pods is exact (Clopper and Pearson), whatever the numbers.

use statrs::distribution::{Beta, Binomial, ContinuousCDF, DiscreteCDF};

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
    /// Its 95 % interval; None for an end that nothing bounds.
    pub interval: (f64, Option<f64>),
    pub answer: Answer,
}

/// Compares the groups; None if nothing happened or nothing was watched.
pub fn compare(canary: Happened, baseline: Happened, judgement: Judgement) -> Option<EventEffect> {
    let all = canary.pods + baseline.pods;
    if all == 0 || canary.watched_s <= 0.0 || baseline.watched_s <= 0.0 {
        return None;
    }
    let times = baseline.watched_s / canary.watched_s;
    let ratio_of = |share: f64| (share < 1.0).then(|| share / (1.0 - share) * times);
    let (low, high) = share_interval(canary.pods, all);
    // If the groups do not differ each event meets the canary with this probability.
    let expected = 1.0 / (1.0 + times);
    let binomial = Binomial::new(expected, all).ok()?;
    let at_least = canary.pods.checked_sub(1).map_or(1.0, |below| 1.0 - binomial.cdf(below));
    let at_most = binomial.cdf(canary.pods);
    // Both ends, and as looks are many, only half of that.
    let level = judgement.alpha / 4.0;
    let answer = match () {
        () if all < PODS_LEAST => Answer::NotEnoughData,
        () if at_least < level => Answer::Worse,
        () if at_most < level => Answer::Better,
        () => Answer::NotEnoughData,
    };
    let ratio = ratio_of(canary.pods as f64 / all as f64);
    Some(EventEffect { ratio, interval: (ratio_of(low).unwrap_or(0.0), ratio_of(high)), answer })
}

fn share_interval(part: u64, all: u64) -> (f64, f64) {
    let quantile = |a: u64, b: u64, probability: f64| {
        Beta::new(a as f64, b as f64).map_or(f64::NAN, |beta| beta.inverse_cdf(probability))
    };
    let low = if part == 0 { 0.0 } else { quantile(part, all - part + 1, 0.025) };
    let high = if part == all { 1.0 } else { quantile(part + 1, all - part, 0.975) };
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
        let (low, high) = share_interval(2, 10);
        assert!((low - 0.0252).abs() < 5e-4 && (high - 0.5561).abs() < 5e-4, "{low} {high}");
        assert_eq!((share_interval(0, 5).0, share_interval(5, 5).1), (0.0, 1.0));
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
        let unbounded = compare(happened(3, 9.0), happened(0, 9.0), JUDGEMENT).unwrap();
        assert_eq!(
            (unbounded.ratio, unbounded.interval.1, unbounded.answer),
            (None, None, Answer::NotEnoughData)
        );
    }
}
