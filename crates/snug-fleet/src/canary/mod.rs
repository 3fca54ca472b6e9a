//! The effect of a canary on the pods of a fleet: ratios between two groups of pods that run at the same time, and one
//! word. Pure.
//!
//! Pods are the units. A thousand readings of one pod say little more than ten: it keeps its level. So a pod's readings
//! become means of blocks of time, groups are compared within the same blocks and the same age of containers, and an
//! interval asks how much pods differ, not readings (docs/decisions/0031-canary-and-baseline.md).

pub mod effect;
pub mod events;
pub mod groups;
#[cfg(test)]
mod simulate;
pub mod conclusion;

use serde::Serialize;
use snug_stats as statistics;
use snug_stats::Meaning;

/// The answer about a quantity, and about all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Better,
    Worse,
    NoDifference,
    NotEnoughData,
    /// Of restarts and kills: no pod had any, so there is nothing to compare.
    NoneHappened,
}

impl Answer {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Answer::Better => "better",
            Answer::Worse => "worse",
            Answer::NoDifference => "no difference",
            Answer::NotEnoughData => "not enough data",
            Answer::NoneHappened => "none",
        }
    }
}

/// What counts as a difference.
#[derive(Debug, Clone, Copy)]
pub struct Judgement {
    /// The relative difference that must not be missed: 0.1.
    pub effect: f64,
    /// Smaller ones are called no difference, however sure they are: 0.02.
    pub tolerance: f64,
    /// How often chance alone may be called a difference, of this quantity.
    pub alpha: f64,
}

impl Judgement {
    /// The answer that follows from a ratio and the interval that decides.
    pub fn answer(self, ratio: f64, (low, high): (f64, f64)) -> Answer {
        let matters = statistics::exceeds(ratio, self.tolerance);
        match statistics::meaning((low, high), self.effect) {
            Meaning::More if matters => Answer::Worse,
            Meaning::Less if matters => Answer::Better,
            // What is shown and does not matter may still be more than the effect.
            _ => match statistics::meaning((low.min(1.0), high.max(1.0)), self.effect) {
                Meaning::NoDifference => Answer::NoDifference,
                _ => Answer::NotEnoughData,
            },
        }
    }
}

/// What is missing for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// So many seconds more of readings.
    Seconds(f64),
    /// So many pods in all, of canary and baseline: time alone does not help, as pods keep their levels.
    Pods { canary: usize, baseline: usize },
    /// So many at least: how many it takes shows once there are as many.
    FewestPods { canary: usize, baseline: usize },
    /// The groups have no time in common, or no age.
    Overlap(String),
}
