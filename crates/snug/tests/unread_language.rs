//! What commands say of code whose lines they can't name: of a made-up Ruby 9, of PyPy, of JavaScript,
//! of Python without its lock.

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

fn start(scratch: &Scratch, library: &str, (file, source): (&str, &str), name: &str) -> Running {
    let interpreter = scratch.compile(file, source, &["-O1", "-shared", "-fPIC"]);
    let folder = scratch.text("");
    let search = format!("-Wl,-rpath,{folder}");
    let program = scratch.compile(name, PROGRAM, &["-O1", &interpreter, &search]);
    let mut command = Command::new(program);
    Running::when_ready(command.env("LD_PRELOAD", library).env("SNUG", "profile:65536"))
}

/// Says once why there are no lines, and names none of the interpreter's functions as one.
fn check(answer: &Answer, language: &str, lines: &[&str]) {
    let note = format!("the library does not read the code of {language}");
    assert_eq!(answer.stderr.matches(&note).count(), 1, "{}\n{}", answer.stdout, answer.stderr);
    for line in lines {
        assert_eq!(*line, format!("[code of {language}]"), "{}", answer.stdout);
    }
    assert!(!lines.is_empty(), "{}", answer.stdout);
}

/// PyPy has nothing that the library could know it by.
const PYPY: &str = r#"
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void *rb_str_new(size_t size_bytes) {
  void *block = malloc(size_bytes);
  if (block) memset(block, 1, size_bytes);
  return block;
}
__attribute__((noinline)) void vm_exec(void (*work)(void)) {
  work();
  __asm__ volatile("");
}
"#;

/// A build without the global lock, by its objects, whose type stands behind who holds them.
const PYTHON: &str = r#"
const unsigned long Py_Version = 0x030e02f0;
struct { void *thread, *flags, *count, *type; } PyType_Type = {.type = &PyType_Type};
"#;

/// Calls `keep` by a function made at run time, which it names for perf if it is told to.
#[cfg(target_arch = "x86_64")]
const NODE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; /* calls its argument */
static void *volatile kept;
__attribute__((noinline)) static void allocate(void) {
  kept = malloc(4000);
  memset(kept, 1, 4000);
}
int main(int count, char **arguments) {
  void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(made, code, sizeof code);
  mprotect(made, 4096, PROT_READ | PROT_EXEC);
  char name[64];
  snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
  if (count > 1) {
    FILE *names = fopen(name, "w");
    fprintf(names, "%lx %zx JS:~keep /app/keeps.js:3:14\n", (unsigned long)made, sizeof code);
    fclose(names);
  }
  for (int i = 0; i < 4000; i++) ((void (*)(void (*)(void)))made)(allocate);
  puts("ready");
  fflush(stdout);
  for (int i = 0; i < 30000 && getppid() != 1; i++, usleep(1000)) ((void (*)(void (*)(void)))made)(allocate);
}
"#;

/// Removes what the program wrote for perf.
#[cfg(target_arch = "x86_64")]
struct Named(String);

#[cfg(target_arch = "x86_64")]
impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn of_pypy_each_command_says_that_its_lines_have_no_names() {
    let library = snug_library();
    let scratch = Scratch::new();
    let process = start(&scratch, &library, ("libpypy3.11-c.so", PYPY), "pypy3.11");
    expect_notes(&process, &scratch, "PyPy");
}

#[test]
fn of_a_python_without_the_lock_each_command_says_that_it_is_not_read() {
    let library = snug_library();
    let scratch = Scratch::new();
    let source = format!("{PYTHON}{PYPY}");
    let process = start(&scratch, &library, ("libpython3.14t.so.1.0", &source), "python3.14t");
    expect_notes(&process, &scratch, "Python 3.14");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn functions_of_javascript_have_the_names_that_node_writes() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("node", NODE, &["-O1", "-fno-omit-frame-pointer", "-w"]);
    for (options, note) in [(&[][..], true), (&["--perf-basic-prof"], false)] {
        let mut command = Command::new(&program);
        let command = command.args(options).env("LD_PRELOAD", &library).env("SNUG", "profile:65536");
        let process = Running::when_ready(command);
        let pid = process.pid();
        let _named = Named(format!("/tmp/perf-{pid}.map"));
        let line = if note { "allocate (node)" } else { "keep (/app/keeps.js:3)" };
        let profile = run(&mut snug(&["profile", "--for", "500ms", "--view", "live", &pid]));
        let leak = run(&mut snug(&["leak", "--for", "4s", "--interval", "50ms", &pid]));
        let sites = run(&mut snug(&["exporter", "--once", "--sites", "2", "--pid", &pid]));
        for answer in [profile, leak, sites] {
            let answer = answer.expect_code(0).expect_stdout(line);
            assert_eq!(
                answer.stderr.matches("JavaScript's functions").count(),
                usize::from(note),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn what_the_library_can_not_read_is_said_and_its_malloc_is_no_culprit() {
    let library = snug_library();
    let scratch = Scratch::new();
    let process = start(&scratch, &library, ("libruby.so.9.1", INTERPRETER), "ruby");
    expect_notes(&process, &scratch, "Ruby 9.1");
}

/// Asks each command that names lines.
fn expect_notes(process: &Running, scratch: &Scratch, language: &str) {
    let pid = process.pid();
    let code = format!("[code of {language}]");
    let check = |answer: &Answer, lines: &[&str]| check(answer, language, lines);
    let function = |value: &serde_json::Value| value["function"].as_str().unwrap_or_default().to_string();

    let profile = run(&mut snug(&["profile", "--for", "500ms", "--view", "live", &pid])).expect_code(0);
    assert!(profile.stdout.contains("rb_str_new"), "native frames are shown: {}", profile.stdout);
    check(&profile, &[&code]);

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
    check(&run(&mut snug(&["blame", &folder])).expect_code(0), &[&code]);
    drop(watch);
}
