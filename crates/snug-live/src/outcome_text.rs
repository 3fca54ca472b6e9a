//! What came of a request to snug in another process, for people.

use snug_base::terminal::bytes;

use crate::control::{PurgeOutcome, SetOutcome, Silence};

/// What came of it, for people.
pub fn of_purge(outcome: &PurgeOutcome) -> String {
    let pid = outcome.pid;
    let held = bytes(outcome.held_bytes as f64);
    let (before, after) = (bytes(outcome.rss_before_bytes as f64), bytes(outcome.rss_after_bytes as f64));
    match (outcome.given_back_bytes, outcome.silence) {
        (Some(given_back), _) => {
            format!("{pid}: gave back {}; RSS {before} before, {after} now", bytes(given_back as f64))
        }
        (None, Some(Silence::Stopped)) => {
            format!("{pid}: is stopped and can't answer; RSS {after}, {held} of it free; continue it: kill -CONT {pid}")
        }
        (None, Some(Silence::Busy)) => format!(
            "{pid}: is running, but made no slow call into its allocator; RSS {after}, {held} of it free; \
             wait longer with --wait"
        ),
        (None, _) if outcome.background => format!(
            "{pid}: is asleep and can't answer; its free memory went back when it fell asleep. \
             RSS {after}, {held} of it free"
        ),
        (None, _) => format!(
            "{pid}: is asleep and can't answer; with background:0 what was free then stays. \
             RSS {after}, {held} of it free; `snug set {pid} background=on` works from its next calls on"
        ),
    }
}

/// What came of it, for people.
pub fn of_set(outcome: &SetOutcome) -> String {
    let SetOutcome { pid, key, before, value, .. } = outcome;
    let replaced = outcome.replaces.filter(|other| other != value);
    let replaced =
        replaced.map(|other| format!(", in place of {other}, which waited there")).unwrap_or_default();
    let why = match outcome.silence {
        None => return done(outcome) + &replaced,
        Some(Silence::Idle) => "sleeps",
        Some(Silence::Busy) => "is running, but made no slow call into its allocator",
        Some(Silence::Stopped) => "is stopped",
    };
    format!(
        "{pid}: {why}; it takes {key}={value} at its next slow call, and until then keeps {before}{replaced}"
    )
}

fn done(outcome: &SetOutcome) -> String {
    let SetOutcome { pid, key, before, value, .. } = outcome;
    if let Some(other) = outcome.overtaken_by {
        return format!("{pid}: {key}={other} was asked for just after {key}={value}, and counts");
    }
    match outcome.sampling_for {
        Some(other) => {
            format!("{pid}: {key} is {value} as soon as process {other} ends, which takes samples")
        }
        None => format!("{pid}: {key} is {value} now, was {before}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_told_as_they_are() {
        let mut outcome = PurgeOutcome {
            pid: 7,
            given_back_bytes: Some(5_000_000),
            silence: None,
            rss_before_bytes: 25_000_000,
            rss_after_bytes: 20_000_000,
            held_bytes: 1000,
            background: true,
        };
        assert_eq!(of_purge(&outcome), "7: gave back 5.00 MB; RSS 25.0 MB before, 20.0 MB now");
        outcome.given_back_bytes = None;
        outcome.silence = Some(Silence::Idle);
        assert!(of_purge(&outcome).contains("went back when it fell asleep. RSS 20.0 MB, 1.00 kB of it free"));
        outcome.background = false;
        assert!(of_purge(&outcome).contains("background:0"));
        outcome.silence = Some(Silence::Stopped);
        assert!(of_purge(&outcome).contains("kill -CONT 7"));
    }
}
