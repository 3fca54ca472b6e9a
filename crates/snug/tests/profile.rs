//! `snug profile` on real processes.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use common::{pythons, ready_ruby, run, snug, snug_library, Running, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// Keeps what one function allocates, and frees what another does.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void *keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
__attribute__((noinline)) void *drops(void) { void **p = malloc(6000); memset(p, 1, 6000); return p; }
int main(void) {
  static void *volatile kept;
  puts("ready");
  fflush(stdout);
  for (;; usleep(1000)) {
    for (int i = 0; i < 10; i++) kept = keeps();
    for (int i = 0; i < 40; i++) { void *volatile p = drops(); free(p); }
  }
}
"#;

const RUBY: &str = r#"
def keeps
  $kept << "x" * 4000
end
$kept = []
puts "ready"
STDOUT.flush
loop { 20.times { keeps }; sleep 0.001 }
"#;

fn start(command: &mut Command, library: &str) -> Running {
    Running::when_ready(command.env("LD_PRELOAD", library).env_remove("SNUG"))
}

/// Function of the innermost frame of the site with the most bytes.
fn first(json: &serde_json::Value) -> String {
    json["sites"][0]["frames"][0]["function"].as_str().unwrap_or_default().into()
}

#[test]
fn what_is_kept_and_what_is_dropped_are_told_apart() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    let process = start(&mut Command::new(program), &library);
    let pid = process.pid();
    let profile = |more: &[&str]| {
        let command = ["profile", &pid, "--json", "--for", "2s", "--mean-bytes", "16384"];
        run(snug(&command).args(more)).expect_code(0).json()
    };
    let (folded, pprof) = (scratch.text("folded"), scratch.text("pprof"));
    let grown = profile(&["--folded", &folded, "--pprof", &pprof]);
    assert_eq!(first(&grown), "keeps", "{grown}");
    assert_eq!(grown["sites"][0]["frames"][1]["function"], "main", "{grown}");
    assert!(grown["total_bytes"].as_f64().unwrap() > 100_000.0, "{grown}");
    let text = std::fs::read_to_string(&folded).unwrap();
    assert!(text.lines().next().unwrap().contains("main (program);keeps (program) "), "{text}");
    assert!(std::fs::read(&pprof).unwrap().windows(5).any(|window| window == b"keeps"));
    assert_eq!(first(&profile(&["--view", "allocated"])), "drops");
    let settings = run(&mut snug(&["check", "--json", &pid])).json();
    assert_eq!(settings["processes"][0]["settings"]["profile"], "0", "{settings}");
    let text = run(&mut snug(&["profile", &pid, "--for", "1s", "--view", "live"])).expect_code(0).stdout;
    assert!(text.contains("keeps (program)"), "{text}");
}

/// Also where samples begin late: the library asks musl's loader at start only.
#[test]
fn functions_under_musl_are_named() {
    need!(program("musl-gcc"));
    let library = snug_library();
    let scratch = Scratch::new();
    let (source, program) = (scratch.text("program.c"), scratch.text("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let options = ["-O1", "-g", "-fasynchronous-unwind-tables", "-o", &program, &source];
    assert!(Command::new("musl-gcc").args(options).status().unwrap().success());
    let process = start(&mut Command::new(program), &library);
    let command = ["profile", &process.pid(), "--json", "--for", "2s", "--mean-bytes", "16384"];
    let json = run(&mut snug(&command)).expect_code(0).json();
    assert_eq!(first(&json), "keeps", "{json}");
}

/// Holds 30 MB every now and then, and at its end nothing. With an argument it ends by itself.
const WAVES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 5000, BYTES = 6000 };
static void *blocks[BLOCKS];
__attribute__((noinline)) void *rises(void) { void **p = malloc(BYTES); memset(p, 1, BYTES); return p; }
int main(int count, char **arguments) {
  (void)arguments;
  puts("ready");
  fflush(stdout);
  do {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = rises();
    usleep(count == 1 ? 700000 : 3000000); /* the one wave must be seen on a busy machine, too */
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    usleep(300000);
  } while (count == 1);
}
"#;

#[test]
fn the_highest_moment_is_shown() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", WAVES, &[]);
    let process = start(&mut Command::new(&program), &library);
    let peak = ["profile", "--json", "--view", "peak", "--mean-bytes", "65536"];
    let check = |answer: serde_json::Value| {
        assert_eq!((&answer["view"], first(&answer)), (&"peak".into(), "rises".to_string()), "{answer}");
        let total = answer["total_bytes"].as_f64().unwrap();
        assert!((20e6..45e6).contains(&total), "{answer}");
    };
    check(run(snug(&peak).args(["--for", "4s", &process.pid()])).expect_code(0).json());
    // Nothing of it is left at the end.
    let whole = |view: &str| {
        let command = ["profile", "--json", "--mean-bytes", "65536", "--view", view, "--", &program, "once"];
        run(snug(&command).env("SNUG_LIBRARY", &library)).expect_code(0).json()
    };
    check(whole("peak"));
    let live = whole("live");
    assert!(live["total_bytes"].as_f64().unwrap() < 2e6, "{live}");
}

/// Its first process forks two others and does nothing; of these each allocates in a function of its own. The second one
/// ends for another that does as it did.
const PREFORK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) void *first_keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
__attribute__((noinline)) void *second_keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
__attribute__((noinline)) void *shared(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
static void work(int which, int rounds) {
  prctl(PR_SET_PDEATHSIG, 9);
  for (int i = 0; i < rounds; i++, usleep(1000))
    for (int j = 0; j < 5; j++) kept = which == 1 ? first_keeps() : second_keeps();
  _exit(0);
}
int main(void) {
  for (int i = 0; i < 5000; i++) kept = shared();
  if (fork() == 0) work(1, 60000);
  pid_t second = fork();
  if (second == 0) work(2, 1500);
  puts("ready");
  fflush(stdout);
  while (waitpid(second, NULL, 0) < 0) {}
  if (fork() == 0) work(2, 60000);
  for (;;) pause();
}
"#;

/// The processes whose parent it is.
fn children(pid: &str) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(String::from).collect()
}

fn functions(profile: &serde_json::Value) -> Vec<&str> {
    let sites = profile["sites"].as_array().unwrap().iter();
    sites.filter_map(|site| site["frames"][0]["function"].as_str()).collect()
}

#[test]
fn the_processes_of_a_server_are_added_up() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("prefork-of-a-test", PREFORK, &[]);
    let process = start(Command::new("env").args(["SNUG=profile:65536", &program]), &library);
    let pid = process.pid();
    let profile = |target: &str, more: &[&str]| {
        run(snug(&["profile", target, "--json", "--for", "2s"]).args(more)).expect_code(0).json()
    };
    for target in [pid.as_str(), "prefork-of-a-test"] {
        let grown = profile(target, &[]);
        assert_eq!((&grown["pid"], &grown["processes"]), (&pid.parse::<i32>().unwrap().into(), &3.into()));
        assert!(
            ["first_keeps", "second_keeps"].iter().all(|name| functions(&grown).contains(name)),
            "{grown}"
        );
    }
    // What all three have from before the forks is one block each.
    let live = profile(&pid, &["--view", "live"]);
    let sites = live["sites"].as_array().unwrap();
    let shared = sites.iter().find(|site| site["frames"][0]["function"] == "shared");
    let shared = shared.unwrap_or_else(|| panic!("{live}"));
    assert!((10e6..30e6).contains(&shared["bytes"].as_f64().unwrap()), "{shared}");
    let text = run(&mut snug(&["profile", &pid, "--for", "0.5s"])).expect_code(0).stdout;
    assert!(text.starts_with(&format!("{pid} and 2 processes below it: ")), "{text}");
    // One of them.
    let worker = &children(&pid)[0];
    assert_eq!(functions(&profile(worker, &[])), ["first_keeps"]);
    let answer = run(&mut snug(&["profile", &pid, "--alone", "--for", "0.5s", "--json"])).expect_code(0);
    assert_eq!((functions(&answer.json()).len(), &answer.json()["processes"]), (0, &1.into()));
}

/// Where sampling was not on: it is switched on in all, and off again, and what comes meanwhile is in.
#[test]
fn workers_that_come_meanwhile_are_in() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("prefork", PREFORK, &[]);
    let process = start(&mut Command::new(program), &library);
    let pid = process.pid();
    let command = ["profile", &pid, "--json", "--for", "5s", "--view", "allocated", "--mean-bytes", "16384"];
    let allocated = run(&mut snug(&command)).expect_code(0).json();
    assert!(
        ["first_keeps", "second_keeps"].iter().all(|name| functions(&allocated).contains(name)),
        "{allocated}"
    );
    assert!(!functions(&allocated).contains(&"shared"), "{allocated}");
    let settings = run(&mut snug(&["check", "--json", &pid])).json();
    let processes = settings["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3);
    // The first one sleeps, and takes both settings at once when it wakes up.
    assert!(processes[1..].iter().all(|process| process["settings"]["profile"] == "0"), "{settings}");
}

#[test]
fn ruby_lines_are_named() {
    let scratch = Scratch::new();
    let (process, _) = need!(ready_ruby(&scratch, RUBY, ""));
    let command = ["profile", &process.pid(), "--json", "--for", "2s", "--mean-bytes", "16384"];
    let json = run(&mut snug(&command)).expect_code(0).json();
    let sites = json["sites"].as_array().unwrap();
    let here = |frame: &serde_json::Value| {
        frame["function"] == "keeps"
            && frame["line"] == 3
            && frame["file"].as_str().unwrap().ends_with("keeps.rb")
    };
    assert!(sites[0]["frames"].as_array().unwrap().iter().any(here), "{json}");
}

/// Allocates by what the interpreter gives extensions: its malloc, and a string.
const EXTENSION: &str = r#"
#include <stddef.h>
#include <string.h>
typedef unsigned long value;
extern value rb_define_module(const char *) __attribute__((weak));
extern void rb_define_module_function(value, const char *, void *, int) __attribute__((weak));
extern void *ruby_xmalloc(size_t) __attribute__((weak));
extern value rb_str_new(const char *, long) __attribute__((weak));
extern void *PyMem_Malloc(size_t) __attribute__((weak));
extern void *PyBytes_FromStringAndSize(const char *, ptrdiff_t) __attribute__((weak));
static void *volatile kept;
__attribute__((noinline)) void grows(void) { kept = PyMem_Malloc ? PyMem_Malloc(5000) : ruby_xmalloc(5000); }
__attribute__((noinline)) void *makes(void) {
  void *made = PyBytes_FromStringAndSize ? PyBytes_FromStringAndSize(NULL, 5000) : (void *)rb_str_new(NULL, 5000);
  __asm__ volatile("");
  return made;
}
static value ruby_grows(value self) { grows(); (void)self; return 8; }
static value ruby_makes(value self) { (void)self; return (value)makes(); }
void Init_planted(void) {
  value module = rb_define_module("Planted");
  rb_define_module_function(module, "grows", ruby_grows, 0);
  rb_define_module_function(module, "makes", ruby_makes, 0);
}
"#;

const RUBY_CALLS: &str = r#"
require "./planted"
kept = []
def calls_grows = Planted.grows
def calls_makes = Planted.makes
puts "ready"
STDOUT.flush
loop { 20.times { calls_grows; kept << calls_makes }; sleep 0.001 }
"#;

const PYTHON_CALLS: &str = r#"
import ctypes, time
planted = ctypes.PyDLL("./planted.so")
planted.makes.restype = ctypes.py_object
kept = []
def calls_grows(): planted.grows()
def calls_makes(): return planted.makes()
print("ready", flush=True)
while True:
    for _ in range(20):
        calls_grows()
        kept.append(calls_makes())
    time.sleep(0.001)
"#;

#[test]
fn functions_of_extensions_that_allocate_through_the_interpreter_are_named() {
    let library = snug_library();
    need!(program("ruby"));
    for (interpreter, source) in [("ruby", RUBY_CALLS), ("/usr/bin/python3", PYTHON_CALLS)] {
        let scratch = Scratch::new();
        scratch.compile("planted.so", EXTENSION, &["-shared", "-fPIC", "-O1"]);
        std::fs::write(scratch.path("calls"), source).unwrap();
        let process = start(Command::new(interpreter).arg("calls").current_dir(scratch.path(".")), &library);
        let command = ["profile", &process.pid(), "--json", "--for", "2s", "--mean-bytes", "16384"];
        let json = run(&mut snug(&command)).expect_code(0).json();
        for (native, caller) in [("grows", "calls_grows"), ("makes", "calls_makes")] {
            let is_there = json["sites"].as_array().unwrap().iter().any(|site| {
                let frames = site["frames"].as_array().unwrap();
                let at = |name: &str| frames.iter().position(|frame| frame["function"] == name);
                let file = |index: usize| frames[index]["file"].as_str().unwrap();
                at(native) == Some(0) && file(0).ends_with("/planted.so") && at(caller).is_some()
            });
            assert!(is_there, "{interpreter}: no {native} below {caller} in {json}");
        }
    }
}

/// The file's name says what it is to be; what Python has to offer is not in it.
#[test]
fn an_interpreter_that_is_not_known_is_told() {
    let library = snug_library();
    let scratch = Scratch::new();
    // What shows a CPython before 3.11, which has no variable that says its version.
    let source = format!("{PROGRAM}\nchar PyType_Type[64];\n");
    let program = scratch.compile("python3.9", &source, &["-rdynamic"]);
    let process = start(&mut Command::new(program), &library);
    let command = ["profile", &process.pid(), "--for", "1s", "--mean-bytes", "16384"];
    let out = run(&mut snug(&command)).expect_code(0);
    assert!(out.stderr.contains("does not read the code of Python 3,"), "{}", out.stderr);
    assert!(out.stdout.contains("[code of Python 3]"), "{}", out.stdout);
}

/// In generators, coroutines, code of 3,000 lines, names that are not ASCII ...: programs/python_frames.py.
#[test]
fn python_frames_are_those_that_the_interpreter_names() {
    let library = snug_library();
    for python in pythons() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/python_frames.py");
        let mut running = start(Command::new(&python).arg(script).stdin(Stdio::piped()), &library);
        run(&mut snug(&["set", &running.pid(), "profile=1"])).expect_code(0);
        running.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let expected: Vec<Vec<(String, String, u32)>> = serde_json::from_str(&line).unwrap();
        assert!(expected.len() > 20, "{python}: {line}");
        let profile = ["profile", &running.pid(), "--json", "--for", "0.1s", "--view", "live"];
        let json = run(&mut snug(&profile)).expect_code(0).expect_stderr("PYTHONMALLOC=malloc").json();
        let found: Vec<Vec<(String, String, u32)>> =
            json["sites"].as_array().unwrap().iter().map(language).collect();
        for stack in &expected {
            assert!(found.contains(&as_kept(stack)), "{python} has no {stack:?} in {found:#?}");
        }
    }
}

/// The frames of a site that have a line.
fn language(site: &serde_json::Value) -> Vec<(String, String, u32)> {
    let text = |frame: &serde_json::Value, field: &str| frame[field].as_str().unwrap().to_string();
    let frames = site["frames"].as_array().unwrap().iter().filter(|frame| frame["line"] != 0);
    frames
        .map(|frame| (text(frame, "function"), text(frame, "file"), frame["line"].as_u64().unwrap() as u32))
        .collect()
}

/// A stack with its paths as the library keeps them: of the longest, the last 384 bytes.
fn as_kept(stack: &[(String, String, u32)]) -> Vec<(String, String, u32)> {
    let end = |path: &str| path[path.len().saturating_sub(384)..].to_string();
    stack.iter().map(|(function, file, line)| (function.clone(), end(file), *line)).collect()
}

/// Where each request is a sample until the budget raises the mean, again and again, while frames end, code is freed, collections and forks happen.
#[test]
fn python_lives_through_samples_everywhere() {
    let library = snug_library();
    for python in pythons() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/python_storm.py");
        let mut command = Command::new(&python);
        let mut running = start(command.args([script, "4"]).env("PYTHONMALLOC", "malloc"), &library);
        let pid = running.pid();
        let mut rounds = 0;
        // Each change of the setting begins anew with its mean, which the budget then doubles.
        while running.0.try_wait().unwrap().is_none() {
            let value = ["profile=2", "profile=3"][rounds % 2];
            run(&mut snug(&["set", &pid, value]));
            rounds += 1;
        }
        let mut rest = String::new();
        running.0.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("ended\n") && running.0.wait().unwrap().success(), "{python}: {rest}");
        assert!(rounds > 2, "{python}: only {rounds} changes of the setting");
    }
}

#[test]
fn the_line_that_grew_between_two_profiles_comes_first() {
    let scratch = Scratch::new();
    let (process, _) = need!(ready_ruby(&scratch, RUBY, ""));
    let [old, new] = ["old.json", "new.json"].map(|name| {
        let pid = process.pid();
        let live = ["profile", &pid, "--view", "live", "--keep", "--json", "--for", "1s"];
        let on =
            run(&mut snug(&["check", "--json", &pid])).json()["processes"][0]["settings"]["profile"] != "0";
        let mean: &[&str] = if on { &[] } else { &["--mean-bytes", "16384"] };
        let out = run(snug(&live).args(mean)).expect_code(0).stdout;
        std::fs::write(scratch.path(name), out).unwrap();
        scratch.text(name)
    });
    let json = run(&mut snug(&["profile", "--diff", &old, &new, "--json"])).expect_code(0).json();
    let first = &json["lines"][0];
    assert_eq!((&first["line"]["function"], &first["line"]["line"]), (&"keeps".into(), &3.into()), "{json}");
    assert!(first["growth_bytes"].as_f64().unwrap() > 100_000.0, "{json}");
    let text = run(&mut snug(&["profile", "--diff", &old, &new])).expect_code(0).stdout;
    let line = text.lines().nth(2).unwrap();
    assert!(line.trim_start().starts_with('+') && line.contains("keeps.rb:3"), "{text}");
    // The other way round it has become less.
    let json = run(&mut snug(&["profile", "--diff", &new, &old, "--json"])).expect_code(0).json();
    assert!(json["growth_bytes"].as_f64().unwrap() < -100_000.0, "{json}");
}

#[test]
fn where_sampling_is_on_already_its_mean_stays_and_is_said() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    let process = start(&mut Command::new(program), &library);
    let pid = process.pid();
    run(&mut snug(&["set", &pid, "profile=65536"])).expect_code(0);
    let profile = ["profile", &pid, "--json", "--for", "200ms"];
    assert_eq!(run(&mut snug(&profile)).expect_code(0).stderr, "");
    let other = run(snug(&profile).args(["--mean-bytes", "16384"])).expect_code(0);
    assert!(other.stderr.contains("--mean-bytes has no effect"), "{}", other.stderr);
    let settings = run(&mut snug(&["check", "--json", &pid])).json();
    assert_eq!(settings["processes"][0]["settings"]["profile"], "65536", "{settings}");
}

#[test]
fn an_idle_process_has_no_samples() {
    let library = snug_library();
    let mut command = Command::new("sleep");
    let process = Running(command.arg("60").env("LD_PRELOAD", &library).spawn().unwrap());
    common::eventually("the library is loaded", || {
        run(&mut snug(&["check", "--expect", "snug", &process.pid()])).code == Some(0)
    });
    let out = run(&mut snug(&["profile", &process.pid(), "--for", "200ms"])).expect_code(0).stdout;
    assert!(out.contains("no samples"), "{out}");
}

#[test]
fn another_allocator_is_refused() {
    let process = Running(Command::new("sleep").arg("60").env_remove("LD_PRELOAD").spawn().unwrap());
    let out = run(&mut snug(&["profile", &process.pid(), "--for", "200ms"])).expect_code(1);
    assert!(out.stderr.contains("not snug"), "{}", out.stderr);
}

#[test]
fn a_process_that_ends_meanwhile_is_said_to_have_ended() {
    let library = snug_library();
    let mut sleep = Command::new("sleep");
    sleep.arg("3").env("LD_PRELOAD", library).env("SNUG", "profile:1");
    let sleep = Running(sleep.spawn().unwrap());
    let begin = std::time::Instant::now();
    let outcome = run(&mut snug(&["profile", &sleep.pid(), "--for", "10s"])).expect_code(0);
    assert!(begin.elapsed().as_secs() < 9, "it does not wait for longer");
    outcome.expect_stderr(" ended after ").expect_stderr("this is what was seen at the last look");
}

/// Before Linux 5.3, and under filters that do not know it, there is no pidfd_open(2).
#[test]
fn where_the_kernel_tells_no_end_it_is_seen_all_the_same() {
    let library = snug_library();
    let scratch = Scratch::new();
    let confine = scratch.compile("confine", common::REFUSE_CALL, &[]);
    for (error, view) in [(libc::ENOSYS, "grown"), (libc::EPERM, "peak")] {
        let mut sleep = Command::new("sleep");
        sleep.arg("3").env("LD_PRELOAD", &library).env("SNUG", "profile:1");
        let sleep = Running(sleep.spawn().unwrap());
        let begin = std::time::Instant::now();
        let mut command = Command::new(&confine);
        command.args([libc::SYS_pidfd_open.to_string(), error.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_snug"));
        command.args(["profile", &sleep.pid(), "--for", "20s", "--view", view]);
        let answer = run(&mut command).expect_stderr(" ended after ");
        assert!(begin.elapsed().as_secs() < 15, "{view}: it does not wait for longer");
        answer.expect_code(0).expect_stderr("this is what was seen at the last look");
    }
}
