//! One axis of a chart: from values to places, and where its ticks are. Pure.

/// What an axis shows.
pub struct Axis {
    pub title: String,
    /// Follows a value where one is read off, as in "12.3 MB".
    pub unit: &'static str,
    scale: Scale,
}

enum Scale {
    /// Even steps.
    Linear { start: f64, end: f64 },
    /// Even factors, for values that span several powers of ten.
    Logarithmic { start: f64, end: f64 },
    /// Names at equal distances; value 0 is the first.
    Names(Vec<String>),
}

/// Part of the axis left free at either end of a range that does not begin at zero.
const MARGIN: f64 = 0.12;
/// A range of values is never stretched to fill the axis if it is narrower than this part of them: noise would look
/// like a difference.
const NARROWEST: f64 = 0.2;
/// Above this ratio of the largest to the smallest value, even steps hide the small ones.
const WIDE: f64 = 40.0;

impl Axis {
    /// An axis from zero that just reaches `largest`.
    pub fn from_zero(title: &str, unit: &'static str, largest: f64) -> Axis {
        let end = if largest > 0.0 { largest } else { 1.0 };
        Axis { title: title.into(), unit, scale: Scale::Linear { start: 0.0, end } }
    }

    /// An axis around positive values that need not begin at zero.
    pub fn around(title: &str, unit: &'static str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values.fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if low > high || high <= 0.0 {
            return Axis::from_zero(title, unit, 1.0);
        }
        let middle = (low + high) / 2.0;
        let half = ((high - low) / 2.0).max(middle * NARROWEST / 2.0) * (1.0 + 2.0 * MARGIN);
        let scale = Scale::Linear { start: (middle - half).max(0.0), end: middle + half };
        Axis { title: title.into(), unit, scale }
    }

    /// An axis from zero, or one with even factors if the values span powers of ten.
    pub fn fitting(title: &str, unit: &'static str, values: impl Iterator<Item = f64>) -> Axis {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive.fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if high <= low * WIDE {
            return Axis::from_zero(title, unit, high * 1.06);
        }
        let scale = Scale::Logarithmic { start: low * 0.8, end: high * 1.2 };
        Axis { title: format!("{title}, logarithmic"), unit, scale }
    }

    /// An axis of names.
    pub fn names(title: &str, names: Vec<String>) -> Axis {
        Axis { title: title.into(), unit: "", scale: Scale::Names(names) }
    }

    /// Where a value is: 0 at the start of the axis, 1 at its end.
    pub fn place(&self, value: f64) -> f64 {
        match &self.scale {
            Scale::Linear { start, end } => (value - start) / (end - start),
            Scale::Logarithmic { start, end } => (value.max(*start) / start).ln() / (end / start).ln(),
            Scale::Names(names) => (value + 0.5) / names.len().max(1) as f64,
        }
    }

    /// First and last value of an axis with even steps; None for the others.
    pub fn range(&self) -> Option<(f64, f64)> {
        match self.scale {
            Scale::Linear { start, end } => Some((start, end)),
            _ => None,
        }
    }

    /// Whether the axis begins at zero, as an axis of names does in its way.
    pub fn begins_at_zero(&self) -> bool {
        !matches!(self.scale, Scale::Linear { start, .. } | Scale::Logarithmic { start, .. } if start > 0.0)
    }

    /// Round values on the axis, about as many as asked for, with their labels.
    pub fn ticks(&self, about: usize) -> Vec<(f64, String)> {
        match &self.scale {
            Scale::Linear { start, end } => {
                let step = round_step((end - start) / about as f64);
                let (first, last) =
                    ((start / step).ceil() as i64, (end / step * (1.0 + 1e-9)).floor() as i64);
                (first..=last).map(|n| n as f64 * step).map(|tick| (tick, label(tick, step))).collect()
            }
            Scale::Logarithmic { start, end } => {
                let powers = (start.log10().floor() as i32)..=(end.log10().ceil() as i32);
                let all: Vec<f64> = powers
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)))
                    .collect();
                let inside: Vec<f64> =
                    all.into_iter().filter(|tick| (*start..=*end).contains(tick)).collect();
                inside.into_iter().map(|tick| (tick, label(tick, tick))).collect()
            }
            Scale::Names(names) => {
                names.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect()
            }
        }
    }
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(rough)
}

/// A tick with as many digits as its step needs.
fn label(tick: f64, step: f64) -> String {
    let digits = (0..=6).find(|digits| {
        let scaled = step * 10f64.powi(*digits);
        (scaled - scaled.round()).abs() < 1e-6 * scaled
    });
    format!("{tick:.*}", digits.unwrap_or(6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, about: usize) -> Vec<String> {
        axis.ticks(about).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Axis::from_zero("", "MB", 389.0), 6), ["0", "100", "200", "300"]);
        assert_eq!(labels(&Axis::from_zero("", "s", 0.9), 8)[1], "0.2");
        assert_eq!(labels(&Axis::from_zero("", "s", 2.0), 8)[1], "0.25");
        assert_eq!(Axis::from_zero("", "s", 0.0).range(), Some((0.0, 1.0)));
        assert_eq!(labels(&Axis::names("", vec!["p50".into(), "p99".into()]), 9), ["p50", "p99"]);
    }

    #[test]
    fn small_differences_stay_small() {
        let axis = Axis::around("", "", [100.0, 101.0].into_iter());
        assert!(axis.place(101.0) - axis.place(100.0) < 0.06);
        let axis = Axis::around("", "", [10.0, 90.0].into_iter());
        assert!(axis.place(10.0) > 0.05 && axis.place(90.0) < 0.95);
        assert_eq!(Axis::around("", "", std::iter::empty()).range(), Some((0.0, 1.0)));
    }

    #[test]
    fn wide_ranges_are_logarithmic() {
        let axis = Axis::fitting("latency", "ms", [1.0, 900.0].into_iter());
        assert!(axis.title.ends_with("logarithmic") && axis.range().is_none());
        assert_eq!(labels(&axis, 6), ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000"]);
        assert!(axis.place(30.0) > 0.4 && axis.place(0.0) == 0.0);
        assert!(Axis::fitting("latency", "ms", [10.0, 90.0].into_iter()).begins_at_zero());
    }

    #[test]
    fn places_run_from_zero_to_one() {
        let names = Axis::names("", vec!["a".into(), "b".into()]);
        assert_eq!((names.place(0.0), names.place(1.0)), (0.25, 0.75));
        assert_eq!(Axis::from_zero("", "", 50.0).place(25.0), 0.5);
    }
}
