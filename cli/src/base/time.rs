//! Times as people write them. Pure.

use std::time::Duration;

/// A time, as every option takes it: 500ms, 30s, 1m 30s, or a number of seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| "it is not a time".into()),
        Err(_) => {
            humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 500ms, 30s, 2m"))
        }
    }
}

/// A time between two others, in seconds.
pub(crate) fn time_between(text: &str, least_s: f64, most_s: f64) -> Result<Duration, String> {
    let fits = |time: &Duration| (least_s..=most_s).contains(&time.as_secs_f64());
    time(text).ok().filter(fits).ok_or_else(|| {
        format!("not a number of seconds between {least_s} and {most_s}, nor a time such as 500ms or 2m")
    })
}
