//! Commands on an interpreter whose version the library does not know: a made-up Ruby 9.

mod common;

use std::process::{Command, Stdio};

use common::{eventually, run, snug, snug_library, Answer, Running, Scratch};

/// The parts of Ruby's interface by which the library knows it, and the functions that call malloc for the language.
const INTERPRETER: &str = r#"
#include <stdlib.h>
#include <string.h>
const int ruby_api_version[3] = {9, 1, 0};
int rb_profile_frames(int start, int limit, void *frames, int *lines) { return 0; }
__attribute__((noinline)) void *rb_gc_impl_malloc(size_t size_bytes) {
  void *block = malloc(size_bytes);
  if (block) memset(block, 1, size_bytes);
  return block;
}
__attribute__((noinline)) void *rb_str_new(size_t size_bytes) {
  void *volatile block = rb_gc_impl_malloc(size_bytes);
  return block;
}
__attribute__((noinline)) void vm_exec(void (*work)(void)) {
  work();
  __asm__ volatile("");
}
"#;

/// Keeps some memory, says so, and goes on slowly.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *rb_str_new(size_t size_bytes);
void vm_exec(void (*work)(void));
static void work(void) {
  static void *volatile kept;
  kept = rb_str_new(4000);
}
int main(void) {
  for (int i = 0; i < 4000; i++) vm_exec(work);
  puts("ready");
  fflush(stdout);
  for (;; usleep(1000)) vm_exec(work);
}
"#;

fn start(scratch: &Scratch, library: &str) -> Running {
    let interpreter = scratch.compile("libruby.so.9.1", INTERPRETER, &["-O1", "-shared", "-fPIC"]);
    let folder = scratch.text("");
    let search = format!("-Wl,-rpath,{folder}");
    let program = scratch.compile("ruby", PROGRAM, &["-O1", &interpreter, &search]);
    let mut command = Command::new(program);
    Running::when_ready(command.env("LD_PRELOAD", library).env("SNUG", "profile:65536"))
}

/// Says once why there are no lines, and names none of the interpreter's functions as one.
fn check(answer: &Answer, lines: &[&str]) {
    let note = "the library does not read the code of Ruby 9.1";
    assert_eq!(answer.stderr.matches(note).count(), 1, "{}\n{}", answer.stdout, answer.stderr);
    for line in lines {
        assert_eq!(*line, "[code of Ruby 9.1]", "{}", answer.stdout);
    }
    assert!(!lines.is_empty(), "{}", answer.stdout);
}

#[test]
fn what_the_library_can_not_read_is_said_and_its_malloc_is_no_culprit() {
    let library = snug_library();
    let scratch = Scratch::new();
    let process = start(&scratch, &library);
    let pid = process.pid();
    let function = |value: &serde_json::Value| value["function"].as_str().unwrap_or_default().to_string();

    let profile = run(&mut snug(&["profile", "--for", "500ms", "--view", "live", &pid])).expect_code(0);
    assert!(profile.stdout.contains("rb_gc_impl_malloc"), "native frames are shown: {}", profile.stdout);
    check(&profile, &["[code of Ruby 9.1]"]);

    let leak = ["leak", "--json", "--for", "4s", "--interval", "50ms", &pid];
    let leak = run(&mut snug(&leak)).expect_code(0);
    let lines = leak.json()["lines"].as_array().unwrap().clone();
    let named: Vec<String> = lines.iter().map(|line| function(&line["line"])).collect();
    check(&leak, &named.iter().map(String::as_str).collect::<Vec<_>>());

    let sites = run(&mut snug(&["exporter", "--once", "--sites", "2", "--pid", &pid])).expect_code(0);
    let site = sites.stdout.lines().find(|line| line.starts_with("snug_site_live_bytes{")).unwrap();
    check(&sites, &[site.split_once("site=\"").unwrap().1.split('"').next().unwrap()]);

    let folder = scratch.text("box");
    std::fs::create_dir(&folder).unwrap();
    let watch = snug(&["profile", "--black-box", &folder, &pid]).stderr(Stdio::null()).spawn().map(Running);
    eventually("there is a black box", || {
        let blame = run(&mut snug(&["blame", "--json", &folder]));
        blame.code == Some(0) && !blame.json()["sites"].as_array().unwrap().is_empty()
    });
    check(&run(&mut snug(&["blame", &folder])).expect_code(0), &["[code of Ruby 9.1]"]);
    drop(watch);
}
