//! `snug stats`, `snug purge` and `snug set` on real processes.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{run, signal, snug, snug_in_terminal, snug_library, Running, Scratch};
use snug_base::need;
use snug_base::testing::root;

/// Leaves some 40 MB dirty, then: `server` works in slow paths, `loop` in thread caches alone, `sleep` does nothing.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
  static void *blocks[400];
  const char *what = count > 1 ? arguments[1] : "sleep";
  for (int i = 0; i < 400; i++) blocks[i] = memset(malloc(100000), 1, 100000);
  for (int i = 0; i < 400; i++) free(blocks[i]);
  char *volatile kept = malloc(3000000);
  memset(kept, 1, 3000000);
  puts("ready");
  fflush(stdout);
  if (strcmp(what, "server") == 0) {
    for (;; usleep(2000)) for (int i = 0; i < 20; i++) free(memset(malloc(50000), 1, 50000));
  }
  if (strcmp(what, "loop") == 0) {
    for (void *volatile block;;) { block = malloc(64); free(block); }
  }
  for (;;) pause();
}
"#;

/// Starts the program under a library, with settings, and waits until it says that it is ready.
fn start(scratch: &Scratch, what: &str, library: Option<&str>, settings: &str) -> Running {
    let program = scratch.path("program");
    let program = match program.exists() {
        true => scratch.text("program"),
        false => scratch.compile("program", PROGRAM, &[]),
    };
    let mut command = Command::new(program);
    command.arg(what).env_remove("LD_PRELOAD").env("SNUG", settings);
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    Running::when_ready(&mut command)
}

#[test]
fn a_working_process_purges() {
    let library = snug_library();
    let scratch = Scratch::new();
    // Without a budget and a helper thread only a request gives this memory back.
    let server = start(&scratch, "server", Some(&library), "purge_cpu_percent:0,background:0");
    let answer = run(&mut snug(&["purge", &server.pid(), "--json", "--wait", "10"])).expect_code(0);
    let outcome = answer.json();
    assert!(outcome["given_back_bytes"].as_u64().unwrap() > 30_000_000, "{outcome}");
    let rss = |name: &str| outcome[name].as_u64().unwrap();
    assert!(rss("rss_before_bytes") > rss("rss_after_bytes") + 30_000_000, "{outcome}");
    run(&mut snug(&["purge", &server.pid(), "--wait", "10"])).expect_code(0).expect_stdout("gave back");
}

#[test]
fn settings_change_and_bad_ones_are_refused() {
    let library = snug_library();
    let scratch = Scratch::new();
    let server = start(&scratch, "server", Some(&library), "background:1");
    let pid = server.pid();
    let set = |pair: &str| run(&mut snug(&["set", &pid, pair, "--wait", "10"]));
    set("purge_cpu_percent=7").expect_code(0).expect_stdout("purge_cpu_percent is 7 now, was 1");
    set("background=off").expect_code(0).expect_stdout("background is 0 now, was 1");
    run(&mut snug(&["check", &pid]))
        .expect_code(0)
        .expect_stdout("background:0 (by snug set)")
        .expect_stdout("purge_cpu_percent:7 (by snug set)");
    let stats = run(&mut snug(&["stats", &pid, "--json"])).expect_code(0).json();
    assert_eq!(
        (&stats["settings"]["purge_cpu_percent"], &stats["settings"]["background"]),
        (&"7".into(), &"0".into())
    );
    set("purge_cpu_percent=much").expect_code(2).expect_stderr("bad value 'much'");
    set("purge_cpu=1").expect_code(2).expect_stderr("did you mean 'purge_cpu_percent'?");
    set("thp=1").expect_code(2).expect_stderr("SNUG=thp:1");
}

#[test]
fn silence_is_explained() {
    let library = snug_library();
    let scratch = Scratch::new();
    let sleeper = start(&scratch, "sleep", Some(&library), "");
    common::eventually("its free memory goes back", || {
        let stats = run(&mut snug(&["stats", &sleeper.pid(), "--json"])).json();
        stats["heap"]["idle_purges"].as_u64() == Some(1)
    });
    run(&mut snug(&["purge", &sleeper.pid(), "--wait", "0.5"]))
        .expect_code(0)
        .expect_stdout("is asleep and can't answer; its free memory went back");
    let sleeper = start(&scratch, "sleep", Some(&library), "background:0");
    run(&mut snug(&["purge", &sleeper.pid(), "--wait", "0.5"])).expect_code(0).expect_stdout("background:0");
    run(&mut snug(&["set", &sleeper.pid(), "background=1", "--wait", "0.5"]))
        .expect_code(0)
        .expect_stdout("it takes background=1 at its next slow call");
    let (number, switch) = ("use a number from 0 to", "use on or off (1 or 0)");
    for (pair, range) in
        [("purge_cpu_percent=500", number), ("purge_cpu_percent=on", number), ("background=7", switch)]
    {
        let refused = run(&mut snug(&["set", &sleeper.pid(), pair, "--wait", "0.5"]));
        refused.expect_code(2).expect_stderr(range);
    }
    let looping = start(&scratch, "loop", Some(&library), "background:0");
    run(&mut snug(&["purge", &looping.pid(), "--wait", "0.5"]))
        .expect_code(1)
        .expect_stdout("made no slow call");
    let stopped = start(&scratch, "server", Some(&library), "purge_cpu_percent:0,background:0");
    signal(&stopped.pid(), "-STOP");
    run(&mut snug(&["purge", &stopped.pid(), "--wait", "0.5"])).expect_code(1).expect_stdout("is stopped");
    // What was not answered was withdrawn: a purge that comes out of the blue would be wrong.
    let purged = || {
        run(&mut snug(&["stats", &stopped.pid(), "--json"])).json()["heap"]["purged_bytes"].as_u64().unwrap()
    };
    let before = purged();
    signal(&stopped.pid(), "-CONT");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(purged() < before + 20_000_000, "it was purged after all");
}

#[test]
fn a_terminal_shows_what_it_waits_for() {
    let library = snug_library();
    let scratch = Scratch::new();
    let looping = start(&scratch, "loop", Some(&library), "background:0");
    let pid = looping.pid();
    run(&mut snug_in_terminal(&["purge", &pid, "--wait", "1.5"]))
        .expect_code(1)
        .expect_stdout(&format!("waiting for {pid} to answer"))
        .expect_stdout("made no slow call");
    run(&mut snug_in_terminal(&["set", &pid, "background=1", "--wait", "1.5"]))
        .expect_code(1)
        .expect_stdout(&format!("waiting for {pid} to take background=1"));
}

#[test]
fn several_may_ask_at_once() {
    let library = snug_library();
    let scratch = Scratch::new();
    let server = start(&scratch, "server", Some(&library), "background:0");
    let children: Vec<Child> = (0..8)
        .map(|number| {
            let mut command = match number % 2 {
                0 => snug(&["purge", &server.pid(), "--wait", "20"]),
                _ => snug(&["set", &server.pid(), &format!("purge_cpu_percent={number}"), "--wait", "20"]),
            };
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_heap_is_shown() {
    let library = snug_library();
    let scratch = Scratch::new();
    let server = start(&scratch, "server", Some(&library), "");
    let answer = run(&mut snug(&["stats", &server.pid(), "--classes"])).expect_code(0);
    for text in ["PSS", "live", "fragmentation", "purge_cpu_percent:1", "size classes", "preloaded"] {
        assert!(answer.stdout.contains(text), "no {text}: {answer:#?}");
    }
    let read = || run(&mut snug(&["stats", &server.pid(), "--json"])).expect_code(0).json();
    let mut stats = read();
    for _ in 0..100 {
        if stats["heap"]["metadata_bytes"] != 0 {
            break; // gauges are written at ticks, of which a young process has had none
        }
        sleep(Duration::from_millis(50));
        stats = read();
    }
    let heap = &stats["heap"];
    let bytes = |name: &str| heap[name].as_u64().unwrap();
    assert!((3_000_000..5_000_000).contains(&bytes("live_allocated_bytes")), "{heap}");
    // One block of 50,000 bytes may come or go while the counters are read.
    assert!(bytes("live_requested_bytes") <= bytes("live_allocated_bytes") + 50_000, "{heap}");
    assert!(bytes("metadata_bytes") > 0, "{heap}");
    assert!(stats["rss_bytes"].as_u64().unwrap() >= 3_000_000);
}

#[test]
fn names_stand_for_processes() {
    let library = snug_library();
    let scratch = Scratch::new();
    let name = format!("snugnamed{}", std::process::id() % 100_000);
    std::fs::rename(scratch.compile("program", PROGRAM, &[]), scratch.path(&name)).unwrap();
    let start = || {
        let mut command = Command::new(scratch.path(&name));
        command.arg("server").env("LD_PRELOAD", &library).stdout(Stdio::null());
        Running(command.spawn().unwrap())
    };
    let (first, second) = (start(), start());
    common::eventually("both are under snug", || {
        let answer = run(&mut snug(&["check", "--expect", "snug", &name]));
        answer.code == Some(0) && answer.stdout.contains("all 2 processes")
    });
    let purged = run(&mut snug(&["purge", &name, "--wait", "10s"])).expect_code(0);
    let set = run(&mut snug(&["set", &name, "purge_cpu_percent=3", "--wait", "10"])).expect_code(0);
    for running in [&first, &second] {
        let line = format!("{}: ", running.pid());
        assert!(purged.stdout.contains(&line) && set.stdout.contains(&line), "{purged:#?} {set:#?}");
    }
    for command in [&["stats", &name][..], &["leak", "--for", "1", &name]] {
        let refused = run(&mut snug(command)).expect_code(2).expect_stderr("2 processes are called");
        refused.expect_stderr(&first.pid()).expect_stderr("by its PID");
    }
    drop(second);
    run(&mut snug(&["stats", &name])).expect_code(0).expect_stdout(&first.pid());
    run(&mut snug(&["leak", "--for", "0.5", "--interval", "50ms", &name]))
        .expect_code(0)
        .expect_stdout(" readings in ");
}

#[test]
fn other_allocators_take_no_requests() {
    let scratch = Scratch::new();
    let server = start(&scratch, "server", None, "");
    let pid = server.pid();
    run(&mut snug(&["stats", &pid]))
        .expect_code(0)
        .expect_stdout("estimated")
        .expect_stdout("heap: glibc 2.");
    let stats = run(&mut snug(&["stats", &pid, "--json"])).json();
    assert!(stats["heap"].is_null());
    let live = stats["glibc_heap"]["live_bytes"].as_u64().unwrap();
    assert!((3_000_000..5_000_000).contains(&live), "{}", stats["glibc_heap"]);
    run(&mut snug(&["purge", &pid])).expect_code(1).expect_stderr("uses glibc 2.").expect_stderr("snug run");
    run(&mut snug(&["set", &pid, "thp=1"])).expect_code(1).expect_stderr("uses glibc 2.");
}

/// As another user, where this one may become it.
#[test]
fn processes_of_others_are_theirs() {
    need!(root());
    let scratch = Scratch::new();
    let server = start(&scratch, "sleep", None, "");
    // The tool where everybody may execute it.
    let tool = scratch.path("snug");
    std::fs::copy(env!("CARGO_BIN_EXE_snug"), &tool).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&tool)
        .args(["purge", &server.pid()]);
    run(&mut command).expect_code(3).expect_stderr("belongs to root").expect_stderr("\nrun this as root\n");
}

/// What kernel.yama.ptrace_scope does to the tool: files of other processes can be read, their memory can't.
const REFUSE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count, const struct iovec *remote,
                         unsigned long remote_count, unsigned long flags) {
  (void)pid, (void)local, (void)local_count, (void)remote, (void)remote_count, (void)flags;
  errno = EPERM;
  return -1;
}
int open64(const char *path, int flags, ...) {
  size_t length = strlen(path);
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  if (length > 4 && strcmp(path + length - 4, "/mem") == 0) {
    errno = EACCES;
    return -1;
  }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
"#;

#[test]
fn memory_that_may_not_be_read_is_told() {
    let library = snug_library();
    let scratch = Scratch::new();
    let refuse = scratch.compile("refuse.so", REFUSE, &["-shared", "-fPIC"]);
    let call = |arguments: &[&str]| run(snug(arguments).env("LD_PRELOAD", &refuse));
    let (glibc, ours) = (start(&scratch, "sleep", None, ""), start(&scratch, "sleep", Some(&library), ""));
    let stats = call(&["stats", &glibc.pid()]).expect_code(0).expect_stdout("glibc's heaps may not be read");
    assert!(!stats.stdout.contains("does not show from outside"), "{stats:#?}");
    call(&["stats", &ours.pid()]).expect_code(3).expect_stderr("does not let you read the memory");
    let exported = call(&["exporter", "--once", "--pid", &ours.pid(), "--pid", &glibc.pid()])
        .expect_code(0)
        .expect_stdout("\nsnug_exporter_processes_refused 1\n")
        .expect_stderr("the heaps of 1 process under snug are missing");
    assert!(!exported.stdout.contains("snug_heap_live_bytes"), "{exported:#?}");
    // With the permission, all is there.
    run(&mut snug(&["exporter", "--once", "--pid", &ours.pid()]))
        .expect_code(0)
        .expect_stdout("\nsnug_exporter_processes_refused 0\n")
        .expect_stdout("snug_heap_live_bytes");
    run(&mut snug(&["stats", "--prometheus", &glibc.pid()]))
        .expect_code(0)
        .expect_stdout("snug_glibc_live_bytes");
}
