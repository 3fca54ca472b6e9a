//! Statistics over a handful of runs. Pure.
//!
//! Intervals hold the true value with 95 % probability. Where there are runs enough they ask nothing of the
//! distribution: the median's is made of order statistics (Conover, Practical Nonparametric Statistics, 3rd ed., 3.2),
//! a ratio's that of Hodges and Lehmann, by the distribution of Mann and Whitney (Hollander, Wolfe and Chicken,
//! Nonparametric Statistical Methods, 3rd ed., 4.2 and 4.3). Fewer than 6 runs, or 4 of each, can't give 95 % that way:
//! then they are Student's and, of the logarithms, Welch's, which suppose that runs scatter evenly to both sides.

#![warn(missing_docs)]

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

/// A quantity over the runs of one allocator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle value.
    pub median: f64,
    /// Of the sample; None for one run.
    pub standard_deviation: Option<f64>,
    /// 95 % confidence interval of the mean; None for one run.
    pub interval: Option<(f64, f64)>,
    /// 95 % confidence interval of the median; None for one run or two.
    #[serde(default)]
    pub median_interval: Option<(f64, f64)>,
    /// How many times the baseline it is, where there is one.
    pub ratio: Option<Ratio>,
}

/// How many times the baseline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Of the medians.
    pub value: f64,
    /// 95 % confidence interval; None for one run.
    pub interval: Option<(f64, f64)>,
    /// How probable such a difference is if only chance makes it; None for one run.
    #[serde(default)]
    pub p_value: Option<f64>,
    /// The same, corrected for the number of ratios that the report shows; None of those it does not show, and of the
    /// one that the comparison is about.
    #[serde(default)]
    pub adjusted_p_value: Option<f64>,
}

impl Ratio {
    /// The interval holds 1: neither less nor more is shown.
    pub fn holds_one(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low <= 1.0 && high >= 1.0)
    }

    /// What the interval says of differences that matter from `EFFECT` on; None if there is no interval.
    pub fn meaning(&self) -> Option<Meaning> {
        self.interval.map(|interval| meaning(interval, EFFECT))
    }

    /// The interval does not hold 1, and yet chance makes one such difference among as many as are shown.
    pub fn may_be_chance(&self) -> bool {
        !self.holds_one() && self.adjusted_p_value.is_some_and(|p_value| p_value >= 0.05)
    }
}

/// A difference that matters, if nothing else was asked for: a tenth. More is what "no difference" rules out.
pub const EFFECT: f64 = 0.1;

/// What the interval of a ratio says, in every command alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// All of it lies below 1.
    Less,
    /// Or above.
    More,
    /// Neither, and what differs by more than the effect is ruled out.
    NoDifference,
    /// It leaves none, and one that large.
    NotEnoughData,
}

/// What an interval says. Words follow from numbers as they are printed, so these come here.
pub fn meaning((low, high): (f64, f64), effect: f64) -> Meaning {
    match () {
        () if low > 1.0 => Meaning::More,
        () if high < 1.0 => Meaning::Less,
        () if !exceeds(low, effect) && !exceeds(high, effect) => Meaning::NoDifference,
        () => Meaning::NotEnoughData,
    }
}

/// Whether a ratio differs from 1 by more than this, in the numbers that are printed: 1.1 and 0.9 are not more than 0.1.
pub fn exceeds(ratio: f64, effect: f64) -> bool {
    const ROUNDING: f64 = 1e-9;
    (ratio - 1.0).abs() > effect + ROUNDING
}

/// Probability that an interval holds the true value.
const CONFIDENCE: f64 = 0.95;
/// Probability that it lies below the interval, and above.
const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;
/// With more pairs than this the distribution of Mann and Whitney is taken as normal.
const EXACT_PAIRS_MAX: usize = 900;

/// Mean, median, spread and intervals of the values; None if there are none.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let mean = mean(values);
    let standard_deviation = (values.len() > 1).then(|| variance(values).sqrt());
    let interval = standard_deviation.map(|deviation| {
        let count = values.len() as f64;
        let half = student(count - 1.0) * deviation / count.sqrt();
        (mean - half, mean + half)
    });
    let median = median(values);
    let median_interval = order_interval(values).or_else(|| {
        // Of two runs Student's says nothing: it reaches from below zero to ten times the median and more.
        let (low, high) = interval.filter(|_| values.len() > 2)?;
        let half = (high - low) / 2.0;
        Some((median - half, median + half))
    });
    Some(Estimate { mean, median, standard_deviation, interval, median_interval, ratio: None })
}

/// The narrowest pair of values, counted from both ends, that holds the median; None if even the outermost do not.
fn order_interval(values: &[f64]) -> Option<(f64, f64)> {
    let below = Binomial::new(0.5, values.len() as u64).ok()?;
    let outside = (0..values.len() / 2).take_while(|rank| below.cdf(*rank as u64) <= TAIL).last()?;
    let sorted = sorted(values);
    Some((sorted[outside], sorted[sorted.len() - 1 - outside]))
}

/// How many times `baseline` the `values` are, median to median, so that everybody can work it out from the two numbers
/// that are shown. The interval is that of a factor between both: it need not lie evenly around the ratio, but holds it.
/// None unless all values are positive.
pub fn ratio(values: &[f64], baseline: &[f64]) -> Option<Ratio> {
    let logarithms = |values: &[f64]| -> Option<Vec<f64>> {
        let positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
        positive.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let value = median(values) / median(baseline);
    let (values, baseline) = (logarithms(values)?, logarithms(baseline)?);
    let holding = |(low, high): (f64, f64)| (low.exp().min(value), high.exp().max(value));
    let differences: Vec<f64> =
        values.iter().flat_map(|value| baseline.iter().map(move |other| value - other)).collect();
    if let Some(outside) = pairs_outside(values.len(), baseline.len()) {
        let sorted = sorted(&differences);
        let interval = holding((sorted[outside], sorted[sorted.len() - 1 - outside]));
        let p_value = Some(welch_p_value(&values, &baseline));
        return Some(Ratio { value, interval: Some(interval), p_value, ..Ratio::default() });
    }
    let difference = mean(&differences);
    let interval = (values.len() > 1 && baseline.len() > 1).then(|| {
        let half = welch_half_width(&values, &baseline);
        holding((difference - half, difference + half))
    });
    let p_value = interval.map(|_| welch_p_value(&values, &baseline));
    Some(Ratio { value, interval, p_value, ..Ratio::default() })
}

/// How many of all pairwise differences of two samples lie outside of the interval of their shift, at either end;
/// None if the samples are too small.
fn pairs_outside(left: usize, right: usize) -> Option<usize> {
    let pairs = left * right;
    if pairs > EXACT_PAIRS_MAX {
        let (pairs, all) = (pairs as f64, (left + right + 1) as f64);
        let quantile = Normal::new(0.0, 1.0).ok()?.inverse_cdf(1.0 - TAIL);
        return Some((pairs / 2.0 - quantile * (pairs * all / 12.0).sqrt()).max(0.0) as usize);
    }
    // ways[u]: arrangements of both samples in which u pairs are inverted, by the coefficients of the Gaussian
    // binomial, product over i of (1 - q^(right + i)) / (1 - q^i).
    let mut ways = vec![0.0; pairs + 1];
    ways[0] = 1.0;
    for index in 1..=left {
        for inverted in (right + index..=pairs).rev() {
            ways[inverted] -= ways[inverted - right - index];
        }
        for inverted in index..=pairs {
            ways[inverted] += ways[inverted - index];
        }
    }
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let likely = |count: &f64| {
        below += count / all;
        below > TAIL
    };
    ways.iter().position(likely)?.checked_sub(1)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The standard error of the difference of two means, and its degrees of freedom; None if nothing scatters.
fn welch(left: &[f64], right: &[f64]) -> Option<(f64, f64)> {
    let squared_error = |values: &[f64]| variance(values) / values.len() as f64;
    let (left_error, right_error) = (squared_error(left), squared_error(right));
    let total = left_error + right_error;
    let part = |error: f64, values: &[f64]| error * error / (values.len() as f64 - 1.0);
    let freedom = total * total / (part(left_error, left) + part(right_error, right));
    (total > 0.0).then_some((total.sqrt(), freedom))
}

/// Half the width of the confidence interval of the difference of two means.
fn welch_half_width(left: &[f64], right: &[f64]) -> f64 {
    welch(left, right).map_or(0.0, |(error, freedom)| student(freedom) * error)
}

/// How probable means are that differ so much, if only chance parts them. By Welch's test however many runs there are:
/// the smallest value that ranks of 5 runs can give is too large to be corrected for many tests.
fn welch_p_value(left: &[f64], right: &[f64]) -> f64 {
    let difference = (mean(left) - mean(right)).abs();
    let Some((error, freedom)) = welch(left, right) else { return f64::from(difference == 0.0) };
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) => 2.0 * (1.0 - distribution.cdf(difference / error)),
        Err(_) => 1.0,
    }
}

/// Probabilities corrected for their number, by Holm's method: with those below 5 % called differences, chance makes
/// one or more of all in at most 5 % of comparisons, however they depend on each other.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|left, right| p_values[*left].total_cmp(&p_values[*right]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        highest = highest.max(p_values[index] * (p_values.len() - rank) as f64).min(1.0);
        corrected[index] = highest;
    }
    corrected
}

/// The two-sided quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) => distribution.inverse_cdf(1.0 - TAIL),
        Err(_) => f64::INFINITY,
    }
}

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Middle value, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// Mean over time of values that change evenly from one moment to the next; the last holds until `end`.
pub fn time_weighted_mean(times: &[f64], values: &[u64], end: f64) -> f64 {
    let Some(first) = values.first().map(|value| *value as f64) else { return 0.0 };
    // Above the first value: rounding then leaves a value that stays the same as it is.
    let (mut area, mut length) = (0.0, 0.0);
    for (index, (time, value)) in times.iter().zip(values).enumerate() {
        let until = times.get(index + 1).copied().unwrap_or(end.max(*time));
        let next = values.get(index + 1).unwrap_or(value);
        area += ((*value as f64 + *next as f64) / 2.0 - first) * (until - time);
        length += until - time;
    }
    if length > 0.0 {
        first + area / length
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-3 * right.abs().max(1.0)
    }

    #[test]
    fn three_runs_give_a_wide_interval() {
        let estimate = estimate(&[10.0, 11.0, 12.0]).unwrap();
        assert_eq!((estimate.mean, estimate.median, estimate.standard_deviation), (11.0, 11.0, Some(1.0)));
        let (low, high) = estimate.interval.unwrap();
        // t(2) at 97.5 % is 4.303.
        assert!(close(low, 11.0 - 4.303 / 3f64.sqrt()) && close(high, 11.0 + 4.303 / 3f64.sqrt()));
    }

    #[test]
    fn one_run_gives_none() {
        let estimate = estimate(&[10.0]).unwrap();
        assert_eq!((estimate.standard_deviation, estimate.interval), (None, None));
        let single = ratio(&[5.0], &[10.0]).unwrap();
        assert!(close(single.value, 0.5) && single.interval.is_none());
        assert!(super::estimate(&[]).is_none());
    }

    #[test]
    fn ratios_with_and_without_difference() {
        let clear = ratio(&[50.0, 51.0, 49.0], &[100.0, 101.0, 99.0]).unwrap();
        let (low, high) = clear.interval.unwrap();
        assert!(close(clear.value, 0.5) && low > 0.45 && high < 0.55);
        let noise = ratio(&[90.0, 110.0, 100.0], &[100.0, 95.0, 108.0]).unwrap();
        let (low, high) = noise.interval.unwrap();
        assert!(low < 1.0 && high > 1.0);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
        let (low, high) = ratio(&[2.0, 2.0], &[1.0, 1.0]).unwrap().interval.unwrap();
        assert!(close(low, 2.0) && close(high, 2.0));
    }

    #[test]
    fn six_runs_bound_their_median_by_themselves() {
        let interval = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            estimate(&values).unwrap().median_interval.unwrap()
        };
        // Ranks as in Conover's table: 1 and 6 of 6 (96.9 %), 2 and 9 of 10 (97.9 %), 6 and 15 of 20 (95.9 %).
        assert_eq!((interval(6), interval(10), interval(20)), ((1.0, 6.0), (2.0, 9.0), (6.0, 15.0)));
        assert!(order_interval(&[1.0; 5]).is_none());
        let (low, high) = interval(3);
        assert!(close(low, 2.0 - 4.303 / 3f64.sqrt()) && close(high, 2.0 + 4.303 / 3f64.sqrt()));
    }

    #[test]
    fn pairs_as_in_the_tables() {
        // Critical values of U, two-sided at 5 %: 0 for 4 and 4, 2 for 5 and 5, 5 for 6 and 6, 23 for 10 and 10.
        assert_eq!(pairs_outside(3, 3), None);
        assert_eq!(pairs_outside(1, 9), None);
        assert_eq!(
            [(4, 4), (5, 5), (6, 6), (10, 10)].map(|(m, n)| pairs_outside(m, n)),
            [0, 2, 5, 23].map(Some)
        );
        assert_eq!(pairs_outside(3, 5), Some(0));
        // The normal approximation joins smoothly: 317 is exact for 30 and 30.
        assert_eq!(pairs_outside(30, 30), Some(317));
        assert!((335..345).contains(&pairs_outside(31, 31).unwrap()));
    }

    #[test]
    fn one_bad_run_does_not_move_a_ratio() {
        let good = [50.0, 51.0, 49.0, 50.5, 49.5, 50.2, 49.8];
        let values: Vec<f64> = good.into_iter().chain([400.0]).collect();
        let baseline: Vec<f64> = good.into_iter().chain([50.0]).map(|value| 2.0 * value).collect();
        let outlier = ratio(&values, &baseline).unwrap();
        let (low, high) = outlier.interval.unwrap();
        assert!((0.49..0.51).contains(&outlier.value), "{outlier:?}");
        assert!(low > 0.48 && high < 0.52 && !outlier.holds_one(), "{outlier:?}");
    }

    /// Values that scatter like a normal distribution's: sums of twelve uniform ones.
    fn scatter(seed: &mut u64) -> f64 {
        let mut uniform = || {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*seed >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut seed = 7;
        for runs in [3, 5, 8] {
            let mut sample = || -> Vec<f64> { (0..runs).map(|_| 100.0 + 5.0 * scatter(&mut seed)).collect() };
            let (mut ratios, mut medians) = (0, 0);
            for _ in 0..2000 {
                let values = sample();
                let (low, high) = estimate(&values).unwrap().median_interval.unwrap();
                medians += u32::from(low <= 100.0 && high >= 100.0);
                ratios += u32::from(ratio(&values, &sample()).unwrap().holds_one());
            }
            // 95 % of 2000 is 1900; three standard deviations are 30. Student's, moved to the median of few runs, is
            // a little less certain than around their mean.
            assert!(ratios >= 1870 && medians >= 1850, "{runs} runs: {ratios}, {medians}");
        }
    }

    #[test]
    fn probabilities_are_those_of_the_intervals() {
        let mut seed = 11;
        for _ in 0..200 {
            let mut sample =
                |centre: f64| -> Vec<f64> { (0..3).map(|_| centre + 5.0 * scatter(&mut seed)).collect() };
            let ratio = ratio(&sample(100.0), &sample(110.0)).unwrap();
            let (low, high) = ratio.interval.unwrap();
            // The interval may be stretched to hold the ratio of medians.
            if low < ratio.value && ratio.value < high {
                assert_eq!(ratio.holds_one(), ratio.p_value.unwrap() >= 0.05, "{ratio:?}");
            }
        }
        assert_eq!(ratio(&[2.0, 2.0], &[1.0, 1.0]).unwrap().p_value, Some(0.0));
        assert_eq!(ratio(&[2.0, 2.0], &[2.0, 2.0]).unwrap().p_value, Some(1.0));
        assert_eq!(ratio(&[2.0], &[2.0]).unwrap().p_value, None);
    }

    #[test]
    fn many_tests_are_corrected_for() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{corrected:?}");
        }
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn time_counts_in_means() {
        assert_eq!(time_weighted_mean(&[0.0, 1.0], &[10, 20], 4.0), (15.0 + 60.0) / 4.0);
        assert_eq!(time_weighted_mean(&[0.5], &[10], 0.5), 10.0);
        assert_eq!(time_weighted_mean(&[], &[], 1.0), 0.0);
        let times: Vec<f64> = (0..50).map(|index| f64::from(index) / 7.0).collect();
        assert_eq!(time_weighted_mean(&times, &[11_993_088; 50], 7.3), 11_993_088.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
