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
