//! How results are shown: tables, pages, plots, files for other programs. Decides nothing.

pub(crate) mod blame_text;
pub(crate) mod boot_text;
pub(crate) mod canary_text;
mod chart;
pub(crate) mod check_text;
mod csv;
pub(crate) mod flame;
pub(crate) mod fleet_text;
pub(crate) mod heap_v2;
mod html;
pub(crate) mod json;
pub(crate) mod leak_plot;
pub(crate) mod leak_text;
mod markdown;
pub(crate) mod output;
pub(crate) mod overview;
pub(crate) mod plot;
pub(crate) mod pprof;
pub(crate) mod profile_text;
pub(crate) mod residence_text;
pub(crate) mod stats_text;
pub(crate) mod table;

/// A number with so many decimals, as it is shown. What is shown as 0 is 0, and not -0.
fn rounded(number: f64, decimals: i32) -> f64 {
    let factor = 10f64.powi(decimals);
    (number * factor).round() / factor + 0.0
}

/// Asserts that no number in a text is -0, whatever stands behind it.
#[cfg(test)]
fn assert_no_minus_zero(text: &str) {
    for word in text.split_whitespace() {
        let number = word.trim_start_matches('(').trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = number.strip_prefix('-').and_then(|number| number.parse::<f64>().ok());
        assert_ne!(number, Some(0.0), "{text}");
    }
}

/// What a format writes, as text.
#[cfg(test)]
fn written<E: std::fmt::Debug>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("writing into memory never fails");
    String::from_utf8(out).expect("it is text")
}
