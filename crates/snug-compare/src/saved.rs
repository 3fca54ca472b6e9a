//! Saved comparisons: reading them back, and putting several together into one.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::change::{self, Changes};
use crate::results::{Comparison, Details, Run, Samples, Summary, FORMAT, FORMAT_VERSION};
use crate::summary;
use snug_base::failure::{Context, Failure, Result, USAGE};
use snug_base::terminal::{printable, printable_json};
use snug_base::VERSION;

/// A comparison with the name that it goes by in a report.
#[derive(Debug)]
pub struct Saved {
    pub name: String,
    pub comparison: Comparison,
}

impl Saved {
    /// Fails if no allocator of the comparison has this label.
    pub fn require_baseline(&self, label: &str) -> Result<()> {
        if self.comparison.row(label).is_some() {
            return Ok(());
        }
        let labels: Vec<&str> = self.comparison.allocators.iter().map(|one| one.label.as_str()).collect();
        let message = format!("--baseline: {} has no allocator {label:?}", self.name);
        Err(Failure::usage(message, format!("it has {}", labels.join(", "))))
    }
}

/// Reads files: each argument is `PATH` or `NAME=PATH`, and a path may be the directory of a comparison.
pub fn load_all(arguments: &[String]) -> Result<Vec<Saved>> {
    let mut saved: Vec<Saved> = Vec::new();
    for argument in arguments {
        let (name, path) = match argument.split_once('=').filter(|_| !Path::new(argument).exists()) {
            Some((name, path)) if !name.is_empty() => (Some(name.to_string()), PathBuf::from(path)),
            _ => (None, PathBuf::from(argument)),
        };
        let path = if path.is_dir() { path.join("compare.json") } else { path };
        let comparison = load(&path).map_err(|failure| failure.exit_code(USAGE))?;
        let name = match name {
            Some(name) if saved.iter().any(|other| other.name == name) => {
                return Err(Failure::new(format!("two files are called {name}")).exit_code(USAGE));
            }
            Some(name) => name,
            None => unused_name(&printable(&name_of(&path)), &saved),
        };
        saved.push(Saved { name, comparison });
    }
    Ok(saved)
}

/// The file's name, or that of its directory where the file is called as all are.
fn name_of(path: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    if stem != "compare" {
        return stem;
    }
    let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    text(absolute.parent().and_then(Path::file_name)).unwrap_or(stem)
}

fn unused_name(name: &str, saved: &[Saved]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(|name| saved.iter().all(|other| other.name != *name)).unwrap_or_default()
}

fn load(path: &Path) -> Result<Comparison> {
    let text = fs::read(path).cannot(|| format!("read {}", path.display()))?;
    parse(&String::from_utf8_lossy(&text)).map_err(|problem| {
        let advice = match &problem {
            Problem::Newer(_) => format!("this is snug {VERSION}; update it"),
            Problem::NoComparison(_) => {
                "give the compare.json that `snug compare` leaves in its directory, or the directory".into()
            }
        };
        Failure::new(format!("{} {}", path.display(), problem.text())).advise(advice)
    })
}

/// Why a file can't be read: the end of a sentence that begins with the file's name.
#[derive(Debug)]
enum Problem {
    /// A newer snug wrote it.
    Newer(String),
    /// It is something else, or damaged.
    NoComparison(String),
}

impl Problem {
    fn text(self) -> String {
        let (Problem::Newer(text) | Problem::NoComparison(text)) = self;
        text
    }
}

impl<T: Into<String>> From<T> for Problem {
    fn from(what: T) -> Problem {
        Problem::NoComparison(what.into())
    }
}

/// Reads the text of a file, and works the summary out anew: one method for all files.
fn parse(text: &str) -> std::result::Result<Comparison, Problem> {
    let mut value: Value =
        serde_json::from_str(&printable_json(text)).map_err(|error| format!("is not JSON: {error}"))?;
    match value.get("format").and_then(Value::as_str) {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("is of the format {other:?}, not {FORMAT:?}").into()),
        None => return Err("is not a result of snug compare: it has no \"format\"".into()),
    }
    let version = value.get("format_version").and_then(Value::as_u64).unwrap_or(0);
    if version > u64::from(FORMAT_VERSION) {
        let written = value.get("snug_version").and_then(Value::as_str).unwrap_or("unknown");
        return Err(Problem::Newer(format!(
            "was written by a newer snug ({written}): its format has version {version}, this program reads up to \
             {FORMAT_VERSION}"
        )));
    }
    if version < 1 {
        return Err("is damaged: it has no \"format_version\"".into());
    }
    // It may have numbers that JSON can't hold, as the sum of the largest.
    value["summary"] = serde_json::to_value(Summary::default()).unwrap_or_default();
    let mut comparison: Comparison =
        serde_json::from_value(value).map_err(|error| format!("is damaged: {error}"))?;
    if let Some(run) = comparison.runs.iter().find(|run| !is_whole(run)) {
        let (round, allocator) = (run.round, &run.allocator);
        return Err(
            format!("is damaged: the samples of round {round} under {allocator} differ in length").into()
        );
    }
    if let Some(run) =
        comparison.runs.iter().find(|run| comparison.allocators.iter().all(|a| a.label != run.allocator))
    {
        return Err(
            format!("is damaged: a run of {}, which is not among its allocators", run.allocator).into()
        );
    }
    comparison.summary = summary::summarise(&comparison);
    Ok(comparison)
}

/// Every column of the samples has the same length, or was not recorded, where that can be.
fn is_whole(run: &Run) -> bool {
    // Every field is named here, so that none is forgotten.
    let Samples { time_s, rss_bytes, processes, threads, cpu_s, page_faults } = &run.samples;
    let moments = time_s.len();
    let samples_are_whole = [rss_bytes.len(), processes.len(), threads.len()] == [moments; 3]
        && [cpu_s.len(), page_faults.len()].iter().all(|length| *length == moments || *length == 0);
    let Details {
        time_s,
        rss_bytes,
        pss_bytes,
        uss_bytes,
        lazy_free_bytes,
        huge_bytes,
        swap_bytes,
        processes,
        live_time_s,
        live_bytes,
    } = &run.details;
    let columns = [rss_bytes, pss_bytes, uss_bytes, lazy_free_bytes, huge_bytes, swap_bytes];
    samples_are_whole
        && processes.len() == time_s.len()
        && columns.iter().all(|column| column.len() == time_s.len() || column.is_empty())
        && live_time_s.len() == live_bytes.len()
}

/// The label of an allocator in a comparison that was put together.
pub fn label(allocator: &str, file: &str) -> String {
    format!("{allocator} ({file})")
}

/// All files as one comparison, in which each allocator has the name of its file behind its own; and what changed
/// from the first file to each of the others.
pub fn put_together(saved: &[Saved]) -> (Comparison, Vec<Changes>) {
    let (first, others) = saved.split_first().expect("the command line asks for one file or more");
    let mut merged = first.comparison.clone();
    if others.is_empty() {
        return (merged, Vec::new());
    }
    merged.settings.planned_runs = Some(saved.iter().map(|one| one.comparison.planned_runs()).sum());
    merged.settings.until = None;
    merged.allocators.clear();
    merged.runs.clear();
    for one in saved {
        merged.allocators.extend(one.comparison.allocators.iter().cloned().map(|mut allocator| {
            allocator.label = label(&allocator.label, &one.name);
            allocator
        }));
        merged.runs.extend(one.comparison.runs.iter().cloned().map(|mut run| {
            run.allocator = label(&run.allocator, &one.name);
            run
        }));
        merged.settings.rounds = merged.settings.rounds.min(one.comparison.settings.rounds);
        merged.started_at = merged.started_at.max(one.comparison.started_at.clone());
    }
    merged.summary = summary::summarise(&merged);
    let changes: Vec<Changes> = (others.iter())
        .map(|other| change::between((&first.name, &first.comparison), (&other.name, &other.comparison)))
        .collect();
    let measure = merged.summary.memory_measure.clone();
    let sentences = changes.iter().map(|changes| change::conclusion(changes, &measure));
    merged.summary.conclusion = sentences.collect::<Vec<_>>().join(" ");
    (merged, changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn json() -> Value {
        serde_json::to_value(fixture::server()).unwrap()
    }

    #[test]
    fn what_was_saved_is_read() {
        let read = parse(&json().to_string()).unwrap();
        assert_eq!(read.runs.len(), 12);
        assert_eq!(read.summary.conclusion, fixture::server().summary.conclusion);
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let changed = |key: &str, value: Value| {
            let mut json = json();
            json[key] = value;
            parse(&json.to_string()).unwrap_err().text()
        };
        assert!(parse("{").unwrap_err().text().contains("is not JSON"));
        assert!(parse("[]").unwrap_err().text().contains("not a result of snug compare"));
        assert!(changed("format", "snug-check".into()).contains("\"snug-check\""));
        assert!(changed("format_version", 2.into()).contains("newer snug (0.1.0)"));
        assert!(changed("format_version", Value::Null).contains("no \"format_version\""));
        assert!(changed("runs", 7.into()).contains("damaged"));
        assert!(changed("allocators", Value::Array(vec![])).contains("not among its allocators"));
        let mut cut = json();
        cut["runs"][0]["samples"]["rss_bytes"] = Value::Array(vec![]);
        assert!(parse(&cut.to_string()).unwrap_err().text().contains("differ in length"));
    }

    #[test]
    fn columns_of_different_lengths_are_refused() {
        let mut whole = fixture::server();
        let details = &mut whole.runs[1].details;
        let bytes = vec![1; details.time_s.len()];
        details.rss_bytes.clone_from(&bytes);
        details.uss_bytes.clone_from(&bytes);
        details.lazy_free_bytes.clone_from(&bytes);
        details.huge_bytes.clone_from(&bytes);
        details.swap_bytes.clone_from(&bytes);
        (details.live_time_s, details.live_bytes) = (vec![1.0, 2.0, 3.0], vec![7, 8, 9]);
        let whole = serde_json::to_value(whole).unwrap();
        parse(&whole.to_string()).unwrap();
        let mut columns = 0;
        for part in ["samples", "details"] {
            for (name, column) in whole["runs"][1][part].as_object().unwrap() {
                let column = column.as_array().unwrap();
                let last = column.last().unwrap().clone();
                let longer = [column.as_slice(), std::slice::from_ref(&last)].concat();
                let shorter = column[..column.len() - 1].to_vec();
                for changed in [longer, shorter, Vec::new()] {
                    let was_emptied = changed.is_empty();
                    let mut damaged = whole.clone();
                    damaged["runs"][1][part][name] = Value::Array(changed);
                    let read = parse(&damaged.to_string());
                    // Some need not have been recorded.
                    if !was_emptied || name == "processes" || name.contains("time_s") {
                        let problem = read.map(|_| ()).unwrap_err().text();
                        assert!(
                            problem.contains("round 2 under glibc differ in length"),
                            "{name}: {problem}"
                        );
                    }
                }
                columns += 1;
            }
        }
        assert_eq!(columns, 16, "each column of both was tried");
    }

    #[test]
    fn files_have_names_of_their_own() {
        assert_eq!(name_of(Path::new("x/today.json")), "today");
        assert_eq!(name_of(Path::new("nonexistent/staging/compare.json")), "staging");
        let one = |name: &str| Saved { name: name.into(), comparison: fixture::server() };
        assert_eq!(unused_name("a", &[one("a"), one("a-2")]), "a-3");
    }

    #[test]
    fn together_each_allocator_has_its_file_behind_it() {
        let one = |name: &str| Saved { name: name.into(), comparison: fixture::server() };
        let (merged, changes) = put_together(&[one("old"), one("new")]);
        assert_eq!((merged.allocators.len(), merged.runs.len()), (8, 24));
        assert_eq!(merged.summary.baseline, "glibc (old)");
        assert!(merged.summary.conclusion.contains("snug: no difference"), "{}", merged.summary.conclusion);
        assert_eq!(changes.len(), 1);
        let (alone, changes) = put_together(&[one("old")]);
        assert!(alone.allocators[0].label == "glibc" && changes.is_empty());
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        let comparison = crate::fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]);
        let mut out = Vec::new();
        snug_base::json::write_whole(&comparison, &mut out).unwrap();
        let read: crate::results::Comparison = serde_json::from_slice(&out).unwrap();
        assert_eq!(read.format, crate::results::FORMAT);
        assert_eq!(read.runs.len(), 4);
        assert_eq!(read.summary.conclusion, comparison.summary.conclusion);
        assert_eq!(read.runs[0].samples, comparison.runs[0].samples);
    }

    #[test]
    fn fuzzed_comparisons() {
        let small = fixture::comparison(&[("glibc", &[2.0]), ("snug", &[1.0])]);
        let sample = serde_json::to_vec(&small).unwrap();
        snug_base::random::fuzz(&[&sample], |bytes| {
            let _ = parse(&String::from_utf8_lossy(bytes));
        });
    }
}
