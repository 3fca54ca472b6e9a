//! Numbers, emphasis and notes for people.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

use anstyle::{AnsiColor, Color, Style};

/// Emphasis for our own row and for headings.
pub const BOLD: Style = Style::new().bold();
pub const GOOD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green)));
pub const BAD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Red))).bold();
pub const WARNING: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Yellow)));
pub const FAINT: Style = Style::new().dimmed();

/// A text in a style, if styles are wanted.
pub fn styled(text: &str, style: Style, wanted: bool) -> String {
    if wanted {
        format!("{style}{text}{style:#}")
    } else {
        text.to_string()
    }
}

/// Whether stdout wants colours: a terminal, and NO_COLOR not set.
pub fn stdout_colours() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// A text of a process or of a file as one line for people. Characters that a terminal would obey, ends of lines, and what
/// turns the direction of the text around or can't be seen, are shown as U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The same of a text that may have several lines, and tabs.
pub fn printable_lines(text: &str) -> String {
    let is_kept = |c: char| !is_obeyed(c) || c == '\n' || c == '\t';
    text.chars().map(|c| if is_kept(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The same of a text of JSON that somebody else may have written: of what its strings say, and as what.
pub fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let is_space = matches!(c, '\n' | '\r' | '\t');
        if c != '\\' {
            shown.push(if is_obeyed(c) && !is_space { char::REPLACEMENT_CHARACTER } else { c });
            continue;
        }
        let kind = rest.next().unwrap_or(' ');
        let digits: String = if kind == 'u' { rest.clone().take(4).collect() } else { String::new() };
        let coded = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        let is_kept = |c: char| !is_obeyed(c) || c == '\n' || c == '\t';
        if matches!(kind, 'b' | 'f' | 'r') || coded.is_some_and(|c| !is_kept(c)) {
            shown.push_str("\\ufffd");
            rest = rest.as_str().get(digits.len()..).unwrap_or_default().chars();
        } else {
            shown.extend([c, kind]);
        }
    }
    shown
}

/// By such a name a process could show what stands beside it as something else. Joiners, which scripts need, are none.
pub(crate) fn is_obeyed(c: char) -> bool {
    let is_unseen = matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || is_unseen
}

/// Tells people something beside the answer, on stderr.
pub fn note(text: &str) {
    anstream::eprintln!("{} {}", styled("note:", WARNING, true), printable_lines(text));
}

/// Three significant digits or all whole ones, two of small numbers: 0.0012, 0.12, 1.23, 12.3, 123, 1234.
pub fn short_number(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude >= 99.95 => 0,
        magnitude if magnitude >= 9.995 => 1,
        magnitude if !(5e-5..0.0995).contains(&magnitude) => 2,
        magnitude if magnitude >= 0.00995 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Three significant digits or all whole ones, of small numbers too, as ratios are worked out from them: 0.0123, 0.123.
pub fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if !(5e-7..0.9995).contains(&magnitude) => return short_number(value),
        magnitude if magnitude >= 0.09995 => 3,
        magnitude if magnitude >= 0.009995 => 4,
        magnitude if magnitude >= 0.0009995 => 5,
        _ => 6,
    };
    format!("{value:.digits$}")
}

/// What a reader takes a number for that was written here, with its unit if it has one.
pub fn number_in(text: &str) -> Option<f64> {
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "GB" => 1e9,
        "M" | "MB" => 1e6,
        "k" | "kB" => 1e3,
        "ms" => 1e-3,
        _ => 1.0,
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// Bytes in the largest fitting unit.
pub fn bytes(count: f64) -> String {
    match count {
        count if count >= 1e9 => format!("{} GB", short_number(count / 1e9)),
        count if count >= 1e6 => format!("{} MB", short_number(count / 1e6)),
        count if count >= 1e3 => format!("{} kB", short_number(count / 1e3)),
        count => format!("{count:.0} B"),
    }
}

/// The same with as many digits as an error leaves, which is a part of the bytes: three, two of more than 5 %.
pub fn bytes_within(count: f64, uncertainty: f64) -> String {
    if uncertainty <= 0.05 {
        bytes(count)
    } else {
        rough_bytes(count)
    }
}

/// Bytes with two digits.
fn rough_bytes(count: f64) -> String {
    if count < 1.0 {
        return bytes(count);
    }
    let unit = 10f64.powi(count.log10().floor() as i32 - 1);
    let text = bytes((count / unit).round() * unit);
    match text.split_once(' ') {
        // Three digits, of which the last says nothing.
        Some((number, name)) if number.contains('.') => {
            format!("{} {name}", &number[..3].trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Between two numbers of bytes, with two digits: `20 to 36 MB`.
pub fn bytes_range(low: f64, high: f64) -> String {
    let [rough, exact] = [rough_bytes, bytes].map(|text| (text(low), text(high)));
    let (low, high) = if rough.0 == rough.1 { exact } else { rough };
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Columns that a line on stdout may have: those of the terminal, or else 80.
pub fn stdout_columns() -> usize {
    let terminal =
        std::io::stdout().is_terminal().then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    terminal.map_or(80, |(columns, _)| usize::from(columns).clamp(80, 200))
}

/// A sentence for stdout: on a terminal it goes on in the next line between words, and not within one. Elsewhere it
/// stays in one line, for programs that search.
pub fn prose(text: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => wrapped(text, stdout_columns()),
        false => text.into(),
    }
}

/// Lines of so many characters, unless a word is longer.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

/// An amount as `show` writes it, with a sign, also of what grew. What is shown as 0 did not shrink.
pub fn signed(amount: f64, show: impl Fn(f64) -> String) -> String {
    let text = show(amount.abs());
    let is_nothing = !text.contains(|digit: char| matches!(digit, '1'..='9'));
    let sign = if amount < 0.0 && !is_nothing { '-' } else { '+' };
    format!("{sign}{text}")
}

/// A count in thousands or millions.
pub fn short_count(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{} M", short_number(count / 1e6)),
        count if count >= 1e4 => format!("{} k", short_number(count / 1e3)),
        count => format!("{count:.0}"),
    }
}

/// What a thing is called where there are so many: 1 process, 2 processes, 3 runs of the load.
pub fn plural(count: f64, thing: &str) -> String {
    let (noun, rest) = thing.split_at(thing.find(' ').unwrap_or(thing.len()));
    let ending = match noun {
        _ if count == 1.0 => "",
        noun if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{noun}{ending}{rest}")
}

/// A number of things: `1 process`, `2 processes`.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {}", plural(count as f64, thing))
}

/// The environment; what is not Unicode is shown as well as it can be.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// A command line as one would type it: arguments that need quotes have them, and bytes that are no text are written as
/// shells read them.
pub fn shell_line(arguments: &[impl AsRef<OsStr>]) -> String {
    let byte = |byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    let quote = |argument: &OsStr| match argument.to_str() {
        Some(text) if is_plain(text) => text.to_string(),
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => format!("$'{}'", argument.as_bytes().iter().map(byte).collect::<String>()),
    };
    arguments.iter().map(|argument| quote(argument.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Whether a shell takes a word as it is.
pub fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    !word.is_empty() && word.chars().all(plain)
}

/// Words as text, for where nothing depends on those of their bytes that are none.
pub fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A number with so many decimals, as it is shown. What is shown as 0 is 0, and not -0.
pub fn rounded(number: f64, decimals: i32) -> f64 {
    let factor = 10f64.powi(decimals);
    (number * factor).round() / factor + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(short_number(1.234), "1.23");
        assert_eq!(short_number(12.34), "12.3");
        assert_eq!(short_number(1234.4), "1234");
        assert_eq!(short_number(99.99), "100");
        assert_eq!([0.0996, 0.0994, 0.00434, 0.00001].map(short_number), ["0.10", "0.099", "0.0043", "0.00"]);
        assert_eq!(bytes(389e6), "389 MB");
        assert_eq!(bytes(1500.0), "1.50 kB");
        assert_eq!(short_count(123_456.0), "123 k");
        assert_eq!(short_count(999.0), "999");
    }

    #[test]
    fn an_error_leaves_two_digits() {
        let rough = [27_449_000.0, 1e6, 996_000.0, 312_000.0, 1.0, 52.0, 0.0, 9_960.0].map(rough_bytes);
        assert_eq!(rough, ["27 MB", "1.0 MB", "1.0 MB", "310 kB", "1 B", "52 B", "0 B", "10 kB"]);
        assert_eq!([0.01, 0.2].map(|part| bytes_within(27_449_000.0, part)), ["27.4 MB", "27 MB"]);
        assert_eq!(bytes_range(20.1e6, 35.9e6), "20 to 36 MB");
        assert_eq!(bytes_range(25.06e6, 25.2e6), "25.1 to 25.2 MB");
        assert_eq!(bytes_range(13_000.0, 2.92e6), "13 kB to 2.9 MB");
    }

    #[test]
    fn small_numbers_have_three_digits_where_ratios_need_them() {
        let written = [0.9996, 0.1451, 0.09996, 0.02346, 0.001234, 0.000042, 1e-7, 0.0, 12.34, 1234.4];
        let wanted =
            ["1.00", "0.145", "0.100", "0.0235", "0.00123", "0.000042", "0.00", "0.00", "12.3", "1234"];
        assert_eq!(written.map(three_digits), wanted);
    }

    #[test]
    fn nothing_has_no_minus() {
        assert_eq!([-0.3, -0.0, 0.0, 0.3].map(|count| signed(count, bytes)), ["+0 B"; 4]);
        assert_eq!([-0.6, 0.6, -999.7].map(|count| signed(count, bytes)), ["-1 B", "+1 B", "-1000 B"]);
        assert_eq!([-1234.0, 5.6e6].map(|count| signed(count, bytes)), ["-1.23 kB", "+5.60 MB"]);
        assert_eq!([-1e-9, -0.5].map(|number| signed(number, three_digits)), ["+0.00", "-0.500"]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let texts =
            ["0.145", "12.3 k", "1.50 M", "355 MB", "1.50 kB", "7 B", "1.23 GB", "121 ms", "2.00 s", "0 /h"];
        let numbers = [0.145, 12.3e3, 1.5e6, 355e6, 1.5e3, 7.0, 1.23e9, 0.121, 2.0, 0.0];
        assert_eq!(texts.map(number_in), numbers.map(Some));
        assert_eq!(number_in("–"), None);
    }

    #[test]
    fn sentences_go_on_between_words() {
        let text = "snug uses 0.50 times the mean memory (RSS) of glibc; no difference in wall time.";
        let lines = wrapped(text, 30);
        assert!(
            lines.lines().all(|line| line.chars().count() <= 30) && lines.lines().count() == 3,
            "{lines}"
        );
        assert_eq!(lines.replace('\n', " "), text);
        assert_eq!(wrapped("/a/path/that/is/longer x", 10), "/a/path/that/is/longer\nx");
    }

    #[test]
    fn things_have_a_plural() {
        assert_eq!(
            ["process", "run of the load"].map(|thing| counted(1, thing)),
            ["1 process", "1 run of the load"]
        );
        assert_eq!(["process", "request"].map(|thing| counted(0, thing)), ["0 processes", "0 requests"]);
        assert_eq!(plural(2.5, "run of the load"), "runs of the load");
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_printed() {
        assert_eq!(printable("é\x1b]0;t\x07\r\n\u{9b}2J"), "é\u{fffd}]0;t\u{fffd}\u{fffd}\u{fffd}\u{fffd}2J");
        assert_eq!(printable_lines("a\x1bc\n\n\tb"), "a\u{fffd}c\n\n\tb");
        let unseen = "\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{202e}\u{2066}\u{2069}\u{206a}\u{feff}";
        assert_eq!(printable(unseen), "\u{fffd}".repeat(10));
        let json = r#"{"a\u001b": "\u001B[2J\r\n\\u001b\"\u00e9\u202e", "b": "x"}"#;
        let shown: serde_json::Value = serde_json::from_str(&printable_json(json)).unwrap();
        assert_eq!(shown["a\u{fffd}"], "\u{fffd}[2J\u{fffd}\n\\u001b\"é\u{fffd}");
        assert_eq!(printable_json("\u{202e}\n\r\\"), "\u{fffd}\n\r\\ ");
        assert_eq!(printable("\u{200c}\u{200d}שלום"), "\u{200c}\u{200d}שלום", "what scripts need stays");
    }

    #[test]
    fn command_lines_can_be_pasted() {
        let arguments = ["sh", "-c", "echo 'a b'", ""].map(String::from);
        assert_eq!(shell_line(&arguments), "sh -c 'echo '\\''a b'\\''' ''");
    }
}
