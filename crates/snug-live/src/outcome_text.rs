//! The outcome of a request to snug in another process, for people.

use snug_base::terminal::bytes;

use crate::control::{PurgeOutcome, SetOutcome, Silence};

/// What came of it, for people.
pub fn of_purge(outcome: &PurgeOutcome) -> String {
    let pid = outcome.pid;
    let held = bytes(outcome.held_bytes as f64);
    let (before, after) = (bytes(outcome.rss_before_bytes as f64), bytes(outcome.rss_after_bytes as f64));
    match (outcome.given_back_bytes, outcome.silence) {
        (Some(given_back), _) => {
            let given_back_text = bytes(given_back as f64);
            // What it says is true if it shows in what the kernel counts.
            let fell = outcome.rss_before_bytes.saturating_sub(outcome.rss_after_bytes);
            match fell >= given_back / 2 {
                true => format!("{pid}: gave back {given_back_text}; RSS {before} before, {after} now"),
                false => format!(
                    "{pid}: RSS {before} before, {after} now: it let go of {given_back_text}, but used that much again \
                     meanwhile, or the kernel still counts it"
                ),
            }
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
        for (given_back, after) in
            [(0, 30_000_000), (5_000_000, 22_500_000), (5_000_000, 22_500_001), (9_000_000, 25_000_000)]
        {
            outcome.given_back_bytes = Some(given_back);
            outcome.rss_after_bytes = after;
            let text = of_purge(&outcome);
            let shows = 25_000_000u64.saturating_sub(after) * 2 >= given_back;
            assert_eq!(text.contains("gave back"), shows, "{text}");
            assert!(text.contains("RSS 25.0 MB before, "), "{text}");
        }
        (outcome.given_back_bytes, outcome.rss_after_bytes) = (None, 20_000_000);
        outcome.silence = Some(Silence::Idle);
        assert!(of_purge(&outcome).contains("went back when it fell asleep. RSS 20.0 MB, 1.00 kB of it free"));
        outcome.background = false;
        assert!(of_purge(&outcome).contains("background:0"));
        outcome.silence = Some(Silence::Stopped);
        assert!(of_purge(&outcome).contains("kill -CONT 7"));
    }
}
