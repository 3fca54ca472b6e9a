//! Samples that a process takes of its heap though its own settings did not ask for them, and the program that asked.

use crate::report::{Problem, Severity};
use snug_heap::counters::Counters;
use snug_heap::remote;
use snug_process::proc::Pid;
use snug_process::system;

/// What the problem is called.
pub const ID: &str = "sampling";

/// What is to be said of it.
pub fn note(
    pid: Pid,
    page: Option<u64>,
    counters: Option<&Counters>,
    environment: Option<&[(String, String)]>,
) -> Option<Problem> {
    let mean = mean_bytes(&counters?.settings)?;
    let wishes = remote::read_wishes(pid, page?).filter(|wishes| wishes.sampling_until_ns != 0);
    let lease = wishes.map(|wishes| {
        let is_over = u128::from(wishes.sampling_until_ns) <= system::monotonic_time().as_nanos();
        (wishes.sampling_for, is_over)
    });
    let asks = |(name, value): &(String, String)| {
        matches!(name.as_str(), "SNUG" | "MALLOC_CONF") && value.contains("prof")
    };
    if lease.is_none() && environment.is_some_and(|variables| variables.iter().any(asks)) {
        return None;
    }
    let (message, fix) = text(pid, mean, lease);
    Some(Problem::new(ID, Severity::Note, message, fix))
}

/// Bytes between two samples; None: it takes none.
pub fn mean_bytes(settings: &str) -> Option<u32> {
    let profile = settings.split(',').find_map(|pair| pair.strip_prefix("profile:"))?;
    profile.parse().ok().filter(|mean| *mean != 0)
}

fn text(pid: Pid, mean: u32, lease: Option<(u32, bool)>) -> (String, String) {
    match lease {
        Some((by, false)) => (
            format!("sampling is on (profile:{mean}): process {by} asked for it"),
            "it ends with that process, by itself".into(),
        ),
        Some((by, true)) => (
            format!("sampling is on (profile:{mean}), for process {by}, which has ended or asks no more"),
            "it ends at the next slow call, by itself".into(),
        ),
        None => (
            format!("sampling is on (profile:{mean}) until it is switched off, and not by the variable SNUG"),
            format!("snug set {pid} profile=0"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_who_samples() {
        assert_eq!(mean_bytes("thp:2,profile:65536,guard:0"), Some(65536));
        assert_eq!(mean_bytes("thp:2,profile:0,guard_samples:7"), None);
        assert!(text(7, 4096, Some((9, false))).0.ends_with("process 9 asked for it"));
        assert!(text(7, 4096, Some((9, true))).1.contains("next slow call"));
        assert_eq!(text(7, 4096, None).1, "snug set 7 profile=0");
        let counters = Counters { settings: "profile:4096".into(), ..Counters::default() };
        let by = |value: &str| Some(vec![("SNUG".to_string(), value.to_string())]);
        let own = std::process::id() as Pid;
        assert!(note(own, Some(0), Some(&counters), by("profile:4096").as_deref()).is_none());
        assert!(note(own, Some(0), Some(&counters), by("thp:0").as_deref()).is_some());
    }
}
