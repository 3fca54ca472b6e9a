//! Processes that are not as most are: one whose first thread has ended, and one whose title lies over its environment.

mod common;

use std::process::Command;

use common::{run, snug, snug_library, Running, Scratch};

/// Its first thread ends, and the other one works on.
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
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, works, NULL);
  pthread_exit(NULL);
}
"#;

fn start(command: &mut Command) -> Running {
    Running::when_ready(command.env_remove("SNUG"))
}

#[test]
fn a_process_whose_first_thread_has_ended_is_one_like_others() {
    let library = snug_library();
    let scratch = Scratch::new();
    let name = "first-ends";
    let program = scratch.compile(name, FIRST_THREAD_ENDS, &["-pthread"]);
    let process = start(Command::new(program).env("LD_PRELOAD", library));
    let pid = process.pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(stat.contains(") Z "), "the first thread has ended: {stat}");
    // What is asked, and what the answer has in it.
    let asked: [(&[&str], &str); 12] = [
        (&["check", "--expect", "snug", &pid], "snug"),
        (&["check", "--expect", "snug", name], "snug"),
        (&["stats", &pid], "live"),
        (&["stats", name], "live"),
        (&["stats", "--where", &pid], "used blocks"),
        (&["stats", "--prometheus", &pid], "snug_process_resident_bytes{"),
        (&["top", "--once", &pid], name),
        (&["top", "--once", name], name),
        (&["set", &pid, "purge_cpu_percent=2"], ""),
        (&["purge", &pid], ""),
        (
            &["profile", &pid, "--for", "1s", "--mean-bytes", "16384", "--view", "allocated"],
            "works (first-ends)",
        ),
        (&["leak", name, "--for", "2s"], "1 process"),
    ];
    for (arguments, text) in asked {
        let answer = run(&mut snug(arguments));
        assert!(answer.code == Some(0) && answer.stdout.contains(text), "{arguments:?} {text}: {answer:#?}");
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
