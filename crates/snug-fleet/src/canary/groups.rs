//! Pods of two groups, and what they have in common: the same blocks of time, the same ages.

use std::collections::{BTreeMap, BTreeSet};

/// A pod whose containers are older than this counts as old, however old it is, in s.
const OLD_S: f64 = 86_400.0;
/// The youngest pods that are told apart, in s.
const YOUNG_S: f64 = 3600.0;
/// Blocks of time are an hour, or a sixth of a shorter window.
const BLOCK_S: f64 = 3600.0;
const BLOCKS_LEAST: f64 = 6.0;
/// A start that moves by less is the same start, written differently.
const SAME_START_S: f64 = 1.5;

/// One quantity of one pod over time, as Prometheus returned it.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSeries {
    /// Values of the labels that tell pods apart.
    pub unit: String,
    pub is_canary: bool,
    /// Unix time in s and value; in rising order of time, without NaN.
    pub readings: Vec<(f64, f64)>,
}

/// When the containers of each pod started, as far as that is known: Unix times in s, by the times they were read at.
#[derive(Debug, Clone, Default)]
pub struct Starts(BTreeMap<String, Vec<(f64, f64)>>);

impl Starts {
    /// From series whose values are times of starts.
    pub fn of(series: &[PodSeries]) -> Starts {
        Starts(series.iter().map(|pod| (pod.unit.clone(), pod.readings.clone())).collect())
    }

    /// Times at which a pod's container started anew while it was watched.
    pub fn restarts(&self, unit: &str) -> Vec<f64> {
        let readings = self.0.get(unit).map_or(&[][..], Vec::as_slice);
        let later = |pair: &&[(f64, f64)]| pair[1].1 > pair[0].1 + SAME_START_S;
        readings.windows(2).filter(later).map(|pair| pair[1].0).collect()
    }

    /// How old the containers of a pod were; None if nobody knows.
    fn age_s(&self, unit: &str, time: f64) -> Option<f64> {
        let readings = self.0.get(unit)?;
        let after = readings.partition_point(|(read_at, _)| *read_at <= time);
        let (_, start) = readings.get(after.saturating_sub(1))?;
        Some((time - start).max(0.0))
    }
}

/// How readings become blocks.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// Length of a block of time, in s.
    pub block_s: f64,
    /// Readings of younger containers are left out, in s.
    pub warm_up_s: f64,
}

impl Grouping {
    /// For a window of this length, read every `step_s`.
    pub fn of(window_s: f64, step_s: f64, warm_up_s: f64) -> Grouping {
        Grouping {
            block_s: (window_s / BLOCKS_LEAST).clamp(2.0 * step_s, BLOCK_S.max(2.0 * step_s)),
            warm_up_s,
        }
    }
}

/// The mean of a pod in a block of time, at an age of its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Which pod, of both groups.
    pub pod: usize,
    pub is_canary: bool,
    /// Which block of time.
    pub time: i64,
    pub age: u8,
    pub logarithm: f64,
}

/// Blocks in which both groups have pods.
#[derive(Debug, Clone, Default)]
pub struct Matched {
    pub blocks: Vec<Block>,
    /// Pods of canary and baseline that are in it.
    pub pods: (usize, usize),
    /// Pods with readings, but too few or at times and ages that the other group lacks.
    pub left_out: usize,
    /// Why there are no blocks.
    pub obstacle: Option<String>,
}

/// Makes blocks of readings and keeps those that both groups have.
pub fn matched(series: &[PodSeries], starts: &Starts, grouping: Grouping) -> Matched {
    let all: Vec<Block> = series
        .iter()
        .enumerate()
        .flat_map(|(pod, series)| blocks_of(pod, series, starts, grouping))
        .collect();
    let groups = |blocks: &[Block]| {
        let of = |canary| {
            let pods = blocks.iter().filter(|block| block.is_canary == canary).map(|block| block.pod);
            pods.collect::<BTreeSet<usize>>().len()
        };
        (of(true), of(false))
    };
    let same_time = common(&all, |block| block.time);
    let blocks = common(&same_time, |block| i64::from(block.age));
    // Ages may have taken all that one group had of a time.
    let blocks = common(&blocks, |block| block.time);
    let pods = groups(&blocks);
    let read = series.iter().filter(|pod| !pod.readings.is_empty()).count();
    let obstacle = blocks.is_empty().then(|| obstacle(series, &all, &same_time, grouping));
    Matched { blocks, pods, left_out: read - pods.0 - pods.1, obstacle }
}

/// Means of one pod. A single reading is no mean: the pod may have been about to end.
fn blocks_of(pod: usize, series: &PodSeries, starts: &Starts, grouping: Grouping) -> Vec<Block> {
    let mut sums: BTreeMap<(i64, u8), (f64, usize)> = BTreeMap::new();
    let first = series.readings.first().map_or(0.0, |(time, _)| *time);
    for (time, value) in &series.readings {
        let age_s = starts.age_s(&series.unit, *time);
        // Of a pod whose start nobody knows, the first reading is the latest that it can be.
        if age_s.unwrap_or(time - first) < grouping.warm_up_s {
            continue;
        }
        let key = ((time / grouping.block_s).floor() as i64, age_s.map_or(u8::MAX, age_class));
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + value, sum.1 + 1);
    }
    let means = sums.into_iter().filter(|(_, (sum, count))| *count >= 2 && *sum > 0.0);
    let block = |((time, age), (sum, count)): ((i64, u8), (f64, usize))| Block {
        pod,
        is_canary: series.is_canary,
        time,
        age,
        logarithm: (sum / count as f64).ln(),
    };
    means.map(block).collect()
}

/// Containers of one class are between n and 2 n hours old.
fn age_class(age_s: f64) -> u8 {
    (age_s.clamp(YOUNG_S, OLD_S) / YOUNG_S).log2().floor() as u8
}

/// Blocks whose key both groups have.
fn common(blocks: &[Block], key: impl Fn(&Block) -> i64) -> Vec<Block> {
    let of = |canary| -> BTreeSet<i64> {
        blocks.iter().filter(|block| block.is_canary == canary).map(&key).collect()
    };
    let (canary, baseline) = (of(true), of(false));
    let both = |block: &&Block| canary.contains(&key(block)) && baseline.contains(&key(block));
    blocks.iter().filter(both).cloned().collect()
}

fn obstacle(series: &[PodSeries], all: &[Block], same_time: &[Block], grouping: Grouping) -> String {
    let name = |canary: bool| if canary { "canary" } else { "baseline" };
    for canary in [true, false] {
        let group = || series.iter().filter(|pod| pod.is_canary == canary && !pod.readings.is_empty());
        if group().count() == 0 {
            return format!("the {} has no readings", name(canary));
        }
        if group().all(|pod| pod.readings.len() < 2) {
            return format!("every pod of the {} has one reading only", name(canary));
        }
        if !all.iter().any(|block| block.is_canary == canary) {
            return format!(
                "the {} has no two readings of a pod in {:.0} s after its first {:.0} s",
                name(canary),
                grouping.block_s,
                grouping.warm_up_s
            );
        }
    }
    if same_time.is_empty() {
        return "canary and baseline did not run at the same time".into();
    }
    let oldest =
        |canary| same_time.iter().filter(|block| block.is_canary == canary).map(|block| block.age).max();
    let older = if oldest(true) > oldest(false) { "canary" } else { "baseline" };
    format!("the pods of the {older} are all older than the others, and memory grows with age: restart them, or wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPING: Grouping = Grouping { block_s: 3600.0, warm_up_s: 600.0 };

    fn pod(unit: &str, is_canary: bool, hours: std::ops::Range<i32>) -> PodSeries {
        let minutes = hours.start * 60..hours.end * 60;
        let readings = minutes.step_by(5).map(|minute| (f64::from(minute) * 60.0, 2.0));
        PodSeries { unit: unit.into(), is_canary, readings: readings.collect() }
    }

    fn started(series: &[PodSeries], at: impl Fn(&PodSeries) -> f64) -> Starts {
        let starts: Vec<PodSeries> = series
            .iter()
            .map(|pod| {
                let start = at(pod);
                PodSeries {
                    readings: pod.readings.iter().map(|(time, _)| (*time, start)).collect(),
                    ..pod.clone()
                }
            })
            .collect();
        Starts::of(&starts)
    }

    #[test]
    fn only_common_hours_are_compared() {
        let series = [pod("a", true, 3..6), pod("b", false, 0..5), pod("c", false, 0..2)];
        let found = matched(&series, &Starts::default(), GROUPING);
        let times: BTreeSet<i64> = found.blocks.iter().map(|block| block.time).collect();
        assert_eq!((times, found.pods, found.left_out), ([3, 4].into(), (1, 1), 1));
    }

    #[test]
    fn ages_that_one_group_lacks_are_left_out() {
        let series = [pod("a", true, 0..6), pod("b", false, 0..6)];
        // The baseline is two days old, the canary new: nothing is comparable, and the words say so.
        let found = matched(
            &series,
            &started(&series, |pod| if pod.is_canary { 0.0 } else { -2.0 * OLD_S }),
            GROUPING,
        );
        assert!(found.blocks.is_empty() && found.obstacle.unwrap().contains("the baseline are all older"));
        // A baseline that started an hour earlier has all ages but the first.
        let found =
            matched(&series, &started(&series, |pod| if pod.is_canary { 0.0 } else { -3600.0 }), GROUPING);
        assert!(found.blocks.iter().all(|block| (0..=2).contains(&block.age)) && found.pods == (1, 1));
    }

    #[test]
    fn the_first_minutes_do_not_count() {
        let mut series = [pod("a", true, 0..2), pod("b", false, 0..2)];
        series[0].readings[0].1 = 1e9;
        let found = matched(&series, &started(&series, |_| 0.0), GROUPING);
        assert!(found.blocks.iter().all(|block| (block.logarithm - 2f64.ln()).abs() < 1e-9));
        let restarted = PodSeries {
            readings: vec![(0.0, -50.0), (300.0, -50.5), (600.0, 400.0), (900.0, 400.0)],
            ..series[0].clone()
        };
        assert_eq!(Starts::of(&[restarted]).restarts("a"), [600.0]);
    }

    #[test]
    fn one_reading_is_none() {
        let mut series = [pod("a", true, 0..2), pod("b", false, 0..2)];
        series[0].readings.truncate(1);
        let found = matched(&series, &Starts::default(), GROUPING);
        assert_eq!(found.obstacle.unwrap(), "every pod of the canary has one reading only");
        series[0].readings.clear();
        let found = matched(&series, &Starts::default(), GROUPING);
        assert_eq!(found.obstacle.unwrap(), "the canary has no readings");
    }
}
