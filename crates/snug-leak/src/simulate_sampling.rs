//! Programs made up from a seed, sampled as the library samples (core/src/profile_budget.h) and watched as `snug leak`
//! watches: how often the intervals of growth, and of the line that keeps, hold the truth.

use crate::growth_check::OtherMeasures;
use crate::verdict::{assess, Series, Verdict};
use snug_base::random::Random;
use snug_profile::keeping::{kept_in_all, kept_until, KeptAtStack};

/// How often a program is read, and the part of the watch after which it is sampled, as of `snug leak`.
const READINGS: usize = 600;
const SAMPLED_FROM: f64 = 0.3;
/// Of the library: the least distance, samples a second, at first and then, and for how long it is at first.
const LEAST_BYTES: f64 = 65536.0;
const SAMPLES: (f64, f64) = (100.0, 25.0);
const FREE_S: f64 = 30.0;

/// What a program does beside keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// It frees the rest at once.
    Plain,
    /// It keeps one of twenty objects of a line, and a collector frees the others.
    OneOfTwenty,
    /// It keeps in a table that doubles.
    Table,
    /// A collector draws a saw tooth.
    SawTooth,
    /// A collector that runs ever more seldom lets more garbage gather.
    WarmsUp,
    /// Several processes.
    Workers,
    /// It allocates twenty times as much at times.
    Bursts,
}

const KEEPERS: [Keeper; 7] = [
    Keeper::Plain,
    Keeper::OneOfTwenty,
    Keeper::Table,
    Keeper::SawTooth,
    Keeper::WarmsUp,
    Keeper::Workers,
    Keeper::Bursts,
];

/// A sampled block: when it was allocated, what it stands for and would stand for by the last mean, and its line.
#[derive(Clone, Copy)]
struct Sampled {
    time_s: f64,
    weight: f64,
    size: f64,
    keeps: bool,
}

fn poisson(random: &mut Random, mean: f64) -> u32 {
    let mut left = mean;
    let mut count = 0;
    loop {
        left += random.between(1e-12, 1.0).ln();
        if left < 0.0 {
            return count;
        }
        count += 1;
    }
}

/// The distance of samples, as the library finds it.
struct Budget {
    mean: f64,
    used: f64,
    since_s: f64,
}

impl Budget {
    /// Time has passed in which so many samples were taken. `sampled_s`: since sampling began.
    fn pass(&mut self, samples: u32, step_s: f64, sampled_s: f64) {
        self.used += f64::from(samples);
        self.since_s += step_s;
        let most = self.since_s * if sampled_s < FREE_S { SAMPLES.0 } else { SAMPLES.1 };
        if self.used >= 100.0 || self.since_s >= 1.0 && (self.used >= 25.0 || most >= 50.0 + self.used) {
            self.mean = (self.mean * (self.used / most).clamp(0.25, 8.0)).max(LEAST_BYTES);
            (self.used, self.since_s) = (0.0, 0.0);
        }
    }
}

/// One process on its way.
struct MadeUp {
    keeper: Keeper,
    kept_per_s: f64,
    size: f64,
    garbage_per_s: f64,
    /// Seconds between collections, and between those of old objects, which grow.
    young_s: f64,
    old_s: f64,
    next_young_s: f64,
    next_old_s: f64,
    kept: f64,
    young: f64,
    old: f64,
    budget: Budget,
    /// Live ones: kept, young, old.
    samples: [Vec<Sampled>; 3],
}

/// Garbage that lives through a collection.
const PROMOTED: f64 = 0.1;

impl MadeUp {
    fn draw(random: &mut Random, keeper: Keeper, kept_per_s: f64, span_s: f64) -> MadeUp {
        let garbage_per_s = kept_per_s * random.log_between(5.0, 100.0);
        let (young_s, old_s) = match keeper {
            Keeper::Plain | Keeper::Table | Keeper::Bursts => (0.05, 0.2),
            Keeper::WarmsUp => (random.between(0.3, 2.0), span_s * random.between(0.02, 0.08)),
            _ => (random.between(0.3, 2.0), random.between(2.0, 8.0)),
        };
        MadeUp {
            keeper,
            kept_per_s,
            size: random.log_between(60.0, 60e3),
            garbage_per_s: if keeper == Keeper::OneOfTwenty { 19.0 * kept_per_s } else { garbage_per_s },
            young_s,
            old_s,
            next_young_s: young_s,
            next_old_s: old_s,
            kept: 0.0,
            young: 0.0,
            old: 0.0,
            budget: Budget { mean: LEAST_BYTES, used: 0.0, since_s: 0.0 },
            samples: Default::default(),
        }
    }

    fn step(&mut self, random: &mut Random, now_s: f64, step_s: f64, begin_s: f64) {
        let bursts = self.keeper == Keeper::Bursts && (now_s / 15.0) as u64 % 2 == 1;
        let garbage_per_s = self.garbage_per_s * if bursts { 20.0 } else { 1.0 };
        self.collect(random, now_s);
        self.kept += self.kept_per_s * step_s;
        self.young += garbage_per_s * step_s;
        if now_s < begin_s {
            return;
        }
        let mut taken = 0;
        let of_same_line = self.keeper == Keeper::OneOfTwenty;
        for (list, rate, keeps) in [(0, self.kept_per_s, true), (1, garbage_per_s, of_same_line)] {
            let weight = self.size / -(-self.size / self.budget.mean).exp_m1();
            for _ in 0..poisson(random, rate * step_s / weight) {
                let time_s = now_s + step_s * random.between(0.0, 1.0);
                self.samples[list].push(Sampled { time_s, weight, size: self.size, keeps });
                taken += 1;
            }
        }
        self.budget.pass(taken, step_s, now_s - begin_s);
    }

    fn collect(&mut self, random: &mut Random, now_s: f64) {
        if now_s >= self.next_young_s {
            self.next_young_s = now_s + self.young_s;
            self.old += PROMOTED * self.young;
            self.young = 0.0;
            let promoted = std::mem::take(&mut self.samples[1]);
            self.samples[2].extend(promoted.into_iter().filter(|_| random.chance(PROMOTED)));
        }
        if now_s >= self.next_old_s {
            self.next_old_s = now_s + self.old_s;
            if self.keeper == Keeper::WarmsUp {
                self.old_s *= 1.4;
            }
            self.old = 0.0;
            self.samples[2].clear();
        }
    }

    /// Live bytes, and those of a table for what is kept.
    fn live(&self) -> f64 {
        let table =
            if self.keeper == Keeper::Table { (self.kept.max(1e5) / 4.0).log2().ceil().exp2() } else { 0.0 };
        self.kept + self.young + self.old + table
    }

    /// What was kept, by line: that which keeps, and the other.
    fn stacks(&self, begin_s: f64, end_s: f64) -> [KeptAtStack; 2] {
        let all: Vec<Sampled> = self.samples.iter().flatten().copied().collect();
        let births = all.iter().map(|sample| (sample.time_s - begin_s, sample.weight)).collect();
        let span_s = kept_until(births, end_s - begin_s);
        let mut stacks: [KeptAtStack; 2] = Default::default();
        for sample in all.iter().filter(|sample| sample.time_s - begin_s < span_s) {
            let now = sample.size / -(-sample.size / self.budget.mean).exp_m1();
            stacks[usize::from(!sample.keeps)].add(sample.weight / span_s, now / span_s);
        }
        stacks
    }
}

/// What was found of a program, and whether it holds. None: nothing was said.
struct Coverage {
    growth: Option<bool>,
    line: Option<bool>,
    /// The upper end of the interval over its lower end.
    width: f64,
}

fn watch(keeper: Keeper, seed: u64) -> Coverage {
    let random = &mut Random::new(seed.wrapping_mul(100).wrapping_add(keeper as u64));
    let span_s = random.log_between(60.0, 600.0);
    let rate = random.log_between(50e3, 2e6);
    let level = rate * span_s * random.log_between(0.5, 4.0);
    let count = if keeper == Keeper::Workers { 4 } else { 1 };
    let each = rate / f64::from(count);
    let mut processes: Vec<MadeUp> = (0..count).map(|_| MadeUp::draw(random, keeper, each, span_s)).collect();
    let (step_s, begin_s) = (span_s / READINGS as f64, SAMPLED_FROM * span_s);
    let mut series = Series::default();
    let parts = (step_s / 0.05).ceil() as usize;
    let part_s = step_s / parts as f64;
    for reading in 0..READINGS {
        let read_at = random.below(parts as u64) as usize;
        for part in 0..parts {
            let now_s = reading as f64 * step_s + part as f64 * part_s;
            if part == read_at {
                let live = level + processes.iter().map(MadeUp::live).sum::<f64>();
                series.time_s.push(now_s);
                series.live.push(live);
                series.heap.push(1.1 * live);
                series.used.push(live);
                series.memory.push(1.1 * live + 20e6);
            }
            processes.iter_mut().for_each(|process| process.step(random, now_s, part_s, begin_s));
        }
    }
    let stacks: Vec<[KeptAtStack; 2]> =
        processes.iter().map(|process| process.stacks(begin_s, span_s)).collect();
    let line = kept_in_all(&stacks.iter().map(|both| both[0].clone()).collect::<Vec<_>>());
    let holds = |(low, high): (f64, f64), most: f64| low <= most && rate <= high;
    let others = OtherMeasures {
        by_lines: kept_in_all(&stacks.into_iter().flatten().collect::<Vec<_>>()),
        by_sizes: Some(slope(&series, begin_s)),
    };
    let judgement = assess(&series, 0.05);
    let used = judgement.used.filter(|_| judgement.verdict == Verdict::Leak);
    let growth = used.map(|used| {
        let (growth, interval) = (used.growth / span_s, (used.interval.0 / span_s, used.interval.1 / span_s));
        others.beside(0.0).widened(growth, interval).unwrap_or(interval)
    });
    // What its table grows by on the way counts as kept, or as steps.
    let most = if keeper == Keeper::Table { 1.5 * rate } else { rate };
    Coverage {
        growth: growth.map(|interval| holds(interval, most)),
        line: line.map(|line| holds(line.bytes_per_s_interval, rate)),
        width: growth.map_or(f64::NAN, |(low, high)| high / low.max(1.0)),
    }
}

/// Of live bytes over time, by least squares, as the counters of sizes give it.
fn slope(series: &Series, begin_s: f64) -> f64 {
    let points: Vec<(f64, f64)> = series
        .time_s
        .iter()
        .copied()
        .zip(series.live.iter().copied())
        .filter(|point| point.0 >= begin_s)
        .collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (t, y) = (mean(|point| point.0), mean(|point| point.1));
    let top: f64 = points.iter().map(|point| (point.0 - t) * (point.1 - y)).sum();
    top / points.iter().map(|point| (point.0 - t).powi(2)).sum::<f64>()
}

/// 210 programs; `make test-cli LONG=1` has more.
#[test]
fn intervals_of_growth_and_of_lines_hold_the_truth() {
    check(0..30);
}

#[test]
#[ignore = "long"]
fn intervals_of_growth_and_of_lines_hold_the_truth_of_many() {
    check(1000..1200);
}

fn check(seeds: std::ops::Range<u64>) {
    let share = |held: &[bool]| held.iter().filter(|held| **held).count() as f64 / held.len() as f64;
    let (mut all, mut lines, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for keeper in KEEPERS {
        let found: Vec<Coverage> = seeds.clone().map(|seed| watch(keeper, seed)).collect();
        let growth: Vec<bool> = found.iter().filter_map(|found| found.growth).collect();
        let line: Vec<bool> = found.iter().filter_map(|found| found.line).collect();
        let mut widths: Vec<f64> =
            found.iter().map(|found| found.width).filter(|width| width.is_finite()).collect();
        widths.sort_by(f64::total_cmp);
        println!(
            "{keeper:?}: growth {:.3} of {} (median of high over low {:.2}), line {:.3} of {}",
            share(&growth),
            growth.len(),
            widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN),
            share(&line),
            line.len()
        );
        let is_seen = growth.len() >= found.len() / 2 && line.len() >= found.len() * 9 / 10;
        if !is_seen || share(&growth) < 0.7 || share(&line) < 0.7 {
            failed.push(keeper);
        }
        all.extend(growth);
        lines.extend(line);
    }
    println!("growth {:.3}, lines {:.3}", share(&all), share(&lines));
    assert!(failed.is_empty(), "{failed:?}");
    assert!(share(&all) >= 0.93 && share(&lines) >= 0.93, "growth {}, lines {}", share(&all), share(&lines));
}
