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

/// The answer about a quantity, and about all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Better,
    Worse,
    NoDifference,
    NotEnoughData,
}

impl Answer {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Answer::Better => "better",
            Answer::Worse => "worse",
            Answer::NoDifference => "no difference",
            Answer::NotEnoughData => "not enough data",
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

/// What is missing for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// So many seconds more of readings.
    Seconds(f64),
    /// So many pods in all, of canary and baseline: time alone does not help, as pods keep their levels.
    Pods { canary: usize, baseline: usize },
    /// The groups have no time in common, or no age.
    Overlap(String),
}
