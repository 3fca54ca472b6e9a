//! docs/reference/json.md names every field of the JSON that the commands write.

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;

use common::prometheus::{FakePrometheus, Manner};
use common::{run, snug, snug_library, Scratch};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/reference/json.md");
/// Objects whose fields are somebody else's: names of settings, of variables, of metrics, or described elsewhere.
const OPEN: &[&str] =
    &["settings", "settings_from", "environment", "inherited", "metrics", "memory", "counters", "quantities"];

/// The section about a command, with what stands above all sections.
fn section(command: &str) -> String {
    let (start, _) = PAGE.split_once("\n## ").unwrap();
    let (_, rest) = PAGE.split_once(&format!("\n## snug {command}\n")).unwrap();
    format!("{start}{}", rest.split("\n## ").next().unwrap())
}

/// Names of the fields at any depth.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| fields(value, names)),
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                // Of quantities each has the same fields.
                let is_open = OPEN.contains(&name.as_str()) && name != "quantities";
                match value.as_object().filter(|_| name == "quantities") {
                    Some(quantities) => quantities.values().for_each(|quantity| fields(quantity, names)),
                    // A trend of memory is called like the memory of a run.
                    None if !is_open || value.get("direction").is_some() => fields(value, names),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

fn assert_described(command: &str, json: &Value) {
    let section = section(command);
    let mut names = BTreeSet::new();
    fields(json, &mut names);
    assert!(names.len() > 5, "{json}");
    let missing: Vec<&String> = names.iter().filter(|name| !section.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/json.md does not describe, of snug {command}: {missing:?}");
}

#[test]
fn every_field_is_described() {
    for ratio in [0.8, 1.06] {
        let server = FakePrometheus::start(Manner::Pods { canary: 3, baseline: 3, ratio });
        let words = ["canary", "--json", "--prometheus", &server.url, "--canary", "pod=~\"web-canary-.*\""];
        assert_described("canary", &run(&mut snug(&words)).json());
    }
    let server = FakePrometheus::start(Manner::Pods { canary: 6, baseline: 6, ratio: 0.8 });
    let words = ["fleet", "--json", "--prometheus", &server.url, "--canary", "pod=~\"web-canary-.*\""];
    assert_described("fleet", &run(&mut snug(&words)).expect_code(0).json());
    let library = snug_library();
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let mut child =
        std::process::Command::new("sleep").arg("60").env("LD_PRELOAD", &library).spawn().unwrap();
    let pid = child.id().to_string();
    common::eventually("the library is loaded", || {
        run(&mut snug(&["check", "--expect", "snug", &pid])).code == Some(0)
    });
    let check = run(&mut snug(&["check", "--json", "--expect", "jemalloc", &pid])).expect_code(1);
    assert_described("check", &check.json());
    assert_described(
        "stats --where",
        &run(&mut snug(&["stats", "--where", "--json", &pid])).expect_code(0).json(),
    );
    let mut forked = std::process::Command::new("/usr/bin/python3");
    let forked = forked.args(["-c", "import os, time; os.fork(); print(flush=True); time.sleep(60)"]);
    let mut forked = forked.process_group(0).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(forked.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let forked = common::Running(forked);
    let copied = run(&mut snug(&["stats", "--copied", "--json", &forked.pid()])).expect_code(0);
    assert_described("stats --copied", &copied.json());
    assert_described("stats", &run(&mut snug(&["stats", "--json", &pid])).expect_code(0).json());
    // Nothing runs there that could answer: that is told, too.
    assert_described("purge", &run(&mut snug(&["purge", "--json", "--wait", "200ms", &pid])).json());
    let set = ["set", "--json", "--wait", "200ms", &pid, "purge_cpu_percent=2"];
    assert_described("set", &run(&mut snug(&set)).json());
    let leak = ["leak", "--json", "--for", "1s", "--interval", "20ms", "--load", "true", &pid];
    assert_described("leak", &run(&mut snug(&leak)).expect_code(0).json());
    // Nobody listens there: that, too, is an answer.
    let leak = ["leak", "--json", "--for", "1s", "--interval", "20ms", "--url", "http://127.0.0.1:1/", &pid];
    assert_described("leak", &run(&mut snug(&leak)).expect_code(0).json());
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = std::process::Command::new("ruby")
        .args(["-e", "loop { ($kept ||= []) << 'x' * 5000; sleep 0.001 }"])
        .env("LD_PRELOAD", &library)
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    common::eventually("the library is loaded", || {
        run(&mut snug(&["check", "--expect", "snug", &pid])).code == Some(0)
    });
    let profile = ["profile", "--json", "--for", "1s", "--mean-bytes", "1024", &pid];
    let measured = run(&mut snug(&profile)).expect_code(0);
    let saved = scratch.text("profile.json");
    std::fs::write(&saved, &measured.stdout).unwrap();
    assert_described("profile", &measured.json());
    let difference = run(&mut snug(&["profile", "--diff", &saved, &saved, "--json"])).expect_code(0);
    assert_described("profile --diff", &difference.json());
    let boot = ["boot", "--json", "--objects", "--", "ruby", "-e", "require 'json'"];
    let measured = run(snug(&boot).env("SNUG_LIBRARY", &library)).expect_code(0);
    let saved = scratch.text("boot.json");
    std::fs::write(&saved, &measured.stdout).unwrap();
    assert_described("boot", &measured.json());
    let difference = run(&mut snug(&["boot", "--diff", &saved, &saved, "--json"])).expect_code(0);
    assert_described("boot --diff", &difference.json());
    child.kill().unwrap();
    child.wait().unwrap();
    let compare = ["compare", "--runs", "2", "--with", "glibc,snug", "--out", &out, "--", "sleep", "0.3"];
    run(snug(&compare).env("SNUG_LIBRARY", &library)).expect_code(0);
    let text = std::fs::read_to_string(scratch.path("out/compare.json")).unwrap();
    assert_described("compare", &serde_json::from_str(&text).unwrap());
}
