//! Requests to a process under snug: the last one is in force in the end, whoever else asked meanwhile, and samples
//! end with the program that asked for them, however that ended.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{run, signal, snug, snug_library, Running, Scratch};

/// Works in slow paths for a moment at each byte that it reads, and sleeps in between.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  char byte;
  puts("ready");
  fflush(stdout);
  while (read(0, &byte, 1) == 1) {
    for (int i = 0; i < 400; i++) free(memset(malloc(50000), 1, 50000));
    if (byte == 'f' && fork() == 0) {
      for (int i = 0; i < 15000; i++, usleep(2000)) free(memset(malloc(50000), 1, 50000));
      return 0;
    }
  }
  return 0;
}
"#;
/// Longer than a lease.
const LEASE: Duration = Duration::from_secs(17);

struct Target(Running);

impl Target {
    fn start(scratch: &Scratch, library: &str) -> Target {
        let program = match scratch.path("target").exists() {
            true => scratch.text("target"),
            false => scratch.compile("target", PROGRAM, &[]),
        };
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library).env("SNUG", "background:0");
        Target(Running::when_ready(command.stdin(Stdio::piped())))
    }

    fn pid(&self) -> String {
        self.0.pid()
    }

    fn works(&mut self, byte: u8) {
        self.0 .0.stdin.as_mut().unwrap().write_all(&[byte]).unwrap();
        sleep(Duration::from_millis(200));
    }

    fn signal(&self, name: &str) {
        signal(&self.pid(), name);
    }

    fn settings(&self) -> BTreeMap<String, String> {
        settings(&self.pid())
    }
}

fn settings(pid: &str) -> BTreeMap<String, String> {
    serde_json::from_value(run(&mut snug(&["stats", pid, "--json"])).json()["settings"].clone()).unwrap()
}

fn quiet(arguments: &[&str]) -> Child {
    snug(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One target, asked by several in any order, while it sleeps, works or is stopped: the last value of each setting.
fn ask_at_random(scratch: &Scratch, library: &str, seed: u64) {
    let mut random = Random(seed);
    let mut target = Target::start(scratch, library);
    let pid = target.pid();
    let (mut promised, mut stopped, mut tools) = (BTreeMap::new(), false, Vec::<Child>::new());
    let mut told = Vec::new();
    for _ in 0..12 {
        let step = random.below(8);
        told.push(step);
        match step {
            0..=2 => {
                let keys = [("purge_cpu_percent", 100), ("stats_print", 2), ("guard_samples", 100)];
                let (key, values) = keys[random.below(3) as usize];
                let value = random.below(values).to_string();
                run(&mut snug(&["set", &pid, &format!("{key}={value}"), "--wait", "0.05"]));
                promised.insert(key.to_string(), value);
            }
            3 => _ = run(&mut snug(&["purge", &pid, "--wait", "0.05"])),
            4 => {
                let mut tool = match random.below(2) {
                    0 => quiet(&["profile", &pid, "--for", "20"]),
                    _ => quiet(&["leak", &pid, "--for", "20", "--interval", "50ms"]),
                };
                sleep(Duration::from_millis(300));
                match random.below(3) {
                    0 => tool.kill().unwrap(),
                    1 => signal(&tool.id().to_string(), "-TERM"),
                    _ => signal(&tool.id().to_string(), "-INT"),
                }
                tools.push(tool);
            }
            5 => {
                target.signal(if stopped { "-CONT" } else { "-STOP" });
                stopped = !stopped;
            }
            _ if !stopped => target.works(b'x'),
            _ => {}
        }
    }
    target.signal("-CONT");
    tools.iter_mut().for_each(|tool| _ = tool.wait());
    sleep(LEASE);
    target.works(b'x');
    let settings = target.settings();
    for (key, value) in &promised {
        assert_eq!(settings.get(key), Some(value), "{key}, seed {seed}, {told:?}: {settings:?}");
    }
    assert_eq!(settings["profile"], "0", "sampling is left on, seed {seed}, {told:?}: {settings:?}");
}

#[test]
fn whatever_was_promised_holds_in_the_end() {
    let library = snug_library();
    let scratch = Scratch::new();
    scratch.compile("target", PROGRAM, &[]);
    let seeds = if std::env::var_os("LONG").is_some() { 64 } else { 6 };
    std::thread::scope(|scope| {
        for seed in 0..seeds {
            let (scratch, library) = (&scratch, &library);
            scope.spawn(move || ask_at_random(scratch, library, seed));
        }
    });
}

#[test]
fn a_killed_tool_leaves_no_sampling_on_where_it_forked_either() {
    let library = snug_library();
    let scratch = Scratch::new();
    let mut target = Target::start(&scratch, &library);
    let pid = target.pid();
    let mut tool = quiet(&["profile", &pid, "--for", "60"]);
    common::eventually("it is sampled", || {
        target.works(b'x');
        target.settings()["profile"] != "0"
    });
    let checked = run(&mut snug(&["check", &pid])).expect_code(0);
    checked.expect_stdout(&format!("process {} asked for it", tool.id()));
    run(&mut snug(&["top", "--once", &pid])).expect_stderr(&format!("sampling is on in {pid}"));
    target.works(b'f');
    let child = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = child.trim().to_string();
    assert_ne!(settings(&child)["profile"], "0", "it has it from its parent");
    // It goes on for longer than a lease while the tool lives.
    sleep(LEASE);
    target.works(b'x');
    assert_ne!(target.settings()["profile"], "0", "nobody asked again");
    tool.kill().unwrap();
    tool.wait().unwrap();
    let killed = Instant::now();
    common::eventually("sampling ends by itself", || {
        target.works(b'x');
        target.settings()["profile"] == "0" && settings(&child)["profile"] == "0"
    });
    assert!(killed.elapsed() < 2 * LEASE, "{:?}", killed.elapsed());
}

#[test]
fn two_who_sample_do_not_end_it_for_each_other() {
    let library = snug_library();
    let scratch = Scratch::new();
    let mut target = Target::start(&scratch, &library);
    let pid = target.pid();
    let mut long = quiet(&["profile", &pid, "--for", "60", "--mean-bytes", "65536"]);
    common::eventually("it is sampled", || {
        target.works(b'x');
        target.settings()["profile"] == "65536"
    });
    run(&mut snug(&["profile", &pid, "--for", "1"])).expect_code(0);
    target.works(b'x');
    assert_eq!(target.settings()["profile"], "65536", "the other one samples still");
    signal(&long.id().to_string(), "-INT");
    long.wait().unwrap();
    target.works(b'x');
    // If the two asked in turns, what the second asked for is over soon.
    common::eventually("both have ended", || {
        target.works(b'x');
        target.settings()["profile"] == "0"
    });
    run(&mut snug(&["set", &pid, "profile=4096", "--wait", "0.05"]));
    run(&mut snug(&["set", &pid, "profile=8192", "--wait", "0.05"])).expect_stdout("in place of 4096");
    run(&mut snug(&["profile", &pid, "--for", "0.2"]));
    target.works(b'x');
    assert_eq!(target.settings()["profile"], "8192", "what was set for good stays");
}
