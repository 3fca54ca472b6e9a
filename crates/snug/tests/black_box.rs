//! `snug run --black-box`, `snug profile --black-box` and `snug blame` on real programs. docs/tests runs them in containers
//! with a limit.

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{eventually, run, snug, snug_library, Running, Scratch};
use serde_json::Value;

/// Keeps 64 MB, by a worker where that is asked for, says how its children ended, waits for a line and ends with code 7.
const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void keeps(void) {
  static void *volatile kept;
  for (int i = 0; i < 16000; i++) memset(kept = malloc(4000), 1, 4000);
}
int main(int count, char **arguments) {
  int by_worker = count > 1 && !strcmp(arguments[1], "worker");
  if (!by_worker) {
    keeps();
    printf("%s\n", wait(NULL) == -1 && errno == ECHILD ? "no child" : "a child");
  } else if (fork() == 0) {
    keeps();
    printf("worker %d\n", (int)getpid());
    fflush(stdout);
    pause();
  } else {
    printf("parent %d\n", (int)getpid());
  }
  fflush(stdout);
  getchar();
  return 7;
}
"#;

/// A program of the tests with its black box.
struct Watched {
    scratch: Scratch,
    library: String,
    /// What the program is called, in this test alone.
    name: String,
}

impl Watched {
    fn new() -> Watched {
        let library = snug_library();
        let scratch = Scratch::new();
        let name = scratch.0.file_name().unwrap().to_string_lossy().replace("snug-test", "keeper");
        let watched = Watched { scratch, library, name };
        watched.scratch.compile(&watched.name, PROGRAM, &["-O1"]);
        std::fs::create_dir(watched.scratch.path("box")).unwrap();
        watched
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = snug(&["run", "--black-box", &self.scratch.text("box"), "--"]);
        command.arg(self.scratch.path(&self.name)).args(arguments).env("SNUG_LIBRARY", &self.library);
        command
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Lets a program end once its function is in the file, and returns what the file says then.
    fn end(&self, mut running: Running) -> Value {
        self.blame_when("its function is in the file", |json| first_function(json) == "keeps");
        drop(running.0.stdin.take());
        assert_eq!(running.0.wait().unwrap().code(), Some(7));
        let json = self.blame_when("the watch ends", has_ended);
        assert_eq!(first_function(&json), "keeps", "{json}");
        json
    }

    /// What `snug blame` says once that is so.
    fn blame_when(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let folder = self.scratch.text("box");
        let mut json = Value::Null;
        eventually(what, || {
            let answer = run(&mut snug(&["blame", "--json", &folder]));
            json = if answer.code == Some(0) { answer.json() } else { Value::Null };
            is_so(&json)
        });
        json
    }
}

fn has_ended(json: &Value) -> bool {
    json["is_watched"] == false
}

/// Kernels before 6.15 don't say how a process ended whose parent asked before the watch.
fn may_be_unknown(ending: &Value) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    ending["kind"] == "unknown" && version < (6, 15)
}

fn first_function(json: &Value) -> &str {
    json["sites"][0]["frames"][0]["function"].as_str().unwrap_or_default()
}

/// A line of what a program writes.
fn line(running: &mut Running) -> String {
    let mut line = String::new();
    let mut byte = [0];
    while running.0.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0] as char);
    }
    line
}

/// PIDs of watches of this test's folder of programs: those below a process.
fn watches_below(pid: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_watch = |other: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
        stat.contains("(snug-black-box) ") && stat.contains(&format!(" {pid} "))
    };
    pids.filter(is_watch).collect()
}

#[test]
fn the_program_is_as_without_it_and_its_function_is_named() {
    let watched = Watched::new();
    let mut running = watched.start(&[]);
    assert_eq!(line(&mut running), "no child", "no wait(2) tells of the watch");
    let json = watched.end(running);
    let root = &json["black_box"]["processes"][0];
    let ending = &root["ending"];
    assert!(ending["code"] == 7 || may_be_unknown(ending), "{json}");
    let folder = watched.scratch.text("box");
    let files = ["html", "pprof", "folded"].map(|name| watched.scratch.text(name));
    let [html, pprof, folded] = &files;
    let more = ["blame", &folder, "--html", html, "--pprof", pprof, "--folded", folded];
    let text = run(&mut snug(&more)).expect_code(0).stdout;
    assert!(text.contains("keeps (keeper-") && text.contains(" (PID "), "{text}");
    for file in files {
        assert!(std::fs::read(&file).unwrap().windows(5).any(|window| window == b"keeps"), "{file}");
    }
}

#[test]
fn no_command_takes_the_watch_for_a_part_of_the_program() {
    let watched = Watched::new();
    let mut running = watched.start(&[]);
    assert_eq!(line(&mut running), "no child");
    let pid = running.pid();
    let watches = watches_below(&pid);
    let [watch] = watches.as_slice() else { panic!("{watches:?}") };
    let words = std::fs::read(format!("/proc/{watch}/cmdline")).unwrap();
    assert_eq!(String::from_utf8(words).unwrap().trim_end_matches('\0'), "snug-black-box");
    let descriptors = std::fs::read_dir(format!("/proc/{watch}/fd")).unwrap().flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let pipes: Vec<_> = links.filter(|link| link.to_string_lossy().starts_with("pipe:")).collect();
    assert!(pipes.is_empty(), "it holds none of the program's files: {pipes:?}");
    for target in [&pid, &watched.name] {
        let json = run(&mut snug(&["check", "--json", target])).expect_code(0).json();
        let processes = json["processes"].as_array().unwrap();
        let ours = processes.iter().filter(|one| one["allocator"]["kind"] == "snug").count();
        assert!(ours > 0 && ours == processes.len(), "{json}");
    }
    let _ = Command::new("kill").args(["-TERM", watch]).status();
    drop(running.0.stdin.take());
    assert_eq!(running.0.wait().unwrap().code(), Some(7));
    watched.blame_when("the watch ends", has_ended);
    eventually("the watch is gone", || !Path::new(&format!("/proc/{watch}")).exists());
}

#[test]
fn a_parent_that_ignores_the_ends_of_children_changes_nothing() {
    let watched = Watched::new();
    let command = watched.command(&[]);
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' CHLD; exec \"$0\" \"$@\""]).arg(command.get_program()).args(words);
    shell.env("SNUG_LIBRARY", &watched.library).env_remove("LD_PRELOAD").env_remove("SNUG");
    watched.end(Running(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()));
}

#[test]
fn a_worker_that_was_killed_stays_in_the_file() {
    let watched = Watched::new();
    let mut running = watched.start(&["worker"]);
    let mut worker = String::new();
    for _ in 0..2 {
        worker = line(&mut running).strip_prefix("worker ").map_or(worker, String::from);
    }
    let pid: i64 = worker.parse().unwrap();
    let of_worker = |json: &Value| {
        let all = json["black_box"]["processes"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|process| process["pid"] == pid).unwrap_or_default()
    };
    let json = watched
        .blame_when("the worker is in the file", |json| !of_worker(json)["live"]["sites"][0].is_null());
    assert_eq!(json["is_watched"], true, "{json}");
    assert_eq!(first_function(&json), "keeps", "{json}");
    common::signal(&worker, "-KILL");
    // It stays a zombie until its parent ends, which waits for nobody.
    drop(running.0.stdin.take());
    assert_eq!(running.0.wait().unwrap().code(), Some(7));
    let json = watched.blame_when("the watch ends", has_ended);
    assert_eq!(first_function(&json), "keeps", "{json}");
}

#[test]
fn a_program_that_was_killed_is_told() {
    let watched = Watched::new();
    let mut running = watched.start(&[]);
    assert_eq!(line(&mut running), "no child");
    watched.blame_when("its function is in the file", |json| first_function(json) == "keeps");
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let json = watched.blame_when("the watch ends", has_ended);
    let ending = &json["black_box"]["processes"][0]["ending"];
    assert!(ending["signal"] == 9 || may_be_unknown(ending), "{json}");
    assert_eq!(ending["for_memory"], false, "{json}");
    assert_eq!(first_function(&json), "keeps", "{json}");
}

#[test]
fn a_process_that_runs_is_watched_from_the_foreground() {
    let watched = Watched::new();
    let mut command = Command::new(watched.scratch.path(&watched.name));
    command.env("LD_PRELOAD", &watched.library).env("SNUG", "profile:65536");
    let mut running = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    assert_eq!(line(&mut running), "no child");
    let folder = watched.scratch.text("box");
    let mut watch = snug(&["profile", "--black-box", &folder, &running.pid()]);
    let mut watch = Running(watch.stderr(Stdio::piped()).spawn().unwrap());
    watched.end(running);
    let mut told = String::new();
    watch.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(watch.0.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("snug blame "), "{told}");
}

#[test]
fn what_is_wrong_is_explained() {
    let scratch = Scratch::new();
    let none = scratch.text("none");
    let library = snug_library();
    let mut started = snug(&["run", "--black-box", &none, "--", "echo", "started"]);
    let answer =
        run(started.env("SNUG_LIBRARY", &library)).expect_code(125).expect_stderr("a folder that exists");
    assert_eq!(answer.stdout, "");
}
