//! Shared by the tests of the commands: running `snug`, small programs, and libraries that may be missing.

#![allow(dead_code)] // Each test file uses its own part.

pub(crate) mod prometheus;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use regex_lite::Regex;
use snug_base::testing::program;

/// A call of the tool with a clean environment.
pub(crate) fn snug(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snug"));
    command.args(arguments).stdin(Stdio::null());
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    for name in ["LD_PRELOAD", "SNUG", "SNUG_LIBRARY", "SNUG_THIS_ONLY", "MALLOC_CONF", "MALLOC_ARENA_MAX"] {
        command.env_remove(name);
    }
    command
}

/// The same on a terminal, which mixes stdout and stderr.
pub(crate) fn snug_in_terminal(arguments: &[&str]) -> Command {
    let quoted = arguments.iter().map(|argument| format!("'{argument}'")).collect::<Vec<_>>().join(" ");
    let snug = snug(&[]);
    let line = format!("stty cols 100; exec '{}' {quoted}", snug.get_program().to_string_lossy());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    for (name, value) in snug.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// What a call wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Answer {
    let Output { status, stdout, stderr } = command.output().expect("snug can be started");
    Answer {
        code: status.code(),
        stdout: String::from_utf8(stdout).expect("stdout is text"),
        stderr: String::from_utf8(stderr).expect("stderr is text"),
    }
}

impl Answer {
    /// Asserts the exit code; shows all that was written if it is another.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Answer {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts that stderr holds a text.
    #[track_caller]
    pub(crate) fn expect_stderr(self, text: &str) -> Answer {
        assert!(self.stderr.contains(text), "no {text:?} on stderr: {self:#?}");
        self
    }

    /// Asserts that stdout holds a text.
    #[track_caller]
    pub(crate) fn expect_stdout(self, text: &str) -> Answer {
        assert!(self.stdout.contains(text), "no {text:?} on stdout: {self:#?}");
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A directory of one test, removed at its end.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("snug-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory can be made");
        Scratch(path)
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A path inside, as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Compiles a C program into this directory and returns its path.
    pub(crate) fn compile(&self, name: &str, source: &str, options: &[&str]) -> String {
        let file = self.path(&format!("{name}.c"));
        std::fs::write(&file, source).expect("the source can be written");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let output = Command::new(compiler)
            .arg("-o")
            .arg(self.path(name))
            .arg(&file)
            .args(options)
            .output()
            .expect("a C compiler is needed: apt install gcc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.text(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed at the end of the test, with its process group where it leads one.
pub(crate) struct Running(pub Child);

impl Running {
    /// Starts a program, and waits until it has written "ready".
    pub(crate) fn when_ready(command: &mut Command) -> Running {
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        running.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        running
    }

    /// Starts a program and reads what it says: lines of a name and a number, up to "end 0".
    pub(crate) fn that_says(command: &mut Command) -> (Running, HashMap<String, u64>) {
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.take_while(|line| line != "end 0").map(|line| {
            let (name, number) = line.split_once(' ').unwrap();
            (name.to_string(), number.parse().unwrap())
        });
        let said = said.collect();
        (running, said)
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Ruby script that says "ready", under snug with these settings, and its path.
pub(crate) fn ready_ruby(
    scratch: &Scratch,
    source: &str,
    settings: &str,
) -> Result<(Running, String), String> {
    let (ruby, script) = (program("ruby")?, scratch.text("keeps.rb"));
    std::fs::write(&script, source).unwrap();
    let mut command = Command::new(ruby);
    command.arg(&script).env("LD_PRELOAD", snug_library()).env("SNUG", settings);
    Ok((Running::when_ready(&mut command), script))
}

/// The names of all commands.
pub(crate) fn commands() -> Vec<String> {
    let help = run(&mut snug(&["--help"])).expect_code(0).stdout;
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let words =
        listed.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    let commands: Vec<String> = words.filter(|word| *word != "help").map(String::from).collect();
    assert!(commands.len() >= 4 && commands.contains(&"top".to_string()), "{commands:?}");
    commands
}

/// A text without what differs from run to run: names stand for places, N for each number with its unit, one space or
/// line for several; lines about single mappings are left out.
pub(crate) fn shape(text: &str, places: &[(&str, &str)]) -> String {
    let mut text = places.iter().fold(text.to_string(), |text, (place, name)| text.replace(place, name));
    for (pattern, new) in [
        (r"(?m)^.*\b[0-9a-f]{6,}-[0-9a-f]{6,}\b.*\n", ""),
        (r"http://[0-9.:]+", "URL"),
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
        (r"[-+]?\b\d[\d.,]*( ?(B|kB|MB|GB|%|ms|s|min|h)\b| %|%)?", "N"),
        (r" {2,}", "  "),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, new).into_owned();
    }
    text
}

/// A program that allocates and then sleeps for the seconds given.
pub(crate) const SLEEPER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
  size_t size_bytes = 8u << 20;
  char *volatile block = malloc(size_bytes);
  memset(block, 1, size_bytes);
  usleep((useconds_t)(atof(count > 1 ? arguments[1] : "1") * 1e6));
  return 0;
}
"#;

/// Executes a program under a filter that refuses a system call, as those of some containers do, or an older kernel. Its
/// arguments are the call's number, the error, and the program.
pub(crate) const REFUSE_CALL: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
  if (count < 4) return 99;
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(words[1]), 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | atoi(words[2])),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
  execv(words[3], words + 3);
  return 98;
}
"#;

/// A server: its port, and what it does, are its arguments. See there.
pub(crate) const SERVER: &str = include_str!("../programs/server.py");

/// A port that nobody listens on. It is below those that the kernel gives to connections and to who asks for any port:
/// nobody takes it before the server of the test does.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let any = || 10_000 + (std::process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
    std::iter::repeat_with(|| any() as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("there is a port")
}

/// A library that make builds.
fn built_library(variable: &str, name: &str) -> String {
    let built = || format!("{}/../../build/{name}", env!("CARGO_MANIFEST_DIR"));
    let path = std::env::var(variable).unwrap_or_else(|_| built());
    let found = std::fs::canonicalize(&path)
        .unwrap_or_else(|error| panic!("{path}: {error}; make library builds it"));
    found.display().to_string()
}

/// libsnug.so, as the project's build leaves it.
pub(crate) fn snug_library() -> String {
    built_library("SNUG_LIBRARY", "libsnug.so")
}

/// The same library under jemalloc's name.
pub(crate) fn snug_as_jemalloc() -> String {
    built_library("SNUG_AS_JEMALLOC", "jemalloc/libjemalloc.so.2")
}

/// Debian's jemalloc.
pub(crate) fn jemalloc_library() -> Result<String, String> {
    let named = std::env::var("JEMALLOC_LIBRARY").ok();
    let folders = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"];
    let places = folders.map(|folder| format!("/usr/{folder}/libjemalloc.so.2"));
    let found = named.into_iter().chain(places).find_map(|path| std::fs::canonicalize(path).ok());
    found.map(|path| path.display().to_string()).ok_or("libjemalloc.so.2 is not installed".into())
}

/// Waits until something is so; fails the test if it is not within two minutes, as machines may be busy.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, such as -INT.
#[track_caller]
pub(crate) fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success(), "{pid} still ran");
}

/// Whether a process with this text in its command line exists.
pub(crate) fn process_exists(text: &str) -> bool {
    command_lines().iter().any(|line| line.contains(text))
}

/// Whether a process with just this command line exists: not one that is to start it.
pub(crate) fn process_runs(line: &str) -> bool {
    command_lines().iter().any(|other| other.trim_end() == line)
}

fn command_lines() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc can be read");
    let lines = entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

/// Interpreters whose frames the library reads: those that are installed, one at least, and those of SNUG_PYTHONS, by
/// their paths.
pub(crate) fn pythons() -> Vec<String> {
    let works = |python: &String| {
        Command::new(python).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let known = ["python3.11", "python3.12", "python3.13", "python3.14", "python3.15"].map(String::from);
    let mut found: Vec<String> = known.into_iter().filter(works).collect();
    let named = std::env::var("SNUG_PYTHONS").unwrap_or_default();
    found.extend(named.split(':').filter(|path| !path.is_empty()).map(String::from));
    assert!(!found.is_empty(), "there is no Python of 3.11 to 3.15; SNUG_PYTHONS names some by their paths");
    found
}
