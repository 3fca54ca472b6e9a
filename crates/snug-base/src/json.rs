//! Results as JSON, for scripts and for later commands. docs/reference/json.md describes the formats.

use std::io::{self, Write};

use serde::Serialize;

use crate::terminal::is_obeyed;
use crate::VERSION;

/// Name and version of a format. Fields may be added within a version; a change of meaning raises it.
pub type Format = (&'static str, u32);
pub const BLAME: Format = ("snug-blame", 1);
pub const BOOT: Format = ("snug-boot", 1);
pub const BOOT_DIFF: Format = ("snug-boot-diff", 1);
pub const CANARY: Format = ("snug-canary", 1);
pub const CHECK: Format = ("snug-check", 1);
pub const FLEET: Format = ("snug-fleet", 1);
pub const LEAK: Format = ("snug-leak", 1);
pub const PROFILE: Format = ("snug-profile", 1);
pub const PROFILE_DIFF: Format = ("snug-profile-diff", 1);
pub const STATS_WHERE: Format = ("snug-stats-where", 1);
pub const STATS_COPIED: Format = ("snug-stats-copied", 1);
pub const STATS: Format = ("snug-stats", 1);

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
pub fn write(format: Format, content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_text(&serde_json::to_string(&Document::new(format, content))?, out)
}

/// The same, indented.
pub fn write_indented(format: Format, content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_text(&serde_json::to_string_pretty(&Document::new(format, content))?, out)
}

/// Writes what holds its format itself, because it is read back: a comparison.
pub fn write_whole(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_text(&serde_json::to_string(document)?, out)
}

/// Writes JSON that says the same on a terminal: what that would obey can only stand within strings, and is escaped there.
fn write_text(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = text;
    while let Some((at, c)) = rest.char_indices().find(|(_, c)| *c != '\n' && is_obeyed(*c)) {
        write!(out, "{}\\u{:04x}", &rest[..at], u32::from(c))?;
        rest = &rest[at + c.len_utf8()..];
    }
    writeln!(out, "{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named_before_the_content() {
        let mut out = Vec::new();
        write(("snug-test", 7), &serde_json::json!({"pid": 1}), &mut out).unwrap();
        let wanted = format!(
            "{{\"format\":\"snug-test\",\"format_version\":7,\"snug_version\":\"{VERSION}\",\"pid\":1}}\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn texts_send_nothing_to_a_terminal() {
        let harm = serde_json::json!({"a": "\u{1b}[2J\u{9b}2J\u{202e}é\n", "b": ["\u{feff}"]});
        type Writer = fn(&serde_json::Value, &mut dyn Write) -> io::Result<()>;
        let writers: [Writer; 2] =
            [|value, out| write_whole(value, out), |value, out| write_indented(("x", 1), value, out)];
        for write in writers {
            let mut out = Vec::new();
            write(&harm, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{feff}']), "{text}");
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&read["a"], &read["b"]), (&harm["a"], &harm["b"]));
        }
    }
}
