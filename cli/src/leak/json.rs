//! The answer of `snug leak` as JSON, with every reading.

use std::io::{self, Write};

use super::report::Report;
use super::Writer;

/// Writes one JSON object and a newline.
pub struct JsonWriter;

impl Writer for JsonWriter {
    fn write(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, report)?;
        writeln!(out)
    }
}
