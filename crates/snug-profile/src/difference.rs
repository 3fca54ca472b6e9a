//! Two saved profiles of a program: which lines have more than before.

#![allow(missing_docs)] // docs/reference/json.md describes the fields

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sites::{telling_frame, Frame, Site};
use snug_base::terminal::printable_json;

/// What `snug profile --json` wrote, as far as a difference needs it.
#[derive(Debug, Clone, Deserialize)]
pub struct SavedProfile {
    pub pid: i32,
    pub view: String,
    pub measured_s: f64,
    pub total_bytes: f64,
    pub dropped: u64,
    pub sites: Vec<Site>,
}

/// The same stack in both.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SiteGrowth {
    pub growth_bytes: f64,
    pub old_bytes: f64,
    pub new_bytes: f64,
    pub old_blocks: f64,
    pub new_blocks: f64,
    pub old_samples: u64,
    pub new_samples: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// All stacks that lead to a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineGrowth {
    pub growth_bytes: f64,
    pub old_bytes: f64,
    pub new_bytes: f64,
    pub line: Frame,
    /// The callers in the stack that grew most, the nearest first.
    pub callers: Vec<Frame>,
}

/// What became more and what less; each list begins with what grew most.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileDifference {
    pub view: String,
    pub old_pid: i32,
    pub new_pid: i32,
    pub old_measured_s: f64,
    pub new_measured_s: f64,
    pub old_total_bytes: f64,
    pub new_total_bytes: f64,
    pub growth_bytes: f64,
    /// What makes the numbers less sure, in sentences.
    pub notes: Vec<String>,
    pub lines: Vec<LineGrowth>,
    pub sites: Vec<SiteGrowth>,
}

/// What all formats begin with.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Heading {
    format: Value,
    format_version: Value,
}

/// Reads the text of a file of this format. The error completes a sentence that begins with the file's name. What `T` has
/// no field for may be nested as deeply as it likes: serde_json skips it without recursion.
pub fn parse<T: DeserializeOwned>(text: &str, (format, newest): (&str, u32)) -> Result<T, String> {
    let text = printable_json(text);
    let heading: Heading =
        serde_json::from_str(&text).map_err(|error| format!("is not a JSON object: {error}"))?;
    match heading.format.as_str() {
        Some(found) if found == format => {}
        Some(other) => return Err(format!("is of the format {other:?}, not {format:?}")),
        None => return Err(format!("is not of the format {format:?}: it has no \"format\"")),
    }
    match heading.format_version.as_u64() {
        Some(version) if version <= u64::from(newest) => {}
        _ => return Err("is of a newer version of the format".into()),
    }
    serde_json::from_str(&text).map_err(|error| format!("can't be read as {format}: {error}"))
}

/// Compares two profiles of one view; `Err` says why they can't be.
pub fn difference(old: &SavedProfile, new: &SavedProfile) -> Result<ProfileDifference, String> {
    if old.view != new.view {
        return Err(format!("the views differ: {} and {}", old.view, new.view));
    }
    let mut notes = Vec::new();
    let longer = old.measured_s.max(new.measured_s);
    if old.view != "live" && longer > 1.1 * old.measured_s.min(new.measured_s) {
        notes.push(format!(
            "measured for {:.0} s and {:.0} s: the longer one has more of everything",
            old.measured_s, new.measured_s
        ));
    }
    if old.dropped + new.dropped > 0 {
        notes.push(format!(
            "{} and {} blocks found no room among the samples, and are missing",
            old.dropped, new.dropped
        ));
    }
    let sites = sites_of(old, new);
    Ok(ProfileDifference {
        view: old.view.clone(),
        old_pid: old.pid,
        new_pid: new.pid,
        old_measured_s: old.measured_s,
        new_measured_s: new.measured_s,
        old_total_bytes: 0.0 + old.total_bytes, // the sum of no sites is -0
        new_total_bytes: 0.0 + new.total_bytes,
        growth_bytes: new.total_bytes - old.total_bytes,
        notes,
        lines: lines_of(&sites),
        sites,
    })
}

fn sites_of(old: &SavedProfile, new: &SavedProfile) -> Vec<SiteGrowth> {
    let mut by_frames: BTreeMap<&[Frame], SiteGrowth> = BTreeMap::new();
    for site in &old.sites {
        let into = by_frames.entry(&site.frames).or_default();
        into.old_bytes += site.bytes;
        into.old_blocks += site.blocks;
        into.old_samples += site.samples;
    }
    for site in &new.sites {
        let into = by_frames.entry(&site.frames).or_default();
        into.new_bytes += site.bytes;
        into.new_blocks += site.blocks;
        into.new_samples += site.samples;
    }
    let whole = by_frames.into_iter().map(|(frames, site)| SiteGrowth {
        growth_bytes: site.new_bytes - site.old_bytes,
        frames: frames.to_vec(),
        ..site
    });
    let mut sites: Vec<SiteGrowth> = whole.collect();
    sites.sort_by(|a, b| b.growth_bytes.total_cmp(&a.growth_bytes));
    sites
}

/// `sites` are sorted, so the first with a line is the one that grew most.
fn lines_of(sites: &[SiteGrowth]) -> Vec<LineGrowth> {
    let mut by_line: BTreeMap<&Frame, LineGrowth> = BTreeMap::new();
    for site in sites {
        let index = telling_frame(&site.frames);
        let Some(line) = site.frames.get(index) else { continue };
        let into = by_line.entry(line).or_insert_with(|| LineGrowth {
            growth_bytes: 0.0,
            old_bytes: 0.0,
            new_bytes: 0.0,
            line: line.clone(),
            callers: site.frames[index + 1..].to_vec(),
        });
        into.growth_bytes += site.growth_bytes;
        into.old_bytes += site.old_bytes;
        into.new_bytes += site.new_bytes;
    }
    let mut lines: Vec<LineGrowth> = by_line.into_values().collect();
    lines.sort_by(|a, b| b.growth_bytes.total_cmp(&a.growth_bytes));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> Frame {
        Frame::new(function, "a.rb", line)
    }

    fn profile(sites: &[(f64, &[(&str, u32)])]) -> SavedProfile {
        let site = |(bytes, frames): &(f64, &[(&str, u32)])| Site {
            bytes: *bytes,
            blocks: 1.0,
            samples: 2,
            frames: frames.iter().map(|(name, line)| frame(name, *line)).collect(),
            ..Site::default()
        };
        SavedProfile {
            pid: 7,
            view: "live".into(),
            measured_s: 10.0,
            total_bytes: sites.iter().map(|(bytes, _)| bytes).sum(),
            dropped: 0,
            sites: sites.iter().map(site).collect(),
        }
    }

    #[test]
    fn what_grew_most_comes_first_by_site_and_by_line() {
        let main = ("main", 9);
        let old = profile(&[(50.0, &[("big", 3), main]), (20.0, &[("gone", 4), main])]);
        let new = profile(&[
            (55.0, &[("big", 3), main]),
            (10.0, &[("*", 0), ("keeps", 5), main]),
            (4.0, &[("+", 0), ("keeps", 5), main]),
        ]);
        let found = difference(&old, &new).unwrap();
        let sites: Vec<_> =
            found.sites.iter().map(|site| (site.frames[0].function.as_str(), site.growth_bytes)).collect();
        assert_eq!(sites, [("*", 10.0), ("big", 5.0), ("+", 4.0), ("gone", -20.0)]);
        let lines: Vec<_> = found
            .lines
            .iter()
            .map(|line| (line.line.function.as_str(), line.growth_bytes, line.old_bytes, line.new_bytes))
            .collect();
        assert_eq!(lines, [("keeps", 14.0, 0.0, 14.0), ("big", 5.0, 50.0, 55.0), ("gone", -20.0, 20.0, 0.0)]);
        assert_eq!(found.lines[0].callers, [frame("main", 9)]);
        assert_eq!((found.growth_bytes, found.notes.len()), (-1.0, 0));
        assert_eq!((found.sites[1].old_samples, found.sites[1].new_samples), (2, 2));
    }

    #[test]
    fn what_makes_it_unsure_is_said() {
        let mut old = profile(&[]);
        let new = SavedProfile { measured_s: 60.0, ..profile(&[]) };
        assert!(difference(&old, &new).unwrap().notes.is_empty(), "what is live is no matter of time");
        old.view = "grown".into();
        assert!(difference(&old, &new).unwrap_err().contains("grown and live"));
        let new = SavedProfile { view: "grown".into(), dropped: 3, ..new };
        let notes = difference(&old, &new).unwrap().notes;
        assert!(notes[0].contains("10 s and 60 s") && notes[1].starts_with("0 and 3 blocks"), "{notes:?}");
    }

    #[test]
    fn other_files_are_refused() {
        let reason = |text: &str| parse::<SavedProfile>(text, ("snug-profile", 1)).unwrap_err();
        assert!(reason("{").contains("not a JSON object"));
        assert!(reason("7").contains("not a JSON object"));
        assert!(reason("{}").contains("no \"format\""));
        assert!(reason(r#"{"format":"snug-leak","format_version":1}"#).contains("snug-leak"));
        assert!(reason(r#"{"format":"snug-profile","format_version":2}"#).contains("newer"));
        assert!(reason(r#"{"format":"snug-profile","format_version":1}"#).contains("can't be read"));
    }

    #[test]
    fn fuzzed_profiles() {
        let sample = include_bytes!("../../snug/tests/data/profile.json");
        snug_base::random::fuzz(&[sample], |bytes| {
            let saved = parse::<SavedProfile>(&String::from_utf8_lossy(bytes), ("snug-profile", 1));
            let _ = saved.map(|saved| difference(&saved, &saved));
        });
    }
}
