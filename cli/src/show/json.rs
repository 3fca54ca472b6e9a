//! Results as JSON, for scripts and for later commands. docs/guide/json.md describes the formats.

use std::io::{self, Write};

use serde::Serialize;

use crate::VERSION;

/// Name and version of a format. Fields may be added within a version; a change of meaning raises it.
pub(crate) type Format = (&'static str, u32);
pub(crate) const BLAME: Format = ("snug-blame", 1);
pub(crate) const BOOT: Format = ("snug-boot", 1);
pub(crate) const BOOT_DIFF: Format = ("snug-boot-diff", 1);
pub(crate) const CANARY: Format = ("snug-canary", 1);
pub(crate) const CHECK: Format = ("snug-check", 1);
pub(crate) const FLEET: Format = ("snug-fleet", 1);
pub(crate) const LEAK: Format = ("snug-leak", 1);
pub(crate) const PROFILE: Format = ("snug-profile", 1);
pub(crate) const PROFILE_DIFF: Format = ("snug-profile-diff", 1);
pub(crate) const STATS_WHERE: Format = ("snug-stats-where", 1);
pub(crate) const STATS: Format = ("snug-stats", 1);

/// What all formats begin with.
#[derive(Serialize)]
struct Document<'a, T> {
    format: &'static str,
    format_version: u32,
    snug_version: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T> Document<'a, T> {
    fn new((format, format_version): Format, content: &'a T) -> Document<'a, T> {
        Document { format, format_version, snug_version: VERSION, content }
    }
}

/// Writes one object of this format in one line.
pub(crate) fn write(format: Format, content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document::new(format, content))?;
    writeln!(out)
}

/// The same, indented.
pub(crate) fn write_indented(
    format: Format,
    content: &impl Serialize,
    out: &mut dyn Write,
) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document::new(format, content))?;
    writeln!(out)
}

/// Writes what holds its format itself, because it is read back: a comparison.
pub(crate) fn write_whole(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::boot::{BootMemory, BootRecorder, BootReport, Told};
    use crate::analysis::fixture;
    use crate::analysis::profile_difference;
    use crate::analysis::results::{Comparison, FORMAT};

    #[test]
    fn what_is_written_can_be_read_back() {
        let comparison = fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]);
        let mut out = Vec::new();
        write_whole(&comparison, &mut out).unwrap();
        let read: Comparison = serde_json::from_slice(&out).unwrap();
        assert_eq!(read.format, FORMAT);
        assert_eq!(read.runs.len(), 4);
        assert_eq!(read.summary.conclusion, comparison.summary.conclusion);
        assert_eq!(read.runs[0].samples, comparison.runs[0].samples);
    }

    #[test]
    fn formats_are_named_before_the_content() {
        let mut out = Vec::new();
        write(("snug-test", 7), &serde_json::json!({"pid": 1}), &mut out).unwrap();
        let wanted = format!(
            "{{\"format\":\"snug-test\",\"format_version\":7,\"snug_version\":\"{VERSION}\",\"pid\":1}}\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    /// Of a program whose files require each other so deeply.
    fn boot_report(depth: usize) -> BootReport {
        let mut recorder = BootRecorder::default();
        let mut take = |line: String| assert_ne!(recorder.take(&line, BootMemory::default()), Told::Nothing);
        take("0 start 7 ruby 3.3.1".into());
        (0..depth).for_each(|number| take(format!("{number} + file{number}")));
        (0..depth).rev().for_each(|number| take(format!("{depth} - loaded /app/file{number}.rb")));
        recorder.report("ruby app.rb")
    }

    #[test]
    fn files_that_require_each_other_deeply_can_be_read_back() {
        for depth in [1, 70, 1000] {
            let report = boot_report(depth);
            let mut out = Vec::new();
            write(BOOT, &report, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.matches("\"required\"").count(), depth + 1);
            let read: BootReport = profile_difference::parse(&text, BOOT).unwrap();
            assert_eq!(report.files, depth as u64);
            assert_eq!(read, BootReport { required: Vec::new(), ..report });
        }
    }
}
