//! A profile without its stacks: what each line of code, or each function without lines, allocated by itself, and what it
//! did together with all that it called. How sure such numbers are.

use std::collections::{HashMap, HashSet};

use regex_lite::Regex;
use statrs::distribution::{ContinuousCDF, Gamma};

use crate::sites::{own_frame, telling_frame, Branch, Frame, Site};

/// Probability that the true value lies beyond one end of an interval, and the normal distribution's quantile there.
const BEYOND: f64 = 0.025;
const NORMAL: f64 = 1.959964;
/// From this many samples on, their sum is normally distributed.
const MANY: f64 = 10_000.0;

/// A sum of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SampledSum {
    /// An estimate.
    pub bytes: f64,
    /// Likewise.
    pub blocks: f64,
    /// Samples behind them.
    pub samples: u64,
    /// Of the bytes.
    pub variance: f64,
}

impl SampledSum {
    /// That of all sites.
    pub fn of<'a>(sites: impl IntoIterator<Item = &'a Site>) -> SampledSum {
        let mut sum = SampledSum::default();
        sites.into_iter().for_each(|site| sum.add(site));
        sum
    }

    /// Adds a site.
    pub fn add(&mut self, site: &Site) {
        self.bytes += site.bytes;
        self.blocks += site.blocks;
        self.samples += site.samples;
        self.variance += site.variance_or_guess();
    }

    /// The 95 % interval of the bytes, by the gamma distribution with their mean and variance (Fay and Feuer, 1997): of
    /// equal weights that of a Poisson count (Garwood, 1936). Where each block is a sample, nothing is unsure.
    pub fn interval(&self) -> (f64, f64) {
        if self.bytes <= 0.0 || self.variance <= 0.0 {
            return (self.bytes, self.bytes);
        }
        let unit = self.variance / self.bytes;
        let count = self.bytes / unit;
        if count > MANY {
            let half = NORMAL * self.variance.sqrt();
            return (self.bytes - half, self.bytes + half);
        }
        let end = |count: f64, probability| {
            Gamma::new(count, 1.0).map_or(count, |gamma| gamma.inverse_cdf(probability))
        };
        (unit * end(count, BEYOND), unit * end(count + 1.0, 1.0 - BEYOND))
    }

    /// How far the ends of the interval are from the middle, as a part of the bytes.
    pub fn uncertainty(&self) -> f64 {
        let (low, high) = self.interval();
        if self.bytes > 0.0 {
            (high - low) / 2.0 / self.bytes
        } else {
            0.0
        }
    }
}

impl Branch {
    /// What is at it and below it; blocks are not counted.
    pub fn estimate(&self) -> SampledSum {
        SampledSum { bytes: self.bytes, samples: self.samples, variance: self.variance, blocks: 0.0 }
    }
}

/// What was allocated at a line.
#[derive(Debug, Clone, PartialEq)]
pub struct FlatLine {
    /// The line.
    pub frame: Frame,
    /// By itself; in C++ and Rust with the containers that it uses.
    pub own: SampledSum,
    /// With all that it called.
    pub total_bytes: f64,
    /// The line of a language that it worked for, of the stack with the most bytes, if it has none itself.
    pub working_for: Option<Frame>,
}

/// All lines that allocated something by themselves, the most first.
pub fn flat_lines(sites: &[Site]) -> Vec<FlatLine> {
    let mut lines: HashMap<&Frame, FlatLine> = HashMap::new();
    // Sites begin with the most bytes.
    for site in sites {
        let own = own_frame(&site.frames);
        let Some(frame) = site.frames.get(own) else { continue };
        let line = lines.entry(frame).or_insert_with(|| FlatLine {
            frame: frame.clone(),
            own: SampledSum::default(),
            total_bytes: 0.0,
            working_for: Some(&site.frames[telling_frame(&site.frames)])
                .filter(|telling| frame.line == 0 && telling.line > 0)
                .cloned(),
        });
        line.own.add(site);
    }
    for site in sites {
        let frames: HashSet<&Frame> = site.frames.iter().collect();
        for frame in frames {
            if let Some(line) = lines.get_mut(frame) {
                line.total_bytes += site.bytes;
            }
        }
    }
    let mut lines: Vec<FlatLine> = lines.into_values().collect();
    lines.sort_by(|a, b| b.own.bytes.total_cmp(&a.own.bytes).then_with(|| a.frame.cmp(&b.frame)));
    lines
}

/// Which stacks are shown.
#[derive(Debug, Clone, Default)]
pub struct StackFilter {
    /// One frame must match.
    pub focus: Option<Regex>,
    /// No frame may.
    pub ignore: Option<Regex>,
}

impl StackFilter {
    /// Whether it leaves nothing out.
    pub fn is_none(&self) -> bool {
        self.focus.is_none() && self.ignore.is_none()
    }

    /// Whether a site is to be shown.
    pub fn wants(&self, site: &Site) -> bool {
        let texts: Vec<String> = match self.is_none() {
            true => Vec::new(),
            false => site.frames.iter().map(searched).collect(),
        };
        let has = |pattern: &Regex| texts.iter().any(|text| pattern.is_match(text));
        self.focus.as_ref().is_none_or(has) && !self.ignore.as_ref().is_some_and(has)
    }
}

/// As it is shown, with all of its path.
fn searched(frame: &Frame) -> String {
    format!("{} {}", frame.text(), frame.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;

    fn frame(function: &str, line: u32) -> Frame {
        Frame::new(function, "/app/a.rb", line)
    }

    fn site(bytes: f64, frames: &[Frame]) -> Site {
        Site { bytes, blocks: 10.0, samples: 1, frames: frames.to_vec(), variance: Some(bytes * bytes) }
    }

    #[test]
    fn lines_are_added_up_over_all_stacks() {
        let (main, parse, c) = (frame("main", 9), frame("parse", 3), frame("yaml_parser_initialize", 0));
        let sites = [
            site(6.0, &[c.clone(), parse.clone(), main.clone()]),
            site(5.0, &[parse.clone(), parse.clone(), main.clone()]),
            site(4.0, &[c.clone(), main.clone()]),
        ];
        let lines = flat_lines(&sites);
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line.frame.function.as_str(), line.own.bytes, line.total_bytes, line.own.samples))
            .collect();
        assert_eq!(found, [("yaml_parser_initialize", 10.0, 10.0, 2), ("parse", 5.0, 11.0, 1)]);
        assert_eq!((&lines[0].working_for, &lines[1].working_for), (&Some(parse), &None));
    }

    #[test]
    fn containers_allocate_for_who_calls_them() {
        let push = frame("std::vector<int>::push_back", 0);
        let lines =
            flat_lines(&[site(6.0, &[push.clone(), frame("shop::Cart::add", 0)]), site(1.0, &[push])]);
        let names: Vec<_> = lines.iter().map(|line| line.frame.function.as_str()).collect();
        assert_eq!(names, ["shop::Cart::add", "std::vector<int>::push_back"]);
    }

    /// By the tables of Garwood's intervals.
    #[test]
    fn equal_samples_have_the_interval_of_their_count() {
        for (count, low, high) in [(1, 0.0253, 5.57), (4, 1.09, 10.24), (10, 4.80, 18.39), (100, 81.4, 121.6)]
        {
            let estimate =
                SampledSum { bytes: f64::from(count), variance: f64::from(count), ..SampledSum::default() };
            let found = estimate.interval();
            assert!(
                (found.0 / low - 1.0).abs() < 0.01 && (found.1 / high - 1.0).abs() < 0.01,
                "{count}: {found:?}"
            );
        }
        assert_eq!(SampledSum { bytes: 7.0, ..SampledSum::default() }.interval(), (7.0, 7.0));
    }

    /// Blocks of many sizes, of which some are surely sampled, with a mean that the budget raises in between.
    #[test]
    fn the_truth_lies_in_most_intervals() {
        let mut random = Random::new(5);
        let (mut inside, tries) = (0, 500);
        for _ in 0..tries {
            let (mut truth, mut estimate) = (0.0, SampledSum::default());
            for number in 0..3000 {
                let bytes: f64 = random.log_between(50.0, 200_000.0);
                let mean = if number < 1000 { 65_536.0 } else { 1_048_576.0 };
                truth += bytes;
                let chance = 1.0 - (-bytes / mean).exp();
                if random.chance(chance) {
                    estimate.add(&Site::of_sample(bytes / chance, 1.0 / chance));
                }
            }
            let (low, high) = estimate.interval();
            inside += u32::from((low..high).contains(&truth));
        }
        assert!((463..=500).contains(&inside), "{inside} of {tries}");
    }

    #[test]
    fn stacks_are_chosen_by_any_frame() {
        let sites =
            [site(1.0, &[frame("f", 1), frame("main", 9)]), site(1.0, &[frame("g", 2), frame("main", 9)])];
        let chosen = |focus: Option<&str>, ignore: Option<&str>| {
            let pattern = |text: Option<&str>| text.map(|text| Regex::new(text).unwrap());
            let filter = StackFilter { focus: pattern(focus), ignore: pattern(ignore) };
            sites.iter().map(|site| filter.wants(site)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(None, None), [true, true]);
        assert_eq!(chosen(Some("^f "), None), [true, false]);
        assert_eq!(chosen(Some("main"), Some("^g")), [true, false]);
        assert_eq!(chosen(None, Some("/app/")), [false, false]);
    }
}
