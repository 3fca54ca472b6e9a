//! Ruby and Python under samples of everything, at the moments at which there is nothing to ask them: while they begin
//! and end, after that, in threads and processes that end, with their library closed.

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{pythons, run, snug, snug_library, Running, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// Each samples more than the one before. The second ends blocks at pages that can't be touched, so that a read of what
/// was freed shows.
const SETTINGS: [&str; 4] = [
    "profile:1",
    "profile:1,guard_samples:1",
    "profile:65536,guard_samples:1",
    "profile:512,guard_samples:4096",
];

fn interpreters() -> Result<Vec<String>, String> {
    program("ruby")?;
    Ok([vec!["ruby".to_string()], pythons()].concat())
}

/// Runs a program so many times, under each of the settings.
fn expect_life(times: usize, libraries: &str, command: &[&str]) {
    for settings in SETTINGS {
        let deaths: Vec<_> = (0..times)
            .map(|_| {
                let mut process = Command::new(command[0]);
                run(process.args(&command[1..]).env("LD_PRELOAD", libraries).env("SNUG", settings))
            })
            .filter(|answer| answer.code != Some(0))
            .collect();
        assert!(deaths.is_empty(), "{settings}: {} of {times} died: {:?}", deaths.len(), deaths[0]);
    }
}

#[test]
fn ruby_ends_as_without_samples() {
    let library = snug_library();
    need!(program("ruby"));
    expect_life(15, &library, &["ruby", "-ropenssl", "-e", "1"]);
}

#[test]
fn exit_handlers_may_allocate_when_the_interpreter_has_ended() {
    let library = snug_library();
    let scratch = Scratch::new();
    let late = scratch.compile("late.so", include_str!("programs/late.c"), &["-shared", "-fPIC", "-O1"]);
    for interpreter in need!(interpreters()) {
        let script =
            if interpreter == "ruby" { "fork { 1 }; Process.wait; exit $?.exitstatus || 1" } else { "1" };
        let option = if interpreter == "ruby" { "-e" } else { "-c" };
        for libraries in [format!("{library}:{late}"), format!("{late}:{library}")] {
            expect_life(4, &libraries, &[&interpreter, option, script]);
        }
    }
}

#[test]
fn ruby_lives_through_samples_everywhere() {
    let library = snug_library();
    need!(program("ruby"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/ruby_storm.rb");
    expect_life(1, &library, &["ruby", "-W0", script, "5"]);
}

/// The path of the library that an interpreter's code is in; none where the program itself is the interpreter.
fn library_of(interpreter: &str) -> Option<String> {
    let (option, script) = match interpreter {
        "ruby" => ("-e", "puts File.read('/proc/self/maps')[/\\S+\\/libruby\\S+/]"),
        _ => (
            "-c",
            "import re; print(re.search('\\S+/libpython3\\.[0-9]\\S*|$', open('/proc/self/maps').read())[0])",
        ),
    };
    let path = run(Command::new(interpreter).args([option, script])).expect_code(0).stdout.trim().to_string();
    (!path.is_empty()).then_some(path)
}

#[test]
fn a_program_may_end_an_interpreter_and_go_on() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("embeds", include_str!("programs/embeds.c"), &["-O1", "-ldl", "-pthread"]);
    for interpreter in need!(interpreters()) {
        let Some(path) = library_of(&interpreter) else { continue };
        let kind = if interpreter == "ruby" { "ruby" } else { "python" };
        for guarded in ["guard_samples:0", "guard_samples:1"] {
            let mut command = Command::new(&program);
            command.args([kind, &path]).env("LD_PRELOAD", &library).env("SNUG", guarded);
            let prefix = std::path::Path::new(&path).parent().unwrap().parent().unwrap();
            command.env("PYTHONHOME", prefix).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut running = Running(command.spawn().unwrap());
            let mut output = running.0.stdout.take().unwrap();
            output.read_exact(&mut [0; 6]).unwrap();
            run(&mut snug(&["set", &running.pid(), "profile=2"])).expect_code(0);
            running.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            let mut rest = String::new();
            output.read_to_string(&mut rest).unwrap();
            let status = running.0.wait().unwrap();
            assert!(
                status.success() && rest == "ended\n",
                "{interpreter} in a program, {guarded}: {status} {rest:?}"
            );
        }
    }
}
