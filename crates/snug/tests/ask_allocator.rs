//! `snug leak` and `snug compare` with --ask-allocator: live bytes of jemalloc and tcmalloc, from within.

mod common;

use std::process::Command;

use common::{run, snug, snug_library, Running, Scratch, SLEEPER};
use serde_json::Value;
use snug_base::need;

const BLOATS: &str = include_str!("programs/bloats.c");

/// Leaks 10 MB a second and does nothing else: nothing that a busy machine could make irregular hides it.
const LEAKS: &str = "
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) { for (;;) { memset(malloc(100000), 1, 100000); usleep(10000); } }
";

/// Keeps 20 MB, forks two children that keep 10 MB more each, and waits; with an argument, it enters a filter before the
/// forks that kills who starts a thread.
const FORKS: &str = r#"
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void keep(size_t bytes) {
  for (size_t done = 0; done < bytes; done += 10000) memset(malloc(10000), 1, 10000);
}
static void forbid_threads(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof program / sizeof *program, program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) exit(9);
}
int main(int count, char **arguments) {
  (void)arguments;
  keep(20000000);
  if (count > 1) forbid_threads();
  for (int child = 0; child < 2; child++) {
    if (fork() == 0) {
      keep(10000000);
      usleep(2500000);
      _exit(0);
    }
  }
  for (int status; wait(&status) > 0;) {
    if (status != 0) return 8;
  }
  return 0;
}
"#;

/// These allocators, by their names for --with, if this system has them all.
fn installed<'a>(allocators: &[&'a str]) -> Result<Vec<&'a str>, String> {
    let listed = run(&mut snug(&["compare", "--list-allocators"])).expect_code(0).stdout;
    let is_there = |name: &str| listed.lines().any(|line| line.starts_with(name) && line.contains('/'));
    let check = |name: &&'a str| is_there(name).then_some(*name).ok_or(format!("{name} is not installed"));
    allocators.iter().map(check).collect()
}

/// Calls `test` with each allocator that can be asked, side by side: the programs sleep most of the time.
fn with_each(test: impl Fn(&str, &str) + Sync) {
    let library = snug_library();
    std::thread::scope(|scope| {
        for allocator in need!(installed(&["jemalloc", "tcmalloc"])) {
            let (test, library) = (&test, &library);
            scope.spawn(move || test(&library.clone(), allocator));
        }
    });
}

fn watch(library: &str, options: &[&str], program: &[&str]) -> Value {
    let arguments = [&["leak", "--ask-allocator", "--json"], options, &["--"], program].concat();
    run(snug(&arguments).env("SNUG_LIBRARY", library)).expect_code(0).json()
}

/// Others may keep the CPUs busy: an answer that is not as hoped for is asked for again, over a watch four times as long,
/// and that one counts.
#[test]
fn leaks_are_told_from_bloat_under_jemalloc_and_tcmalloc() {
    let scratch = Scratch::new();
    let (leaks, bloats) = (scratch.compile("leaks", LEAKS, &[]), scratch.compile("bloats", BLOATS, &["-O1"]));
    with_each(|library, allocator| {
        for (program, verdict) in [(&leaks, "leak"), (&bloats, "bloat")] {
            let watch_for = |time, pause_ms| {
                let options = ["--with", allocator, "--interval", "50ms", "--for", time];
                watch(library, &options, &[program, pause_ms])
            };
            let mut answer = watch_for("5s", "250");
            if answer["verdict"] != verdict {
                answer = watch_for("20s", "1000");
            }
            assert_eq!(answer["verdict"], verdict, "{allocator}: {answer}");
            assert_eq!(answer["live_source"], "counted");
        }
    });
}

/// Each child starts a thread of its own, unless a filter forbids that: `watch` expects that the program ends well.
#[test]
fn children_of_a_fork_are_asked_too() {
    let scratch = Scratch::new();
    let forks = scratch.compile("forks", FORKS, &["-O1"]);
    with_each(|library, allocator| {
        let watch_for = ["--with", allocator, "--interval", "50ms", "--for", "30s"];
        let answer = watch(library, &watch_for, &[&forks]);
        let live = answer["series"]["live_bytes"].as_array().unwrap();
        let most = live.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        // The pages that they share count in each of them.
        assert!((79e6..90e6).contains(&most), "{allocator}: {most} {answer}");
        // A child that may start no thread is let off, and lives.
        watch(library, &watch_for, &[&forks, "forbid threads"]);
    });
}

#[test]
fn a_process_that_was_started_with_the_asker_is_watched_by_its_pid() {
    let library = snug_library();
    let jemalloc = need!(common::jemalloc_library());
    let scratch = Scratch::new();
    let leaks = scratch.compile("leaks", LEAKS, &[]);
    let refusal = run(snug(&["leak", "--ask-allocator", "1"]).env("SNUG_LIBRARY", &library)).expect_code(2);
    let refusal = refusal.expect_stderr("can't be asked: it runs already");
    // As it says.
    let preload = refusal.stderr.split("LD_PRELOAD=").nth(1).unwrap().split(' ').next().unwrap();
    let mut program = Command::new(&leaks);
    let running = Running(program.env("LD_PRELOAD", format!("{preload}:{jemalloc}")).spawn().unwrap());
    let watch = |seconds| {
        let watch_for = ["leak", "--interval", "50ms", "--for", seconds, "--json", &running.pid()];
        run(&mut snug(&watch_for)).expect_code(0).json()
    };
    // Where the machine gives both of them little time, four seconds are too few for a verdict; and by chance an interval
    // is wrong to one side one time in 40, but three times in a row once in 64,000.
    let mut answers = ["4s", "15s", "40s"].into_iter().map(watch);
    let answer =
        answers.find(|answer| answer["verdict"] == "leak").expect("one of three watches tells the leak");
    assert_eq!(answer["allocators"], serde_json::json!(["jemalloc"]));
}

#[test]
fn comparisons_show_what_is_live() {
    let library = snug_library();
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    let peers = need!(installed(&["jemalloc", "tcmalloc", "mimalloc"]));
    let (with, out) = (format!("glibc,snug,{}", peers.join(",")), scratch.text("out"));
    let arguments =
        ["compare", "--ask-allocator", "--runs", "1", "--with", &with, "--out", &out, "--", &sleeper, "2"];
    run(snug(&arguments).env("SNUG_LIBRARY", &library)).expect_code(0);
    let results = std::fs::read_to_string(scratch.path("out/compare.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5);
    for run in runs {
        match (run["allocator"].as_str().unwrap(), &run["memory"]["live_final_bytes"]) {
            ("mimalloc", live) => assert!(live.is_null(), "{live}"),
            (name, live) => assert!((8e6..9.5e6).contains(&live.as_f64().unwrap()), "{name}: {live}"),
        }
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    need!(installed(&["jemalloc", "mimalloc"]));
    let library = snug_library();
    let leak = |with: &str| {
        let arguments = ["leak", "--ask-allocator", "--with", with, "--for", "1s", "--", "sleep", "9"];
        run(snug(&arguments).env("SNUG_LIBRARY", &library))
    };
    leak("snug").expect_code(0).expect_stderr("snug counts live bytes by itself");
    leak("mimalloc").expect_code(0).expect_stderr("mimalloc tells nobody how much is live");
    // Without the option, the answer says how to ask.
    let arguments = ["leak", "--with", "jemalloc", "--for", "1s", "--", "sleep", "9"];
    run(&mut snug(&arguments)).expect_code(0).expect_stdout("jemalloc tells them only from within");
    let elsewhere = scratch_without_asker();
    let arguments = ["leak", "--ask-allocator", "--", "true"];
    run(snug(&arguments).env("SNUG_LIBRARY", elsewhere.text("libsnug.so")))
        .expect_code(125)
        .expect_stderr("asker.so not found");
}

fn scratch_without_asker() -> Scratch {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("libsnug.so"), "").expect("it can be written");
    scratch
}
