//! A ratio as a reader sees it, beside the two numbers that it is worked out from (docs/decisions/0021). Pure.

use crate::quantities::Quantity;
use crate::results::Comparison;
use snug_base::terminal::{number_in, short_count, three_digits};
use snug_stats::{Estimate, Ratio};

/// A value of a quantity in the unit that is shown, without the unit.
pub fn number(quantity: &Quantity, value: f64) -> String {
    match quantity.unit {
        "" if value.abs() >= 1e4 => short_count(value),
        // Three threads are not 3.00.
        "" if value.fract() == 0.0 => format!("{value:.0}"),
        _ => three_digits(value * quantity.factor),
    }
}

/// The value that a reader sees, in the unit that is shown.
pub fn shown_value(quantity: &Quantity, value: f64) -> Option<f64> {
    number_in(&number(quantity, value))
}

/// A measured ratio as a reader sees it, beside both values: of what is shown of them, with the digits that are printed
/// and an interval that is widened to hold it. What is said of a ratio is said of this one, and so agrees with what is
/// printed: values that look alike do not differ. None where what is shown can't be divided by.
pub fn of(quantity: &Quantity, own: f64, other: f64, measured: Ratio) -> Option<Ratio> {
    of_shown(shown_value(quantity, own)?, shown_value(quantity, other)?, measured)
}

/// The same, of what is shown of both values.
pub fn of_shown(own: f64, other: f64, measured: Ratio) -> Option<Ratio> {
    let read = |text: String| text.parse::<f64>().unwrap_or(f64::NAN);
    let value = read(two_decimals(own / other));
    let holding = |(low, high)| (read(interval_end(low)).min(value), read(interval_end(high)).max(value));
    (other > 0.0).then(|| Ratio { value, interval: measured.interval.map(holding), ..measured })
}

/// The ratio of an allocator to the baseline, as a reader sees it; None where there is none.
pub fn to_baseline(quantity: &Quantity, own: &Estimate, baseline: Option<&Estimate>) -> Option<Ratio> {
    of(quantity, own.median, baseline?.median, own.ratio?)
}

/// The same, by the allocator's label.
pub fn of_allocator(comparison: &Comparison, label: &str, quantity: &Quantity) -> Option<Ratio> {
    let estimate = |label: &str| comparison.estimate(label, &quantity.name);
    to_baseline(quantity, estimate(label)?, estimate(&comparison.summary.baseline))
}

/// A ratio as text.
pub fn times(ratio: Ratio) -> String {
    two_decimals(ratio.value)
}

fn two_decimals(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// What is said of an interval so wide that its ends say nothing.
pub const TOO_WIDE: &str = "too wide to tell";

/// Whether an interval says more than that the runs differ too much.
pub fn is_telling((low, high): (f64, f64)) -> bool {
    /// Its high end divided by its low one.
    const WIDEST: f64 = 4.0;
    low > 1.0 || high < 1.0 || high <= low * WIDEST
}

/// An end of an interval as text: with as many decimals as a ratio, or with some more that tell it from 1.
pub fn interval_end(end: f64) -> String {
    let text = two_decimals(end);
    if text != "1.00" || end == 1.0 {
        return text;
    }
    let mut longer = (3..=4).map(|decimals| format!("{end:.decimals$}"));
    longer.find(|text| text.parse::<f64>() != Ok(1.0)).unwrap_or(text)
}

/// The interval of a ratio as text; empty if there is none.
pub fn interval(ratio: Ratio) -> String {
    match ratio.interval {
        Some((low, high)) if is_telling((low, high)) => {
            format!("{} to {}", interval_end(low), interval_end(high))
        }
        Some(_) => TOO_WIDE.into(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantities::{named, Wanted};
    use crate::view::{verdict, Difference};
    use snug_base::random::Random;
    use std::collections::BTreeMap;

    fn exact(value: f64, interval: (f64, f64)) -> Ratio {
        Ratio { value, interval: Some(interval), ..Ratio::default() }
    }

    /// What is printed of a ratio, and what is said of it.
    fn printed(name: &str, own: f64, other: f64, interval_of: (f64, f64)) -> (String, String, Difference) {
        let ratio = of(&named(name), own, other, exact(own / other, interval_of)).unwrap();
        (times(ratio), interval(ratio), verdict(Some(ratio), Some(Wanted::Less)))
    }

    #[test]
    fn a_ratio_lies_in_its_interval_and_the_word_says_the_same() {
        let shown = |times: &str, interval: &str, verdict| (times.to_string(), interval.to_string(), verdict);
        // 0.145 ms both, 150 MB both, 101 and 100 MB.
        let p50 = printed("latency_p50_s", 1.451e-4, 1.449e-4, (0.99, 1.01));
        assert_eq!(p50, shown("1.00", "0.99 to 1.01", Difference::Same));
        let steady = printed("rss_mean_bytes", 150.4e6, 149.6e6, (1.0053, 1.0055));
        assert_eq!(steady, shown("1.00", "1.00 to 1.01", Difference::Same));
        let apart = printed("rss_mean_bytes", 100.6e6, 100.4e6, (1.001, 1.003));
        assert_eq!(apart, shown("1.01", "1.001 to 1.01", Difference::Worse));
        let below = printed("rss_mean_bytes", 98.7e6, 100e6, (0.98, 0.9963));
        assert_eq!(below, shown("0.99", "0.98 to 0.996", Difference::Better));
        assert_eq!([1.0, 1.00001, 0.99996, 1.0004].map(interval_end), ["1.00", "1.00", "1.00", "1.0004"]);
        let nothing = of(&named("rss_mean_bytes"), 5.0, 0.1, exact(50.0, (40.0, 60.0)));
        assert_eq!(nothing, None, "0.00 MB is nothing to divide by");
    }

    #[test]
    fn so_it_is_of_any_numbers() {
        let mut random = Random::new(3);
        let names = ["latency_p50_s", "rss_mean_bytes", "wall_s", "page_faults", "metric:rate_per_s"];
        let mut words = BTreeMap::new();
        for round in 0..20_000 {
            let name = names[round % names.len()];
            let unit = 1.0 / named(name).factor;
            let other = unit * random.log_between(1e-3, 2e3);
            let own = other * (0.003 * random.normal()).exp();
            let spread = random.log_between(1.001, 3.0);
            let mut end = || own / other * random.log_between(1.0 / spread, spread);
            let (one, another) = (end(), end());
            let interval_of = (one.min(another).min(own / other), one.max(another).max(own / other));
            let (times, interval, verdict) = printed(name, own, other, interval_of);
            *words.entry(verdict.class()).or_insert(0) += 1;
            if interval == TOO_WIDE {
                assert_eq!(verdict, Difference::NotEnoughData, "{name} {own} {other}: {interval_of:?}");
                continue;
            }
            let ends: Vec<f64> = interval.split(" to ").map(|end| end.parse().unwrap()).collect();
            let ratio: f64 = times.parse().unwrap();
            assert!(ends[0] <= ratio && ratio <= ends[1], "{name} {own} {other}: {times}, {interval}");
            let word = match () {
                () if ends[0] > 1.0 => Difference::Worse,
                () if ends[1] < 1.0 => Difference::Better,
                () if ends[0] >= 0.9 && ends[1] <= 1.1 => Difference::Same,
                () => Difference::NotEnoughData,
            };
            assert_eq!(verdict, word, "{name} {own} {other}: {times}, {interval}");
            // Nothing that the exact interval leaves open is called a difference.
            assert!(!verdict.is_shown() || interval_of.0 > 1.0 || interval_of.1 < 1.0);
        }
        assert!(words.len() == 4 && words.values().all(|count| *count > 300), "{words:?}");
    }
}
