//! Processes that are not as most are: one whose first thread has ended, those in name spaces of their own or without
//! /proc, and one whose title lies over its environment; and the tool where /proc is not there, or shows less.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use common::{run, snug, snug_library, Answer, Running, Scratch};
use snug_base::need;
use snug_base::testing::root;

/// With an argument its first thread ends, and the other one works on.
const FIRST_THREAD_ENDS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *volatile kept[100];
static void *works(void *unused) {
  (void)unused;
  char *volatile large = malloc(30 << 20);
  memset(large, 1, 30 << 20);
  usleep(200000);
  puts("ready");
  fflush(stdout);
  for (int i = 0;; i = (i + 1) % 100) {
    if (i % 10 == 0) usleep(1000);
    free(kept[i]);
    kept[i] = malloc(100000);
  }
}
int main(int count, char **words) {
  (void)words;
  pthread_t thread;
  if (count == 1) works(NULL);
  pthread_create(&thread, NULL, works, NULL);
  pthread_exit(NULL);
}
"#;

/// What all commands are asked about a process, and what the answer has in it.
fn questions<'a>(pid: &'a str, name: &'a str) -> Vec<(Vec<&'a str>, String)> {
    let frame = format!("works ({name})");
    [
        ("check --expect snug PID", "snug"),
        ("check --expect snug NAME", "snug"),
        ("stats PID", "live"),
        ("stats NAME", "live"),
        ("stats --where PID", "used blocks"),
        ("stats --prometheus PID", "snug_process_resident_bytes{"),
        ("top --once PID", name),
        ("top --once NAME", name),
        ("set PID purge_cpu_percent=2", ""),
        ("purge PID", ""),
        ("profile PID --for 1s --mean-bytes 16384 --view allocated", &frame),
        ("leak NAME --for 2s", "1 process"),
    ]
    .into_iter()
    .map(|(line, text)| {
        let named = |word| match word {
            "PID" => pid,
            "NAME" => name,
            word => word,
        };
        (line.split(' ').map(named).collect(), text.to_string())
    })
    .collect()
}

#[track_caller]
fn expect_text(arguments: &[&str], text: &str, answer: &Answer) {
    assert!(answer.code == Some(0) && answer.stdout.contains(text), "{arguments:?} {text}: {answer:#?}");
}

/// `command` with snug behind it.
fn snug_under(command: &[&str], arguments: &[&str]) -> Command {
    let snug = snug(arguments);
    let mut under = Command::new(command[0]);
    under.args(&command[1..]).arg(snug.get_program()).args(snug.get_args());
    for (name, value) in snug.get_envs() {
        match value {
            Some(value) => under.env(name, value),
            None => under.env_remove(name),
        };
    }
    under
}

const WITHOUT_PROC: &str = "mount -t tmpfs none /proc && mount -t tmpfs none /sys && exec \"$@\"";

/// Names differ, as other tests run beside.
#[test]
fn processes_elsewhere_are_looked_at_as_others() {
    need!(root());
    let library = snug_library();
    let scratch = Scratch::new();
    let compile = |name: &str| scratch.compile(name, FIRST_THREAD_ENDS, &["-pthread"]);
    let ask = |pid: &str, name: &str| {
        for (arguments, text) in questions(pid, name) {
            expect_text(&arguments, &text, &run(&mut snug(&arguments)));
        }
    };
    let shell = |name: &str, line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", line, "sh", "env", &format!("LD_PRELOAD={library}")]);
        start(command.arg(compile(name)))
    };
    ask(&shell("no-proc-there", WITHOUT_PROC).pid(), "no-proc-there");
    let folder = scratch.text("root");
    std::fs::create_dir(&folder).unwrap();
    // Without what is mounted below it.
    let line = format!("mount --bind / {folder} && exec chroot {folder} \"$@\"");
    let device = |path: &str| std::fs::metadata(path).unwrap().dev();
    match [compile("other-root").as_str(), library.as_str()].iter().all(|path| device(path) == device("/")) {
        true => ask(&shell("other-root", &line).pid(), "other-root"),
        false => {
            println!("SKIPPED other-root: temporary files or the library are on a file system of their own");
        }
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "env"]);
    let process = start(command.arg(format!("LD_PRELOAD={library}")).arg(compile("name-space")));
    let unshare = process.pid();
    let pid = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    ask(pid.trim(), "name-space");
    // And from within, where it is the first process.
    for (arguments, text) in questions("1", "name-space") {
        let inside = ["nsenter", "--target", pid.trim(), "--pid", "--mount"];
        expect_text(&arguments, &text, &run(&mut snug_under(&inside, &arguments)));
    }
}

#[test]
fn the_tool_says_where_it_can_see_nothing() {
    need!(root());
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("unseen", FIRST_THREAD_ENDS, &["-pthread"]);
    let process = start(Command::new(program).env("LD_PRELOAD", &library));
    let pid = process.pid();
    // Of a name space whose first process is gone: it is empty.
    let of_others = "unshare --pid --fork mount -t proc proc /proc && exec \"$@\"";
    for line in [WITHOUT_PROC, of_others] {
        let under = |arguments: &[&str]| {
            let mut command = snug_under(&["unshare", "--mount", "sh", "-c", line, "sh"], arguments);
            run(command.env("SNUG_LIBRARY", &library))
        };
        for (arguments, _) in questions(&pid, "unseen") {
            under(&arguments).expect_code(3).expect_stderr("/proc shows nothing of this process");
        }
        under(&["top", "--once"]).expect_code(3).expect_stderr("/proc shows nothing");
        under(&["exporter", "--once"]).expect_code(3).expect_stderr("/proc shows nothing");
        // What needs no other process works.
        under(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).expect_code(0).expect_stdout("libsnug.so");
    }
    // Others' processes are hidden from this user, who may not come to where the tool was built.
    let tool = scratch.path("snug");
    std::fs::copy(snug(&[]).get_program(), &tool).unwrap();
    std::fs::set_permissions(tool.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let hidden = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    for (arguments, _) in questions(&pid, "unseen") {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hidden, "sh"]).arg(&tool).args(&arguments);
        run(&mut command).expect_code(3).expect_stderr("hidepid");
    }
}

fn start(command: &mut Command) -> Running {
    Running::when_ready(command.env_remove("SNUG"))
}

#[test]
fn a_process_whose_first_thread_has_ended_is_one_like_others() {
    let library = snug_library();
    let scratch = Scratch::new();
    let name = "first-ends";
    let program = scratch.compile(name, FIRST_THREAD_ENDS, &["-pthread"]);
    let process = start(Command::new(program).arg("ends").env("LD_PRELOAD", library));
    let pid = process.pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(stat.contains(") Z "), "the first thread has ended: {stat}");
    for (arguments, text) in questions(&pid, name) {
        expect_text(&arguments, &text, &run(&mut snug(&arguments)));
    }
    let rss = run(&mut snug(&["stats", "--json", &pid])).json();
    let rss = serde_json::to_string(&rss["rss_bytes"]).unwrap();
    assert!(rss.parse::<u64>().is_ok_and(|bytes| bytes > 30 << 20), "{rss}");
}

/// Writes a title over its arguments and all of its environment, as setproctitle of Python does.
const TITLE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
  char *begin = words[0], *end = words[count - 1] + strlen(words[count - 1]) + 1;
  for (char **at = environ; *at; at++) end = *at + strlen(*at) + 1;
  memset(begin, 0, end - begin);
  strncpy(begin, "server: master [a long name of an application, which is longer than the arguments are]", end - begin - 1);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
"#;

#[test]
fn an_environment_that_a_title_lies_over_is_said_to_be_unknown() {
    let scratch = Scratch::new();
    let program = scratch.compile("titled", TITLE, &[]);
    let process = start(Command::new(program).env("MALLOC_CONF", "narenas:1").env_remove("LD_PRELOAD"));
    let answer = run(&mut snug(&["check", &process.pid()])).expect_code(0);
    answer.expect_stdout("written over its environment");
    run(&mut snug(&["check", "server"])).expect_code(0).expect_stdout("server: master");
}
