//! The tolerance bound: how far above the mean of a sample it must lie, to be above nearly all of what the sample was
//! drawn from.

use std::cell::RefCell;
use std::collections::HashMap;

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

/// Points of the distribution of a variance that are summed over; each has the same weight.
const POINTS: usize = 400;
const STEPS: usize = 40;
const FACTOR_MOST: f64 = 1000.0;

/// The one-sided tolerance factor of a normal distribution: mean + factor x standard deviation of `count` values is, with
/// this confidence, above this share of all values.
///
/// `count`: 2 or more. `share` and `confidence`: above 0.5, below 1.
pub(crate) fn factor(count: usize, share: f64, confidence: f64) -> f64 {
    thread_local! {
        // Each takes milliseconds, and kinds of containers often have as many pods as others.
        static KNOWN: RefCell<HashMap<(usize, u64, u64), f64>> = RefCell::default();
    }
    let key = (count, share.to_bits(), confidence.to_bits());
    let known = KNOWN.with_borrow(|known| known.get(&key).copied());
    known.unwrap_or_else(|| {
        let found = solve(count, share, confidence);
        KNOWN.with_borrow_mut(|known| known.insert(key, found));
        found
    })
}

fn solve(count: usize, share: f64, confidence: f64) -> f64 {
    let normal = Normal::standard();
    let degrees = (count - 1) as f64;
    let chi_squared = ChiSquared::new(degrees).expect("there are two values");
    // Standard deviations of such samples, as multiples of the true one.
    let deviations: Vec<f64> = (0..POINTS)
        .map(|point| (chi_squared.inverse_cdf((point as f64 + 0.5) / POINTS as f64) / degrees).sqrt())
        .collect();
    let root = (count as f64).sqrt();
    let shift = normal.inverse_cdf(share) * root;
    let holds = |factor: f64| {
        let of_each = deviations.iter().map(|deviation| normal.cdf(factor * root * deviation - shift));
        of_each.sum::<f64>() / POINTS as f64 >= confidence
    };
    let (mut low, mut high) = (0.0, FACTOR_MOST);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        *(if holds(middle) { &mut high } else { &mut low }) = middle;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_published_tables() {
        // ISO 16269-6, table D.4: mean and standard deviation unknown, one-sided, 95 %.
        for (count, share, expected) in [
            (5, 0.90, 3.407),
            (5, 0.99, 5.741),
            (10, 0.90, 2.355),
            (10, 0.95, 2.911),
            (10, 0.99, 3.981),
            (20, 0.99, 3.295),
            (50, 0.95, 2.065),
        ] {
            let found = factor(count, share, 0.95);
            assert!((found / expected - 1.0).abs() < 0.005, "{count}, {share}: {found}, not {expected}");
        }
    }
}
