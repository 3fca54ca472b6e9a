//! For tests: what they need of a machine, and what is written.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// What a test needs: the test goes on with it, or ends and says why it could not run. `tools/run-tests` counts that.
#[macro_export]
macro_rules! need {
    ($what:expr) => {
        match $what {
            Ok(found) => found,
            Err(why) => return $crate::testing::skip(&why),
        }
    };
}

/// Says that this test can't run here. The test harness hides what is printed by a test that passes, but not what is
/// written directly.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {}", thread.name().unwrap_or("a test"), why.trim());
}

/// The path of a program, or that it is not installed.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let folders = std::env::var("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    paths.find(runs).ok_or(format!("{name} is not installed"))
}

/// That the test runs as root.
pub fn root() -> Result<(), String> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    is_root.then_some(()).ok_or("needs root".into())
}

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
