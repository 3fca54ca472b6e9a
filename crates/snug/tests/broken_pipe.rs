//! A reader that goes away early, as in `snug check PID | head -1`: every command ends quietly.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::prometheus::{FakePrometheus, Manner};
use common::{commands, run, snug, snug_library, Running, Scratch, SLEEPER};

/// Allocates, and so answers what it is asked.
const BUSY: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  for (;; usleep(1000)) {
    void *volatile block = malloc(100000);
    free(block);
  }
}
"#;

/// What a shell says of a program that a closed pipe ended: 128 and SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = nix::unistd::pipe().expect("a pipe can be made");
    drop(reader);
    Stdio::from(writer)
}

#[track_caller]
fn expect_quiet_end(command: &mut Command) {
    let shown = format!("{command:?}");
    let output = command.stdout(closed_pipe()).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(BROKEN_PIPE), "{shown}: {stderr}");
    for word in ["roken pipe", "cannot write", "panicked"] {
        assert!(!stderr.contains(word), "{shown}: {stderr}");
    }
}

#[test]
fn a_reader_that_leaves_ends_every_command_quietly() {
    let library = snug_library();
    let scratch = Scratch::new();
    let start = |name: &str, source: &str| {
        let mut command = Command::new(scratch.compile(name, source, &[]));
        let running =
            Running(command.arg("120").env("LD_PRELOAD", &library).stdout(Stdio::null()).spawn().unwrap());
        common::eventually("it is under snug", || {
            run(&mut snug(&["check", "--expect", "snug", &running.pid()])).code == Some(0)
        });
        running
    };
    let (sleeper, busy) = (start("sleeper", SLEEPER), start("busy", BUSY));
    let (pid, busy_pid) = (sleeper.pid(), busy.pid());
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-c", "import os, time; os.fork(); print(flush=True); time.sleep(120)"]).process_group(0);
    let mut server = Running(server.stdout(Stdio::piped()).spawn().unwrap());
    std::io::Read::read_exact(server.0.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let forked = server.pid();
    let saved = scratch.text("saved");
    run(&mut snug(&["compare", "--runs", "1", "--with", "glibc", "--out", &saved, "--", "sleep", "0.2"]))
        .expect_code(0);
    let profile = scratch.text("profile.json");
    let measured = run(&mut snug(&["profile", "--for", "300ms", "--json", &busy_pid])).expect_code(0).stdout;
    std::fs::write(&profile, measured).unwrap();
    let black_box = scratch.text("black-box");
    std::fs::create_dir(&black_box).unwrap();
    let watched = ["run", "--black-box", &black_box, "--", "sleep", "1"];
    run(snug(&watched).env("SNUG_LIBRARY", &library)).expect_code(0);
    common::eventually("the black box has its file", || {
        run(&mut snug(&["blame", &black_box])).code == Some(0)
    });
    let out = scratch.text("out");
    let volume = scratch.text("volume");
    std::fs::create_dir(&volume).unwrap();
    let compare = ["--runs", "1", "--with", "glibc", "--out", &out, "--force", "--", "sleep", "0.2"];
    let with = |first: &[&'static str]| -> Vec<String> {
        first.iter().chain(&compare).map(|word| word.to_string()).collect()
    };
    let prometheus = FakePrometheus::start(Manner::Pods { canary: 5, baseline: 5, ratio: 0.9 });
    let call = |words: &[&str]| -> Vec<String> { words.iter().map(|word| word.to_string()).collect() };
    // Each command, in each of the formats that have a writer of their own.
    let calls = [
        call(&["check", &pid]),
        call(&["check", "--json", &pid]),
        with(&["compare"]),
        with(&["compare", "--html", "-"]),
        with(&["compare", "--markdown", "-"]),
        with(&["compare", "--csv", "-"]),
        with(&["compare", "--json", "-"]),
        call(&["compare", "--list-allocators"]),
        call(&["report", &saved]),
        call(&["report", &saved, "--csv", "-"]),
        call(&["report", &saved, &format!("again={saved}")]),
        with(&["advise"]),
        call(&["leak", "--for", "300ms", "--interval", "50ms", &pid]),
        call(&["leak", "--for", "300ms", "--interval", "50ms", "--json", &pid]),
        call(&["top", "--once", &pid]),
        call(&["stats", &pid]),
        call(&["stats", "--json", &pid]),
        call(&["stats", "--prometheus", &pid]),
        call(&["stats", "--copied", &forked]),
        call(&["stats", "--copied", "--json", &forked]),
        call(&["purge", "--wait", "0.2", &pid]),
        call(&["purge", "--wait", "0.2", &pid, &pid]),
        call(&["set", "--wait", "0.2", &pid, "purge_cpu_percent=3"]),
        call(&["profile", "--for", "300ms", &busy_pid]),
        call(&["profile", "--for", "300ms", "--json", &busy_pid]),
        call(&["profile", "--diff", &profile, &profile]),
        call(&["profile", "--diff", &profile, &profile, "--json"]),
        call(&["exporter", "--once", "--pid", &pid]),
        call(&["install", &volume]),
        call(&["install", "--uninstall", &volume]),
        call(&["canary", "--prometheus", &prometheus.url, "--canary", "pod=~\"web-canary-.*\""]),
        call(&["canary", "--json", "--prometheus", &prometheus.url, "--canary", "pod=~\"web-canary-.*\""]),
        call(&["fleet", "--prometheus", &prometheus.url, "--canary", "pod=~\"web-canary-.*\""]),
        call(&["fleet", "--json", "--prometheus", &prometheus.url, "--canary", "pod=~\"web-canary-.*\""]),
        call(&["blame", &black_box]),
        call(&["blame", &black_box, "--json"]),
        call(&["boot", "--", "/usr/bin/python3", "-c", "pass"]),
        call(&["boot", "--json", "--", "/usr/bin/python3", "-c", "pass"]),
        call(&["generate", "man"]),
        call(&["generate", "completions", "bash"]),
    ];
    // `snug run` becomes the program, whose stdout is its own.
    let tried = |name: &String| name == "run" || calls.iter().any(|words| words[0] == *name);
    let missing: Vec<String> = commands().into_iter().filter(|name| !tried(name)).collect();
    assert!(missing.is_empty(), "not tried here: {missing:?}");
    for words in &calls {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        expect_quiet_end(snug(&words).env("SNUG_LIBRARY", &library));
    }
}
