//! Times as people write and read them. Pure.

use std::time::Duration;

use super::terminal::short_number;

/// A time, as every option takes it: 500ms, 30s, 1m 30s, or a number of seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| "it is not a time".into()),
        Err(_) => {
            humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 500ms, 30s, 2m"))
        }
    }
}

/// A time between two others, in seconds.
pub fn time_between(text: &str, least_s: f64, most_s: f64) -> Result<Duration, String> {
    let fits = |time: &Duration| (least_s..=most_s).contains(&time.as_secs_f64());
    time(text).ok().filter(fits).ok_or_else(|| {
        format!("not a number of seconds between {least_s} and {most_s}, nor a time such as 500ms or 2m")
    })
}

/// `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{} s", short_number(seconds)),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60).replace(" 0 s", ""),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60).replace(" 0 min", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration(4.2), "4.20 s");
        assert_eq!(duration(75.0), "75 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(7500.0), "2 h 5 min");
    }
}
