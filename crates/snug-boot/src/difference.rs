//! Two reports of what a program costs as it starts: which libraries cost more than before. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::{BootCost, BootReport};

/// A library in both. In one of them it may be missing: it costs nothing there.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LibraryChange {
    pub library: String,
    pub growth: BootCost,
    pub old: BootCost,
    pub new: BootCost,
    pub old_files: u64,
    pub new_files: u64,
}

/// What became more and what less.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BootDifference {
    pub old_program: String,
    pub new_program: String,
    /// By name, as `--fail-if` has them.
    pub old: BTreeMap<String, f64>,
    pub new: BTreeMap<String, f64>,
    /// What makes the numbers less sure, in sentences.
    pub notes: Vec<String>,
    /// What grew most first.
    pub libraries: Vec<LibraryChange>,
}

/// Compares two reports.
pub fn difference(old: &BootReport, new: &BootReport) -> BootDifference {
    let mut changes: BTreeMap<&str, LibraryChange> = BTreeMap::new();
    for (report, is_new) in [(old, false), (new, true)] {
        for library in &report.libraries {
            let change = changes.entry(&library.library).or_default();
            change.library.clone_from(&library.library);
            let (cost, files) = match is_new {
                true => (&mut change.new, &mut change.new_files),
                false => (&mut change.old, &mut change.old_files),
            };
            (*cost, *files) = (library.cost, library.files);
        }
    }
    let mut libraries: Vec<LibraryChange> = changes.into_values().collect();
    for change in &mut libraries {
        change.growth = BootCost {
            live_bytes: change.new.live_bytes - change.old.live_bytes,
            rss_bytes: change.new.rss_bytes - change.old.rss_bytes,
            time_s: change.new.time_s - change.old.time_s,
        };
    }
    libraries.sort_by_key(|change| -change.growth.memory_bytes());
    let mut notes = Vec::new();
    let version = |report: &BootReport| format!("{} {}", report.language, report.language_version);
    if version(old) != version(new) {
        notes.push(format!("{} then, {} now", version(old), version(new)));
    }
    if old.after_collection.is_some() != new.after_collection.is_some() {
        notes.push("only one of them ended by itself, after a garbage collection".into());
    }
    BootDifference {
        old_program: old.program.clone(),
        new_program: new.program.clone(),
        old: old.quantities(),
        new: new.quantities(),
        notes,
        libraries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BootMemory, LibraryCost};

    fn report(version: &str, libraries: &[(&str, i64)]) -> BootReport {
        let library = |(name, live_bytes): &(&str, i64)| LibraryCost {
            library: name.to_string(),
            files: 1,
            cost: BootCost { live_bytes: *live_bytes, ..BootCost::default() },
            objects: None,
        };
        BootReport {
            language: "ruby".into(),
            language_version: version.into(),
            at_end: BootMemory { live_bytes: 7, rss_bytes: 9 },
            libraries: libraries.iter().map(library).collect(),
            ..BootReport::default()
        }
    }

    #[test]
    fn libraries_that_came_went_grew_and_shrank() {
        let old = report("3.1", &[("rack", 100), ("gone", 50), ("less", 70)]);
        let new = report("3.3", &[("rack", 130), ("come", 20), ("less", 60)]);
        let found = difference(&old, &new);
        let growth: Vec<_> = found
            .libraries
            .iter()
            .map(|change| (change.library.as_str(), change.growth.live_bytes))
            .collect();
        // By the larger of live bytes and RSS, and RSS is the same.
        assert_eq!(growth, [("rack", 30), ("come", 20), ("gone", -50), ("less", -10)]);
        assert_eq!(found.notes, ["ruby 3.1 then, ruby 3.3 now"]);
        assert_eq!(found.new["live_bytes"], 7.0);
    }
}
