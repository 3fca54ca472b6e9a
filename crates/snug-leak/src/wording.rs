//! The words of `snug leak`'s answer: the verdict in a sentence, the numbers it rests on, what to do now. Pure.

use crate::assemble::{LiveSource, Measure};
use crate::floors::FEWEST_READINGS;
use crate::growth_check::OtherMeasures;
use crate::report::{Grounds, Growth, LeakReport, WATCH_ANOTHER};
use crate::trend::{is_too_short, Direction, Doubt, Trend};
use crate::verdict::{Assessment, JudgedOver, Verdict};
use snug_base::terminal::{bytes, counted, number_in, plural, short_count, short_number, signed};
use snug_base::time::duration;
use snug_inspect::kinds::Kind;

/// Memory that reaches so many times its level has a peak of its own.
const PEAK_SHARE: f64 = 1.1;
/// What is steady from this part of the watch on is flat, whatever it did before.
const FLAT_FROM: f64 = 0.75;

impl LeakReport {
    fn memory_name(&self) -> &'static str {
        match self.measure {
            Measure::Rss => "RSS",
            Measure::Pss => "PSS",
        }
    }

    pub fn answer_to(&self, grounds: &Grounds) -> String {
        let judgement = &grounds.judgement;
        let pace = self.growth.map(|growth| self.pace(&growth)).unwrap_or_default();
        let of_worker = match grounds.replaced.filter(|_| grounds.by_age) {
            Some((lives, age_s)) => format!(
                ", in each process until it is replaced ({lives} were, at the age of {}): restarts hide it",
                duration(age_s)
            ),
            None => String::new(),
        };
        match judgement.verdict {
            Verdict::Leak if self.growth.is_some_and(|growth| growth.is_doubtful) => {
                format!("Leak: what is in use grows by {pace}{of_worker}.")
            }
            Verdict::Leak => format!("Leak: what the program keeps grows by {pace}{of_worker}."),
            Verdict::Growing => format!(
                "Growing by {pace}{of_worker}: a leak, or an allocator that holds more and more; {} does not show \
                    which.",
                self.allocator_names()
            ),
            Verdict::Bloat => format!(
                "Bloat: memory grows by {pace}{of_worker}, but what the program keeps does not: the allocator holds more \
                 and more."
            ),
            Verdict::Fragmented => {
                let (live, held) = grounds.heap.unwrap_or_default();
                let ratio = times(held, live).map(|times| format!(", {times} times as much"));
                format!(
                    "Fragmented: steady, but the allocator holds {} for {} that are live{}.",
                    bytes(held),
                    bytes(live),
                    ratio.unwrap_or_default()
                )
            }
            Verdict::Plateau => {
                let peak = self.peak().map(|peak| format!("; it goes up to {} and down again", bytes(peak)));
                format!("Plateau: memory has settled{}{}.", self.settled(judgement), peak.unwrap_or_default())
            }
            Verdict::Unclear => format!("Not enough data: {}.", self.doubt(judgement)),
        }
    }

    fn allocator_names(&self) -> String {
        let names: Vec<&str> = self.allocators.iter().map(|kind| kind.name()).collect();
        if names.is_empty() {
            "the allocator".into()
        } else {
            names.join(" and ")
        }
    }

    /// `12.3 MB per hour (95 % interval 11.0 to 13.6 MB), 4.10 kB per request`.
    fn pace(&self, growth: &Growth) -> String {
        let (unit_s, unit) = rate_unit(self.watched_s);
        let (low, high) = growth.bytes_per_s_interval;
        let mut text = format!(
            "{} per {unit} (95 % interval {} to {})",
            bytes(growth.bytes_per_s * unit_s),
            bytes((low * unit_s).max(0.0)),
            bytes(high * unit_s)
        );
        if let Some(per_request) = growth.bytes_per_request {
            text.push_str(&format!(", {} per {}", bytes(per_request), self.request_unit));
        }
        text
    }

    fn settled(&self, judgement: &Assessment) -> String {
        let trend = judgement.used.as_ref().unwrap_or(&judgement.memory);
        let Some(after_s) = trend.settled_after_s else { return String::new() };
        if after_s < 0.05 * trend.span_s {
            return ", from the start of the watch".into();
        }
        let at = self.series.time_s.iter().position(|time_s| time_s - self.series.time_s[0] >= after_s);
        let requests = at.and_then(|at| Some(self.series.requests.get(at)? - self.series.requests.first()?));
        let requests = match requests {
            Some(requests) => {
                format!(" and {} {}", short_count(requests), plural(requests, self.request_unit))
            }
            None => String::new(),
        };
        format!(" after {}{requests}", duration(after_s))
    }

    fn doubt(&self, judgement: &Assessment) -> String {
        let trend = judgement.used.as_ref().filter(|used| used.direction != Direction::Steady);
        let trend = trend.unwrap_or(&judgement.memory);
        match judgement.doubt {
            Some(Doubt::Short) | None => {
                format!("only {} readings; at least {} are needed", self.series.time_s.len(), FEWEST_READINGS)
            }
            Some(Doubt::Settling) if is_too_short(trend) => {
                "it grows by little, and the watch is too short to tell whether that goes on".into()
            }
            Some(Doubt::Settling | Doubt::Noise)
                if trend.settled_after_s.is_some_and(|after_s| after_s < FLAT_FROM * trend.span_s) =>
            {
                let after_s = trend.settled_after_s.unwrap_or_default();
                format!(
                    "it has been steady since {} into the watch, which is not long enough yet",
                    duration(after_s)
                )
            }
            Some(Doubt::Settling) if trend.still_to_come <= trend.margin => {
                "it rose at first and hardly since: too early to say that it has settled".into()
            }
            Some(Doubt::Settling) => format!(
                "it is still rising, more and more slowly; about {} more may come",
                bytes(trend.still_to_come.max(0.0))
            ),
            Some(Doubt::Steps) => "it rose in a step or two, which may not come again".into(),
            Some(Doubt::Noise) => format!(
                "it goes up and down too much: growth over the watch lies between {} and {}",
                signed(trend.interval.0, bytes),
                signed(trend.interval.1, bytes)
            ),
        }
    }

    pub fn evidence_for(&self, grounds: &Grounds) -> Vec<String> {
        let judgement = &grounds.judgement;
        let mut evidence = Vec::new();
        if let Some(used) = &judgement.used {
            evidence.push(format!("in use: {}", self.course(used)));
            if self.measure == Measure::Pss && used.level > judgement.memory.level {
                evidence.push(
                    "that counts pages which processes share since a fork in each of them; PSS divides them among the \
                     processes"
                        .into(),
                );
            }
            let live = grounds.live.as_ref().map_or(0.0, |live| live.level.max(0.0));
            if used.level - live > 0.2 * used.level {
                let source = match self.live_source {
                    LiveSource::Estimated => "",
                    _ => " (its own count)",
                };
                evidence.push(format!(
                    "of that, {} are live in the allocator{source} and {} are memory that the program maps itself",
                    bytes(live),
                    bytes(used.level - live)
                ));
            }
            if self.live_source == LiveSource::Estimated {
                evidence.push(
                    "live bytes are estimated from the chunks in glibc's heaps; its caches of freed blocks count as live"
                        .into(),
                );
            }
        } else {
            let names = self.allocator_names();
            evidence.push(match self.allocators.as_slice() {
                [Kind::Glibc] => format!(
                    "live bytes are not known: the heaps of {names} could not be walked (where \
                     kernel.yama.ptrace_scope is 1, only root may, or snug leak -- PROGRAM)"
                ),
                [kind] if kind.can_be_asked() => {
                    format!("live bytes are not known: {names} tells them only from within its process")
                }
                _ => format!("live bytes are not known: {names} does not report them"),
            });
        }
        if self.growth.is_some_and(|growth| growth.is_doubtful) {
            evidence.push(self.other_measures(&grounds.other_measures));
        }
        evidence.push(format!(
            "{}: {}{}",
            self.memory_name(),
            self.course(&judgement.memory),
            self.peak_text()
        ));
        // What an allocator does not see, as what V8 maps, is not its own.
        if let Some((live, held)) = grounds.heap.filter(|(live, held)| held >= live) {
            let excess = bytes((held - live).max(0.0));
            evidence.push(match times(held, live) {
                Some(times) => format!("the allocator holds {times} times its live bytes, {excess} more"),
                None => format!("the allocator holds {excess} more than its live bytes"),
            });
        }
        evidence.extend(self.how_watched(grounds));
        evidence
    }

    /// Why growth is not certain.
    fn other_measures(&self, measures: &OtherMeasures) -> String {
        let (unit_s, unit) = rate_unit(self.watched_s);
        let by = |name: &str, bytes_per_s: f64| {
            format!(
                "by {name} it grows by {} per {unit}",
                signed(bytes_per_s * unit_s, bytes).trim_start_matches('+')
            )
        };
        let measures = [
            measures.by_lines.map(|lines| by("the lines that keep", lines.bytes_per_s)),
            measures.by_sizes.map(|sizes| by("the sizes of blocks", sizes)),
        ];
        format!(
            "how fast is not certain: {}; while a garbage collector warms up, and while caches fill, more comes into use \
             than the program keeps",
            measures.into_iter().flatten().collect::<Vec<_>>().join(", ")
        )
    }

    /// The highest memory of the watch, if it is well above what it has settled at.
    pub fn peak(&self) -> Option<f64> {
        let peak = self.series.memory_bytes.iter().max().copied()? as f64;
        Some(peak).filter(|peak| *peak > PEAK_SHARE * self.judgement.memory.level)
    }

    /// `; at most 50.0 MB`.
    fn peak_text(&self) -> String {
        self.peak().map_or_else(String::new, |peak| format!("; at most {}", bytes(peak)))
    }

    /// How much was read, and over what growth is judged.
    fn how_watched(&self, grounds: &Grounds) -> Vec<String> {
        let counts = (self.series.processes.iter().min(), self.series.processes.iter().max());
        let mut how = format!("{} readings in {}", self.series.time_s.len(), duration(self.watched_s));
        match counts {
            (Some(least), Some(most)) if least != most => {
                how.push_str(&format!(", {least} to {most} processes"));
            }
            (_, most) => how.push_str(&format!(", {}", counted(*most.unwrap_or(&1), "process"))),
        }
        if let Some((lives, age_s)) = grounds.replaced {
            how.push_str(&format!(", {lives} of them replaced at the age of {}", duration(age_s)));
        }
        if let Some(requests) = self.requests {
            how.push_str(&format!(", {} {}", short_count(requests), plural(requests, self.request_unit)));
        }
        let mut lines = vec![how];
        if grounds.judgement.over == JudgedOver::Requests {
            lines.push(format!(
                "growth is judged over {}, which came faster and slower, rather than over time",
                plural(f64::INFINITY, self.request_unit)
            ));
        }
        lines
    }

    /// `123 MB, grows (+3.90 MB to +4.10 MB per hour with 95 % confidence)`.
    fn course(&self, trend: &Trend) -> String {
        let (unit_s, unit) = rate_unit(trend.span_s);
        let rate = |growth: f64| growth / trend.span_s * unit_s;
        let level = bytes(trend.level);
        let (low, high) = (signed(rate(trend.interval.0), bytes), signed(rate(trend.interval.1), bytes));
        let interval = format!("{low} to {high} per {unit} with 95 % confidence");
        match trend.direction {
            Direction::Unclear(Doubt::Short) => level,
            Direction::Growing => format!("{level}, grows ({interval})"),
            Direction::Steady => format!(
                "{level}, steady ({interval}; growth below {} per {unit} counts as none)",
                bytes(rate(trend.margin))
            ),
            Direction::Unclear(_) => format!("{level} ({interval})"),
        }
    }

    pub fn advice_for(&self, grounds: &Grounds) -> Vec<String> {
        let judgement = &grounds.judgement;
        let growths = judgement.used.as_ref().zip(grounds.live.as_ref());
        let own_mappings = growths.is_some_and(|(used, live)| live.growth < 0.5 * used.growth);
        if let (Verdict::Plateau, Some(peak)) = (judgement.verdict, self.peak()) {
            return vec![format!("set a memory limit above its peak, {}, not above the level", bytes(peak))];
        }
        let advice: &[&str] = match judgement.verdict {
            Verdict::Leak if own_mappings => &[
                "most of the growth is not in malloc but in memory that the program maps itself, as Python's object \
                 allocator and Ruby's heap pages do: use the language's own tools (tracemalloc, ObjectSpace), or start \
                 Python with PYTHONMALLOC=malloc",
                "no allocator helps; restarting workers hides it",
            ],
            Verdict::Leak if self.lines.is_empty() && self.allocators.contains(&Kind::Snug) => &[
                "find what is kept: snug profile --for 10m PID names the lines, while the process runs",
                "no allocator helps; restarting workers hides it",
            ],
            Verdict::Leak => &[
                "find what is kept: a cache without bounds, a list that only grows, an extension that never frees",
                "no allocator helps; restarting workers hides it",
            ],
            Verdict::Growing if self.allocators.iter().any(|kind| kind.can_be_asked()) => &[
                "ask its allocator to tell a leak from bloat: snug leak --ask-allocator -- PROGRAM",
                "or watch it under snug, which counts live bytes exactly: snug leak -- PROGRAM",
            ],
            Verdict::Growing => {
                &["watch it under snug to tell a leak from bloat: snug leak -- PROGRAM (it counts live bytes exactly)"]
            }
            Verdict::Bloat | Verdict::Fragmented if !self.allocators.contains(&Kind::Snug) => {
                &["another allocator may help: snug compare -- PROGRAM shows which"]
            }
            Verdict::Bloat | Verdict::Fragmented => &[
                "it happens under snug: blocks that live long lie among many that do not; snug stats shows their sizes",
                "snug advise -- PROGRAM tries the other allocators",
            ],
            Verdict::Plateau => &[],
            Verdict::Unclear if grounds.ended && judgement.doubt == Some(Doubt::Short) => {
                &["the process ended too early: watch one that runs longer, or read more often (--interval)"]
            }
            Verdict::Unclear if grounds.ended => &[WATCH_ANOTHER],
            Verdict::Unclear => &["watch longer (--for), under a load that repeats itself"],
        };
        advice.iter().map(|line| line.to_string()).collect()
    }
}

/// The unit of time that suits rates in a watch of this length, in seconds, and its name.
pub fn rate_unit(span_s: f64) -> (f64, &'static str) {
    if span_s < 60.0 {
        (1.0, "second")
    } else {
        (3600.0, "hour")
    }
}

/// How many times one number of bytes the other is, by what is shown of both. None where that can't be divided by.
fn times(count: f64, other: f64) -> Option<String> {
    let shown = |count: f64| number_in(&bytes(count));
    let other = shown(other).filter(|other| *other > 0.0)?;
    Some(short_number(shown(count)? / other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_what_is_shown() {
        assert_eq!(times(1.504e9, 1e9).as_deref(), Some("1.50"));
        assert_eq!(times(1.4951e6, 995.1e3).as_deref(), Some("1.51"), "1.50 MB to 995 kB");
        assert_eq!(times(20e6, 0.3), None);
        assert_eq!(times(20e6, -5e6), None);
    }
}
