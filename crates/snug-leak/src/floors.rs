//! Floors of many readings, which neither garbage collection nor bursts raise; and the steps between them. Pure.

use snug_stats::median;

/// Readings below which nothing is said.
pub const FEWEST_READINGS: usize = 24;
/// Floors at most; more would only resemble each other more.
pub const FLOORS_MAX: usize = 40;
/// Readings per floor, where there are enough of them.
const READINGS_PER_FLOOR: usize = 4;
/// Which part of a block's readings lies below its floor.
const FLOOR_QUANTILE: f64 = 0.1;
/// Cycles (of garbage collection, of the day) below which their floors are too few.
const FEWEST_CYCLES: usize = 8;
/// Share of the usual range within a twelfth of the watch by which a cycle rises and falls.
const CYCLE_RANGE: f64 = 0.5;
/// Rises from one floor to the next are steps if they stand out by so many times their spread; so many at most.
const STEP_SPREADS: f64 = 6.0;
const STEPS_MAX: usize = 4;
/// The standard deviation of normal values for a median absolute deviation of 1.
const SPREAD_OF_DEVIATION: f64 = 1.4826;

/// The lower deciles of blocks of readings, over x from 0 to 1.
pub struct Floors {
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

impl Floors {
    pub fn of(time_s: &[f64], values: &[f64], most: usize) -> Floors {
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
    pub fn of_cycles(time_s: &[f64], values: &[f64]) -> Option<Floors> {
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
    pub fn typical(&self) -> f64 {
        median(&self.y[self.y.len() / 2..]).max(1.0)
    }

    /// Median of the slopes between all pairs of floors of the second half (Theil and Sen), per whole watch.
    pub fn late_slope(&self) -> f64 {
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
    pub fn steps(&self, margin: f64) -> Vec<usize> {
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
    pub fn without_steps(&self, margin: f64) -> Floors {
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
    pub fn settled_after(&self, margin: f64) -> Option<f64> {
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

/// The middle one of the ranges within twelfths of the readings.
fn usual_range(values: &[f64]) -> f64 {
    let ranges = values.chunks(values.len().div_ceil(12)).map(|chunk| {
        let fold = |of: fn(f64, f64) -> f64| chunk.iter().copied().reduce(of).unwrap_or(0.0);
        fold(f64::max) - fold(f64::min)
    });
    median(&ranges.collect::<Vec<_>>())
}
