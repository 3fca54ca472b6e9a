//! The comparison as JSON: the whole data model, for later commands and for other programs.

use std::io::{self, Write};

use super::results::Comparison;
use super::Writer;

/// Writes one JSON object and a newline.
pub struct JsonWriter;

impl Writer for JsonWriter {
    fn write(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, comparison)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;
    use crate::compare::results::FORMAT;

    #[test]
    fn what_is_written_can_be_read_back() {
        let comparison = fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]);
        let mut out = Vec::new();
        JsonWriter.write(&comparison, &mut out).unwrap();
        let read: Comparison = serde_json::from_slice(&out).unwrap();
        assert_eq!(read.format, FORMAT);
        assert_eq!(read.runs.len(), 4);
        assert_eq!(read.summary.conclusion, comparison.summary.conclusion);
        assert_eq!(read.runs[0].samples, comparison.runs[0].samples);
    }
}
