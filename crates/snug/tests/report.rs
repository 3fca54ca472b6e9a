//! `snug report` and the outputs of `snug compare`, on a saved comparison of a server and on real programs.

mod common;

use std::path::Path;

use common::{run, snug, Scratch};
use serde_json::Value;

/// A comparison that was saved once: four allocators, three runs each, with phases and latencies.
const SAVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server.json");

fn saved() -> Value {
    serde_json::from_str(&std::fs::read_to_string(SAVED).unwrap()).unwrap()
}

/// The saved comparison with the memory of one allocator multiplied, as a file.
fn changed(scratch: &Scratch, name: &str, allocator: &str, factor: f64) -> String {
    let mut json = saved();
    for run in json["runs"].as_array_mut().unwrap().iter_mut().filter(|run| run["allocator"] == allocator) {
        for (_, value) in run["memory"].as_object_mut().unwrap().iter_mut() {
            *value = (value.as_f64().unwrap() * factor).into();
        }
    }
    std::fs::write(scratch.path(name), json.to_string()).unwrap();
    scratch.text(name)
}

#[test]
fn one_file_is_shown_again_in_every_format() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    run(&mut snug(&["report", SAVED, "--out", &out])).expect_code(0).expect_stdout("snug uses 0.50 times");
    for plot in ["memory", "frontier", "latency"] {
        let svg = std::fs::read_to_string(scratch.path(&format!("out/{plot}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("class=\"series snug\""), "{plot}");
    }
    let csv = std::fs::read_to_string(scratch.path("out/runs.csv")).unwrap();
    assert!(csv.lines().count() == 13 && csv.lines().next().unwrap().contains("idle.rss_mean_bytes"));
    let markdown = run(&mut snug(&["report", SAVED, "--markdown", "-"])).expect_code(0).stdout;
    assert!(markdown.starts_with("## Memory of `ruby app.rb`") && markdown.contains("| `snug` | **205"));
    let html = run(&mut snug(&["report", SAVED, "--html", "-"])).expect_code(0).stdout;
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    let json = run(&mut snug(&["report", SAVED, "--json", "-"])).expect_code(0).json();
    assert_eq!(json["format"], "snug-compare");
}

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
fn the_baseline_can_be_chosen() {
    let ratio = |arguments: &[&str], allocator: &str| {
        let json =
            run(&mut snug(&[&["report", SAVED, "--json", "-"], arguments].concat())).expect_code(0).json();
        let rows = json["summary"]["allocators"].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["allocator"] == allocator).unwrap();
        row["quantities"]["rss_mean_bytes"]["ratio"]["value"].as_f64()
    };
    let (as_it_is, other_way) = (ratio(&[], "snug"), ratio(&["--baseline", "snug"], "glibc"));
    assert!((as_it_is.unwrap() * other_way.unwrap() - 1.0).abs() < 1e-9, "{as_it_is:?} {other_way:?}");
    assert_eq!(ratio(&["--baseline", "snug"], "snug"), None);
    let call = |arguments: &[&str]| run(&mut snug(&[&["report", SAVED], arguments].concat())).expect_code(2);
    call(&["--baseline", "dlmalloc"])
        .expect_stderr("has no allocator \"dlmalloc\"")
        .expect_stderr("it has glibc");
    call(&[SAVED, "--baseline", "snug"]).expect_stderr("--baseline is for one file");
}

#[test]
fn two_files_are_set_side_by_side() {
    let scratch = Scratch::new();
    let today = changed(&scratch, "today.json", "snug", 0.8);
    let answer = run(&mut snug(&["report", &format!("yesterday={SAVED}"), &today])).expect_code(0);
    let answer = answer.expect_stdout("today against yesterday").expect_stdout("no difference");
    let under_snug = answer.stdout.split("\nsnug\n").nth(1).unwrap();
    let line = under_snug.lines().find(|line| line.starts_with("mean ")).unwrap();
    assert!(line.contains("205 MB") && line.contains("164 MB") && line.contains("0.80×"), "{line}");
    assert!(answer.stdout.contains("snug: 0.80×"), "the sentence says it, too: {}", answer.stdout);
    let html = run(&mut snug(&["report", SAVED, &today, "--html", "-"])).expect_code(0).stdout;
    assert!(html.contains("today against server") && html.contains("0.80×"));
    let json = run(&mut snug(&["report", SAVED, &today, "--json", "-"])).expect_code(0).json();
    assert_eq!(json["allocators"].as_array().unwrap().len(), 8);
}

#[test]
fn files_that_are_no_results_are_refused() {
    let scratch = Scratch::new();
    let call = |content: &str| {
        std::fs::write(scratch.path("x.json"), content).unwrap();
        run(&mut snug(&["report", &scratch.text("x.json")])).expect_code(2)
    };
    call("no json").expect_stderr("is not JSON");
    call("{\"a\": 1}").expect_stderr("not a result of snug compare").expect_stderr("compare.json");
    let mut newer = saved();
    newer["format_version"] = 99.into();
    newer["snug_version"] = "9.0".into();
    call(&newer.to_string()).expect_stderr("newer snug (9.0)").expect_stderr("update it");
    run(&mut snug(&["report", "/nonexistent.json"])).expect_code(2).expect_stderr("No such file");
    run(&mut snug(&["report", SAVED, "--html", "-", "--csv", "-"])).expect_code(2).expect_stderr("stdout");
}

#[test]
fn conditions_decide_the_exit_code() {
    let scratch = Scratch::new();
    let call = |condition: &str| run(&mut snug(&["report", SAVED, "--fail-if", condition]));
    call("snug.rss_mean > 0.8x").expect_code(0).expect_stderr("205 MB > 330 MB");
    call("snug.rss_mean < 0.8x").expect_code(4).expect_stderr("holds: 205 MB < 330 MB");
    call("snug.rss_mean < 0.8 * glibc.rss_mean").expect_code(2).expect_stderr("as 0.8x");
    call("glibc:MALLOC_ARENA_MAX=2.rss_mean > 1.5x").expect_code(0);
    call("snug.latency_p99.9 > 50 ms").expect_code(4).expect_stderr("holds: ");
    call("snug.rss_maen > 1 MB").expect_code(2).expect_stderr("did you mean rss_mean?");
    call("snug.metric.widgets > 1").expect_code(1).expect_stderr("was not measured");
    let today = changed(&scratch, "today.json", "snug", 1.2);
    let condition = "today.snug.rss_mean > 1.05x";
    let files = [format!("yesterday={SAVED}"), today];
    run(&mut snug(&["report", &files[0], &files[1], "--fail-if", condition]))
        .expect_code(4)
        .expect_stderr("246 MB > 215 MB");
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
