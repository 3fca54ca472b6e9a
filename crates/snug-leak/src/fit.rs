//! Growth beside all else that floors may do: a grid of warm-ups, steps and waves, fitted, and the interval of all growth
//! that fits nearly as well as the best. `trend` says why. Pure.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::floors::Floors;
use snug_stats::median;

/// Waves in the grid differ by this many periods over the watch.
const WAVES_APART: f64 = 0.12;
/// Confidence of the interval of each way to make floors. The narrowest is taken, which costs some of it: in the made-up
/// series of the tests 95 % are left.
const EACH_CONFIDENCE: f64 = 0.987;
/// An equivalence test at 5 % asks the interval of 90 % (Schuirmann, 1987).
const EQUIVALENCE_CONFIDENCE: f64 = 0.9;
/// Readings are not trusted beyond this share of their level: counters are read while they change.
const LEAST_NOISE: f64 = 2e-4;
/// Longest time constant, as a share of the watch, of a start that needs more memory than what follows.
const LONGEST_START: f64 = 0.1;
/// Longest wave that is told from growth, as a share of the watch.
const LONGEST_WAVE: f64 = 0.75;
/// Widening for autocorrelation, at most.
const WIDENING_MAX: f64 = 12.0;

/// The best fit over the grid, and what fits nearly as well.
pub struct Fit {
    pub level: f64,
    pub growth: f64,
    pub interval: (f64, f64),
    /// Upper end of the interval for the equivalence test.
    pub at_most: f64,
    pub still_to_come: f64,
    /// Where the best fit has its step, and its height.
    pub step: Option<(f64, f64)>,
}

/// How a quantity may change without growing forever.
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
struct FittedPoint {
    growth: f64,
    /// 1 / variance of `growth`, for residuals of variance 1.
    information: f64,
    squares: f64,
    residuals: Vec<f64>,
    /// The shape and its size.
    shape: Option<(Shape, f64)>,
}

impl Fit {
    pub fn best(floors: &Floors, waves: bool) -> Fit {
        let points = grid(floors, waves);
        let by_squares = |a: &&FittedPoint, b: &&FittedPoint| a.squares.total_cmp(&b.squares);
        let best = points.iter().min_by(by_squares).expect("the grid is not empty");
        // Level, growth, a shape and its tau, a wave (two) and its period.
        let parameters = if waves { 7.0 } else { 4.0 };
        let freedom = (floors.x.len() as f64 - parameters).max(3.0);
        let least = (LEAST_NOISE * floors.typical()).powi(2) * floors.x.len() as f64;
        let squares = best.squares.max(least);
        let widening = widening(&best.residuals);
        let interval = |confidence: f64| {
            let threshold = squares * (1.0 + widening * student(freedom, confidence).powi(2) / freedom);
            let near = points.iter().filter(|point| point.squares <= threshold);
            near.fold((best.growth, best.growth), |(low, high), point| {
                let half = ((threshold - point.squares) / point.information).sqrt();
                (low.min(point.growth - half), high.max(point.growth + half))
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
fn grid(floors: &Floors, with_waves: bool) -> Vec<FittedPoint> {
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
    let column = |shape: Shape| (shape, floors.x.iter().map(|x| shape.at(*x)).collect::<Vec<f64>>());
    let shapes: Vec<Option<(Shape, Vec<f64>)>> = shapes.into_iter().map(|shape| shape.map(column)).collect();
    let mut fitted = Vec::new();
    for period in &periods {
        let mut others = Basis::constant(floors.x.len());
        for wave in period.iter().flat_map(|period| wave(&floors.x, *period)) {
            others.add(&wave);
        }
        let (slope, rest) = (others.without(&floors.x), others.without(&floors.y));
        fitted.extend(shapes.iter().filter_map(|shape| fit(&others, &slope, &rest, shape.as_ref())));
    }
    fitted
}

/// Fits growth and a shape beside the others, which have been taken out of `slope` and `rest` (x and y). None if
/// memory can't do what fits best.
fn fit(
    others: &Basis,
    slope: &[f64],
    rest: &[f64],
    shape: Option<&(Shape, Vec<f64>)>,
) -> Option<FittedPoint> {
    let (mut slope, mut rest) = (slope.to_vec(), rest.to_vec());
    let mut column = None;
    if let Some((shape, values)) = shape {
        let values = others.without(values);
        let square = dot(&values, &values);
        if square < 1e-9 {
            return None;
        }
        let share = |target: &[f64]| dot(&values, target) / square;
        let (of_slope, of_rest) = (share(&slope), share(&rest));
        slope.iter_mut().zip(&values).for_each(|(x, value)| *x -= of_slope * value);
        rest.iter_mut().zip(&values).for_each(|(y, value)| *y -= of_rest * value);
        column = Some((*shape, of_rest, of_slope));
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
    Some(FittedPoint { growth, information, squares: dot(&residuals, &residuals), residuals, shape })
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
