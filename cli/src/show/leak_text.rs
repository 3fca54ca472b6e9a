//! The answer of `snug leak` for people.

use std::io::{self, Write};

use crate::analysis::leak_report::LeakReport;
use crate::analysis::verdict::Verdict;
use crate::base::terminal::{self, styled};

/// Writes the verdict, what it rests on, and what to do.
pub(crate) fn write(report: &LeakReport, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let style = match report.verdict {
        Verdict::Leak | Verdict::Growing | Verdict::Bloat => terminal::BAD,
        Verdict::Fragmented | Verdict::Unclear => terminal::WARNING,
        Verdict::Plateau => terminal::GOOD,
    };
    writeln!(out, "{}", styled(&report.answer, style, colours))?;
    for line in &report.evidence {
        writeln!(out, "  {line}")?;
    }
    for line in &report.advice {
        writeln!(out, "{} {line}", styled("->", terminal::FAINT, colours))?;
    }
    Ok(())
}
