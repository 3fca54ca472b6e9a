//! `snug boot` on real programs of Ruby and Python.

mod common;

use std::process::Command;

use common::{run, snug, snug_library, Scratch};
use serde_json::Value;

/// Debian's own: what is first in PATH may be a script that takes long to find a Python.
const PYTHON: &str = "/usr/bin/python3";
/// Bytes that the costly file of the tests keeps, at least: blocks that threads keep at hand are told from live ones only
/// now and then, so that numbers may differ by hundreds of kilobytes.
const KEPT_BYTES: i64 = 3_000_000;
const AT_HAND_BYTES: i64 = 1_000_000;

/// A folder with files that require each other: first, costly (which keeps something), and second, which requires costly, too.
struct Files {
    scratch: Scratch,
    library: String,
}

impl Files {
    fn new() -> Files {
        let library = snug_library();
        let scratch = Scratch::new();
        let files = Files { scratch, library };
        files.write("first.rb", "require 'costly'\nrequire_relative 'second'\n");
        files.write("costly.rb", "KEPT = Array.new(40_000) { 'x' * 100 }\n");
        files
            .write("second.rb", "require 'costly'\nbegin\n  require 'no_such_file'\nrescue LoadError\nend\n");
        files.write("first.py", "import costly\nfrom second import found\n");
        files.write("costly.py", "KEPT = [b'x' * (90 + n % 20) for n in range(40_000)]\n");
        files.write("second.py", "import costly\nfound = len(costly.KEPT)\n");
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.path(name), text).unwrap();
    }

    fn boot(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = snug(&["boot"]);
        command.args(options).arg("--").args(program);
        command
            .env("SNUG_LIBRARY", &self.library)
            .env("RUBYLIB", &self.scratch.0)
            .env("PYTHONPATH", &self.scratch.0);
        command
    }

    fn json(&self, program: &[&str]) -> Value {
        run(&mut self.boot(&["--json"], program)).expect_code(0).json()
    }
}

/// The file of this name, wherever it is in the tree.
fn find<'a>(files: &'a Value, name: &str) -> Option<&'a Value> {
    files.as_array()?.iter().find_map(|file| match file["name"] == name {
        true => Some(file),
        false => find(&file["required"], name),
    })
}

/// What is said of first, costly and second, in both languages.
fn assert_tree(json: &Value, second: &str) {
    let first = find(&json["required"], "first").unwrap_or_else(|| panic!("{json}"));
    let costly = find(&first["required"], "costly").unwrap_or_else(|| panic!("{json}"));
    let live = |cost: &Value| cost["live_bytes"].as_i64().unwrap();
    assert!(live(&costly["cost"]) >= KEPT_BYTES, "{costly}");
    assert!(
        live(&first["cost"]) + AT_HAND_BYTES >= live(&costly["cost"]),
        "with all that it requires: {first}"
    );
    assert!(costly["cost"]["rss_bytes"].as_i64().unwrap() > KEPT_BYTES / 2, "{costly}");
    assert_eq!(costly["also_required_by"], serde_json::json!([second]), "{json}");
    assert_eq!(json["libraries"][0]["library"], "application", "{json}");
    let after = json["after_collection"]["live_bytes"].as_i64().unwrap();
    assert!(after - json["at_start"]["live_bytes"].as_i64().unwrap() > KEPT_BYTES, "{json}");
}

#[test]
fn a_tree_of_ruby() {
    let files = Files::new();
    let json = files.json(&["ruby", "-e", "require 'first'; require 'json'; system('ruby -e 1') or abort"]);
    let second = find(&json["required"], "first").unwrap()["required"].as_array().unwrap();
    let second = second.iter().find(|file| file["path"].as_str().unwrap().ends_with("/second.rb")).unwrap();
    assert_tree(&json, second["name"].as_str().unwrap());
    assert_eq!(find(&json["required"], "json").unwrap()["library"], "ruby", "{json}");
    assert!(find(&json["required"], "no_such_file").is_none(), "{json}");
}

#[test]
fn a_tree_of_python_and_the_sitecustomize_of_others() {
    let files = Files::new();
    files.write("sitecustomize.py", "import sys\nsys.there_is_another = True\n");
    let program = "import sys, first, json\nassert sys.there_is_another and first.found == 40_000";
    let json = files.json(&[PYTHON, "-c", program]);
    assert_tree(&json, "second");
    let decoder = find(&json["required"], "json.decoder").unwrap_or_else(|| panic!("{json}"));
    assert_eq!(decoder["library"], "python");
}

#[test]
fn objects_by_library() {
    let files = Files::new();
    for program in [["ruby", "-e", "require 'first'"], [PYTHON, "-c", "import first"]] {
        let text = run(&mut files.boot(&["--objects"], &program)).expect_code(0).stdout;
        assert!(text.contains("OBJECTS") && text.contains("  application"), "{text}");
        let json = run(&mut files.boot(&["--objects", "--json"], &program)).expect_code(0).json();
        let objects = &json["libraries"][0]["objects"];
        assert!(objects["objects"].as_u64().unwrap() >= 40_000, "{json}");
        assert!(objects["bytes"].as_i64().unwrap() >= KEPT_BYTES, "{json}");
    }
}

#[test]
fn what_a_program_executes_is_measured_in_its_place() {
    let files = Files::new();
    let json = files.json(&["ruby", "-e", "require 'costly'; exec 'ruby', '-e', 'require %q(json)'"]);
    assert!(find(&json["required"], "json").is_some(), "{json}");
    assert!(find(&json["required"], "costly").is_none(), "{json}");
}

#[test]
fn what_grew_fails_a_condition() {
    let files = Files::new();
    let [old, new] = ["old.json", "new.json"].map(|name| files.scratch.text(name));
    let save = |path: &str, program: &str| {
        let output = run(&mut files.boot(&["--json"], &["ruby", "-e", program])).expect_code(0).stdout;
        std::fs::write(path, output).unwrap();
    };
    save(&old, "require 'json'");
    save(&new, "require 'json'; require 'costly'");
    let more = "new.live > 1.5x";
    let text = run(&mut snug(&["boot", "--diff", &old, &new, "--fail-if", more])).expect_code(4);
    assert!(text.stdout.contains("  application  (new)"), "{}", text.stdout);
    run(&mut snug(&["boot", "--diff", &new, &old, "--fail-if", more])).expect_code(0);
    run(&mut files.boot(&["--diff", &old, "--fail-if", more], &["ruby", "-e", "require 'costly'"]))
        .expect_code(4);
    run(&mut files.boot(&["--fail-if", "boot.live > 1 kB"], &["ruby", "-e", "1"])).expect_code(4);
}

#[test]
fn a_server_is_ended_and_has_its_tree() {
    let files = Files::new();
    // SIGTERM ends Python at once.
    let program = "import first, os, time\nos.kill(os.getpid(), 15) if os.path.exists('/proc/self') else 0";
    let answer = run(&mut files.boot(&["--json"], &[PYTHON, "-c", program])).expect_code(1);
    assert!(find(&answer.json()["required"], "costly").is_some(), "{}", answer.stdout);
    assert!(answer.stderr.contains("did not end by itself"), "{}", answer.stderr);
    let server = "import first, time\nwhile True: time.sleep(1)";
    let answer = run(&mut files.boot(&["--json", "--for", "3s"], &[PYTHON, "-c", server])).expect_code(0);
    assert_eq!(answer.json()["language"], "python");
}

#[test]
fn what_is_wrong_is_explained() {
    let files = Files::new();
    run(&mut files.boot(&[], &["true"])).expect_code(3).expect_stderr("neither Ruby nor Python");
    let answer = run(&mut files.boot(&[], &["ruby", "-e", "exit 3"])).expect_code(1);
    assert!(answer.stderr.contains("3") && answer.stdout.contains("REQUIRED"), "{}", answer.stderr);
}
