//! Statistics over a handful of runs. Intervals are Student's; ratios are compared on a logarithmic scale by
//! Welch's method, which does not ask for equal spread. Pure.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::results::{Estimate, Ratio};

/// Probability that an interval holds the true value.
const CONFIDENCE: f64 = 0.95;

/// Mean, spread and interval of the values; None if there are none.
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
    Some(Estimate { mean, median: median(values), standard_deviation, interval, ratio: None })
}

/// How many times `baseline` the `values` are, by the ratio of geometric means. None unless all are positive.
pub fn ratio(values: &[f64], baseline: &[f64]) -> Option<Ratio> {
    let logarithms = |values: &[f64]| -> Option<Vec<f64>> {
        let positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
        positive.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let (values, baseline) = (logarithms(values)?, logarithms(baseline)?);
    let difference = mean(&values) - mean(&baseline);
    let interval = (values.len() > 1 && baseline.len() > 1).then(|| {
        let half = welch_half_width(&values, &baseline);
        ((difference - half).exp(), (difference + half).exp())
    });
    Some(Ratio { value: difference.exp(), interval })
}

/// Half the width of the confidence interval of the difference of two means.
fn welch_half_width(left: &[f64], right: &[f64]) -> f64 {
    let squared_error = |values: &[f64]| variance(values) / values.len() as f64;
    let (left_error, right_error) = (squared_error(left), squared_error(right));
    let total = left_error + right_error;
    if total == 0.0 {
        return 0.0;
    }
    let part = |error: f64, values: &[f64]| error * error / (values.len() as f64 - 1.0);
    let freedom = total * total / (part(left_error, left) + part(right_error, right));
    student(freedom) * total.sqrt()
}

/// The two-sided quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) => distribution.inverse_cdf(0.5 + CONFIDENCE / 2.0),
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
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
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
    let (mut area, mut length) = (0.0, 0.0);
    for (index, (time, value)) in times.iter().zip(values).enumerate() {
        let until = times.get(index + 1).copied().unwrap_or(end.max(*time));
        let next = values.get(index + 1).unwrap_or(value);
        area += (*value as f64 + *next as f64) / 2.0 * (until - time);
        length += until - time;
    }
    if length > 0.0 {
        area / length
    } else {
        values.first().map_or(0.0, |value| *value as f64)
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
    fn time_counts_in_means() {
        assert_eq!(time_weighted_mean(&[0.0, 1.0], &[10, 20], 4.0), (15.0 + 60.0) / 4.0);
        assert_eq!(time_weighted_mean(&[0.5], &[10], 0.5), 10.0);
        assert_eq!(time_weighted_mean(&[], &[], 1.0), 0.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
