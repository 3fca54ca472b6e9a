//! Series of readings made up from a seed, as programs that leak, bloat, fragment and settle would give them, and
//! the test that the verdict about them is right. What happens to a series is drawn first and the verdict is only
//! then asked: seeds of the test were not used while the method was chosen.

use crate::verdict::{assess, assess_with_requests, Series, Verdict};
use snug_base::random::Random;

/// What a made-up program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Behaviour {
    Leaks,
    Bloats,
    Fragments,
    Settles,
    /// Watched too briefly: a warm-up or a wave that is not over, or a step just before the end.
    TooEarly,
}

pub(crate) const BEHAVIOURS: [Behaviour; 5] =
    [Behaviour::Leaks, Behaviour::Bloats, Behaviour::Fragments, Behaviour::Settles, Behaviour::TooEarly];

impl Behaviour {
    /// Verdicts that are right.
    pub(crate) fn allows(self, verdict: Verdict) -> bool {
        match self {
            Behaviour::Leaks => verdict == Verdict::Leak,
            Behaviour::Bloats => verdict == Verdict::Bloat,
            Behaviour::Fragments => verdict == Verdict::Fragmented,
            Behaviour::Settles => verdict == Verdict::Plateau,
            Behaviour::TooEarly => verdict == Verdict::Unclear,
        }
    }
}

/// Draws a program of this behaviour and readings of it.
pub(crate) fn draw(behaviour: Behaviour, seed: u64) -> Series {
    let random = &mut Random::new(seed.wrapping_mul(1000).wrapping_add(behaviour as u64));
    let count = random.log_between(150.0, 2000.0) as usize;
    let span_s = random.log_between(60.0, 86400.0);
    let level = random.log_between(20e6, 4e9);
    let mut used = vec![level; count];
    let x: Vec<f64> = (0..count).map(|index| index as f64 / (count - 1) as f64).collect();
    // What it has once it is warm: growth of at least a tenth of that is twice the tolerance.
    let mut warm = level;
    if behaviour == Behaviour::TooEarly {
        too_early(random, &x, level, &mut used);
    } else if random.chance(0.8) {
        warm += warm_up(random, &x, level, &mut used);
    }
    if behaviour == Behaviour::Leaks {
        let growth = warm * random.log_between(0.1, 3.0);
        used.iter_mut().zip(&x).for_each(|(value, x)| *value += growth * x);
    }
    disturb(random, &x, level, &mut used);
    let ratio = match behaviour {
        Behaviour::Fragments => random.log_between(1.7, 6.0),
        _ => random.between(1.02, 1.3),
    };
    let bloat = match behaviour {
        Behaviour::Bloats => warm * random.log_between(0.1, 3.0),
        _ => 0.0,
    };
    readings(random, &x, span_s, used, ratio, bloat)
}

/// Draws a program of this behaviour whose memory follows its requests, which come faster and slower: in waves, or at
/// another pace from some moment on. Also returns how many there were at each moment.
pub(crate) fn draw_traffic(behaviour: Behaviour, seed: u64) -> (Series, Vec<f64>) {
    let steady = draw(behaviour, seed);
    let random = &mut Random::new(seed.wrapping_mul(1000).wrapping_add(500));
    let (depth, waves, phase) =
        (random.between(0.2, 0.9), random.log_between(0.4, 6.0), random.between(0.0, 1.0));
    let (changes, from, factor) =
        (random.chance(0.5), random.between(0.2, 0.8), random.log_between(0.25, 4.0));
    let pace = |x: f64| match changes {
        true if x > from => factor,
        true => 1.0,
        false => 1.0 + depth * (std::f64::consts::TAU * (waves * x + phase)).sin(),
    };
    let count = steady.time_s.len();
    let mut done = vec![0.0; count];
    for index in 1..count {
        done[index] = done[index - 1] + pace(index as f64 / (count - 1) as f64);
    }
    let all = done[count - 1];
    let at_requests = |values: &[f64]| {
        let place = |done: &f64| done / all * (count - 1) as f64;
        let value = |place: f64| {
            let before = (place as usize).min(count - 2);
            values[before] + (place - before as f64) * (values[before + 1] - values[before])
        };
        done.iter().map(|done| value(place(done))).collect()
    };
    let [memory, used, live, heap] =
        [&steady.memory, &steady.used, &steady.live, &steady.heap].map(|values| at_requests(values));
    let requests = random.log_between(1e3, 1e6);
    let requests = done.iter().map(|done| (done / all * requests).floor()).collect();
    (Series { memory, used, live, heap, time_s: steady.time_s }, requests)
}

/// What is read of a program that uses so much, under an allocator that holds `ratio` times as much and `bloat` more at
/// the end.
fn readings(random: &mut Random, x: &[f64], span_s: f64, used: Vec<f64>, ratio: f64, bloat: f64) -> Series {
    // The heap follows live bytes down only in part, and its own noise is its own.
    let sticky = random.between(0.0, 0.9);
    let noise = random.log_between(1e-4, 5e-3);
    let mut high = 0.0f64;
    let mut heap = Vec::new();
    for (value, x) in used.iter().zip(x) {
        high = value.max(high - (high - value) * (1.0 - sticky));
        heap.push(high * ratio * (1.0 + noise * random.normal()) + bloat * x);
    }
    let other = random.log_between(5e6, 60e6);
    Series {
        time_s: x.iter().map(|x| x * span_s).collect(),
        memory: heap.iter().map(|heap| heap + other).collect(),
        live: used.clone(),
        used,
        heap,
    }
}

/// How memory rises beside its warm-up: tables that double, parts of a program that are loaded late, and what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rise {
    StepsAndSlope,
    Steps,
    Slope,
    /// Only the saw tooth of a garbage collector.
    SawTooth,
}

/// Draws a program that rises in this way, with one to three steps anywhere, and readings of it.
pub(crate) fn draw_rise(rise: Rise, seed: u64) -> Series {
    let random = &mut Random::new(seed.wrapping_mul(7000).wrapping_add(rise as u64));
    let count = random.log_between(150.0, 2000.0) as usize;
    let span_s = random.log_between(60.0, 86400.0);
    let level = random.log_between(20e6, 4e9);
    let x: Vec<f64> = (0..count).map(|index| index as f64 / (count - 1) as f64).collect();
    let mut used = vec![level; count];
    let mut most = level;
    if matches!(rise, Rise::StepsAndSlope | Rise::Steps) {
        for _ in 0..random.between(1.0, 4.0) as usize {
            let at = random.between(0.03, 0.97);
            let height = level * random.log_between(0.05, 1.0);
            most += height;
            used.iter_mut().zip(&x).for_each(|(value, x)| *value += if *x > at { height } else { 0.0 });
        }
    }
    if matches!(rise, Rise::StepsAndSlope | Rise::Slope) {
        let growth = most * random.log_between(0.15, 3.0);
        used.iter_mut().zip(&x).for_each(|(value, x)| *value += growth * x);
    }
    if rise == Rise::SawTooth {
        let (height, teeth) = (level * random.log_between(0.05, 1.0), random.log_between(8.0, 200.0));
        used.iter_mut().zip(&x).for_each(|(value, x)| *value += height * (x * teeth).fract());
    }
    disturb(random, &x, level, &mut used);
    let ratio = random.between(1.02, 1.3);
    readings(random, &x, span_s, used, ratio, 0.0)
}

/// A warm-up that is over within the watch: it has at least six time constants. Returns its size.
fn warm_up(random: &mut Random, x: &[f64], level: f64, used: &mut [f64]) -> f64 {
    let size = level * random.log_between(0.05, 3.0);
    let tau = random.log_between(0.01, 0.16);
    let hyperbolic = random.chance(0.25);
    for (value, x) in used.iter_mut().zip(x) {
        *value += size * if hyperbolic { x / (x + tau / 20.0) } else { 1.0 - (-x / tau).exp() };
    }
    size
}

/// A rise of which nobody could say yet whether it ends.
fn too_early(random: &mut Random, x: &[f64], level: f64, used: &mut [f64]) {
    if random.chance(0.6) {
        // Between an eleventh and a half of what there will be is still to come: clearly more than the tolerance.
        let constants = random.between(0.7, 2.0);
        let size = level * random.log_between(0.25, 1.0) * constants.exp();
        used.iter_mut().zip(x).for_each(|(value, x)| *value += size * (1.0 - (-x * constants).exp()));
    } else {
        // One step in the last quarter.
        let at = random.between(0.75, 0.95);
        let size = level * random.log_between(0.3, 3.0);
        used.iter_mut().zip(x).for_each(|(value, x)| *value += if *x > at { size } else { 0.0 });
    }
}

/// What all programs do beside: collect garbage, serve bursts, follow the day, and be noisy.
fn disturb(random: &mut Random, x: &[f64], level: f64, used: &mut [f64]) {
    let noise = level * random.log_between(1e-4, 1e-2);
    let memory = if random.chance(0.5) { random.between(0.3, 0.95) } else { 0.0 };
    let mut state = 0.0;
    for value in used.iter_mut() {
        state = memory * state + (1.0 - memory * memory).sqrt() * noise * random.normal();
        *value += state;
    }
    if random.chance(0.6) {
        // Garbage collection: a saw tooth whose teeth differ.
        let height = level * random.log_between(0.02, 0.5);
        let length = random.log_between(1.0 / 200.0, 1.0 / 10.0);
        let (mut start, mut end) = (0.0, length * random.between(0.1, 1.0));
        let mut top = height;
        for (value, x) in used.iter_mut().zip(x) {
            while *x > end {
                start = end;
                end += length * random.between(0.6, 1.4);
                top = height * random.between(0.7, 1.3);
            }
            *value += top * (x - start) / (end - start);
        }
    }
    if random.chance(0.4) {
        // Bursts of requests.
        let mut left = 0.0;
        let mut size = 0.0;
        let rate = random.log_between(0.003, 0.03);
        for value in used.iter_mut() {
            if left <= 0.0 && random.chance(rate) {
                left = random.between(1.0, 6.0);
                size = level * random.log_between(0.05, 1.0);
            }
            if left > 0.0 {
                *value += size;
                left -= 1.0;
            }
        }
    }
    if random.chance(0.3) {
        // The day: at least two of them.
        let height = level * random.log_between(0.01, 0.15);
        let period = 1.0 / random.between(2.0, 12.0);
        let phase = random.between(0.0, std::f64::consts::TAU);
        for (value, x) in used.iter_mut().zip(x) {
            *value += height * (std::f64::consts::TAU * x / period + phase).sin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const VERDICTS: [Verdict; 5] =
        [Verdict::Leak, Verdict::Bloat, Verdict::Fragmented, Verdict::Plateau, Verdict::Unclear];
    /// Growth over the watch that is none, as `snug leak` takes it by itself.
    const TOLERANCE: f64 = 0.05;
    /// The method was chosen with seeds below 600; these were not looked at.
    const HELD_OUT: std::ops::Range<u64> = 20_000..20_300;
    /// A part of them, for every day; `make test-cli LONG=1` runs the whole.
    const SAMPLE: std::ops::Range<u64> = 20_000..20_080;
    /// By which shares of a sample may be off: two or three of 80.
    const SLACK: f64 = 0.03;

    /// How often each verdict was given for each behaviour.
    fn confusion(seeds: std::ops::Range<u64>) -> BTreeMap<(Behaviour, Verdict), u64> {
        let mut counts = BTreeMap::new();
        for behaviour in BEHAVIOURS {
            for seed in seeds.clone() {
                let verdict = assess(&draw(behaviour, seed), TOLERANCE).verdict;
                *counts.entry((behaviour, verdict)).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn verdicts_are_right_on_seeds_that_were_held_out() {
        check_verdicts(SAMPLE, SLACK);
    }

    #[test]
    #[ignore = "long"]
    fn verdicts_are_right_on_all_seeds_that_were_held_out() {
        check_verdicts(HELD_OUT, 0.0);
    }

    fn check_verdicts(seeds: std::ops::Range<u64>, slack: f64) {
        let counts = confusion(seeds.clone());
        let each = seeds.count() as f64;
        let share = |behaviour: Behaviour, fits: &dyn Fn(Verdict) -> bool| {
            VERDICTS
                .iter()
                .filter(|verdict| fits(**verdict))
                .filter_map(|v| counts.get(&(behaviour, *v)))
                .sum::<u64>() as f64
                / each
        };
        println!("{:10} {}", "", VERDICTS.map(|verdict| format!("{:>12}", format!("{verdict:?}"))).concat());
        let mut all = 0.0;
        for behaviour in BEHAVIOURS {
            let cells =
                VERDICTS.map(|v| format!("{:>12}", counts.get(&(behaviour, v)).copied().unwrap_or_default()));
            let right = share(behaviour, &|verdict| behaviour.allows(verdict));
            println!("{:10} {}   {:.1} % right", format!("{behaviour:?}"), cells.concat(), right * 100.0);
            assert!(right >= 0.92 - slack, "{behaviour:?}");
            all += right / BEHAVIOURS.len() as f64;
        }
        println!("{:.1} % of all are right", all * 100.0);
        assert!(all >= 0.95 - slack);
        // What matters most: nobody is sent to look for a leak that is none, or told that one is none.
        for behaviour in [Behaviour::Settles, Behaviour::Fragments, Behaviour::Bloats] {
            assert!(share(behaviour, &|verdict| verdict == Verdict::Leak) <= 0.02 + slack, "{behaviour:?}");
        }
        assert!(share(Behaviour::Leaks, &|verdict| verdict == Verdict::Plateau) <= 0.02 + slack);
        assert!(share(Behaviour::TooEarly, &|verdict| verdict == Verdict::Leak) <= 0.06 + slack);
    }

    /// Of programs of this behaviour whose requests come at changing paces, the share that is told to leak. `counted`: whether
    /// the requests are.
    fn leaks_in_traffic(behaviour: Behaviour, seeds: std::ops::Range<u64>, counted: bool) -> f64 {
        let each = seeds.clone().count() as f64;
        let leaks = seeds.filter(|seed| {
            let (series, requests) = draw_traffic(behaviour, *seed);
            let requests = if counted { &requests[..] } else { &[] };
            assess_with_requests(&series, requests, TOLERANCE).verdict == Verdict::Leak
        });
        leaks.count() as f64 / each
    }

    #[test]
    fn traffic_hides_no_leak_and_makes_none() {
        check_traffic(SAMPLE.start..SAMPLE.start + 24, 2.0 * SLACK);
    }

    #[test]
    #[ignore = "long"]
    fn traffic_hides_no_leak_and_makes_none_on_all_seeds() {
        check_traffic(HELD_OUT, 0.0);
    }

    fn check_traffic(seeds: std::ops::Range<u64>, slack: f64) {
        let told = |behaviour: Behaviour| leaks_in_traffic(behaviour, seeds.clone(), true);
        let (blind, counted) =
            (leaks_in_traffic(Behaviour::Leaks, seeds.clone(), false), told(Behaviour::Leaks));
        println!("of leaks {blind} are told if requests are not counted, {counted} if they are");
        assert!(counted >= 0.92 - slack && counted > blind);
        for behaviour in [Behaviour::Settles, Behaviour::Fragments, Behaviour::Bloats] {
            let alarms = told(behaviour);
            assert!(alarms <= 0.025 + slack, "{behaviour:?} {alarms}");
        }
    }

    #[test]
    fn steps_hide_no_slope_and_are_none() {
        check_rises(SAMPLE, SLACK);
    }

    #[test]
    #[ignore = "long"]
    fn steps_hide_no_slope_and_are_none_on_all_seeds() {
        check_rises(HELD_OUT, 0.0);
    }

    fn check_rises(seeds: std::ops::Range<u64>, slack: f64) {
        let rises = [Rise::StepsAndSlope, Rise::Steps, Rise::Slope, Rise::SawTooth];
        let leaks = |rise: Rise, seeds: &std::ops::Range<u64>| {
            let told = seeds
                .clone()
                .filter(|seed| assess(&draw_rise(rise, *seed), TOLERANCE).verdict == Verdict::Leak);
            told.count() as f64 / seeds.clone().count() as f64
        };
        let shares = rises.map(|rise| leaks(rise, &seeds));
        println!("leaks are told of {rises:?}: {shares:?}");
        let [both, steps, slope, saw_tooth] = shares;
        assert!(slope >= 0.92 - slack && saw_tooth <= 0.03 + slack, "{shares:?}");
        assert!(both >= 0.88 - slack, "{shares:?}");
        assert!(steps <= 0.05 + slack, "{shares:?}");
    }
}
