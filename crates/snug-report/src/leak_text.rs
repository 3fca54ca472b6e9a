//! The answer of `snug leak` for people.

use std::io::{self, Write};

use snug_base::terminal::{self, bytes, printable, styled};
use snug_leak::report::LeakReport;
use snug_leak::size_growth::GrowingSize;
use snug_leak::verdict::Verdict;
use snug_leak::wording::rate_unit;

/// How many are shown: sizes of blocks, lines of code, and callers of each.
const SIZES: usize = 3;
const LINES: usize = 5;
const CALLERS: usize = 2;

/// Writes the verdict, what it rests on, and what to do.
pub fn write(report: &LeakReport, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let style = match report.verdict {
        Verdict::Leak | Verdict::Growing | Verdict::Bloat => terminal::BAD,
        Verdict::Fragmented | Verdict::Unclear => terminal::WARNING,
        Verdict::Plateau => terminal::GOOD,
    };
    writeln!(out, "{}", styled(&printable(&report.answer), style, colours))?;
    for line in &report.evidence {
        writeln!(out, "  {}", printable(line))?;
    }
    write_sizes(report, out)?;
    write_lines(report, out)?;
    for line in &report.advice {
        writeln!(out, "{} {}", styled("->", terminal::FAINT, colours), printable(line))?;
    }
    Ok(())
}

/// The sizes that grow most.
fn write_sizes(report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    if report.sizes.is_empty() {
        return Ok(());
    }
    let size = |growing: &GrowingSize| format!("{} ({:.0} %)", growing.size.text(), 100.0 * growing.share);
    let sizes: Vec<String> = report.sizes.iter().take(SIZES).map(size).collect();
    writeln!(out, "  blocks that add up, by size: {}", sizes.join(", "))
}

/// The lines that keep most, with their callers.
fn write_lines(report: &LeakReport, out: &mut dyn Write) -> io::Result<()> {
    if report.lines.is_empty() {
        return Ok(());
    }
    let (seconds, unit) = rate_unit(report.watched_s);
    let which = match report.verdict {
        Verdict::Leak => "these lines keep",
        _ => "if it is a leak, these lines keep",
    };
    writeln!(out, "  {which} what they allocate, per {unit}, by samples:")?;
    for line in report.lines.iter().take(LINES) {
        let [rate, low, high] = [line.bytes_per_s, line.bytes_per_s_interval.0, line.bytes_per_s_interval.1]
            .map(|bytes_per_s| bytes(bytes_per_s * seconds));
        writeln!(out, "    {rate} ({low} to {high})  {}", printable(&line.line.text()))?;
        for caller in line.callers.iter().take(CALLERS) {
            writeln!(out, "      by {}", printable(&caller.text()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_inspect::kinds::Kind;
    use snug_leak::assemble::LiveSource;
    use snug_leak::fixture::{drawn, leaking, line, steady, Watch};
    use snug_leak::growth_check::OtherMeasures;
    use snug_leak::report::Remarks;
    use snug_leak::verdict::Series;
    use snug_profile::keeping::KeptInAll;

    /// Of which live bytes are not known.
    fn unknown(kind: Kind) -> Watch {
        let series = Series { used: vec![], live: vec![], heap: vec![], ..line(59.9e6) };
        Watch { kind, live_source: LiveSource::Unknown, sampled: false, ..Watch::of(series) }
    }

    /// The allocator holds more and more.
    fn bloated() -> Series {
        let mut series = line(0.0);
        for values in [&mut series.memory, &mut series.heap] {
            values.iter_mut().enumerate().for_each(|(moment, value)| *value += 1e5 * moment as f64);
        }
        series
    }

    /// Rises by this height, and comes to rest in some of these times.
    fn settling(height: f64, rest_s: f64) -> Series {
        drawn(600, 599.0, |time_s| 100e6 - height * (-time_s / rest_s).exp())
    }

    fn growing() -> Vec<(&'static str, Watch)> {
        let [lines, sizes] = [40e3, 60e3];
        let by_lines =
            KeptInAll { bytes_per_s: lines, bytes_per_s_interval: (0.8 * lines, 1.3 * lines), samples: 40 };
        let other_measures = OtherMeasures { by_lines: Some(by_lines), by_sizes: Some(sizes) };
        let unsampled = |series| Watch { sampled: false, ..Watch::of(series) };
        let estimated =
            |series| Watch { kind: Kind::Glibc, live_source: LiveSource::Estimated, ..unsampled(series) };
        vec![
            ("a leak under snug", Watch::of(line(59.9e6))),
            ("a leak under snug, without samples", unsampled(line(59.9e6))),
            ("a leak under glibc", estimated(line(59.9e6))),
            (
                "a leak that lines and sizes do not confirm",
                Watch { other_measures, ..Watch::of(line(59.9e6)) },
            ),
            ("a leak in what the program maps itself", Watch::of(leaking(false, |_| 0.0))),
            (
                "a leak in workers that are replaced",
                Watch { by_age: Some((line(59.9e6), 7)), ..Watch::of(line(0.0)) },
            ),
            ("growth under jemalloc, which was not asked", unknown(Kind::Jemalloc)),
            ("growth under mimalloc", unknown(Kind::Mimalloc)),
            ("growth under glibc, whose heaps could not be walked", unknown(Kind::Glibc)),
            ("bloat under snug", Watch::of(bloated())),
            ("bloat under glibc", estimated(bloated())),
        ]
    }

    fn steady_or_in_doubt() -> Vec<(&'static str, Watch)> {
        let short = || drawn(10, 9.0, |_| 100e6);
        let rising = || drawn(600, 599.0, |time_s| 180e6 - 80e6 * (-time_s / 900.0).exp());
        let noisy = drawn(600, 599.0, |time_s| 100e6 + 60e6 * (time_s / 31.0).sin() * (time_s / 170.0).sin());
        let stepped = drawn(600, 599.0, |time_s| if time_s < 500.0 { 100e6 } else { 130e6 });
        let late = drawn(200, 100.0, |time_s| 50e6 + 80e6 * (time_s / 60.0).min(1.0));
        let saw_tooth = drawn(200, 100.0, |time_s| 3e6 + 44e6 * (time_s / 4.03).fract());
        let ended = |obstacles: &[&str], series| {
            let obstacles = obstacles.iter().map(|text| text.to_string()).collect();
            let end = "process 47 ended after 55 min: it exited with code 0";
            let remarks = Remarks { obstacles, end: Some(end.into()), ended: true, ..Remarks::default() };
            Watch { remarks, ..Watch::of(series) }
        };
        let failed = "the load failed all 9 times";
        let obstacles = vec![failed.into()];
        let remarks = Remarks { obstacles, ..Remarks::default() };
        vec![
            ("fragmentation", Watch::of(steady(vec![20e6; 300], vec![70e6; 300]))),
            ("fragmentation, nothing live", Watch::of(steady(vec![0.0; 300], vec![30e6; 300]))),
            ("a plateau", Watch::of(line(0.0))),
            ("a plateau after a rise", Watch::of(settling(50e6, 40.0))),
            ("a plateau with peaks", Watch::of(saw_tooth)),
            ("too few readings", Watch::of(short())),
            ("too short for slow growth", Watch::of(drawn(200, 3.0, |time_s| 8e6 + 50e3 * time_s))),
            ("rises more and more slowly", Watch::of(rising())),
            ("rose until lately", Watch::of(late)),
            ("rose in a step", Watch::of(stepped)),
            ("goes up and down", Watch::of(noisy)),
            ("steady under a load that failed", Watch { remarks, ..Watch::of(line(0.0)) }),
            ("steady until it ended", ended(&[], line(0.0))),
            ("steady until it ended, under a load that failed", ended(&[failed], line(0.0))),
            ("ended too early", ended(&[], short())),
            ("ended while it rose", ended(&[], rising())),
        ]
    }

    #[test]
    fn each_verdict_has_words() {
        let mut told = String::new();
        for (name, watch) in growing().into_iter().chain(steady_or_in_doubt()) {
            let text = snug_base::testing::written(|out| write(&watch.report(), false, out));
            told += &format!("== {name}\n{text}");
        }
        expect_test::expect_file!["../golden/leak.txt"].assert_eq(&told);
    }
}
