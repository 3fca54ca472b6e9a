//! The answer of `snug leak` for people.

use std::io::{self, Write};

use super::report::Report;
use super::verdict::Verdict;
use super::Writer;
use crate::terminal::{self, styled};

/// Writes the verdict, what it rests on, and what to do.
pub struct TextWriter {
    pub colours: bool,
}

impl Writer for TextWriter {
    fn write(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let style = match report.verdict {
            Verdict::Leak | Verdict::Growing | Verdict::Bloat => terminal::BAD,
            Verdict::Fragmented | Verdict::Unclear => terminal::WARNING,
            Verdict::Plateau => terminal::GOOD,
        };
        writeln!(out, "{}", styled(&report.answer, style, self.colours))?;
        for line in &report.evidence {
            writeln!(out, "  {line}")?;
        }
        for line in &report.advice {
            writeln!(out, "{} {line}", styled("->", terminal::FAINT, self.colours))?;
        }
        Ok(())
    }
}
