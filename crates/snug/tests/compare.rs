//! `snug compare` on real programs.

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{jemalloc_library, run, snug, snug_library, Scratch, SLEEPER};
use serde_json::Value;
use snug_base::need;
use snug_base::testing::skip;

fn results(scratch: &Scratch) -> Value {
    let text = std::fs::read_to_string(scratch.path("out/compare.json")).expect("compare.json was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_program_under_two_allocators() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    let with = format!("glibc,glibc:MALLOC_ARENA_MAX=2,{library}:MALLOC_CONF=narenas:2,dirty_decay_ms:1000");
    let out = scratch.text("out");
    let arguments = ["compare", "--runs", "2", "--with", &with, "--out", &out, "--", &sleeper, "1.5"];
    let answer = run(&mut snug(&arguments)).expect_code(0);
    assert!(answer.stdout.contains("MALLOC_ARENA_MAX=2") && answer.stdout.contains("wall"), "{answer:#?}");
    assert!(answer.stdout.trim_end().ends_with('.'), "a sentence closes it: {answer:#?}");
    assert!(!answer.stdout.contains('\u{1b}'), "no colours in a pipe");

    let results = results(&scratch);
    assert_eq!(results["format"], "snug-compare");
    let glibc = run(std::process::Command::new("getconf").arg("GNU_LIBC_VERSION")).expect_code(0).stdout;
    assert_eq!(format!("glibc {}\n", results["allocators"][0]["version"].as_str().unwrap()), glibc);
    assert_eq!(results["allocators"][2]["kind"], "jemalloc");
    assert_eq!(results["allocators"][2]["environment"]["MALLOC_CONF"], "narenas:2,dirty_decay_ms:1000");
    assert_eq!(results["program"][0], sleeper.as_str());
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert_eq!(run["failure"], Value::Null);
        // Where no control group can be made, that is said.
        match run["memory"]["cgroup_peak_bytes"].as_f64() {
            Some(peak) => assert!((8e6..100e6).contains(&peak), "{peak}"),
            None => {
                assert!(answer.stdout.contains("the peak that a container's limit would see is not shown"));
            }
        }
        let mean = run["memory"]["rss_mean_bytes"].as_f64().unwrap();
        let peak = run["memory"]["rss_peak_bytes"].as_f64().unwrap();
        assert!((8e6..20e6).contains(&peak), "the program holds 8 MiB: {peak}");
        assert!(mean > 0.0 && mean <= peak, "{mean} {peak}");
        assert!(run["memory"]["pss_mean_bytes"].as_f64().unwrap() <= peak);
        assert!((0.4..5.0).contains(&run["wall_s"].as_f64().unwrap()));
        let samples = run["samples"]["time_s"].as_array().unwrap();
        assert!(samples.len() >= 5 && samples.len() == run["samples"]["rss_bytes"].as_array().unwrap().len());
        let expected = if run["allocator"].as_str().unwrap().starts_with("glibc") { 0 } else { 1 };
        assert_eq!(run["evidence"]["processes_loaded"], expected, "{run}");
    }
    let svg = std::fs::read_to_string(scratch.path("out/memory.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 6);
}

#[test]
fn snug_is_compared() {
    let library = snug_library();
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    let out = scratch.text("out");
    let with = "glibc,snug,snug:SNUG=background:0,thp:0";
    let mut command = snug(&[
        "compare", "--runs", "2", "--with", with, "--out", &out, "--json", "-", "--", &sleeper, "0.3",
    ]);
    let answer = run(command.env("SNUG_LIBRARY", &library)).expect_code(0);
    let results = answer.json();
    assert_eq!(results["allocators"][1]["kind"], "snug");
    assert_eq!(results["runs"][1]["evidence"]["probe"], true);
    assert_eq!(results["runs"][1]["evidence"]["processes_loaded"], 1);
    assert!(results["summary"]["conclusion"].as_str().unwrap().contains("snug"));
}

#[test]
fn runs_stop_when_intervals_are_narrow() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let compare = |more: &[&str], script: &str| {
        let mut arguments =
            vec!["compare", "--force", "--with", "glibc,glibc:MALLOC_ARENA_MAX=1", "--out", &out];
        arguments.extend(more);
        arguments.extend(["--", "sh", "-c", script]);
        run(&mut snug(&arguments))
    };
    // What does not scatter at all is narrow at the first look.
    let even = "echo snug-metric: widgets=500; sleep 0.05";
    let answer = compare(&["--until", "metric.widgets:5%", "--runs", "9"], even).expect_code(0);
    let found = results(&scratch);
    let until = &found["settings"]["until"];
    assert_eq!((&until["quantity"], &until["most_rounds"]), (&"metric:widgets".into(), &9.into()), "{until}");
    assert_eq!((&until["reached"], &until["rounds"]), (&true.into(), &6.into()), "{until}");
    assert_eq!((&until["width_percent"], &found["settings"]["rounds"]), (&0.0.into(), &6.into()), "{until}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 12);
    assert!(answer.stderr.contains("up to 18 runs") && answer.stderr.contains("% wide: done"), "{answer:#?}");
    assert!(!answer.stdout.contains("stopped after"), "{answer:#?}");
    assert!(std::fs::read_to_string(scratch.path("out/report.html")).unwrap().contains("(reached"));

    // What scatters by as much as itself is not, and the runs end at the limit.
    let uneven = "echo snug-metric: widgets=$(( 1$(date +%N) % 1000 + 1 )); sleep 0.05";
    let answer = compare(&["--until", "metric.widgets:0.1%", "--runs", "6"], uneven);
    answer.expect_code(0).expect_stdout("not 0.1 % as --until asks").expect_stderr("no more are allowed");
    assert_eq!(results(&scratch)["settings"]["until"]["reached"], false);

    let missing = compare(&["--until", "metric.gadgets:5%"], even);
    missing.expect_code(1).expect_stderr("gadgets was not measured");
}

#[test]
fn forked_and_daemonized_processes_are_measured_and_stopped() {
    let scratch = Scratch::new();
    let sleeper = scratch.compile("daemonsleeper", SLEEPER, &[]);
    // The daemon's parent ends at once, and the daemon has a session of its own.
    let script = format!("sh -c 'setsid {sleeper} 33 &'; {sleeper} 0.5");
    let out = scratch.text("out");
    let arguments = ["compare", "--runs", "1", "--with", "glibc", "--out", &out, "--", "sh", "-c", &script];
    run(&mut snug(&arguments)).expect_code(0).expect_stdout("outlived the program");
    let run = &results(&scratch)["runs"][0];
    let processes = run["processes"].as_array().unwrap();
    let daemon =
        processes.iter().find(|process| process["command"].as_str().unwrap().ends_with("daemonsleeper 33"));
    assert!(daemon.unwrap()["rss_peak_bytes"].as_u64().unwrap() > 8_000_000);
    assert!(run["memory"]["rss_peak_bytes"].as_f64().unwrap() > 16e6, "both count");
    assert!(!common::process_exists("daemonsleeper 33"), "nothing is left behind");
}

#[test]
fn only_some_processes() {
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    let script = format!("{sleeper} 0.4; true");
    let out = scratch.text("out");
    let command = |only| {
        let fixed = [
            "compare", "--force", "--runs", "1", "--with", "glibc", "--out", &out, "--only", only, "--",
            "sh", "-c", &script,
        ];
        run(&mut snug(&fixed))
    };
    command("^[^ ]*/sleeper").expect_code(0);
    assert_eq!(results(&scratch)["runs"][0]["processes"].as_array().unwrap().len(), 1);
    let said = command("nothing-matches").stderr;
    assert!(said.starts_with("1 run of sh -c "), "without a terminal a line says what begins: {said}");
    command("nothing-matches").expect_code(1).expect_stderr("no process matched");
}

#[test]
fn metrics_are_collected_and_errors_fail_the_run() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let script = "echo snug-metric: requests_per_s=51.5; echo snug-metric: errors=0; sleep 0.1";
    let call = |script| {
        run(&mut snug(&[
            "compare", "--force", "--runs", "1", "--with", "glibc", "--out", &out, "--", "sh", "-c", script,
        ]))
    };
    call(script).expect_code(0).expect_stdout("requests_per_s").expect_stdout("51.5");
    assert_eq!(results(&scratch)["runs"][0]["metrics"]["requests_per_s"], 51.5);
    call("echo snug-metric: errors=3").expect_code(1).expect_stderr("reported 3 errors");
    let uncounted = call("echo snug-metric: errors=7; echo snug-metric: errors=Infinity");
    uncounted.expect_code(1).expect_stderr("reported errors=inf, which is not a finite number");
}

#[test]
fn failing_programs_show_their_stderr() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let call = |more: &[&str], script| {
        let mut arguments = vec!["compare", "--runs", "2", "--with", "glibc", "--out", &out];
        arguments.extend(more);
        arguments.extend(["--", "sh", "-c", script]);
        run(&mut snug(&arguments))
    };
    call(&[], "echo the cause >&2; exit 3").expect_code(1).expect_stderr("code 3").expect_stderr("the cause");
    call(&[], "kill -SEGV $$").expect_code(1).expect_stderr("killed by SIGSEGV");
}

#[test]
fn runs_go_on_after_failures_unless_all_of_the_first_round_failed() {
    let scratch = Scratch::new();
    let (out, ran) = (scratch.text("out"), scratch.text("ran"));
    let call = |script: &str| {
        let _ = std::fs::remove_file(&ran);
        let script = format!("echo >> {ran}; {script}");
        let arguments =
            ["compare", "--runs", "3", "--with", "glibc,glibc:A=b", "--keep-going", "--force", "--out", &out];
        let answer = run(snug(&arguments).args(["--", "sh", "-c", &script])).expect_code(1);
        (answer.stderr, std::fs::read_to_string(&ran).unwrap().len())
    };
    let (stderr, runs) = call("exit 4");
    assert!(stderr.contains("2 of 2 runs failed") && runs == 2, "{runs}: {stderr}");
    let (stderr, runs) = call("test \"$A\" != b");
    assert!(stderr.contains("3 of 6 runs failed") && runs == 6, "{runs}: {stderr}");
}

#[test]
fn a_process_without_the_allocator_fails_the_run() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let script = "env -u LD_PRELOAD sleep 0.4";
    let arguments = ["compare", "--runs", "1", "--with", &library, "--out", &out, "--", "sh", "-c", script];
    run(&mut snug(&arguments))
        .expect_code(1)
        .expect_stderr("was not loaded in process")
        .expect_stderr("--only");
}

#[test]
fn processes_that_execute_others_and_end_at_once_have_the_allocator() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let out = scratch.text("out");
    // As the shims of rbenv and pyenv do. Each is looked at while it changes.
    let script = "for i in $(seq 800); do sh -c 'exec sh -c \"exec true\"'; done";
    let fixed = ["compare", "--runs", "1", "--interval-ms", "1", "--with", &library, "--out", &out];
    run(&mut snug(&[&fixed[..], &["--", "sh", "-c", script]].concat())).expect_code(0);
}

#[test]
fn mistakes_are_found_before_anything_runs() {
    let scratch = Scratch::new();
    let mark = scratch.text("mark");
    let call = |with: &str| run(&mut snug(&["compare", "--with", with, "--", "touch", &mark]));
    call("glibc,jemaloc").expect_code(2);
    let mut preloaded = snug(&["compare", "--with", "glibc", "--", "touch", &mark]);
    run(preloaded.env("LD_PRELOAD", "libjemalloc.so.2"))
        .expect_code(2)
        .expect_stderr("already holds jemalloc");
    run(&mut snug(&["compare", "--wiht", "glibc", "--", "touch", &mark])).expect_code(2);
    run(&mut snug(&["run", "--this_only", "touch", &mark])).expect_code(125);
    std::fs::create_dir(scratch.path("old")).unwrap();
    std::fs::write(scratch.path("old/compare.json"), "precious").unwrap();
    let old = scratch.text("old");
    let again = |more: &[&str]| {
        let fixed = ["compare", "--runs", "1", "--with", "glibc", "--out", &old];
        run(&mut snug(&[&fixed[..], more, &["--", "touch", &mark]].concat()))
    };
    again(&[]).expect_code(2).expect_stderr("holds the results").expect_stderr("--force");
    assert_eq!(std::fs::read_to_string(scratch.path("old/compare.json")).unwrap(), "precious");
    assert!(!scratch.path("mark").exists());
    again(&["--force"]).expect_code(0);
    assert!(scratch.path("mark").exists());
}

#[test]
fn settings_that_an_allocator_does_not_take_are_told() {
    let scratch = Scratch::new();
    let mark = scratch.text("mark");
    let call = |with: &str, more: &[&str]| {
        let out = scratch.text("out");
        let fixed = ["compare", "--force", "--runs", "1", "--with", with, "--out", &out, "--", "sh", "-c"];
        run(snug(&[&fixed[..], more].concat()).env("SNUG_LIBRARY", snug_library()))
    };
    let script = format!("touch {mark}; sleep 0.1");
    let refused = call("glibc,snug:purge_cpu:5", &[&script]).expect_code(2);
    refused.expect_stderr("unknown option \"purge_cpu\"").expect_stderr("did you mean");
    call("glibc,snug:thp:maybe", &[&script]).expect_code(2).expect_stderr("bad value \"maybe\"");
    assert!(!scratch.path("mark").exists(), "nothing has run");
    let jemalloc = need!(jemalloc_library());
    call(&format!("glibc,{jemalloc}:MALLOC_CONF=nareas:2"), &[&script])
        .expect_code(0)
        .expect_stdout("it says \"<jemalloc>: Invalid conf pair: nareas:2\"");
    call("glibc,glibc:MALLOC_ARENAS_MAX=2", &[&script])
        .expect_code(0)
        .expect_stdout("MALLOC_ARENAS_MAX is not a known setting of glibc (did you mean MALLOC_ARENA_MAX?)");
}

#[test]
fn static_programs_are_refused() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let program = scratch.compile("static", SLEEPER, &["-static"]);
    run(&mut snug(&["compare", "--with", &library, "--", &program]))
        .expect_code(2)
        .expect_stderr("static program");
}

#[test]
fn interruption_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    // Other runs of this test may go on beside this one.
    let sleep = format!("sleep 4343.{}", std::process::id());
    let script = format!("setsid {sleep} & {sleep}");
    let mut command = snug(&["compare", "--with", "glibc", "--out", &out, "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    common::eventually("the program runs", || common::process_runs(&sleep));
    std::thread::sleep(Duration::from_millis(100));
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    // The shell's own command line holds the words too; it is gone as well.
    assert!(!common::process_exists(&sleep));
}

#[test]
fn what_was_measured_before_an_interruption_is_shown_as_such() {
    let scratch = Scratch::new();
    let (out, mark) = (scratch.text("out"), scratch.text("mark"));
    let sleep = format!("sleep 4344.{}", std::process::id());
    // The fourth run does not end.
    let script = format!("echo >> {mark}; test $(wc -l < {mark}) = 4 && exec {sleep}; sleep 0.2");
    let with = "glibc,glibc:MALLOC_ARENA_MAX=2";
    let mut command =
        snug(&["compare", "--runs", "3", "--with", with, "--out", &out, "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    common::eventually("the fourth run goes on", || common::process_runs(&sleep));
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |name: &str| std::fs::read_to_string(scratch.path("out").join(name)).unwrap();
    for text in [&table, &read("report.md"), &read("report.html")] {
        assert!(text.contains("stopped after 3 of 6 runs"), "{text}");
        assert!(text.contains("edians of 1 to 2 ") && !text.contains("edians of 3 "), "{text}");
    }
    let again = run(&mut snug(&["report", &out])).expect_code(0).stdout;
    assert!(again.contains("stopped after 3 of 6 runs"), "{again}");
}

#[test]
fn measuring_costs_little() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let script = "for i in $(seq 50); do sleep 10 & done; wait";
    run(&mut snug(&["compare", "--runs", "1", "--with", "glibc", "--out", &out, "--", "sh", "-c", script]))
        .expect_code(0);
    let share = results(&scratch)["runs"][0]["overhead"]["share_of_one_core"].as_f64().unwrap();
    // The limit is 1 % in the long run; the first samples of a short run come on top.
    assert!(share < 0.015, "{share}");
}

/// The kernel counts a log that it keeps in memory as the program's.
#[test]
fn programs_that_write_much_leave_a_short_log() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let script = "for i in $(seq 60); do head -c 1000000 /dev/zero; sleep 0.02; done; echo the end";
    run(&mut snug(&["compare", "--runs", "1", "--with", "glibc", "--out", &out, "--", "sh", "-c", script]))
        .expect_code(0);
    let log = scratch.path("out/logs/1-glibc.stdout");
    let held_bytes = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&log).unwrap()) * 512;
    assert!(held_bytes < 20_000_000, "{held_bytes}");
    assert!(std::fs::read(&log).unwrap().ends_with(b"the end\n"));
    let memory = &results(&scratch)["runs"][0]["memory"];
    if memory["cgroup_peak_bytes"].is_f64() {
        assert!(memory["cgroup_cache_peak_bytes"].as_f64().unwrap() > 1e6, "{memory}");
    }
}

#[test]
fn sets_of_allocators() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let call = |arguments: &[&str]| run(&mut snug(&[&["compare", "--runs", "1"], arguments].concat()));
    call(&["--list-allocators"]).expect_code(0).expect_stdout("MALLOC_ARENA_MAX=2").expect_stdout("popular");
    call(&["--with", "popular", "--out", &out, "--", "sleep", "0.1"]).expect_code(0);
    assert_eq!(results(&scratch)["allocators"][1]["label"], "glibc:MALLOC_ARENA_MAX=2");
}

/// The CPU time of its child, which it makes at once, goes into what its argument says: blocks, pages, or neither.
const SPENDER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
int main(int count, char **arguments) {
  volatile unsigned long sum = 0;
  void *volatile block;
  if (fork() != 0) return wait(NULL) < 0;
  double end = now() + 1.5;
  while (now() < end) switch (arguments[count - 1][0]) {
    case 'b':
      for (int i = 0; i < 10000; i++) { block = malloc(100 + i % 64); free(block); }
      break;
    case 'p':
      block = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      for (long i = 0; i < 4 << 20; i += 4096) ((char *)block)[i] = 1;
      munmap(block, 4 << 20);
      break;
    default:
      for (int i = 0; i < 100000; i++) sum += (unsigned long)i * sum;
  }
  return 0;
}
"#;

#[test]
fn samples_say_what_cpu_time_goes_into() {
    let library = snug_library();
    let scratch = Scratch::new();
    let spender = scratch.compile("spender", SPENDER, &["-O1", "-fno-builtin"]);
    for (what, quantity, share) in [
        ("blocks", "allocator_code", 50..101),
        ("pages", "page_faults", 40..101),
        ("sums", "allocator", 0..6),
    ] {
        let out = scratch.text("out");
        let arguments =
            ["compare", "--profile", "--runs", "1", "--with", "glibc,snug", "--force", "--out", &out, "--"];
        let answer = run(snug(&arguments).args([&spender, what]).env("SNUG_LIBRARY", &library));
        if answer.stderr.contains("perf can't sample the kernel here") {
            return skip(&answer.stderr);
        }
        let answer = answer.expect_code(0).expect_stdout("% CPU");
        let results = results(&scratch);
        let runs = results["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            let count = |name: &str| run["cpu_samples"][name].as_u64().expect("there are samples");
            let cpu_s = run["cpu_user_s"].as_f64().unwrap() + run["cpu_system_s"].as_f64().unwrap();
            assert!(count("total") as f64 > 300.0 * cpu_s, "of 499 in a second: {run}\n{answer:#?}");
            let own = match quantity {
                "allocator" => count("allocator_code") + count("memory_calls") + count("page_faults"),
                quantity => count(quantity),
            };
            assert!(share.contains(&(100 * own / count("total"))), "{what}: {}", run["cpu_samples"]);
        }
        assert!(!scratch.path("out/logs/1-glibc.perf.data").exists(), "samples are large");
    }
}

#[test]
fn without_perf_nothing_is_run() {
    let scratch = Scratch::new();
    let sleeper = scratch.compile("sleeper", SLEEPER, &[]);
    let mut command = snug(&["compare", "--profile", "--with", "glibc", "--", &sleeper, "9"]);
    let answer = run(command.env("PATH", "/nonexistent")).expect_code(2);
    answer.expect_stderr("needs perf").expect_stderr("linux-perf");
}

/// Puts a perf in the way that does `record` once it has written `$data`, when it is to sample running processes; `answer`
/// there says that it does. All its samples are of process 7, in a page fault.
fn with_perf<'a>(
    scratch: &Scratch,
    record: &str,
    command: &'a mut std::process::Command,
) -> &'a mut std::process::Command {
    let script = format!(
        // Bash traps no signal that it found ignored, as a script ignores SIGINT for what it starts in the background.
        "#!/usr/bin/env -S --default-signal=INT bash\n\
         case \"$*\" in\n\
         script*) printf '7 \\n\\tffffffff815eb94e asm_exc_page_fault ([kernel.kallsyms])\\n\\n'; exit;;\n\
         *--tid*) ;;\n\
         *) exit 0;;\n\
         esac\n\
         for word; do\n\
           case $word in --control=fd:*) answers=${{word#*,}};; esac\n\
           [ \"$last\" != --output ] || data=$word\n\
           last=$word\n\
         done\n\
         answer() {{ echo ack >&$answers; }}\n\
         echo samples > \"$data\"\n\
         {record}\n"
    );
    std::fs::create_dir_all(scratch.path("bin")).unwrap();
    std::fs::write(scratch.path("bin/perf"), script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.path("bin/perf"), mode).unwrap();
    let path = format!("{}:{}", scratch.text("bin"), std::env::var("PATH").unwrap());
    command.env("PATH", path)
}

/// Files of perf's samples that are left.
fn samples_left(scratch: &Scratch) -> Vec<String> {
    let names = std::fs::read_dir(scratch.path("out/logs")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("perf.data")).collect()
}

#[test]
fn what_perf_says_is_quoted_where_it_fails() {
    for (record, samples) in [
        ("answer; trap 'exit 0' INT; while :; do sleep 0.1; done", 1),
        ("echo Error: >&2; echo no such counter >&2; echo try dmesg >&2; exit 1", 0),
        ("echo Error: >&2; echo no such counter >&2; exec {answers}>&-; exec sleep 60", 0),
    ] {
        let scratch = Scratch::new();
        let out = scratch.text("out");
        let arguments =
            ["compare", "--profile", "--runs", "1", "--with", "glibc", "--out", &out, "--", "sleep", "1"];
        run(with_perf(&scratch, record, &mut snug(&arguments))).expect_code(0);
        let results = &results(&scratch)["runs"][0];
        let note = results["notes"].to_string();
        // Samples count also of processes that were too short to be seen otherwise.
        assert_eq!(results["cpu_samples"]["page_faults"].as_u64().unwrap_or(0), samples, "{results}");
        assert_eq!(note.contains("CPU time was not sampled: no such counter"), samples == 0, "{note}");
        assert_eq!(samples_left(&scratch), [""; 0]);
        assert_eq!(results["processes_seen"], 1, "perf is none of the program's processes: {results}");
    }
}

#[test]
fn interruption_leaves_no_perf_behind() {
    let scratch = Scratch::new();
    let (out, sleep) = (scratch.text("out"), format!("sleep 4345.{}", std::process::id()));
    let mut command = snug(&["compare", "--profile", "--with", "glibc", "--out", &out, "--", "sleep", "60"]);
    let record = format!("answer; trap '' INT; {sleep}");
    let child = with_perf(&scratch, &record, &mut command).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    common::eventually("perf runs", || common::process_runs(&sleep));
    let begin = std::time::Instant::now();
    common::signal(&child.id().to_string(), "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(15), "nobody waits for samples that nobody reads");
    assert_eq!(samples_left(&scratch), [""; 0]);
    assert!(!common::process_exists(&sleep));
}
