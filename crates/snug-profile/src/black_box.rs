//! The black box of a program: what is written of it while it runs, when, and what that says after its end. Pure.

#![allow(missing_docs)] // docs/reference/json.md describes the fields

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sites::{self, Site};
use snug_base::terminal::printable_json;
use snug_base::VERSION;
use snug_process::proc::Pid;

/// The part of the limit from which on the kernel may soon kill: nine tenths.
const NEAR_LIMIT: f64 = 0.9;
/// Nearer to the limit, another writing is due at each of these parts of it.
const NEAR_STEP: f64 = 0.02;
/// A new high is this much above what was written last.
const HIGH_FACTOR: f64 = 1.1;
const HIGH_LEAST_BYTES: u64 = 4 << 20;
/// What is no new high is written at most this often, and at least that often.
const REST_S: f64 = 10.0;
const REFRESH_S: f64 = 300.0;
/// Growth per second that is to be seen before the limit is reached.
const BURST_BYTES_PER_S: f64 = 2e9;
/// Time between two looks at the memory of a control group, and of one near its limit.
const LOOK_LEAST_S: f64 = 0.005;
const LOOK_MOST_S: f64 = 0.1;
const LOOK_NEAR_S: f64 = 0.02;
/// Sites in a file; what others hold is added up.
const SITES_MAX: usize = 400;

/// Why a file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrittenFor {
    Start,
    NewHigh,
    NearLimit,
    Time,
    Ending,
}

/// How a process ended, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum KnownEnding {
    Exited {
        code: i32,
    },
    /// `for_memory`: the control group had counted one more process that the kernel OOM-killed.
    Killed {
        signal: i32,
        for_memory: bool,
    },
    Unknown {
        for_memory: bool,
    },
}

impl KnownEnding {
    /// Completes a sentence that begins with the process.
    pub fn text(&self) -> String {
        match self {
            KnownEnding::Exited { code } => format!("exited with code {code}"),
            KnownEnding::Killed { for_memory: true, .. } => "was OOM-killed".into(),
            KnownEnding::Killed { signal, .. } => {
                let name = nix::sys::signal::Signal::try_from(*signal);
                format!("was killed by {}", name.map_or_else(|_| signal.to_string(), |name| name.to_string()))
            }
            KnownEnding::Unknown { for_memory: true } => "ended when the kernel OOM-killed a process".into(),
            KnownEnding::Unknown { .. } => "ended; this kernel does not say how".into(),
        }
    }

    fn is_for_memory(&self) -> bool {
        matches!(
            self,
            KnownEnding::Killed { for_memory: true, .. } | KnownEnding::Unknown { for_memory: true }
        )
    }
}

/// When and how a process ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessEnding {
    /// In UTC.
    pub at: String,
    #[serde(flatten)]
    pub how: KnownEnding,
}

/// What was live in a process at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveSites {
    /// In UTC.
    pub at: String,
    pub total_bytes: f64,
    pub sites: Vec<Site>,
}

/// A process of the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchedProcess {
    pub pid: Pid,
    pub parent: Pid,
    /// What its title says: `puma worker 2`.
    pub role: String,
    pub command: String,
    pub rss_bytes: u64,
    /// Between two samples; 0: none were taken.
    pub mean_bytes: u64,
    pub samples: u64,
    pub dropped: u64,
    pub hides_small_objects: bool,
    /// What its samples say, of those that it took itself: of its own memory, that is.
    pub live: LiveSites,
    /// The same at the first writing.
    pub first: Option<LiveSites>,
    /// Why it has no samples, if so.
    pub unread: Option<String>,
    pub ending: Option<ProcessEnding>,
}

/// Name and version of the format of a file.
const FORMAT: &str = "snug-black-box";
const FORMAT_VERSION: u32 = 1;

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlackBox {
    pub format: String,
    pub format_version: u32,
    pub snug_version: String,
    pub pid: Pid,
    /// The name of the machine or container.
    pub host: String,
    /// In UTC, as all times here.
    pub started_at: String,
    pub written_at: String,
    pub written_for: WrittenFor,
    pub ran_s: f64,
    /// Memory at the last writing, without cached files: of the control group that has the limit, or else the sum of
    /// RSS.
    pub used_bytes: u64,
    pub limit_bytes: Option<u64>,
    /// The program's own; those that were killed after it stay.
    pub processes: Vec<WatchedProcess>,
}

impl BlackBox {
    /// That of a program that has just been started, without its processes.
    pub fn new(pid: Pid, host: String, started_at: String) -> BlackBox {
        BlackBox {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            snug_version: VERSION.into(),
            pid,
            host,
            written_at: started_at.clone(),
            started_at,
            written_for: WrittenFor::Start,
            ran_s: 0.0,
            used_bytes: 0,
            limit_bytes: None,
            processes: Vec::new(),
        }
    }

    /// Reads the text of a file. The error completes a sentence that begins with the file's name.
    pub fn parse(text: &str) -> Result<BlackBox, String> {
        let text = printable_json(text);
        let value: Value = serde_json::from_str(&text).map_err(|error| format!("is not JSON: {error}"))?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err("is no black box".into());
        }
        if value.get("format_version").and_then(Value::as_u64) != Some(u64::from(FORMAT_VERSION)) {
            return Err("was written by another version of snug, in another format".into());
        }
        serde_json::from_value(value).map_err(|error| format!("can't be read as a black box: {error}"))
    }

    /// The process that was started.
    pub fn root(&self) -> Option<&WatchedProcess> {
        self.processes.iter().find(|process| process.pid == self.pid)
    }

    /// Those that the answer is about: OOM-killed; of none, all that had not ended, or else all.
    pub fn accused(&self) -> Vec<&WatchedProcess> {
        let ending = |process: &WatchedProcess| process.ending.as_ref().map(|ending| ending.how);
        let killed = |process: &&WatchedProcess| ending(process).is_some_and(|how| how.is_for_memory());
        let (killed, alive) = (self.chosen(killed), self.chosen(|process| process.ending.is_none()));
        // Where the first process was killed, others that had the memory may have been spared.
        let is_root = killed.iter().any(|process| process.pid == self.pid);
        [if is_root { Vec::new() } else { killed }, alive, self.chosen(|_| true)]
            .into_iter()
            .find(|chosen| chosen.iter().any(|process| !process.live.sites.is_empty()))
            .unwrap_or_else(|| self.chosen(|_| true))
    }

    fn chosen(&self, wanted: impl FnMut(&&WatchedProcess) -> bool) -> Vec<&WatchedProcess> {
        self.processes.iter().filter(wanted).collect()
    }

    /// How the program ended, and at which memory, in sentences. `is_watched`: its watch has not ended.
    pub fn verdict(&self, is_watched: bool) -> String {
        let name = self.root().map_or("the program", |root| root.role.as_str());
        let subject = format!("{name} (PID {} on {})", self.pid, self.host);
        if let Some(ending) = self.root().and_then(|root| root.ending.as_ref()) {
            return format!("{subject} {} at {}", ending.how.text(), ending.at);
        }
        let worker = self.processes.iter().find_map(|process| {
            let ending = process.ending.as_ref().filter(|ending| ending.how.is_for_memory())?;
            Some(format!(
                ": its {} (PID {}) {} at {}",
                process.role,
                process.pid,
                ending.how.text(),
                ending.at
            ))
        });
        if let (Some(worker), true) = (&worker, is_watched) {
            return format!("{subject} runs{worker}");
        }
        if is_watched {
            return format!("{subject} runs");
        }
        if let Some(worker) = worker {
            return format!("{subject} ended after {}, together with its watch{worker}", self.written_at);
        }
        let near = self.limit_bytes.is_some_and(|limit| self.used_bytes as f64 >= NEAR_LIMIT * limit as f64);
        let likely = if near { ", and so near the limit that it was most likely OOM-killed" } else { "" };
        format!("{subject} ended after {}, together with its watch{likely}", self.written_at)
    }
}

/// The sites of a file: the largest ones, and the rest as one.
pub fn at_most_sites(mut sites: Vec<Site>) -> Vec<Site> {
    if sites.len() > SITES_MAX {
        let rest = sites.split_off(SITES_MAX).into_iter().map(|site| Site {
            frames: vec![sites::Frame { function: "[others]".into(), ..sites::Frame::default() }],
            ..site
        });
        sites.extend(sites::merge(rest));
    }
    sites
}

/// Decides when to look and when to write.
#[derive(Debug, Clone, Default)]
pub struct WritingRule {
    /// The most that was written of, and what was written of last.
    highest_bytes: u64,
    last_bytes: u64,
    last_s: Option<f64>,
}

impl WritingRule {
    /// How long to wait before the next look at the memory of a control group with this limit.
    pub fn next_look_s(used_bytes: u64, limit_bytes: Option<u64>) -> f64 {
        let Some(limit) = limit_bytes else { return LOOK_MOST_S };
        let left = NEAR_LIMIT * limit as f64 - used_bytes as f64;
        if left <= 0.0 {
            return LOOK_NEAR_S;
        }
        (left / BURST_BYTES_PER_S).clamp(LOOK_LEAST_S, LOOK_MOST_S)
    }

    /// Whether a writing is due at this memory, without cached files, and why.
    pub fn due(&self, used_bytes: u64, limit_bytes: Option<u64>, now_s: f64) -> Option<WrittenFor> {
        let Some(last_s) = self.last_s else { return Some(WrittenFor::Start) };
        let has_rested = now_s - last_s >= REST_S;
        let limit = limit_bytes.unwrap_or(u64::MAX) as f64;
        let near = NEAR_LIMIT * limit;
        // What was written at a higher memory than now is of another time.
        let before = if has_rested { self.last_bytes } else { self.highest_bytes };
        let used = used_bytes as f64;
        if used >= near && ((before as f64) < near || used >= before as f64 + NEAR_STEP * limit) {
            return Some(WrittenFor::NearLimit);
        }
        if used >= HIGH_FACTOR * before as f64 && used_bytes >= before + HIGH_LEAST_BYTES {
            return Some(WrittenFor::NewHigh);
        }
        (now_s - last_s >= REFRESH_S).then_some(WrittenFor::Time)
    }

    /// Takes note of a writing.
    pub fn written(&mut self, used_bytes: u64, now_s: f64) {
        self.highest_bytes = self.highest_bytes.max(used_bytes);
        self.last_bytes = used_bytes;
        self.last_s = Some(now_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn highs_and_the_nearness_of_the_limit_are_written() {
        let limit = Some(200 * MIB);
        let mut rule = WritingRule::default();
        let mut at = |mib: u64, now_s: f64| {
            let due = rule.due(mib * MIB, limit, now_s);
            if due.is_some() {
                rule.written(mib * MIB, now_s);
            }
            due
        };
        assert_eq!(at(50, 0.0), Some(WrittenFor::Start));
        assert_eq!(at(54, 0.1), None, "less than a tenth more");
        assert_eq!(at(56, 0.2), Some(WrittenFor::NewHigh));
        assert_eq!(at(181, 0.3), Some(WrittenFor::NearLimit));
        assert_eq!(at(183, 0.4), None);
        assert_eq!(at(186, 0.5), Some(WrittenFor::NearLimit));
        assert_eq!(at(100, 0.6), None, "it fell");
        assert_eq!(at(185, 0.7), None, "and rose again at once");
        assert_eq!(at(100, 301.0), Some(WrittenFor::Time), "what is old is of another time");
        assert_eq!(at(185, 305.0), None);
        assert_eq!(at(185, 312.0), Some(WrittenFor::NearLimit));
    }

    /// At any growth up to 1 GB/s, of 10 ms for a writing, something is written between nine tenths and the limit, or near to it.
    #[test]
    fn bursts_are_seen_in_time() {
        let limit = 200 * MIB;
        for growth in [1e6, 1e8, 3e8, 1e9] {
            for start in (20..150).map(|mib| mib * MIB) {
                let (mut rule, mut now_s, mut last) = (WritingRule::default(), 0.0, 0);
                loop {
                    let used = start + (growth * now_s) as u64;
                    if used >= limit {
                        break;
                    }
                    if rule.due(used, Some(limit), now_s).is_some() {
                        rule.written(used, now_s);
                        last = used;
                        now_s += 0.01;
                    }
                    now_s += WritingRule::next_look_s(used, Some(limit));
                }
                let part = last as f64 / limit as f64;
                assert!(part > 0.8, "growth {growth}, from {start}: last at {part:.2} of the limit");
            }
        }
    }

    fn process(pid: Pid, bytes: f64, how: Option<KnownEnding>) -> WatchedProcess {
        let site = Site { bytes, samples: 1, ..Site::default() };
        let live = LiveSites { total_bytes: bytes, sites: vec![site], ..LiveSites::default() };
        let ending = how.map(|how| ProcessEnding { at: "2026-11-25T11:02:03Z".into(), how });
        WatchedProcess { pid, role: "puma".into(), live, ending, ..WatchedProcess::default() }
    }

    fn black_box(used_bytes: u64, processes: Vec<WatchedProcess>) -> BlackBox {
        let started = BlackBox::new(1, "pod".into(), "2026-11-25T11:02:00Z".into());
        BlackBox { used_bytes, limit_bytes: Some(200), processes, ..started }
    }

    #[test]
    fn a_worker_that_was_killed_is_accused() {
        let killed = KnownEnding::Killed { signal: 9, for_memory: true };
        let pids = |processes: Vec<WatchedProcess>| {
            black_box(190, processes).accused().iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(
            pids(vec![process(1, 5.0, None), process(2, 50.0, Some(killed)), process(3, 5.0, None)]),
            [2]
        );
        assert_eq!(pids(vec![process(1, 5.0, None), process(2, 50.0, None)]), [1, 2]);
        assert_eq!(pids(vec![process(1, 5.0, Some(killed)), process(2, 50.0, None)]), [2]);
        let exited = KnownEnding::Exited { code: 0 };
        assert_eq!(pids(vec![process(1, 5.0, Some(exited)), process(2, 50.0, Some(exited))]), [1, 2]);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let said = |used, how| black_box(used, vec![process(1, 5.0, how)]).verdict(false);
        let killed = |for_memory| Some(KnownEnding::Killed { signal: 9, for_memory });
        assert!(said(190, killed(true)).contains("was OOM-killed at 2026-11-25T11:02:03Z"));
        assert!(said(190, killed(false)).contains("was killed by SIGKILL"));
        assert!(said(190, None).contains("most likely"));
        assert!(!said(100, None).contains("memory"));
        assert!(said(100, Some(KnownEnding::Exited { code: 3 })).contains("exited with code 3"));
        assert!(black_box(190, vec![process(1, 5.0, None)]).verdict(true).ends_with("runs"));
        let with_worker = black_box(100, vec![process(1, 5.0, None), process(2, 50.0, killed(true))]);
        for is_watched in [true, false] {
            let text = with_worker.verdict(is_watched);
            assert!(text.contains("its puma (PID 2) was OOM-killed at"), "{text}");
        }
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let killed = KnownEnding::Killed { signal: 9, for_memory: true };
        let written = black_box(190, vec![process(1, 5.0, Some(killed)), process(2, 50.0, None)]);
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(BlackBox::parse(&text).unwrap(), written);
        let refused = |text: &str| BlackBox::parse(text).unwrap_err();
        assert!(refused(&text[..text.len() / 2]).contains("is not JSON"));
        assert!(refused(r#"{"format":"snug-profile"}"#).contains("no black box"));
        assert!(refused(r#"{"format":"snug-black-box","format_version":2}"#).contains("another version"));
        assert!(refused(r#"{"format":"snug-black-box","format_version":1}"#).contains("can't be read"));
    }

    #[test]
    fn small_sites_are_added_up() {
        let site = |number: usize| Site {
            bytes: 1.0,
            frames: vec![sites::Frame { function: number.to_string(), ..sites::Frame::default() }],
            ..Site::default()
        };
        let kept = at_most_sites((0..SITES_MAX + 7).map(site).collect());
        assert_eq!((kept.len(), kept[SITES_MAX].bytes), (SITES_MAX + 1, 7.0));
    }
}
