//! For tests of what is written.

/// Asserts that no number in a text is -0, whatever stands behind it.
pub fn assert_no_minus_zero(text: &str) {
    for word in text.split_whitespace() {
        let number = word.trim_start_matches('(').trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = number.strip_prefix('-').and_then(|number| number.parse::<f64>().ok());
        assert_ne!(number, Some(0.0), "{text}");
    }
}

/// What a format writes, as text.
pub fn written<E: std::fmt::Debug>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("writing into memory never fails");
    String::from_utf8(out).expect("it is text")
}
