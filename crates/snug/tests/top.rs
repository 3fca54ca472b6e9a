//! `snug top` on a real terminal, which tmux gives it, and real processes.

mod common;

use std::process::{Command, Stdio};

use common::{jemalloc_library, run, snug, snug_library, Running, Scratch, SLEEPER};
use snug_base::need;
use snug_base::testing::program;

/// Starts a program that holds 8 MiB under an allocator.
fn start(program: &str, preload: Option<&str>) -> Running {
    let mut command = Command::new(program);
    command.arg("120").env_remove("LD_PRELOAD").stdout(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let running = Running(command.spawn().unwrap());
    common::eventually("it holds its memory", || {
        let status = std::fs::read_to_string(format!("/proc/{}/statm", running.pid())).unwrap();
        status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).is_some_and(|pages| pages > 2100)
    });
    running
}

/// A terminal of its own: one tmux server with one window, gone at the end of the test.
struct Tmux {
    scratch: Scratch,
}

impl Tmux {
    fn new(width: u16, height: u16) -> Result<Tmux, String> {
        program("tmux")?;
        let tmux = Tmux { scratch: Scratch::new() };
        let size = [width.to_string(), height.to_string()];
        tmux.call(&["-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], "sh"]);
        Ok(tmux)
    }

    fn call(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.scratch.path("socket")).args(arguments);
        // UTF-8 whatever the locale of the machine, or tmux would not show what is not ASCII.
        let output = command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn type_line(&self, line: &str) {
        self.call(&["send-keys", "-l", line]);
        self.call(&["send-keys", "Enter"]);
    }

    fn keys(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    fn expect(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        for _ in 0..200 {
            screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{what}: not on the screen:\n{screen}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.scratch.path("socket")).arg("kill-server").status();
    }
}

#[test]
fn processes_under_three_allocators() {
    let (snug_so, jemalloc) = (snug_library(), need!(jemalloc_library()));
    let scratch = Scratch::new();
    let program = scratch.compile("topsleeper", SLEEPER, &[]);
    let running = [start(&program, None), start(&program, Some(&jemalloc)), start(&program, Some(&snug_so))];
    let pids: Vec<String> = running.iter().map(Running::pid).collect();

    let answer = run(&mut snug(&["top", "--once", &pids[0], &pids[1], &pids[2]])).expect_code(0);
    let line = |pid: &str| answer.stdout.lines().find(|line| line.trim_start().starts_with(pid)).unwrap();
    assert!(line(&pids[0]).contains("glibc") && line(&pids[0]).contains("~8."), "estimated: {answer:#?}");
    assert!(line(&pids[1]).contains("jemalloc 5") && line(&pids[1]).contains("unknown"), "{answer:#?}");
    assert!(line(&pids[2]).contains("snug") && line(&pids[2]).contains("8.39 MB"), "8 MiB live: {answer:#?}");

    let tmux = need!(Tmux::new(130, 30));
    let tool = env!("CARGO_BIN_EXE_snug");
    tmux.type_line(&format!("{tool} top --interval 0.3 --sort pid topsleeper; echo ended with $?"));
    let screen = tmux.expect("all three", |screen| pids.iter().all(|pid| screen.contains(pid.as_str())));
    assert!(screen.contains("3 processes") && screen.contains("under snug"), "{screen}");
    assert!(screen.contains('▁'), "there are trends: {screen}");
    tmux.keys(&["Down", "Down"]);
    tmux.expect("details of the last, the one under snug", |screen| {
        screen.contains("heap ") && screen.contains("= live 8.3")
    });
    tmux.keys(&["c"]);
    tmux.expect("size classes", |screen| screen.contains("BLOCKS") && screen.contains("large"));
    tmux.keys(&["?"]);
    tmux.expect("help", |screen| screen.contains("freed, kept at hand"));
    tmux.keys(&["?"]);
    // A key and a new size at the same moment: the terminal library may keep the key until the next one.
    tmux.expect("no help", |screen| !screen.contains("freed, kept at hand"));
    tmux.call(&["resize-window", "-x", "50", "-y", "12"]);
    tmux.expect("a narrow screen", |screen| screen.contains("LIVE") && !screen.contains("CACHED"));
    drop(running);
    tmux.expect("the end of all", |screen| screen.contains("No processes to show"));
    tmux.keys(&["q"]);
    tmux.expect("the shell again", |screen| {
        screen.contains("ended with 0") && !screen.contains("No process")
    });
}

/// Leaves some 40 MB dirty, and goes on working: its slow paths answer requests.
const SERVER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  static void *blocks[400];
  for (int i = 0; i < 400; i++) blocks[i] = memset(malloc(100000), 1, 100000);
  for (int i = 0; i < 400; i++) free(blocks[i]);
  for (;; usleep(2000)) for (int i = 0; i < 20; i++) free(memset(malloc(50000), 1, 50000));
}
"#;

#[test]
fn keys_purge_and_change_settings() {
    let (library, tmux) = (snug_library(), need!(Tmux::new(120, 30)));
    let scratch = Scratch::new();
    let program = scratch.compile("topserver", SERVER, &[]);
    let mut command = Command::new(program);
    // Without a budget and a helper thread only a request gives the memory back.
    command.env("LD_PRELOAD", library).env("SNUG", "purge_cpu_percent:0,background:0");
    let server = Running(command.spawn().unwrap());
    let tool = env!("CARGO_BIN_EXE_snug");
    tmux.type_line(&format!("{tool} top --interval 0.3 {}", server.pid()));
    tmux.expect("its settings", |screen| screen.contains("purge_cpu_percent:0"));
    tmux.keys(&["p"]);
    tmux.expect("the answer to a purge", |screen| screen.contains("gave back 4") && screen.contains(" now"));
    tmux.keys(&["s"]);
    let title = format!("settings of {}", server.pid());
    let screen = tmux.expect("what can be changed", |screen| screen.contains(&title));
    let below = screen.lines().skip_while(|line| !line.contains(&title)).skip(1);
    let place = below.take_while(|line| !line.contains(" purge_cpu_percent ")).count();
    tmux.keys(&vec!["Down"; place]);
    tmux.keys(&["Enter", "BSpace", "9", "Enter"]);
    tmux.expect("the new setting", |screen| screen.contains("purge_cpu_percent:9"));
    let stats = run(&mut snug(&["stats", &server.pid(), "--json"])).expect_code(0).json();
    assert_eq!(stats["settings"]["purge_cpu_percent"], "9");
}

#[test]
fn the_terminal_is_given_back() {
    let tmux = need!(Tmux::new(100, 20));
    let tool = env!("CARGO_BIN_EXE_snug");
    let settings = |name: &str| {
        tmux.type_line(&format!("clear; stty -a | tr ';' '\\n' > {}", tmux.scratch.text(name)));
        common::eventually("stty", || {
            std::fs::read_to_string(tmux.scratch.path(name)).is_ok_and(|text| text.contains("echo"))
        });
        std::fs::read_to_string(tmux.scratch.path(name)).unwrap()
    };
    let before = settings("before");
    let own = std::process::id();
    for (end, code) in [("C-c", 130), ("TERM", 143), ("HUP", 129)] {
        tmux.type_line(&format!("clear; {tool} top {own}; echo ended with $?"));
        tmux.expect("top", |screen| screen.starts_with("snug top"));
        if end == "C-c" {
            tmux.keys(&[end]);
        } else {
            let shell = tmux.call(&["display-message", "-p", "#{pane_pid}"]);
            let children = format!("/proc/{0}/task/{0}/children", shell.trim());
            let pid = std::fs::read_to_string(children).unwrap();
            Command::new("kill").args(["-s", end, pid.trim()]).status().unwrap();
        }
        tmux.expect(end, |screen| {
            screen.contains(&format!("ended with {code}")) && !screen.contains("snug top  ")
        });
        let name = format!("after-{end}");
        assert_eq!(settings(&name), before, "after {end}");
    }
}
