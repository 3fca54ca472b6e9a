//! Does a quantity grow, and how fast? One series of readings in, one answer with a confidence interval out. Pure.
//!
//! What makes this hard is not noise but everything that is not noise: garbage collectors draw saw teeth, caches and
//! just-in-time compilers warm up, requests come in bursts and days in waves, and neighbouring readings say the same.
//! So the readings are thinned to *floors*, the lower decile of each of up to 40 blocks, which is what stays after a
//! collection and ignores bursts; and growth is what remains when the rest has been given its best chance: the floors
//! are fitted by
//!
//!   level + growth * x + settling * shape(x / tau) + wave of some period,     x from 0 to 1 over the watch
//!
//! for every tau, period and shape of a grid. The interval of `growth` is the union over the grid of all values that
//! fit nearly as well as the best one: a profile likelihood interval (Bates and Watts, Nonlinear Regression Analysis,
//! 1988, chapter 6). If a warm-up or a wave explains the readings as well as a leak does, the interval is wide and
//! holds zero. Residuals that resemble their neighbours widen it by (1 + r) / (1 - r), the factor for the variance of
//! a mean of a first-order autoregression (Bayley and Hammersley, 1946).
//!
//! Small growth is no growth: the interval is compared with a margin, as in equivalence tests (Schuirmann, 1987).
//! And a leak goes on: growth must be there in the second half, by the median of pairwise slopes (Theil, 1950; Sen,
//! 1968), and must not come from a few steps: where some rises stand out from all others, what is left without them
//! decides.

use serde::Serialize;

use crate::fit::Fit;
use crate::floors::{Floors, FEWEST_READINGS, FLOORS_MAX};

/// A step after this share of the watch is too young to tell what follows it.
const LATE_STEP: f64 = 0.7;
/// What is certain to grow, and by this share of the margin, grows; what can't be growing by the margin does not.
const GROWING_SHARE: f64 = 0.6;
/// In a watch of less than these seconds growth is fast that is a small part of the level.
const SHORT_S: f64 = 20.0;
/// Growth in the second half must reach this share of the growth of the whole, in proportion to its length.
const LATE_SHARE: f64 = 0.4;

/// The answer about one series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    pub direction: Direction,
    /// Level at the end, as fitted: bytes.
    pub level: f64,
    /// Growth over the whole watch, in bytes, without warm-up and waves.
    pub growth: f64,
    /// 95 % confidence interval of `growth`.
    pub interval: (f64, f64),
    /// Growth that does not count, in bytes over the whole watch.
    pub margin: f64,
    /// What is left of the warm-up: bytes by which the level will still rise (or fall, if negative).
    pub still_to_come: f64,
    /// Time since the start from which on the floors stay close to their last level; None if they do not.
    pub settled_after_s: Option<f64>,
    /// Seconds from the first to the last reading.
    pub span_s: f64,
}

impl Trend {
    /// Growth and its 95 % interval, in bytes per one of so many parts of the watch, such as seconds or requests.
    pub fn growth_per(&self, parts: f64) -> (f64, (f64, f64)) {
        (self.growth / parts, (self.interval.0 / parts, self.interval.1 / parts))
    }
}

/// What a series does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Growing,
    /// Not growing by more than the margin; it may fall.
    Steady,
    Unclear(Doubt),
}

/// Why it can't be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// Too few readings, or too short a time.
    Short,
    /// It rises, but ever more slowly: it may settle.
    Settling,
    /// It rose in one or two steps.
    Steps,
    /// It varies too much, or in waves as long as the watch.
    Noise,
}

/// Whether it grows for certain, by so little that it would count as none in a longer watch: in some seconds that may be
/// fast.
pub fn is_too_short(trend: &Trend) -> bool {
    trend.span_s < SHORT_S && trend.interval.0 > 0.0
}

/// Whether values at these points can be judged: many of the points differ.
pub fn suffices(x: &[f64]) -> bool {
    let mut points = x.to_vec();
    points.dedup();
    points.len() >= FEWEST_READINGS
}

/// Judges a series. `tolerance` is the share of the level by which it may grow over the watch without growing;
/// `least_margin` the same in bytes.
pub fn classify(time_s: &[f64], values: &[f64], tolerance: f64, least_margin: f64) -> Trend {
    let span_s = time_s.last().copied().unwrap_or(0.0) - time_s.first().copied().unwrap_or(0.0);
    let last = values.last().copied().unwrap_or(0.0);
    if values.len() < FEWEST_READINGS || span_s <= 0.0 {
        return Trend {
            direction: Direction::Unclear(Doubt::Short),
            level: last,
            growth: last - values.first().copied().unwrap_or(0.0),
            interval: (f64::NEG_INFINITY, f64::INFINITY),
            margin: least_margin.max(tolerance * last),
            still_to_come: 0.0,
            settled_after_s: None,
            span_s,
        };
    }
    let ways = ways(time_s, values);
    let (floors, fit) = narrowest(&ways);
    let margin = least_margin.max(tolerance * floors.typical());
    let mut trend = Trend {
        direction: Direction::Unclear(Doubt::Noise),
        level: fit.level,
        growth: fit.growth,
        interval: fit.interval,
        margin,
        still_to_come: fit.still_to_come,
        settled_after_s: floors.settled_after(margin).map(|x| x * span_s),
        span_s,
    };
    trend.direction = direction(floors, &trend, &fit);
    if trend.direction == Direction::Steady && is_too_short(&trend) {
        trend.direction = Direction::Unclear(Doubt::Settling);
    }
    let grows = trend.direction == Direction::Growing;
    let has_steps = |floors: &Floors| !floors.steps(margin).is_empty();
    if has_steps(floors) && trend.direction != Direction::Steady
        || grows && ways.iter().any(|way| has_steps(&way.floors))
    {
        between_steps(&ways, &mut trend);
    }
    trend
}

/// Judges what is left without the steps: what climbs between them grows, and what only they raised may not go on.
fn between_steps(ways: &[Way], trend: &mut Trend) {
    let level: Vec<Way> = ways
        .iter()
        .map(|way| Way { floors: way.floors.without_steps(trend.margin), waves: way.waves })
        .collect();
    let (floors, fit) = narrowest(&level);
    let between = Trend {
        growth: fit.growth,
        interval: fit.interval,
        still_to_come: fit.still_to_come,
        ..trend.clone()
    };
    match (trend.direction, direction(floors, &between, &fit)) {
        // What settles may well settle without its steps, too.
        (Direction::Unclear(Doubt::Settling), _) => {}
        (_, Direction::Growing) => *trend = Trend { direction: Direction::Growing, ..between },
        (Direction::Growing, _) => trend.direction = Direction::Unclear(Doubt::Steps),
        _ => {}
    }
}

/// One way to make floors, and whether so many show waves.
struct Way {
    floors: Floors,
    waves: bool,
}

/// Few or many floors: many show waves, few lie at the bottom of long saw teeth, and cycles find the bottom whatever
/// their length.
fn ways(time_s: &[f64], values: &[f64]) -> Vec<Way> {
    let blocks = |most, waves| Some(Way { floors: Floors::of(time_s, values, most), waves });
    let ways = [
        blocks(FLOORS_MAX, true),
        blocks(FLOORS_MAX / 2, true),
        blocks(FLOORS_MAX / 2, false),
        blocks(FLOORS_MAX * 3 / 10, false),
        Floors::of_cycles(time_s, values).map(|floors| Way { floors, waves: false }),
    ];
    ways.into_iter().flatten().collect()
}

/// The fit whose interval is narrowest.
fn narrowest(ways: &[Way]) -> (&Floors, Fit) {
    let tries = ways.iter().map(|way| (&way.floors, Fit::best(&way.floors, way.waves)));
    let width = |fit: &Fit| fit.interval.1 - fit.interval.0;
    tries.min_by(|a, b| width(&a.1).total_cmp(&width(&b.1))).expect("there are some")
}

fn direction(floors: &Floors, trend: &Trend, fit: &Fit) -> Direction {
    let (low, step) = (trend.interval.0, fit.step);
    let late = floors.late_slope();
    let late_step = step.is_some_and(|(at, height)| at > LATE_STEP && height > trend.margin);
    if low > 0.0 && trend.growth > GROWING_SHARE * trend.margin {
        let to_come = trend.still_to_come > trend.margin;
        if late < LATE_SHARE * trend.growth || to_come {
            let counts = to_come || trend.growth > trend.margin;
            return if counts { Direction::Unclear(Doubt::Settling) } else { Direction::Steady };
        }
        return if late_step { Direction::Unclear(Doubt::Steps) } else { Direction::Growing };
    }
    if fit.at_most < trend.margin {
        return match () {
            () if trend.still_to_come > trend.margin => Direction::Unclear(Doubt::Settling),
            () if late_step => Direction::Unclear(Doubt::Steps),
            () => Direction::Steady,
        };
    }
    let doubt = match () {
        () if trend.still_to_come > trend.margin => Doubt::Settling,
        () if step.is_some_and(|(_, height)| height > trend.margin) => Doubt::Steps,
        () => Doubt::Noise,
    };
    Direction::Unclear(doubt)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 400 readings over ten minutes, with a little noise that does not depend on a random number.
    fn judged(of: impl Fn(f64) -> f64) -> Trend {
        let time_s: Vec<f64> = (0..400).map(|index| f64::from(index) * 1.5).collect();
        let noise = |x: f64| 3e4 * ((x * 7919.0).sin() + (x * 104_729.0).cos());
        let values: Vec<f64> = time_s.iter().map(|time_s| time_s / 598.5).map(|x| of(x) + noise(x)).collect();
        classify(&time_s, &values, 0.05, 1e5)
    }

    #[test]
    fn a_line_grows_by_its_slope() {
        let trend = judged(|x| 100e6 + 30e6 * x);
        assert_eq!(trend.direction, Direction::Growing);
        assert!((trend.growth - 30e6).abs() < 1e6, "{trend:?}");
        assert!(trend.interval.0 < 30e6 && trend.interval.1 > 30e6, "{trend:?}");
    }

    #[test]
    fn a_warm_up_settles() {
        let trend = judged(|x| 100e6 + 80e6 * (1.0 - (-x / 0.1).exp()));
        assert_eq!(trend.direction, Direction::Steady, "{trend:?}");
        let settled = trend.settled_after_s.unwrap();
        assert!((90.0..300.0).contains(&settled), "{settled}");
    }

    #[test]
    fn a_warm_up_that_is_not_over_is_no_leak() {
        let trend = judged(|x| 100e6 + 80e6 * (1.0 - (-x / 0.6).exp()));
        assert_eq!(trend.direction, Direction::Unclear(Doubt::Settling), "{trend:?}");
        assert!((5e6..30e6).contains(&trend.still_to_come), "15 MB are to come: {trend:?}");
    }

    #[test]
    fn a_leak_behind_a_warm_up_grows() {
        let trend = judged(|x| 100e6 + 80e6 * (1.0 - (-x / 0.08).exp()) + 40e6 * x);
        assert_eq!(trend.direction, Direction::Growing, "{trend:?}");
        assert!((trend.growth - 40e6).abs() < 4e6, "{trend:?}");
    }

    #[test]
    fn garbage_collection_and_days_are_no_growth() {
        assert_eq!(judged(|x| 100e6 + 20e6 * (x * 31.0).fract()).direction, Direction::Steady);
        assert_eq!(judged(|x| 100e6 + 20e6 * (x * 31.0).sin()).direction, Direction::Steady);
    }

    #[test]
    fn a_late_step_may_not_come_again() {
        let trend = judged(|x| 100e6 + if x > 0.85 { 30e6 } else { 0.0 });
        assert_eq!(trend.direction, Direction::Unclear(Doubt::Steps), "{trend:?}");
    }

    #[test]
    fn nothing_is_said_about_little() {
        let trend = classify(&[0.0, 1.0, 2.0], &[1.0, 2.0, 3.0], 0.05, 0.0);
        assert_eq!(trend.direction, Direction::Unclear(Doubt::Short));
        assert_eq!(classify(&[], &[], 0.05, 0.0).direction, Direction::Unclear(Doubt::Short));
    }

    #[test]
    fn what_never_changes_is_steady() {
        let time_s: Vec<f64> = (0..100).map(f64::from).collect();
        let trend = classify(&time_s, &[5e6; 100], 0.05, 1e5);
        assert_eq!((trend.direction, trend.settled_after_s), (Direction::Steady, Some(0.0)));
    }
}
