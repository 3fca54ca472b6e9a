//! What `snug check` found, as JSON for scripts.

use std::io::{self, Write};

use super::report::Report;
use super::Writer;

/// Writes one JSON object, indented, and a newline.
pub struct JsonWriter;

impl Writer for JsonWriter {
    fn write(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, report)?;
        writeln!(out)
    }
}
