//! `snug leak` on real programs.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use common::{run, snug, snug_library, Scratch, SLEEPER};
use serde_json::Value;
use snug_base::need;
use snug_base::testing::program;

const BEHAVES: &str = include_str!("programs/behaves.c");
/// How long a program is watched, in seconds: it draws everything in proportion.
const SECONDS: f64 = 3.0;

/// Watches a program that behaves as asked, and returns the answer.
fn watch(library: &str, with: &str, program: &str, how: &[&str], seconds: f64) -> Value {
    let (watch_for, lives) = (format!("{}ms", seconds * 1000.0), format!("{}", seconds * 1.1));
    let mut arguments = vec!["leak", "--with", with, "--json", "--interval", "15ms", "--for", &watch_for];
    arguments.extend(["--", program]);
    arguments.extend([how[0], how[1], &lives]);
    arguments.extend(&how[2..]);
    run(snug(&arguments).env("SNUG_LIBRARY", library)).expect_code(0).json()
}

/// The verdicts, with their answers, until one is `enough`, which is told how many there are: four at most, since only
/// the first watch is short. Three seconds are, above all where others keep the CPUs busy.
fn verdicts(
    library: &str,
    with: &str,
    program: &str,
    how: &[&str],
    enough: impl Fn(usize, &str) -> bool,
) -> Vec<(String, String)> {
    let mut told: Vec<(String, String)> = Vec::new();
    while told.len() < 4 && !told.last().is_some_and(|(verdict, _)| enough(told.len(), verdict)) {
        let seconds = if told.is_empty() { SECONDS } else { 3.0 * SECONDS };
        let answer = watch(library, with, program, how, seconds);
        told.push((answer["verdict"].as_str().unwrap().to_string(), answer["answer"].to_string()));
    }
    told
}

/// Under glibc live bytes are estimated. What its memory does is its own affair: only leaks are the program's.
#[test]
fn leaks_are_told_from_all_else_under_glibc() {
    let scratch = Scratch::new();
    let program = scratch.compile("behaves", BEHAVES, &["-O1"]);
    for (how, is_leak) in [("leaks", true), ("bloats", false), ("fragments", false), ("settles", false)] {
        for seed in ["1", "2"] {
            let told = verdicts("", "glibc", &program, &[how, seed], |_, found| (found == "leak") == is_leak);
            assert_eq!(told.last().unwrap().0 == "leak", is_leak, "{how} {seed}: {told:#?}");
        }
    }
    let answer = watch("", "glibc", &program, &["settles", "1"], 1.0);
    assert_eq!(answer["live_source"], "estimated");
}

/// How often chance alone fails this, less than once in 500 runs each, by the binomial distribution of 36 programs:
/// - An interval of 95 % lets one decided answer in 20 be wrong: more than 6 are with 1.8e-3, even if a program that is
///   asked again answers the same. A program without turns on a busy machine really does something else for a while,
///   so an answer is wrong only if three watches in a row decide wrongly.
/// - To one side an interval is wrong one time in 40: one program is gravely wrong three times with 36 * 0.025³ = 6e-4.
/// - So short a watch often decides nothing: 23 of 36 were right on a quiet machine, and with 20 programs on its 2 CPUs.
///   Were it 60 % only, fewer than 12 would be right with 3e-4. Of leaks, all 9 were; were it 95 %, fewer than 6 would
///   be with 6e-4.
#[test]
fn verdicts_on_real_programs_are_right() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("behaves", BEHAVES, &["-O1"]);
    let expected =
        [("leaks", "leak"), ("bloats", "bloat"), ("fragments", "fragmented"), ("settles", "plateau")];
    let cases = expected.iter().flat_map(|(how, verdict)| (1..=9).map(move |seed| (*how, *verdict, seed)));
    let queue = Mutex::new(cases.collect::<Vec<_>>());
    let wrong: Mutex<Vec<(bool, String)>> = Mutex::default();
    let table: Mutex<BTreeMap<(&str, String), u32>> = Mutex::default();
    // The programs sleep most of the time.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| loop {
                let Some((how, expected, seed)) = queue.lock().unwrap().pop() else { break };
                let enough = |asked, found: &str| found == expected || asked > 1 && found == "unclear";
                let told = verdicts(&library, "snug", &program, &[how, &seed.to_string()], enough);
                let decided = told.iter().rev().take_while(|(found, _)| found != "unclear");
                let found = told.last().unwrap().0.clone();
                if found != expected && decided.clone().count() >= 3 {
                    let is_grave = decided.clone().all(|(found, _)| is_grave(expected, found));
                    wrong.lock().unwrap().push((is_grave, format!("{how} {seed}: {told:#?}")));
                }
                *table.lock().unwrap().entry((how, found)).or_default() += 1;
            });
        }
    });
    let table = table.into_inner().unwrap();
    for ((how, found), count) in &table {
        println!("{how:10} {found:12} {count}");
    }
    let right = |(how, verdict): &(&'static str, &str)| table.get(&(*how, verdict.to_string())).copied();
    let right: Vec<u32> = expected.iter().map(|each| right(each).unwrap_or(0)).collect();
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.iter().all(|(is_grave, _)| !is_grave) && wrong.len() <= 6, "{wrong:#?}");
    assert!(right[0] >= 6 && right.iter().sum::<u32>() >= 12, "{right:?}");
}

/// A leak that is told as no growth at all, or what is none that is told as a leak.
fn is_grave(expected: &str, found: &str) -> bool {
    match expected {
        "leak" => ["plateau", "fragmented"].contains(&found),
        _ => found == "leak",
    }
}

/// Keeps 20 kB again and again in one place, and drops far more than that in another, perhaps in a forked child.
const RUBY: &str = r#"
def keeps
  $kept << "x" * 20_000
end
def drops
  "y" * 40_000
end
$kept = []
def work
  keeps
  4.times { drops }
  GC.start
  sleep 0.01
end
Process.wait(fork || loop { work }) if ARGV[0] == "fork"
loop { work }
"#;
const PYTHON: &str = r#"
import time
kept = []
def keeps():
    kept.append(bytearray(20_000))
def drops():
    return bytearray(40_000)
while True:
    keeps()
    for _ in range(4):
        drops()
    time.sleep(0.01)
"#;

/// The answer about a leaking script. As above, one that is not as hoped for is asked for again.
fn leak_of(library: &str, command: &[&str], more: &[&str]) -> Value {
    let answers = ["8s", "20s"].into_iter().map(|watch_for| {
        let mut arguments = vec!["leak", "--json", "--interval", "20ms", "--for", watch_for];
        arguments.extend(more);
        arguments.push("--");
        arguments.extend(command);
        run(snug(&arguments).env("SNUG_LIBRARY", library)).expect_code(0).json()
    });
    let mut last = Value::Null;
    for answer in answers {
        last = answer;
        if last["verdict"] == "leak" {
            break;
        }
    }
    last
}

#[test]
fn a_leak_comes_with_the_lines_that_keep() {
    let library = snug_library();
    let scratch = Scratch::new();
    let (ruby, python) = (scratch.text("keeps.rb"), scratch.text("keeps.py"));
    std::fs::write(&ruby, RUBY).unwrap();
    std::fs::write(&python, PYTHON).unwrap();
    need!(program("ruby"));
    for (command, line) in
        [(vec!["ruby", &ruby], 3), (vec!["ruby", &ruby, "fork"], 3), (vec!["python3", &python], 5)]
    {
        let answer = leak_of(&library, &command, &[]);
        assert_eq!(answer["verdict"], "leak", "{command:?}: {answer}");
        let first = &answer["lines"][0];
        assert_eq!(
            (&first["line"]["function"], &first["line"]["line"]),
            (&"keeps".into(), &line.into()),
            "{answer}"
        );
        assert_eq!(first["line"]["file"], command[1], "{answer}");
        let size = &answer["sizes"][0]["size"];
        assert_eq!((&size["kind"], &size["bytes"]), (&"class".into(), &20480.into()), "{answer}");
        let rate = first["bytes_per_s"].as_f64().unwrap();
        let growth = answer["growth"]["bytes_per_s"].as_f64().unwrap();
        assert!(rate > 0.4 * growth && rate < 2.5 * growth, "{rate} of {growth}: {answer}");
        let interval = &first["bytes_per_s_interval"];
        assert!(interval[0].as_f64().unwrap() < rate && rate < interval[1].as_f64().unwrap(), "{answer}");
        let dropped =
            answer["lines"].as_array().unwrap().iter().find(|line| line["line"]["function"] == "drops");
        let dropped = dropped.map_or(0.0, |line| line["bytes_per_s"].as_f64().unwrap());
        assert!(dropped < 0.2 * rate, "what is dropped does not count: {answer}");
    }
}

#[test]
fn a_running_process_is_sampled_only_for_the_watch_and_not_at_all_if_so_asked() {
    let library = snug_library();
    let scratch = Scratch::new();
    let ruby = scratch.text("keeps.rb");
    std::fs::write(&ruby, RUBY).unwrap();
    need!(program("ruby"));
    let mut command = Command::new("ruby");
    command.arg(&ruby).env("LD_PRELOAD", &library).env_remove("SNUG").stdout(Stdio::null());
    let process = common::Running(command.spawn().unwrap());
    let pid = process.pid();
    let setting =
        || run(&mut snug(&["check", "--json", &pid])).json()["processes"][0]["settings"]["profile"].clone();
    let watch = |more: &[&str]| {
        let command = ["leak", "--json", "--interval", "20ms", "--for", "6s", &pid];
        run(snug(&command).args(more)).expect_code(0).json()
    };
    assert_eq!(watch(&["--no-lines"])["lines"], serde_json::json!([]));
    assert_eq!(setting(), "0");
    let answers = (0..4).map(|_| watch(&[]));
    let answer = answers
        .into_iter()
        .find(|answer| answer["verdict"] == "leak")
        .expect("one of four watches tells the leak");
    assert_eq!(answer["lines"][0]["line"]["function"], "keeps", "{answer}");
    assert_eq!(setting(), "0");
    run(&mut snug(&["set", &pid, "profile=1"])).expect_code(0);
    watch(&[]);
    assert_eq!(setting(), "1", "whoever switched it on keeps it");
}

#[test]
fn restarts_do_not_hide_a_leak() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("behaves", BEHAVES, &["-O1"]);
    let with_workers = |how: &str, hoped: &dyn Fn(&Value) -> bool| {
        let answers = [8.0, 24.0]
            .into_iter()
            .map(|seconds| watch(&library, "snug", &program, &[how, "3", "workers"], seconds));
        let mut answers = answers.skip_while(|answer| !hoped(answer));
        answers.next().unwrap_or_else(|| panic!("{how}: neither watch told what it does"))
    };
    let by_age = |answer: &Value| answer["verdict"] == "leak" && answer["decided_by_age"] == true;
    let answer = with_workers("leaks", &by_age);
    assert_eq!(answer["measure"], "pss");
    with_workers("settles", &|answer| answer["verdict"] != "leak");
}

/// Leaks 10 MB a second and does nothing else: nothing that a busy machine could make irregular hides it.
const LEAKER: &str = "
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) { for (;;) { memset(malloc(100000), 1, 100000); usleep(10000); } }
";

#[test]
fn a_running_process_with_another_allocator_is_watched_and_left_alone() {
    let scratch = Scratch::new();
    let program = scratch.compile("leaker", LEAKER, &["-O0"]);
    let mut child = Command::new(&program).spawn().unwrap();
    let pid = child.id().to_string();
    let plot = scratch.text("leak.svg");
    let arguments = ["leak", "--for", "8s", "--interval", "15ms", "--plot", &plot, "--fail-on", "leak", &pid];
    let answer = run(&mut snug(&arguments)).expect_code(1);
    assert!(answer.stdout.starts_with("Leak"), "{answer:#?}");
    assert!(answer.stdout.contains("live bytes are estimated"), "{answer:#?}");
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
}

#[test]
fn live_bytes_under_glibc_are_estimated_closely() {
    let scratch = Scratch::new();
    let program = scratch.compile("keeps", include_str!("programs/keeps.c"), &["-O1", "-pthread"]);
    for threads in ["1", "9"] {
        let mut child = Command::new(&program).args([threads, "5"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let kept: f64 = line.trim().parse().unwrap();
        let arguments = ["leak", "--for", "1s", "--interval", "100ms", "--json", &child.id().to_string()];
        let json = run(&mut snug(&arguments)).expect_code(0).json();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(json["live_source"], "estimated");
        let series = json["series"]["live_bytes"].as_array().unwrap();
        assert!(!series.is_empty(), "{json}");
        for live in series {
            let ratio = live.as_f64().unwrap() / kept;
            assert!((1.0..1.02).contains(&ratio), "{threads} threads: {ratio}");
        }
        let (held, rss) = (&json["series"]["heap_bytes"][0], &json["series"]["memory_bytes"][0]);
        let share = held.as_f64().unwrap() / rss.as_f64().unwrap();
        assert!((0.8..1.0).contains(&share), "{threads} threads: {share} of RSS");
    }
}

#[test]
fn load_and_requests_are_counted_and_not_measured() {
    let library = snug_library();
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    // Each run of the load is a hundred requests. The first two fail, as if the server were still starting.
    let log = scratch.text("requests");
    let load = format!("echo >> {log}.runs; test $(wc -l < {log}.runs) -gt 2 && seq 100 >> {log}; sleep 0.1");
    let count = format!("wc -l < {log}");
    let plot = scratch.text("leak.svg");
    let arguments = [
        "leak",
        "--for",
        "6s",
        "--interval",
        "50ms",
        "--load",
        &load,
        "--requests-from",
        &count,
        "--plot",
        &plot,
        "--json",
        "--",
        &sleeper,
        "60",
    ];
    let answer = run(snug(&arguments).env("SNUG_LIBRARY", &library)).expect_code(0);
    assert!(!answer.stderr.contains("the load failed"), "{answer:#?}");
    let json = answer.json();
    assert_eq!(json["verdict"], "plateau", "{}", json["answer"]);
    assert_eq!(json["request_unit"], "request");
    assert!(json["requests"].as_f64().unwrap() >= 500.0, "{}", json["requests"]);
    assert_eq!(json["live_source"], "counted");
    let live = json["series"]["live_bytes"].as_array().unwrap().last().unwrap().as_u64().unwrap();
    assert!((8_000_000..9_000_000).contains(&live), "{live}");
    let processes = json["series"]["processes"].as_array().unwrap();
    let alone = processes.iter().filter(|count| **count == 1).count();
    assert_eq!(
        (alone, processes.is_empty()),
        (processes.len(), false),
        "the load is not measured: {processes:?}"
    );
    assert!(std::fs::read(plot).unwrap().starts_with(b"<svg"));
}

#[test]
fn interruption_gives_the_verdict_so_far_and_leaves_nothing_behind() {
    let library = snug_library();
    // Other runs of this test may go on beside this one.
    let sleep = format!("sleep 4545.{}", std::process::id());
    let script = format!("setsid {sleep} & {sleep}");
    let mut command = snug(&["leak", "--interval", "20ms", "--", "sh", "-c", &script]);
    let child =
        command.env("SNUG_LIBRARY", &library).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    common::eventually("the program runs", || common::process_runs(&sleep));
    std::thread::sleep(std::time::Duration::from_secs(3));
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    // So little memory, so shortly: either is right.
    let verdict = stdout.starts_with("Plateau") || stdout.starts_with("Not enough data");
    assert!(output.status.success() && verdict, "{stdout} {output:?}");
    assert!(!common::process_exists(&sleep));
}

#[test]
fn mistakes_are_explained() {
    run(snug(&["leak", "--with", "snug:purge_cpu:5", "--", "true"]).env("SNUG_LIBRARY", snug_library()))
        .expect_code(2)
        .expect_stderr("unknown option \"purge_cpu\"");
    // The caller's own SNUG is no mistake of --with.
    let mut own = snug(&["leak", "--with", "snug:MALLOC_ARENA_MAX=2", "--", "true"]);
    own.env("SNUG", "purge_cpu:5").env("SNUG_LIBRARY", snug_library());
    assert_ne!(run(&mut own).code, Some(2));
    run(&mut snug(&["leak", "--for", "1s", "--with", "glibc:MALLOC_ARENAS_MAX=2", "--", "true"]))
        .expect_stderr("MALLOC_ARENAS_MAX is not a known setting of glibc");
    let answer = run(&mut snug(&["leak", "--with", "glibc", "--", "sh", "-c", "exit 7"]));
    assert!(answer.code == Some(3) || answer.stdout.starts_with("Not enough data"), "{answer:#?}");
    let failing = [
        "leak",
        "--with",
        "glibc",
        "--for",
        "5s",
        "--interval",
        "20ms",
        "--tolerance-percent",
        "50",
        "--load",
        "echo nobody listens; false",
        "--",
        "sleep",
        "9",
    ];
    run(&mut snug(&failing))
        .expect_code(0)
        .expect_stdout("Not enough data: memory does not grow, but the load failed all")
        .expect_stderr("nobody listens");
    let insisting: Vec<&str> = [&["leak", "--json", "--fail-on", "unclear"], &failing[1..]].concat();
    let answer = run(&mut snug(&insisting)).expect_code(1);
    let report = answer.json();
    assert_eq!(report["verdict"], "unclear");
    assert!(report["notes"][0].as_str().unwrap().contains("nobody listens"), "{report}");
}

#[test]
fn a_program_that_fails_by_itself_passes_nowhere() {
    let leak = |script: &str, more: &[&str]| {
        let call =
            [&["leak", "--with", "glibc", "--interval", "50ms"], more, &["--", "sh", "-c", script]].concat();
        run(&mut snug(&call))
    };
    for script in ["sleep 1.5; exit 7", "sleep 0.5; kill -SEGV $$"] {
        leak(script, &["--fail-on", "leak"]).expect_code(1).expect_stderr("the program ");
        leak(script, &[]).expect_code(1);
    }
    leak("sleep 0.5", &["--fail-on", "leak"]).expect_code(0);
    // That the watch ends it is no failure of its own.
    leak("sleep 9", &["--for", "500ms"]).expect_code(0);
}

/// Watches for an hour what ends soon, or is killed. Returns its PID and the answer.
fn watch_until_it_ends(sleeper: &str, interval: &str, is_killed: bool) -> (u32, Value) {
    let child = Command::new(sleeper).arg(if is_killed { "60" } else { "4" }).spawn().unwrap();
    let mut process = common::Running(child);
    let (pid, pid_text) = (process.0.id(), process.pid());
    let mut command = snug(&["leak", "--json", "--for", "1h", "--interval", interval, &pid_text]);
    let leak = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if is_killed {
        std::thread::sleep(std::time::Duration::from_secs(4));
        process.0.kill().unwrap();
    }
    let output = leak.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("ended after"), "{output:?}");
    (pid, serde_json::from_slice(&output.stdout).unwrap())
}

/// The memory of a process that has ended did not settle, and nobody can watch it longer.
#[test]
fn the_end_of_a_process_is_told_and_is_no_plateau() {
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    // Many readings, and too few.
    let cases = [
        ("15ms", "the process ended: watch one that runs longer, under a load that repeats itself"),
        ("500ms", "the process ended too early: watch one that runs longer, or read more often (--interval)"),
    ];
    for (interval, advice) in cases {
        for (is_killed, how) in [(true, "it was killed by SIGKILL"), (false, "it exited with code 0")] {
            let (pid, answer) = watch_until_it_ends(&sleeper, interval, is_killed);
            let note = answer["notes"][0].as_str().unwrap();
            let told = note.starts_with(&format!("process {pid} ended after ")) && note.ends_with(how);
            assert!(told, "{answer}");
            assert_eq!(answer["verdict"], "unclear", "{answer}");
            assert_eq!(answer["advice"], serde_json::json!([advice]), "{answer}");
        }
    }
    // So it is with what snug started, which may have done all that it had to do: that may well be a plateau.
    let arguments = ["leak", "--json", "--with", "glibc", "--interval", "300ms", "--", &sleeper, "0.5"];
    let answer = run(&mut snug(&arguments)).expect_code(0).json();
    assert_eq!(answer["verdict"], "unclear", "{answer}");
    assert_eq!(answer["notes"], serde_json::json!([]), "{answer}");
    assert!(answer["advice"][0].as_str().unwrap().contains("watch one that runs longer"), "{answer}");
}

#[test]
fn requests_counted_before_the_watch_are_none_of_its_own() {
    let scratch = Scratch::new();
    let log = scratch.path("production.log").display().to_string();
    std::fs::write(&log, "GET /\n".repeat(500_000)).unwrap();
    let program = format!("while sleep 0.05; do echo GET >> {log}; done");
    let count = format!("wc -l < {log}");
    let arguments = [
        "leak",
        "--with",
        "glibc",
        "--for",
        "4s",
        "--json",
        "--requests-from",
        &count,
        "--",
        "sh",
        "-c",
        &program,
    ];
    let report = run(&mut snug(&arguments)).expect_code(0).json();
    let requests = report["requests"].as_f64().unwrap();
    assert!(requests > 0.0 && requests < 1000.0, "{requests}");
}
