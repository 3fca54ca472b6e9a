//! `snug stats --where`: a table that adds up to RSS, and lines that agree with what the programs say themselves.

mod common;

use std::collections::HashMap;
use std::process::Command;

use common::{eventually, run, snug, snug_library, Running, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// Says what it knows itself, in lines of a name and a number, and waits.
const RUBY: &str = r#"
$kept = Array.new(600_000) { |i| "a string that is too long for its slot #{i}" }
4.times { Thread.new { sleep } }
GC.start
puts "ruby_slots #{GC.stat(:heap_allocated_pages) * GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]}"
puts "end 0"
STDOUT.flush
sleep
"#;

const PYTHON: &str = r#"
import os, sys, threading, time
kept = [(i, str(i)) for i in range(400_000)]
[threading.Thread(target=time.sleep, args=(1000,), daemon=True).start() for _ in range(4)]
read, write = os.pipe()
said = os.dup(2)
os.dup2(write, 2)
threading.Thread(target=lambda: (sys._debugmallocstats(), os.dup2(said, 2), os.close(write))).start()
arenas = unused = 0
for line in os.fdopen(read):
    value = lambda: int(line.split("=")[-1].replace(",", ""))
    if "bytes/arena" in line: arenas = value()
    if "unused pools" in line: unused = value()
print("python_arenas", arenas - unused)
print("end 0", flush=True)
time.sleep(1000)
"#;

/// Touches much of what it gets from malloc, small blocks, runs and mappings of their own, shared memory and its stack.
const NATIVE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static size_t live, stacks;
static pthread_barrier_t touched;
static char variables[5 << 20];
static void keep(size_t bytes) { void *p = malloc(bytes); memset(p, 1, bytes); live += bytes; }
static void *deep(void *unused) {
  char *volatile stack = __builtin_alloca(3 << 20);
  memset(stack, 1, 3 << 20);
  pthread_barrier_wait(&touched);
  pause();
  return unused;
}
int main(void) {
  for (int i = 0; i < 100000; i++) keep(112);
  for (int i = 0; i < 200; i++) keep(48 << 10);
  for (int i = 0; i < 3; i++) keep(9 << 20);
  calloc(1, 200 << 20); /* not touched */
  memset(variables, 1, sizeof variables);
  char *shared = mmap(NULL, 6 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(shared, 1, 6 << 20);
  char *other = mmap(NULL, 7 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(other, 1, 7 << 20);
  char *code = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(code, 0, 4 << 20);
  pthread_barrier_init(&touched, NULL, 3);
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, deep, NULL);
    stacks += 3 << 20;
  }
  pthread_barrier_wait(&touched);
  printf("live_blocks %zu\nstacks %zu\nshared %d\nother %d\ngenerated_code %d\ndata %zu\nend 0\n", live, stacks, 6 << 20,
         7 << 20, 4 << 20, sizeof variables);
  fflush(stdout);
  pause();
}
"#;

/// Lays out chunks as V8 does: described in the chunk itself, as in Node 20 and 22, or elsewhere, as in Node 24; beside them
/// as much that is no heap.
const NODE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { STEP = 256 << 10, CHUNKS = 30 };
static size_t heap;
static char *map(size_t bytes) {
  char *place = mmap(NULL, bytes + 2 * STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  place += STEP - (uintptr_t)place % STEP;
  mprotect(place, bytes, PROT_READ | PROT_WRITE);
  memset(place, 1, bytes);
  return place;
}
static void lay_out(int version, size_t bytes) {
  char *chunk = map(bytes);
  uintptr_t start = (uintptr_t)chunk, *words = (uintptr_t *)chunk;
  if (version == 20) {
    memcpy(words, (uintptr_t[]){bytes, 10, 99, start + 0x1148, start + bytes, 0, 0, bytes, 99, 99, start, bytes}, 96);
  } else if (version == 22) {
    memcpy(words, (uintptr_t[]){10, start, bytes, 99, start + 0x1140, start + bytes, 0, 0, 99, 99, start, bytes}, 96);
  } else {
    uintptr_t *elsewhere = malloc(96);
    memcpy(elsewhere, (uintptr_t[]){99, start, bytes, bytes - 16, 0, 16, bytes, start + bytes, 99, start + 16, 99, 0}, 96);
    words[0] = 10;
    words[1] = (uintptr_t)elsewhere;
  }
  heap += bytes;
}
int main(int count, char **arguments) {
  int version = atoi(arguments[1]);
  for (int i = 0; i < CHUNKS; i++) lay_out(version, STEP);
  lay_out(version, 5 * STEP / 2);
  char *other = map(CHUNKS * STEP);
  for (int i = 0; i < CHUNKS; i++) *(uintptr_t *)(other + i * STEP) = (uintptr_t)other + i * STEP;
  printf("v8_heap %zu\nother %d\nend 0\n", heap, CHUNKS * STEP);
  fflush(stdout);
  pause();
}
"#;

/// Lays out segments as Python's mimalloc does, of which not all is in memory; beside them as much that is none.
const MIMALLOC: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { STEP = 32 << 20, SLICE = 64 << 10, TOUCHED = 4 << 20 };
static size_t heap;
static void lay_out(size_t bytes, int is_segment) {
  char *place = mmap(NULL, bytes + STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  place += STEP - (uintptr_t)place % STEP;
  memset(place, 1, TOUCHED);
  if (!is_segment) return;
  uintptr_t *words = (uintptr_t *)place;
  words[4] = bytes;
  words[31] = bytes / SLICE;
  words[32] = 1;
  heap += TOUCHED;
}
int main(void) {
  for (int i = 0; i < 3; i++) lay_out(STEP, 1);
  lay_out(STEP + 129 * SLICE, 1);
  for (int i = 0; i < 3; i++) lay_out(STEP, 0);
  printf("python_mimalloc %zu\nother %d\nend 0\n", heap, 3 * TOUCHED);
  fflush(stdout);
  pause();
}
"#;

/// Starts a program without settings of ours, and reads what it says.
fn start(command: &mut Command, library: Option<&str>) -> (Running, HashMap<String, u64>) {
    command.env_remove("SNUG").env_remove("PYTHONMALLOC");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    Running::that_says(command)
}

/// Asserts that the table adds up, and that what the program said stands there, within 3 %.
#[track_caller]
fn check(process: &Running, said: &HashMap<String, u64>, allocator: &str) -> HashMap<String, u64> {
    let pid = process.pid();
    eventually("all threads wait", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let mut calls =
            tasks.map(|task| std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
        calls.all(|call| call.split_ascii_whitespace().count() > 2)
    });
    let json = run(&mut snug(&["stats", "--where", "--json", &pid])).expect_code(0).json();
    let parts: HashMap<String, u64> = json["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part["part"].as_str().unwrap().into(), part["bytes"].as_u64().unwrap()))
        .collect();
    let rss = json["rss_bytes"].as_u64().unwrap();
    assert_eq!(parts.values().sum::<u64>(), rss, "{json}");
    assert_eq!(json["allocator"], allocator, "{json}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let of_kernel = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
    let near = |one: u64, other: u64| one.abs_diff(other) as f64 <= 0.03 * other as f64;
    assert!(near(rss, of_kernel), "{rss} {of_kernel} {json}");
    for (name, bytes) in said {
        assert!(near(parts[name], *bytes), "{name}: {bytes} {json}");
    }
    // Nothing else stays unexplained.
    let unknown =
        parts.get("other").copied().unwrap_or(0).saturating_sub(said.get("other").copied().unwrap_or(0));
    assert!(unknown as f64 <= 0.03 * rss as f64, "{unknown} {json}");
    let text = run(&mut snug(&["stats", "--where", &pid])).expect_code(0).stdout;
    assert!(text.contains("100.0 %  all of these"), "{text}");
    parts
}

/// The numbers of `snug stats` by the words in front of them.
fn words_of(pid: &str, options: &[&str]) -> HashMap<String, String> {
    let text = run(&mut snug(&[&["stats", pid], options].concat())).expect_code(0).stdout;
    let number = |line: &str| {
        let (name, rest) = line.strip_prefix("  ")?.split_once("  ")?;
        let mut words = rest.split_whitespace();
        Some((name.to_string(), format!("{} {}", words.next()?, words.next()?)))
    };
    text.lines().filter_map(number).filter(|(name, _)| !name.is_empty()).collect()
}

/// A word stands for one number, whichever of the two tables it is in.
#[track_caller]
fn check_words(process: &Running) {
    let pid = process.pid();
    // The program waits; only its helper thread may give something back in between.
    let differ = || {
        let (stats, places) = (words_of(&pid, &["--classes"]), words_of(&pid, &["--where"]));
        assert!(stats.len() >= 6 && places.len() >= 6, "{stats:?} {places:?}");
        assert!(stats.contains_key("RSS") && places.contains_key("RSS"), "{stats:?} {places:?}");
        let other =
            stats.iter().filter(|(name, number)| places.get(*name).is_some_and(|other| other != *number));
        other.map(|(name, number)| format!("{name}: {number}, {}", places[name])).collect::<Vec<_>>()
    };
    let differences: Vec<_> = (0..5).map(|_| differ()).take_while(|found| !found.is_empty()).collect();
    assert!(differences.len() < 5, "{differences:?}");
}

#[test]
fn native_programs_add_up() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", NATIVE, &["-pthread", "-O0", "-w"]);
    for (library, allocator) in [(Some(library.as_str()), "snug"), (None, "glibc")] {
        let (process, said) = start(&mut Command::new(&program), library);
        assert_eq!(said.len(), 6);
        check(&process, &said, allocator);
        check_words(&process);
    }
}

#[test]
fn the_heap_of_v8_is_told_apart() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("node", NODE, &["-O0", "-w"]);
    for version in ["20", "22", "24"] {
        for (library, allocator) in [(Some(library.as_str()), "snug"), (None, "glibc")] {
            let (process, said) = start(Command::new(&program).arg(version), library);
            assert_eq!(said.len(), 2);
            check(&process, &said, allocator);
        }
    }
}

#[test]
fn pythons_own_mimalloc_is_told_apart() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("python3.14t", MIMALLOC, &["-O0", "-w"]);
    for (library, allocator) in [(Some(library.as_str()), "snug"), (None, "glibc")] {
        let (process, said) = start(&mut Command::new(&program), library);
        assert_eq!(said.len(), 2);
        check(&process, &said, allocator);
    }
}

#[test]
fn rubys_slots_are_told_apart() {
    let library = snug_library();
    need!(program("ruby"));
    for (library, allocator) in [(Some(library.as_str()), "snug"), (None, "glibc")] {
        let (process, said) = start(Command::new("ruby").args(["-e", RUBY]), library);
        assert_eq!(said.len(), 1);
        let parts = check(&process, &said, allocator);
        assert!(parts["live_blocks"] > 600_000 * 40, "{parts:?}");
    }
}

/// Until Ruby 3.2 short arrays lie in a heap of their own while they are young, where much looks like a page of slots.
const YOUNG: &str = r#"
GC.disable
$young = Array.new(150_000) { |i| [i, i, i, i, i] }
puts "end 0"
STDOUT.flush
sleep
"#;

#[test]
fn rubys_young_arrays_are_told_apart() {
    let library = snug_library();
    need!(program("ruby"));
    let (process, said) = start(Command::new("ruby").args(["-e", YOUNG]), Some(&library));
    check(&process, &said, "snug");
}

/// Keeps blocks of which some are sampled.
const SAMPLED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  for (int i = 0; i < 3000; i++) memset(malloc(8000), 1, 8000);
  puts("end 0");
  fflush(stdout);
  pause();
}
"#;

#[test]
fn guarded_blocks_have_a_line() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("program", SAMPLED, &["-O0", "-w"]);
    let script = format!("SNUG=profile:4096,guard_samples:1 exec {program}");
    let (process, said) = start(Command::new("sh").args(["-c", &script]), Some(&library));
    let parts = check(&process, &said, "snug");
    assert!(parts["guarded_blocks"] >= 50 * 8192, "some samples are guarded: {parts:?}");
    assert!(parts["live_blocks"] > 2000 * 8000, "{parts:?}");
}

#[test]
fn pythons_arenas_are_told_apart() {
    let library = snug_library();
    for (library, allocator) in [(Some(library.as_str()), "snug"), (None, "glibc")] {
        let (process, said) = start(Command::new("/usr/bin/python3").args(["-c", PYTHON]), library);
        assert_eq!(said.len(), 1);
        check(&process, &said, allocator);
    }
}

/// Two forked workers that share what their parent made: some 20 MB by malloc, 30 MB of Python's own arenas.
const WORKERS: &str = r#"
import os, time
kept = [(i, str(i)) for i in range(300_000)]
blocks = [bytes(700) for i in range(30_000)]
end, until = os.pipe()
for worker in range(2):
    child = os.fork()
    if child == 0:
        os.close(until)
        os.read(end, 1)
        os._exit(0)
    print("worker", child)
print("end 0", flush=True)
time.sleep(1000)
"#;

/// What a process shares with its parent stays shared when it is looked at.
#[test]
fn no_look_makes_forked_workers_grow() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("workers.py"), WORKERS).unwrap();
    for library in [None, Some(snug_library().as_str())] {
        let mut command = Command::new("/usr/bin/python3");
        let (server, said) = start(command.arg(scratch.path("workers.py")), library);
        let worker = said["worker"].to_string();
        eventually("the worker sleeps", || {
            let call = std::fs::read_to_string(format!("/proc/{worker}/syscall")).unwrap();
            call.split_ascii_whitespace().count() > 2
        });
        let private = || -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{worker}/smaps_rollup")).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("Private_"));
            lines.map(|line| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
        };
        for (arguments, said) in [
            (vec!["stats", &worker], "PSS"),
            (vec!["stats", "--where", &worker], "all of these"),
            (vec!["exporter", "--once", "--estimates", "--pid", &worker], "live_bytes"),
            (vec!["leak", "--for", "3s", &worker], "in use"),
        ] {
            let before = private();
            run(&mut snug(&arguments)).expect_stdout(said);
            let after = private();
            assert!(after < before + 400, "{arguments:?}: {before} KiB were its own, then {after} KiB");
        }
        // What is in use is the sum over all of them, and so more than PSS.
        run(&mut snug(&["leak", "--for", "3s", &server.pid()])).expect_stdout(
            "that counts pages which processes share since a fork in each of them; PSS divides",
        );
    }
}
