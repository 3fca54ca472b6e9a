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
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::analysis::statistics::median;

/// Readings below which nothing is said.
pub const FEWEST_READINGS: usize = 24;
/// Waves in the grid differ by this many periods over the watch.
const WAVES_APART: f64 = 0.12;
/// Floors at most; more would only resemble each other more.
const FLOORS_MAX: usize = 40;
/// Readings per floor, where there are enough of them.
const READINGS_PER_FLOOR: usize = 4;
/// Which part of a block's readings lies below its floor.
const FLOOR_QUANTILE: f64 = 0.1;
/// Confidence of the interval of each way to make floors. The narrowest is taken, which costs some of it: in the made-up
/// series of the tests 95 % are left.
const EACH_CONFIDENCE: f64 = 0.98;
/// An equivalence test at 5 % asks the interval of 90 % (Schuirmann, 1987).
const EQUIVALENCE_CONFIDENCE: f64 = 0.9;
/// Cycles (of garbage collection, of the day) below which their floors are too few.
const FEWEST_CYCLES: usize = 8;
/// Share of the usual range within a twelfth of the watch by which a cycle rises and falls.
const CYCLE_RANGE: f64 = 0.5;
/// Readings are not trusted beyond this share of their level: counters are read while they change.
const LEAST_NOISE: f64 = 2e-4;
/// Longest time constant, as a share of the watch, of a start that needs more memory than what follows.
const LONGEST_START: f64 = 0.1;
/// A step after this share of the watch is too young to tell what follows it.
const LATE_STEP: f64 = 0.7;
/// Longest wave that is told from growth, as a share of the watch.
const LONGEST_WAVE: f64 = 0.75;
/// Rises from one floor to the next are steps if they stand out by so many times their spread; so many at most.
const STEP_SPREADS: f64 = 6.0;
const STEPS_MAX: usize = 4;
/// The standard deviation of normal values for a median absolute deviation of 1.
const SPREAD_OF_DEVIATION: f64 = 1.4826;
/// Widening for autocorrelation, at most.
const WIDENING_MAX: f64 = 12.0;
/// What is certain to grow, and by this share of the margin, grows; what can't be growing by the margin does not.
const GROWING_SHARE: f64 = 0.6;
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

/// Judges a series. `tolerance` is the share of the level by which it may grow over the watch without growing;
/// `least_margin` the same in bytes.
pub fn judge(time_s: &[f64], values: &[f64], tolerance: f64, least_margin: f64) -> Trend {
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

/// The lower deciles of blocks of readings, over x from 0 to 1.
struct Floors {
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Floors {
    fn of(time_s: &[f64], values: &[f64], most: usize) -> Floors {
        let (start, end) = (time_s[0], time_s[time_s.len() - 1]);
        let count = (values.len() / READINGS_PER_FLOOR).clamp(FEWEST_READINGS / 2, most);
        let mut blocks: Vec<Vec<(f64, f64)>> = vec![Vec::new(); count];
        for (time, value) in time_s.iter().zip(values) {
            let x = (time - start) / (end - start);
            blocks[((x * count as f64) as usize).min(count - 1)].push((x, *value));
        }
        let mut floors = Floors { x: Vec::new(), y: Vec::new() };
        for block in blocks.iter_mut().filter(|block| !block.is_empty()) {
            floors.x.push(block.iter().map(|reading| reading.0).sum::<f64>() / block.len() as f64);
            block.sort_by(|left, right| left.1.total_cmp(&right.1));
            floors.y.push(block[(FLOOR_QUANTILE * block.len() as f64) as usize].1);
        }
        floors
    }

    /// The lowest reading of each cycle, however long each is. None if there are too few cycles.
    fn of_cycles(time_s: &[f64], values: &[f64]) -> Option<Floors> {
        let (start, end) = (time_s[0], time_s[time_s.len() - 1]);
        let least = CYCLE_RANGE * usual_range(values);
        // Turning points: a trough counts once the readings have risen by `least` above it, a peak likewise.
        let mut troughs: Vec<usize> = Vec::new();
        let (mut low, mut high, mut falling) = (0, 0, true);
        for (index, value) in values.iter().enumerate() {
            if falling {
                low = if *value <= values[low] { index } else { low };
                if *value > values[low] + least {
                    troughs.push(low);
                    (high, falling) = (index, false);
                }
            } else {
                high = if *value >= values[high] { index } else { high };
                if *value < values[high] - least {
                    (low, falling) = (index, true);
                }
            }
        }
        if troughs.len() < FEWEST_CYCLES {
            return None;
        }
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for group in troughs.chunks(troughs.len().div_ceil(FLOORS_MAX)) {
            let mean =
                |of: &dyn Fn(usize) -> f64| group.iter().map(|i| of(*i)).sum::<f64>() / group.len() as f64;
            x.push(mean(&|i| (time_s[i] - start) / (end - start)));
            y.push(mean(&|i| values[i]));
        }
        Some(Floors { x, y })
    }

    /// The middle one of the second half.
    fn typical(&self) -> f64 {
        median(&self.y[self.y.len() / 2..]).max(1.0)
    }

    /// Median of the slopes between all pairs of floors of the second half (Theil and Sen), per whole watch.
    fn late_slope(&self) -> f64 {
        let first = self.x.len() / 2;
        let mut slopes = Vec::new();
        for left in first..self.x.len() {
            for right in left + 1..self.x.len() {
                slopes.push((self.y[right] - self.y[left]) / (self.x[right] - self.x[left]));
            }
        }
        median(&slopes)
    }

    /// What is added from each floor to the next.
    fn rises(&self) -> Vec<f64> {
        self.y.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The places of rises that stand out from all others by more than the margin. None where they are many: what comes
    /// again and again is how it grows.
    fn steps(&self, margin: f64) -> Vec<usize> {
        let rises = self.rises();
        let usual = median(&rises);
        let spread =
            SPREAD_OF_DEVIATION * median(&rises.iter().map(|rise| (rise - usual).abs()).collect::<Vec<_>>());
        let least = margin.max(STEP_SPREADS * spread);
        let steps: Vec<usize> = (0..rises.len()).filter(|index| rises[*index] - usual > least).collect();
        if steps.len() <= STEPS_MAX {
            steps
        } else {
            Vec::new()
        }
    }

    /// The same floors with a usual rise in the place of each step.
    fn without_steps(&self, margin: f64) -> Floors {
        let (mut rises, steps) = (self.rises(), self.steps(margin));
        let usual = median(&rises);
        steps.into_iter().for_each(|index| rises[index] = usual);
        let mut y = vec![self.y[0]];
        for rise in rises {
            y.push(y[y.len() - 1] + rise);
        }
        Floors { x: self.x.clone(), y }
    }

    /// Where the floors come close to their last level for good.
    fn settled_after(&self, margin: f64) -> Option<f64> {
        let tail = &self.y[self.y.len() * 3 / 4..];
        let level = median(tail);
        let spread = tail.iter().map(|y| (y - level).abs()).fold(0.0, f64::max);
        let close = |y: &f64| (y - level).abs() <= (2.0 * margin).max(1.5 * spread);
        let last_far = self.y.iter().rposition(|y| !close(y));
        match last_far {
            None => Some(0.0),
            Some(index) => self.x.get(index + 1).copied(),
        }
    }
}

/// The best fit over the grid, and what fits nearly as well.
struct Fit {
    level: f64,
    growth: f64,
    interval: (f64, f64),
    /// Upper end of the interval for the equivalence test.
    at_most: f64,
    still_to_come: f64,
    /// Where the best fit has its step, and its height.
    step: Option<(f64, f64)>,
}

/// How a quantity may change without growing for ever.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// A cache that fills, a pool that grows: e^(-x / tau).
    Exponential(f64),
    /// Rare things met ever more rarely: 1 / (1 + x / tau).
    Hyperbolic(f64),
    /// A table that is doubled, a part of the program that is loaded: 0 before this x, 1 from then on.
    Step(f64),
}

impl Shape {
    fn at(self, x: f64) -> f64 {
        match self {
            Shape::Exponential(tau) => (-x / tau).exp(),
            Shape::Hyperbolic(tau) => 1.0 / (1.0 + x / tau),
            Shape::Step(at) => f64::from(x >= at),
        }
    }

    /// What the shape adds after the watch, for its size.
    fn still_to_come(self, size: f64) -> f64 {
        match self {
            Shape::Step(_) => 0.0,
            shape => -size * shape.at(1.0),
        }
    }

    /// Memory settles from below; only a start may need more than what follows.
    fn allows(self, size: f64) -> bool {
        match self {
            Shape::Exponential(tau) | Shape::Hyperbolic(tau) => size <= 0.0 || tau <= LONGEST_START,
            Shape::Step(_) => true,
        }
    }
}

/// One point of the grid, fitted.
struct Candidate {
    growth: f64,
    /// 1 / variance of `growth`, for residuals of variance 1.
    information: f64,
    squares: f64,
    residuals: Vec<f64>,
    /// The shape and its size.
    shape: Option<(Shape, f64)>,
}

impl Fit {
    fn best(floors: &Floors, waves: bool) -> Fit {
        let candidates = candidates(floors, waves);
        let by_squares = |a: &&Candidate, b: &&Candidate| a.squares.total_cmp(&b.squares);
        let best = candidates.iter().min_by(by_squares).expect("the grid is not empty");
        // Level, growth, a shape and its tau, a wave (two) and its period.
        let parameters = if waves { 7.0 } else { 4.0 };
        let freedom = (floors.x.len() as f64 - parameters).max(3.0);
        let least = (LEAST_NOISE * floors.typical()).powi(2) * floors.x.len() as f64;
        let squares = best.squares.max(least);
        let widening = widening(&best.residuals);
        let interval = |confidence: f64| {
            let threshold = squares * (1.0 + widening * student(freedom, confidence).powi(2) / freedom);
            let near = candidates.iter().filter(|candidate| candidate.squares <= threshold);
            near.fold((best.growth, best.growth), |(low, high), candidate| {
                let half = ((threshold - candidate.squares) / candidate.information).sqrt();
                (low.min(candidate.growth - half), high.max(candidate.growth + half))
            })
        };
        let tail = &floors.y[floors.y.len() - (floors.y.len() / 8).max(2)..];
        Fit {
            level: median(tail),
            growth: best.growth,
            interval: interval(EACH_CONFIDENCE),
            at_most: interval(EQUIVALENCE_CONFIDENCE).1,
            still_to_come: best.shape.map_or(0.0, |(shape, size)| shape.still_to_come(size)),
            step: best.shape.and_then(|(shape, size)| match shape {
                Shape::Step(at) => Some((at, size)),
                _ => None,
            }),
        }
    }
}

/// Fits every point of the grid; those that memory can't do are left out.
fn candidates(floors: &Floors, with_waves: bool) -> Vec<Candidate> {
    let mut shapes: Vec<Option<Shape>> = vec![None];
    let mut tau = 0.01;
    while tau < 1.0 {
        shapes.extend([Some(Shape::Exponential(tau)), Some(Shape::Hyperbolic(tau / 5.0))]);
        tau *= 1.25;
    }
    shapes.extend((1..20).map(|step| Some(Shape::Step(f64::from(step) / 20.0))));
    // Waves of at least four floors each; so close to each other that none falls between two.
    let most = if with_waves { floors.x.len() as f64 / 4.0 } else { 0.0 };
    let mut periods: Vec<Option<f64>> = vec![None];
    let mut waves = 1.0 / LONGEST_WAVE;
    while waves < most {
        periods.push(Some(1.0 / waves));
        waves += WAVES_APART;
    }
    let mut fitted = Vec::new();
    for period in &periods {
        let mut others = Basis::constant(floors.x.len());
        for wave in period.iter().flat_map(|period| wave(&floors.x, *period)) {
            others.add(&wave);
        }
        let (slope, rest) = (others.without(&floors.x), others.without(&floors.y));
        fitted.extend(shapes.iter().filter_map(|shape| fit(floors, &others, &slope, &rest, *shape)));
    }
    fitted
}

/// Fits growth and a shape beside the others, which have been taken out of `slope` and `rest` (x and y). None if
/// memory can't do what fits best.
fn fit(
    floors: &Floors,
    others: &Basis,
    slope: &[f64],
    rest: &[f64],
    shape: Option<Shape>,
) -> Option<Candidate> {
    let (mut slope, mut rest) = (slope.to_vec(), rest.to_vec());
    let mut column = None;
    if let Some(shape) = shape {
        let values: Vec<f64> = floors.x.iter().map(|x| shape.at(*x)).collect();
        let values = others.without(&values);
        let square = dot(&values, &values);
        if square < 1e-9 {
            return None;
        }
        let share = |target: &[f64]| dot(&values, target) / square;
        let (of_slope, of_rest) = (share(&slope), share(&rest));
        slope.iter_mut().zip(&values).for_each(|(x, value)| *x -= of_slope * value);
        rest.iter_mut().zip(&values).for_each(|(y, value)| *y -= of_rest * value);
        column = Some((shape, of_rest, of_slope));
    }
    let information = dot(&slope, &slope).max(1e-12);
    let mut growth = dot(&slope, &rest) / information;
    // A program that still warms up does not shrink at the same time: then the warm-up is all there is.
    let rises_later = |growth: f64| {
        column
            .is_some_and(|(shape, of_rest, of_slope)| shape.still_to_come(of_rest - growth * of_slope) > 0.0)
    };
    if growth < 0.0 && rises_later(growth) {
        growth = 0.0;
    }
    let residuals: Vec<f64> = rest.iter().zip(&slope).map(|(y, x)| y - growth * x).collect();
    let shape = column.map(|(shape, of_rest, of_slope)| (shape, of_rest - growth * of_slope));
    if shape.is_some_and(|(shape, size)| !shape.allows(size)) {
        return None;
    }
    Some(Candidate { growth, information, squares: dot(&residuals, &residuals), residuals, shape })
}

/// The middle one of the ranges within twelfths of the readings.
fn usual_range(values: &[f64]) -> f64 {
    let ranges = values.chunks(values.len().div_ceil(12)).map(|chunk| {
        let fold = |of: fn(f64, f64) -> f64| chunk.iter().copied().reduce(of).unwrap_or(0.0);
        fold(f64::max) - fold(f64::min)
    });
    median(&ranges.collect::<Vec<_>>())
}

fn wave(x: &[f64], period: f64) -> [Vec<f64>; 2] {
    let angle = |x: &f64| std::f64::consts::TAU * x / period;
    [x.iter().map(|x| angle(x).cos()).collect(), x.iter().map(|x| angle(x).sin()).collect()]
}

/// Orthonormal vectors (Gram and Schmidt), to take parts out of others.
struct Basis(Vec<Vec<f64>>);

impl Basis {
    fn constant(count: usize) -> Basis {
        Basis(vec![vec![1.0 / (count as f64).sqrt(); count]])
    }

    fn add(&mut self, column: &[f64]) {
        let rest = self.without(column);
        let length = dot(&rest, &rest).sqrt();
        // What the others hold already adds nothing.
        if length > 1e-9 {
            self.0.push(rest.iter().map(|value| value / length).collect());
        }
    }

    fn without(&self, column: &[f64]) -> Vec<f64> {
        let mut rest = column.to_vec();
        for vector in &self.0 {
            let share = dot(vector, &rest);
            rest.iter_mut().zip(vector).for_each(|(value, part)| *value -= share * part);
        }
        rest
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// By how much residuals that resemble their neighbours widen a variance.
fn widening(residuals: &[f64]) -> f64 {
    let squares = dot(residuals, residuals);
    if squares <= 0.0 {
        return 1.0;
    }
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let r = (neighbours / squares).clamp(0.0, 0.98);
    ((1.0 + r) / (1.0 - r)).min(WIDENING_MAX)
}

fn student(freedom: f64, confidence: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::INFINITY, |distribution| distribution.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 400 readings over ten minutes, with a little noise that does not depend on a random number.
    fn judged(of: impl Fn(f64) -> f64) -> Trend {
        let time_s: Vec<f64> = (0..400).map(|index| f64::from(index) * 1.5).collect();
        let noise = |x: f64| 3e4 * ((x * 7919.0).sin() + (x * 104_729.0).cos());
        let values: Vec<f64> = time_s.iter().map(|time_s| time_s / 598.5).map(|x| of(x) + noise(x)).collect();
        judge(&time_s, &values, 0.05, 1e5)
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
        let trend = judge(&[0.0, 1.0, 2.0], &[1.0, 2.0, 3.0], 0.05, 0.0);
        assert_eq!(trend.direction, Direction::Unclear(Doubt::Short));
        assert_eq!(judge(&[], &[], 0.05, 0.0).direction, Direction::Unclear(Doubt::Short));
    }

    #[test]
    fn what_never_changes_is_steady() {
        let time_s: Vec<f64> = (0..100).map(f64::from).collect();
        let trend = judge(&time_s, &[5e6; 100], 0.05, 1e5);
        assert_eq!((trend.direction, trend.settled_after_s), (Direction::Steady, Some(0.0)));
    }
}
