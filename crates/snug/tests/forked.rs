//! Forked workers: what `snug stats --copied` says of pages that are copied in known ways, what `snug check` and the exporter
//! say of hooks.

mod common;

use std::collections::HashMap;
use std::process::{Command, Stdio};

use common::{run, snug, snug_library, Running, Scratch};
use serde_json::Value;

/// Forks a worker that changes pages in known ways, says so in lines of a name and a number of pages, and waits.
const NATIVE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { PAGES = 2000 };
static size_t page;
static char variables[1 << 20] = {1};
static char *map(size_t pages) {
  char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < pages * page; i++) memory[i] = (char)(i * 7 + i / page);
  return memory;
}
static void say(const char *name, size_t pages) { printf("%s %zu\n", name, pages * page); }
int main(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  char *memory = map(PAGES), *given_back = map(100);
  memset(variables, 1, sizeof variables);
  madvise(given_back, 100 * page, MADV_DONTNEED);
  int ready[2];
  pipe(ready);
  pid_t worker = fork();
  if (worker == 0) {
    char *next = memory;
    for (int i = 0; i < 300; i++, next += page) *(volatile char *)next = *next;
    for (int i = 0; i < 200; i++, next += page) next[page / 2] ^= 1;
    for (int i = 0; i < 100; i++, next += page) for (size_t k = 0; k < page; k++) next[k] ^= 85;
    for (size_t i = 0; i < sizeof variables; i += page) variables[i]++;
    memset(given_back, 1, 100 * page);
    write(ready[1], "", 1);
    for (;;) pause();
  }
  char byte;
  read(ready[0], &byte, 1);
  say("written_back", 300);
  say("changed", 200);
  say("rewritten", 100);
  say("variables", sizeof variables / page);
  say("new", 100);
  say("shared", PAGES - 600);
  printf("worker %d\nend 0\n", worker);
  fflush(stdout);
  pause();
}
"#;

/// Starts a program without settings of ours, and reads what it says.
fn start(command: &mut Command) -> (Running, HashMap<String, u64>) {
    for name in ["SNUG", "PYTHONMALLOC", "LD_PRELOAD"] {
        if !command.get_envs().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    Running::that_says(command)
}

/// Ends workers that outlive their parent.
struct Workers(Vec<u64>);

impl Drop for Workers {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

fn sizes(shares: &Value) -> HashMap<String, u64> {
    let causes = shares["causes"].as_array().unwrap().iter();
    let causes = causes.map(|of| (of["cause"].as_str().unwrap().to_string(), of["bytes"].as_u64().unwrap()));
    let mut sizes: HashMap<String, u64> = causes.collect();
    assert_eq!(sizes.values().sum::<u64>(), shares["copied_bytes"].as_u64().unwrap(), "{shares}");
    for name in ["shared", "new", "copied"] {
        sizes.insert(name.into(), shares[&format!("{name}_bytes")].as_u64().unwrap());
    }
    sizes
}

#[test]
fn pages_count_by_what_was_done_to_them() {
    let scratch = Scratch::new();
    let program = scratch.compile("program", NATIVE, &["-O0", "-w"]);
    for library in [None, Some(snug_library())] {
        let mut command = Command::new(&program);
        command.envs(library.iter().map(|library| ("LD_PRELOAD", library)));
        let (parent, said) = start(&mut command);
        let worker = said["worker"];
        let _workers = Workers(vec![worker]);
        let found = run(&mut snug(&["stats", "--copied", "--json", &parent.pid()])).expect_code(0).json();
        assert_eq!(found["workers"][0]["pid"], worker, "{found}");
        assert_eq!(found["workers"][0]["parent"].to_string(), parent.pid(), "{found}");
        let sizes = sizes(&found["sum"]);
        for (name, bytes) in said.iter().filter(|(name, _)| *name != "worker") {
            // Beside these pages there are some of the program's start.
            let found = sizes.get(name).copied().unwrap_or(0);
            assert!(found >= *bytes && found < bytes + (1 << 20), "{name}: {bytes}, {sizes:?}");
        }
        let rollup = std::fs::read_to_string(format!("/proc/{worker}/smaps_rollup")).unwrap();
        let anonymous = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        let anonymous = anonymous.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        let all = sizes["shared"] + sizes["copied"] + sizes["new"];
        assert!(all.abs_diff(anonymous) < 1 << 20, "{all} {anonymous}");
        // The worker itself can be named, and has the same.
        let of_one = run(&mut snug(&["stats", "--copied", &worker.to_string()])).expect_code(0);
        of_one.expect_stdout("forked by").expect_stdout("written back").expect_stdout("anonymous memory");
    }
}

#[test]
fn what_shares_nothing_is_said_so() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    common::eventually("it has become sleep", || {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path.ends_with("sleep"))
    });
    run(&mut snug(&["stats", "--copied", &pid]))
        .expect_code(3)
        .expect_stderr("shares no memory since a fork");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Five workers, each of which copies pages in one way, which its name says.
const PYTHON: &str = r#"
import gc, os, sys, time
gc.disable()
texts = ["a text %d" % i for i in range(100_000)]
pairs = [(i, -i) for i in range(100_000)]
floats = [float(i) for i in range(200_000)]
del floats[::2]
source = "def function(x):\n" + "    x = x + 1; x = x * 2; x = x - 3; x = x ^ 5\n" * 12 + "    return x & 255\n"
functions = []
for _ in range(2000):
    space = {}
    exec(compile(source, "made", "exec"), space)
    functions.append(space["function"])
kept = None
def written_back():
    for text in texts: pass
def counts():
    global kept
    kept = list(texts)
def collector():
    gc.collect()
def code():
    for function in functions:
        for _ in range(80): function(3)
def holes():
    global kept
    kept = [float(i) for i in range(60_000)]
read, write = os.pipe()
for work in [written_back, counts, collector, code, holes]:
    child = os.fork()
    if child == 0:
        work()
        os.write(write, b"x")
        time.sleep(1000)
        os._exit(0)
    os.read(read, 1)
    print(work.__name__, child)
print("end 0", flush=True)
time.sleep(1000)
"#;

/// Asserts that most of what each worker copied has the cause by which it is called.
fn check_python(python: &str, library: Option<&str>) {
    let mut command = Command::new(python);
    command.args(["-c", PYTHON]).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("PYTHONMALLOC", "malloc");
    }
    let (parent, said) = start(&mut command);
    let _workers = Workers(said.values().copied().collect());
    let found = run(&mut snug(&["stats", "--copied", "--json", &parent.pid()])).expect_code(0).json();
    for (name, pid) in &said {
        // Under snug a worker leaves the holes of its parent alone.
        if name == "holes" && library.is_some() {
            continue;
        }
        let worker =
            found["workers"].as_array().unwrap().iter().find(|worker| worker["pid"] == *pid).unwrap();
        let sizes = sizes(worker);
        let bytes = sizes.get(name).copied().unwrap_or(0);
        assert!(bytes > 1 << 20 && bytes * 2 > sizes["copied"], "{python} {library:?} {name}: {sizes:?}");
    }
    let text = run(&mut snug(&["stats", "--copied", &parent.pid()])).expect_code(0).stdout;
    assert!(text.contains("5 workers forked below") && text.contains("holes"), "{text}");
}

/// With Debian's Python, and those that SNUG_TEST_PYTHONS names, with colons between them.
#[test]
fn causes_of_python_are_told_apart() {
    let others = std::env::var("SNUG_TEST_PYTHONS").unwrap_or_default();
    let others = others.split(':').filter(|path| !path.is_empty());
    for python in std::iter::once("/usr/bin/python3").chain(others) {
        check_python(python, None);
        check_python(python, Some(&snug_library()));
    }
}

/// The same in Ruby, for the ways that are named.
const RUBY: &str = r##"
GC.disable
young = nil
texts = Array.new(300) { |i| Array.new(100) { |j| "a text that is too long to lie in a slot, number #{i * 100 + j}, and more" * 2 } }
objects = Array.new(3000) { Array.new(100) { Object.new } }
objects.each { |some| (0...100).step(2) { |i| some[i] = nil } }
body = %w[pred abs itself next].map { |name| "value = value.#{name}
" }.join * 300
holder = Object.new
100.times { |i| holder.instance_eval("def m#{i}(value)
#{body}end") }
ways = {
  "collector" => -> { GC.enable; GC.start },
  "written_back" => -> { GC.enable; GC.start },
  "code" => -> { 100.times { |i| holder.send("m#{i}", 3) } },
  "holes" => -> { young = Array.new(1200) { Array.new(100) { Object.new } } },
  "changed" => -> { texts.each { |some| some.each { |text| text.setbyte(60, 33) } } },
}
GC.enable; 4.times { GC.start }; GC.disable
node = Struct.new(:next)
300_000.times { young = node.new(young) } if ARGV.include?("collector")
read, write = IO.pipe
ways.slice(*ARGV).each do |name, way|
  next if name == "written_back" && RUBY_VERSION >= "3.4" # ruby#10899
  worker = fork { way.call; write.write("x"); sleep 1000; exit! }
  read.read(1)
  puts "#{name} #{worker}"
end
puts "end 0"
$stdout.flush
sleep 1000
"##;

/// Asserts that of what each worker copied, and is not the same, most has the cause by which it is called.
fn check_ruby(ruby: &str, library: Option<&str>, ways: &[&str]) {
    let mut command = Command::new(ruby);
    command.args(["-e", RUBY]).args(ways);
    command.envs(library.iter().map(|library| ("LD_PRELOAD", library)));
    let (parent, said) = start(&mut command);
    let _workers = Workers(said.values().copied().collect());
    let found = run(&mut snug(&["stats", "--copied", "--json", &parent.pid()])).expect_code(0).json();
    for (name, pid) in &said {
        let worker =
            found["workers"].as_array().unwrap().iter().find(|worker| worker["pid"] == *pid).unwrap();
        let mut sizes = sizes(worker);
        let copied = sizes["copied"];
        if name != "written_back" {
            sizes.remove("written_back");
        }
        // Some of the holes are whole pages.
        let free_pages = sizes.remove("free_pages").unwrap_or(0);
        *sizes.entry("holes".into()).or_default() += free_pages;
        let bytes = sizes.get(name).copied().unwrap_or(0);
        let causes = sizes.iter().filter(|(name, _)| !["shared", "new", "copied"].contains(&name.as_str()));
        let most = causes.map(|(_, bytes)| *bytes).max().unwrap();
        assert!(bytes == most && bytes > 100_000, "{ruby} {library:?} {name}: {sizes:?} of {copied}");
    }
}

/// With Debian's Ruby, and those that SNUG_TEST_RUBIES names, with colons between them.
#[test]
fn causes_of_ruby_are_told_apart() {
    let others = std::env::var("SNUG_TEST_RUBIES").unwrap_or_default();
    let others = others.split(':').filter(|path| !path.is_empty());
    for ruby in std::iter::once("/usr/bin/ruby").chain(others) {
        for library in [None, Some(snug_library())] {
            check_ruby(ruby, library.as_deref(), &["collector"]);
            check_ruby(ruby, library.as_deref(), &["written_back", "code", "holes", "changed"]);
        }
    }
}

/// Leaves word as the hooks of the wheel do, and forks a worker that writes to 8 MB of what they share.
const HOOKS: &str = r#"
import json, mmap, os, sys, time
memory = bytearray(40 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
def anonymous():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Anonymous:"): return int(line.split()[1]) << 10
if len(sys.argv) > 1:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    state = {"pid": os.getpid(), "objects": 1234, "shared_bytes": anonymous(), "seconds": 0.5}
    state.update({"immortal": True, "reason": None} if sys.argv[1] == "immortal" else {"immortal": False, "reason": "it is old"})
    page.write(b"snug hooks 1\n" + json.dumps(state).encode())
read, write = os.pipe()
child = os.fork()
if child == 0:
    for at in range(0, 8 << 20, 4096): memory[at] = 2
    os.write(write, b"x")
    time.sleep(1000)
    os._exit(0)
os.read(read, 1)
print("worker", child)
print("end 0", flush=True)
time.sleep(1000)
"#;

fn start_hooks(words: &[&str]) -> (Running, u64) {
    let (parent, said) = start(Command::new("/usr/bin/python3").args(["-c", HOOKS]).args(words));
    (parent, said["worker"])
}

#[test]
fn hooks_are_seen_from_outside() {
    let (parent, worker) = start_hooks(&["immortal"]);
    let _workers = Workers(vec![worker]);
    let json = run(&mut snug(&["check", "--json", &parent.pid()])).json();
    let hooks: Vec<&Value> =
        json["processes"].as_array().unwrap().iter().map(|process| &process["hooks"]).collect();
    assert_eq!((&hooks[0]["is_prepared"], &hooks[1]["is_prepared"]), (&true.into(), &false.into()), "{json}");
    assert_eq!((&hooks[0]["objects"], &hooks[0]["copied_bytes"]), (&1234.into(), &Value::Null), "{json}");
    assert_eq!(json["processes"][1]["is_forked"], true, "{json}");
    let near = |bytes: f64| (8e6..10e6).contains(&bytes);
    assert!(near(hooks[1]["copied_bytes"].as_f64().unwrap()), "{json}");
    let line = format!("hooks: process {}: immortal objects before the fork, ", parent.pid());
    let text = run(&mut snug(&["check", &parent.pid()]));
    text.expect_stdout(&line).expect_stdout("1234 objects").expect_stdout(&format!("have copied: {worker} "));
    let metrics = run(&mut snug(&["exporter", "--once", "--pid", &parent.pid()])).expect_code(0).stdout;
    let value = |name: &str| -> Vec<f64> {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    assert_eq!(value("snug_hooks_immortal_objects"), [1234.0], "{metrics}");
    assert!(value("snug_hooks_shared_bytes")[0] > 40e6, "{metrics}");
    assert!(near(value("snug_hooks_copied_bytes")[0]), "{metrics}");
}

#[test]
fn no_hooks_and_half_of_them_are_said() {
    let (parent, worker) = start_hooks(&["freeze"]);
    let _workers = Workers(vec![worker]);
    let text = run(&mut snug(&["check", &parent.pid()]));
    text.expect_stdout("gc.freeze before the fork").expect_stdout("no immortal objects: it is old");
    let (parent, worker) = start_hooks(&[]);
    let _others = Workers(vec![worker]);
    let text = run(&mut snug(&["check", &parent.pid()]));
    text.expect_stdout(&format!("hooks: none, and process {worker} was forked"));
    drop((_others, parent));
    let python = start(
        Command::new("/usr/bin/python3")
            .args(["-c", "import time; print('end 0', flush=True); time.sleep(99)"]),
    );
    let text = run(&mut snug(&["check", &python.0.pid()]));
    text.expect_stdout("hooks: none, and no interpreter here was forked");
}
