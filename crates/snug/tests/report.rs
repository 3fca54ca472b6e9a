//! `snug report` and the outputs of `snug compare`, on a saved comparison of a server and on real programs.

mod common;

use std::path::Path;

use common::{run, snug, Scratch};
use serde_json::Value;

/// Those of real programs, from all days on which some were saved.
#[test]
fn what_older_versions_saved_is_shown() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results");
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let programs = entries(Path::new(results)).flat_map(|day| entries(&day.path()));
    let mut files: Vec<String> = programs
        .map(|program| program.path().join("compare.json"))
        .filter(|file| file.exists())
        .map(|file| file.display().to_string())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    for file in &files {
        let before: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let now = run(&mut snug(&["report", file, "--json", "-"])).expect_code(0).json();
        let medians = |json: &Value| -> Vec<(String, Value)> {
            let rows = json["summary"]["allocators"].as_array().unwrap().iter();
            let median = |row: &Value| row["quantities"]["rss_mean_bytes"]["median"].clone();
            rows.map(|row| (row["allocator"].to_string(), median(row))).collect()
        };
        assert_eq!(medians(&now), medians(&before), "{file}");
    }
    let scratch = Scratch::new();
    run(&mut snug(&["report", &files[0], "--out", &scratch.text("out")])).expect_code(0);
    let svg = std::fs::read_to_string(scratch.path("out/memory.svg")).unwrap();
    assert!(svg.contains("class=\"series snug\""), "{svg}");
}

#[test]
fn compare_writes_what_it_is_asked_for_and_checks_conditions_first() {
    let scratch = Scratch::new();
    let mark = scratch.text("mark");
    let call = |more: &[&str]| {
        let mut arguments =
            vec!["compare", "--force", "--runs", "1", "--with", "glibc,glibc:MALLOC_ARENA_MAX=1"];
        let out = scratch.text("out");
        arguments.extend(["--out", &out]);
        arguments.extend(more);
        let script = format!("touch {mark}; sleep 0.2");
        arguments.extend(["--", "sh", "-c", &script]);
        run(&mut snug(&arguments))
    };
    call(&["--fail-if", "snug.rss_mean > 1 MB"]).expect_code(2).expect_stderr("no allocator \"snug\"");
    call(&["--html", "/nonexistent/x.html"]).expect_code(2).expect_stderr("directory does not exist");
    assert!(!scratch.path("mark").exists(), "nothing has run");
    let (html, csv) = (scratch.text("own.html"), scratch.text("own.csv"));
    let answer =
        call(&["--html", &html, "--csv", &csv, "--markdown", "-", "--fail-if", "glibc.wall < 0.1 s"]);
    answer.expect_code(0).expect_stdout("## Memory of").expect_stderr("does not hold");
    assert!(std::fs::read_to_string(&html).unwrap().contains("MALLOC_ARENA_MAX=1"));
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 3);
    for name in ["report.html", "report.md", "runs.csv", "compare.json", "memory.svg", "frontier.svg"] {
        assert!(scratch.path("out").join(name).exists(), "{name}");
    }
    call(&["--fail-if", "glibc.wall > 0.1 s"]).expect_code(4).expect_stderr("holds");
    run(&mut snug(&["report", &scratch.text("out")])).expect_code(0).expect_stdout("MALLOC_ARENA_MAX=1");
}
