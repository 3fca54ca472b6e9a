//! `snug exporter --sites` on real processes.

mod common;

use std::process::Command;

use common::{eventually, ready_ruby, run, snug, snug_library, Running, Scratch};
use snug_base::need;

/// Keeps 20 MB at one place, 8 MB at another, and 2 MB at a third; with an argument it goes on with the first.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) void most(void) { void **p = malloc(4000); memset(p, 1, 4000); kept = p; }
__attribute__((noinline)) void less(void) { void **p = malloc(4000); memset(p, 1, 4000); kept = p; }
__attribute__((noinline)) void least(void) { void **p = malloc(4000); memset(p, 1, 4000); kept = p; }
int main(int count, char **arguments) {
  (void)arguments;
  for (int i = 0; i < 500; i++) {
    for (int j = 0; j < 10; j++) most();
    for (int j = 0; j < 4; j++) less();
    least();
  }
  puts("ready");
  fflush(stdout);
  for (;; usleep(1000)) {
    if (count > 1) most();
  }
}
"#;

const RUBY: &str = r#"
def keeps
  "x" * 4000
end
$kept = Array.new(3000) { keeps }
puts "ready"
STDOUT.flush
sleep
"#;

fn start(command: &mut Command, library: &str, settings: &str) -> Running {
    Running::when_ready(command.env("LD_PRELOAD", library).env("SNUG", settings))
}

/// The metrics of a process and, of those, its sites with their bytes.
fn scrape(pid: &str, most: &str) -> (String, Vec<(String, f64)>) {
    let text = run(&mut snug(&["exporter", "--once", "--sites", most, "--pid", pid])).expect_code(0).stdout;
    let lines = text.lines().filter(|line| line.starts_with("snug_site_live_bytes{"));
    let site = |line: &str| {
        let (labels, bytes) = line.rsplit_once("\"} ").unwrap();
        (labels.split_once("site=\"").unwrap().1.to_string(), bytes.parse().unwrap())
    };
    let sites = lines.map(site).collect();
    (text, sites)
}

fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_sites_with_most_have_names() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    // Some 480 samples: fewer than the library takes without a budget.
    let process = start(&mut Command::new(program), &library, "profile:65536");
    let (text, sites) = scrape(&process.pid(), "2");
    let names: Vec<&str> = sites.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["most (program)", "less (program)", "other"], "{text}");
    for ((name, bytes), expected) in sites.iter().zip([20e6, 8e6, 2e6]) {
        let (low, high) = if name == "other" { (0.1, 3.0) } else { (0.4, 1.8) };
        assert!((expected * low..expected * high).contains(bytes), "{name}: {bytes}\n{text}");
    }
    assert!(text.contains(r#"role="program",worker="",site="most (program)"} "#), "{text}");
    let (sum, live) = (sites.iter().map(|site| site.1).sum::<f64>(), value(&text, "snug_heap_live_bytes"));
    assert!((0.6 * live..1.5 * live).contains(&sum), "{sum} of {live}");
    // The rest takes what has no place.
    let (text, one) = scrape(&process.pid(), "1");
    assert_eq!((one.len(), &one[0], one[1].0.as_str()), (2, &sites[0], "other"), "{text}");
    assert_eq!(one[1].1, sites[1].1 + sites[2].1, "{text}");
}

#[test]
fn it_switches_sampling_on_nowhere_and_sees_where_others_do() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    let process = start(Command::new(program).arg("goes on"), &library, "");
    let pid = process.pid();
    let setting = || {
        let answer = run(&mut snug(&["check", "--json", &pid])).json();
        answer["processes"][0]["settings"]["profile"].as_str().unwrap().to_string()
    };
    let (text, sites) = scrape(&pid, "3");
    assert!(sites.is_empty() && text.contains("\nsnug_heap_live_bytes{"), "{text}");
    assert_eq!(setting(), "0");
    let profile = ["profile", "--for", "500ms", "--mean-bytes", "16384", "--keep", &pid];
    run(&mut snug(&profile)).expect_code(0);
    eventually("it has a sample", || {
        scrape(&pid, "3").1.first().is_some_and(|(name, bytes)| name == "most (program)" && *bytes > 0.0)
    });
    run(&mut snug(&["set", &pid, "profile=0"])).expect_code(0);
    eventually("it has none", || setting() == "0" && scrape(&pid, "3").1.is_empty());
}

#[test]
fn ruby_lines_are_named() {
    let scratch = Scratch::new();
    let (process, script) = need!(ready_ruby(&scratch, RUBY, "profile:32768"));
    let (text, sites) = scrape(&process.pid(), "1");
    let expected = format!("keeps ({script}:3)");
    // 12 MB, of some 370 samples.
    assert!(sites[0].0 == expected && (7e6..18e6).contains(&sites[0].1), "{expected}\n{text}");
    assert_eq!((sites.len(), sites[1].0.as_str()), (2, "other"));
}
