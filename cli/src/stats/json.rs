//! Stats of a process as JSON.

use std::io::{self, Write};

use super::{Stats, Writer};

/// Writes JSON.
pub struct JsonWriter;

impl Writer for JsonWriter {
    fn write(&self, stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, stats)?;
        writeln!(out)
    }
}
