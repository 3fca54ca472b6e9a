//! Growth that is measured in several ways: by what is in use over time, by the samples of blocks that stayed, and by
//! the counters of sizes. The interval of the first knows only its own noise, and a collector that warms up, and lets
//! ever more garbage gather, looks to it like growth of what the program keeps. Where the others differ, it is not
//! trusted alone. Pure.

use snug_profile::keeping::KeptInAll;

/// By so many times lines may differ, which know their own interval, and sizes, which are counted.
const LINES_DIFFER: f64 = 1.5;
const SIZES_DIFFER: f64 = 1.2;
/// Of fewer samples chance makes as much.
const FEWEST_SAMPLES: u64 = 4;

/// How fast blocks of malloc add up, measured otherwise than by what is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OtherMeasures {
    pub by_lines: Option<KeptInAll>,
    /// In bytes per second.
    pub by_sizes: Option<f64>,
}

impl OtherMeasures {
    /// The same of all that is in use: so much more is mapped beside malloc, in bytes per second.
    pub fn beside(self, mapped: f64) -> OtherMeasures {
        let by_lines = self.by_lines.filter(|lines| lines.samples >= FEWEST_SAMPLES);
        OtherMeasures {
            by_lines: by_lines.map(|lines| KeptInAll {
                bytes_per_s: lines.bytes_per_s + mapped,
                bytes_per_s_interval: (
                    lines.bytes_per_s_interval.0 + mapped,
                    lines.bytes_per_s_interval.1 + mapped,
                ),
                ..lines
            }),
            by_sizes: self.by_sizes.map(|sizes| sizes + mapped),
        }
    }

    /// The interval of growth, widened to hold the other measures. None: they do not differ from it, by chance or by much.
    pub fn widened(&self, growth: f64, interval: (f64, f64)) -> Option<(f64, f64)> {
        let differs = |other: f64, by: f64| other.max(growth) > by * other.min(growth).max(0.0);
        let excludes = |(low, high): (f64, f64)| growth < low || high < growth;
        let lines = self
            .by_lines
            .filter(|lines| differs(lines.bytes_per_s, LINES_DIFFER) || excludes(lines.bytes_per_s_interval));
        let sizes = self.by_sizes.filter(|sizes| differs(*sizes, SIZES_DIFFER));
        let ends = [lines.map(|lines| lines.bytes_per_s_interval), sizes.map(|sizes| (sizes, sizes))];
        let mut ends = ends.into_iter().flatten().peekable();
        ends.peek()?;
        Some(ends.fold(interval, |all, (low, high)| (all.0.min(low), all.1.max(high))))
    }
}
