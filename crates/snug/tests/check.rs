//! `snug check` on real processes.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{
    eventually, jemalloc_library, run, snug, snug_as_jemalloc, snug_in_terminal, snug_library, Running,
    Scratch, SLEEPER,
};
use snug_base::need;
use snug_base::testing::root;

/// Starts a program and waits until it sleeps, so that its loader is through.
fn start(command: &mut Command) -> (Running, String) {
    let running = Running(command.process_group(0).spawn().unwrap());
    let pid = running.pid();
    common::eventually("the program sleeps", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        stat.contains(") S ") && maps.contains("/libc.so.6")
    });
    (running, pid)
}

/// Sleeps by a system call of its own.
const WITHOUT_LIBC: &str = r#"
#include <sys/syscall.h>
__attribute__((force_align_arg_pointer)) void _start(void) {
  long times[2] = {60, 0}, result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(times), "S"(0) : "rcx", "r11", "memory");
  __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0));
}
"#;

#[test]
fn the_kind_of_program_is_told() {
    let scratch = Scratch::new();
    let mut programs = vec![
        (scratch.compile("dynamic", SLEEPER, &[]), "dynamically", Some("glibc"), "works"),
        (scratch.compile("fixed", SLEEPER, &["-static"]), "statically", Some("glibc"), "never"),
        (scratch.compile("pie", SLEEPER, &["-static-pie"]), "static_pie", Some("glibc"), "never"),
    ];
    if cfg!(target_arch = "x86_64") {
        let loader = "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2";
        let bare = ["-nostdlib", "-pie", "-fPIE", loader];
        programs.push((scratch.compile("bare", WITHOUT_LIBC, &bare), "dynamically", None, "no_effect"));
    }
    for (program, linked, c_library, preload) in programs {
        let running = Running(Command::new(&program).arg("60").process_group(0).spawn().unwrap());
        let pid = running.pid();
        common::eventually("the program sleeps", || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") S ")
        });
        let linkage = &run(&mut snug(&["check", "--json", &pid])).json()["processes"][0]["linkage"];
        assert_eq!(linkage["linked"], linked, "{program}: {linkage}");
        assert_eq!(linkage["c_library"].as_str(), c_library, "{program}: {linkage}");
        assert_eq!(linkage["preload"], preload, "{program}: {linkage}");
    }
    let (_running, pid) = start(Command::new("sleep").arg("60"));
    run(&mut snug(&["check", &pid]))
        .expect_stdout("program: dynamic, glibc 2.")
        .expect_stdout("can be preloaded");
}

#[test]
fn a_process_under_glibc() {
    let (_running, pid) = start(Command::new("sleep").arg("60").env_remove("LD_PRELOAD"));
    let answer = run(&mut snug(&["check", &pid, "--json"])).expect_code(0);
    let report = answer.json();
    let process = &report["processes"][0];
    assert_eq!(process["allocator"]["kind"], "glibc");
    assert_eq!(process["allocator"]["how"], "c_library");
    assert!(process["allocator"]["version"].as_str().unwrap().starts_with("2."), "{process}");
    run(&mut snug(&["check", &pid, "--expect", "snug"])).expect_code(1).expect_stdout("Not as expected");
    run(&mut snug(&["check", &pid, "--expect", "glibc"])).expect_code(0).expect_stdout("As expected");
}

#[test]
fn a_process_under_a_preloaded_allocator() {
    let library = need!(jemalloc_library());
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", &library).env("MALLOC_CONF", "narenas:2").env("TCMALLOC_X", "1");
    let (_running, pid) = start(&mut command);
    let answer = run(&mut snug(&["check", &pid, "--json", "--expect", "jemalloc"])).expect_code(0);
    let process = &answer.json()["processes"][0];
    assert_eq!(process["allocator"]["how"], "preloaded");
    assert_eq!(process["settings"]["MALLOC_CONF"], "narenas:2");
    assert_eq!(process["problems"][0]["id"], "setting-without-effect");
}

#[test]
fn snug_tells_its_own_settings() {
    let library = snug_library();
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", &library).env("SNUG", "purge_cpu_percent:7");
    let (_running, pid) = start(&mut command);
    let answer = run(&mut snug(&["check", &pid, "--json", "--expect", "snug"])).expect_code(0);
    let process = &answer.json()["processes"][0];
    assert_eq!(process["settings_source"], "allocator");
    assert_eq!(process["settings"]["purge_cpu_percent"], "7");
    let version = include_str!("../../../VERSION").trim();
    assert_eq!(process["allocator"]["version"], version);
    assert_eq!(process["counters"]["pid"].as_u64().unwrap().to_string(), pid);
}

#[test]
fn whole_trees_by_name() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let sleeper = scratch.compile("snugtestsleeper", SLEEPER, &[]);
    let script = format!("{sleeper} 60 & env -u LD_PRELOAD {sleeper} 60 & wait");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("LD_PRELOAD", &library);
    let (_running, pid) = start(&mut command);
    common::eventually("both have started", || {
        let answer = run(&mut snug(&["check", "snugtestsleeper", "--json"]));
        answer.code == Some(0) && answer.json()["processes"].as_array().unwrap().len() == 2
    });
    let answer = run(&mut snug(&["check", &pid, "--expect", "jemalloc"])).expect_code(1);
    assert!(answer.stdout.contains("1 of 3 processes do not use jemalloc"), "{answer:#?}");
}

#[test]
fn a_program_is_started_looked_at_and_stopped() {
    let library = need!(jemalloc_library());
    // Other runs of this test may go on beside this one.
    let sleep = format!("sleep 4242.{}", std::process::id());
    let script = format!("{sleep}; true");
    let mut command = snug(&["check", "--for", "1.5", "--expect", "jemalloc", "--", "sh", "-c", &script]);
    run(command.env("LD_PRELOAD", &library)).expect_code(0).expect_stdout("all 2 processes use jemalloc");
    assert!(!common::process_exists(&sleep), "nothing is left behind");
}

#[test]
fn a_terminal_shows_what_it_waits_for() {
    let arguments = ["check", "--for", "1.5", "--", "sleep", "60"];
    let answer = run(&mut snug_in_terminal(&arguments)).expect_code(0);
    answer.expect_stdout("looking at sleep").expect_stdout("glibc");
    let answer = run(&mut snug(&arguments)).expect_code(0);
    assert_eq!(answer.stderr, "", "it is for terminals alone");
}

#[test]
fn a_program_too_short_to_look_at_is_judged_by_its_loader() {
    let library = need!(jemalloc_library());
    // Some of them end while they are looked at.
    for _ in 0..40 {
        let mut command = snug(&["check", "--expect", "jemalloc", "--", "true"]);
        run(command.env("LD_PRELOAD", &library)).expect_code(0);
    }
}

#[test]
fn a_program_that_fails_by_itself_is_not_as_expected() {
    let failing = ["check", "--expect", "glibc", "--", "sh", "-c", "sleep 0.1; exit 7"];
    run(snug(&failing).env_remove("LD_PRELOAD"))
        .expect_code(1)
        .expect_stdout("the program exited with code 7")
        .expect_stdout("failed.");
    run(snug(&["check", "--", "sh", "-c", "kill -SEGV $$"]).env_remove("LD_PRELOAD"))
        .expect_code(1)
        .expect_stdout("was killed by SIGSEGV");
    run(snug(&["check", "--expect", "glibc", "--", "true"]).env_remove("LD_PRELOAD")).expect_code(0);
    let library = need!(jemalloc_library());
    run(snug(&["check", "--expect", "glibc", "--", "true"]).env("LD_PRELOAD", library))
        .expect_code(1)
        .expect_stdout("it uses jemalloc");
}

#[test]
fn interrupted_looks_leave_nothing_behind() {
    let sleep = format!("sleep 4646.{}", std::process::id());
    let mut command = snug(&["check", "--for", "60", "--", "sh", "-c", &format!("setsid {sleep} & {sleep}")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    common::eventually("the program runs", || common::process_runs(&sleep));
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(!common::process_exists(&sleep));
}

#[test]
fn ignored_preloads_are_explained() {
    let mut missing = snug(&["check", "--for", "0.3", "--", "sleep", "5"]);
    run(missing.env("LD_PRELOAD", "/nonexistent/libsnug.so"))
        .expect_code(1)
        .expect_stdout("there is no such file");
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let fixed = scratch.compile("fixed", SLEEPER, &["-static"]);
    let mut command = snug(&["check", "--for", "0.3", "--", &fixed]);
    run(command.env("LD_PRELOAD", &library)).expect_code(1).expect_stdout("the program is static");
    let mut content = std::fs::read(&library).unwrap();
    content[18..20].copy_from_slice(&40u16.to_le_bytes());
    std::fs::write(scratch.path("libarm.so"), content).unwrap();
    let mut command = snug(&["check", "--for", "0.3", "--", "sleep", "5"]);
    run(command.env("LD_PRELOAD", scratch.path("libarm.so"))).expect_code(1).expect_stdout("it is for arm");
}

#[test]
fn half_linked_programs_are_found() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let half = scratch.compile("half", SLEEPER, &["-Wl,--no-as-needed", "-lc", &library]);
    run(&mut snug(&["check", "--for", "0.3", "--", &half])).expect_code(1).expect_stdout("half-linked");
    let linked = scratch.compile("linked", SLEEPER, &["-Wl,--no-as-needed", &library]);
    run(&mut snug(&["check", "--for", "0.3", "--expect", "jemalloc", "--", &linked]))
        .expect_code(0)
        .expect_stdout("linked");
}

#[test]
fn snug_linked_statically_is_found_even_when_stripped() {
    let library = snug_library();
    let archive = library.replace(".so", ".a");
    let scratch = Scratch::new();
    let program = scratch.compile("static", SLEEPER, &["-static", "-s", &archive, "-lpthread"]);
    run(&mut snug(&["check", "--for", "0.3", "--expect", "snug", "--", &program]))
        .expect_code(0)
        .expect_stdout("linked statically");
}

#[test]
fn a_replaced_library_is_noticed() {
    let library = need!(jemalloc_library());
    let scratch = Scratch::new();
    let copy = scratch.path("libjemalloc.so.2");
    std::fs::copy(&library, &copy).unwrap();
    let (_running, pid) = start(Command::new("sleep").arg("60").env("LD_PRELOAD", &copy));
    std::fs::remove_file(&copy).unwrap();
    run(&mut snug(&["check", &pid, "--expect", "jemalloc"]))
        .expect_code(0)
        .expect_stdout("restart the process");
}

#[test]
fn what_snug_ignored_and_where_its_settings_come_from() {
    let library = snug_library();
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", &library).stderr(Stdio::null());
    command.env("SNUG", "purge_cpu:5,background:maybe,thp:off").env("MALLOC_ARENA_MAX", "2");
    let (_running, pid) = start(&mut command);
    run(&mut snug(&["check", &pid]))
        .expect_code(0)
        .expect_stdout("SNUG holds purge_cpu:5, which is ignored")
        .expect_stdout("did you mean purge_cpu_percent?")
        .expect_stdout("SNUG holds background:maybe, which is ignored")
        .expect_stdout("arenas_max:2 (from MALLOC_ARENA_MAX)")
        .expect_stdout("thp:0 (from SNUG)");
    let json = run(&mut snug(&["check", "--json", &pid])).json();
    let from = &json["processes"][0]["settings_from"];
    assert_eq!(
        (&from["arenas_max"], &from["purge_cpu_percent"]),
        (&"MALLOC_ARENA_MAX".into(), &"default".into())
    );
}

#[test]
fn malloc_conf_is_translated_key_by_key() {
    let library = snug_library();
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", &library).stderr(Stdio::null());
    command.env(
        "MALLOC_CONF",
        "narenas:2,background_thread:true,metadata_thp:auto,thp:always,junk:true,narena:3",
    );
    command.env("MALLOC_ARENA_MAX", "8").env("SNUG", "thp:off");
    let (_running, pid) = start(&mut command);
    let answer = run(&mut snug(&["check", &pid]))
        .expect_code(0)
        .expect_stdout("arenas_max:2 (from MALLOC_CONF)")
        .expect_stdout("thp:0 (from SNUG)")
        .expect_stdout("  narenas:2: in effect: ")
        .expect_stdout("  background_thread:true: already so: ")
        .expect_stdout("  metadata_thp:auto: not needed: ")
        .expect_stdout("  thp:always: overruled: thp:0 from SNUG wins; ")
        .expect_stdout("  junk:true: not there: ")
        .expect_stdout("  narena:3: ignored: no key of jemalloc's; did you mean narenas:...?");
    assert!(!answer.stdout.contains("setting of jemalloc"), "{answer:#?}");
    let process = &run(&mut snug(&["check", "--json", &pid])).json()["processes"][0];
    assert_eq!(process["settings_from"]["arenas_max"], "MALLOC_CONF");
    let outcomes: Vec<&str> = process["malloc_conf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["in_effect", "already_so", "not_needed", "overruled", "not_there", "ignored"]);
    let library = need!(jemalloc_library());
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", &library).env("MALLOC_CONF", "narenas:2");
    let (_running, pid) = start(&mut command);
    let process = &run(&mut snug(&["check", "--json", &pid])).json()["processes"][0];
    assert_eq!(process["malloc_conf"], serde_json::json!([]), "it is jemalloc that reads it there");
}

#[test]
fn files_are_not_taken_by_their_names() {
    let library = snug_as_jemalloc();
    let expect = |kind: &str, command: &mut Command| {
        let (running, pid) = start(command);
        let answer = run(&mut snug(&["check", "--json", "--expect", kind, &pid])).expect_code(0);
        (running, pid, answer.json()["processes"][0].clone())
    };
    let (_running, pid, process) =
        expect("snug", Command::new("sleep").arg("60").env("LD_PRELOAD", &library));
    assert_eq!((&process["allocator"]["how"], problems(&process)), (&"preloaded".into(), vec![]));
    assert_eq!(process["settings_source"], "allocator");
    let stats = run(&mut snug(&["stats", "--json", &pid])).expect_code(0).json();
    assert!(stats["heap"]["live_allocated_bytes"].as_u64().unwrap() > 0, "{stats}");
    let top = run(&mut snug(&["top", "--once", &pid])).expect_code(0);
    assert!(top.stdout.contains("snug") && !top.stdout.contains("jemalloc"), "{top:#?}");
    let scratch = Scratch::new();
    let linked = scratch.compile("linked", SLEEPER, &["-Wl,--no-as-needed", &library]);
    let directory = std::path::Path::new(&library).parent().unwrap();
    let (_running, _, process) =
        expect("snug", Command::new(&linked).arg("60").env("LD_LIBRARY_PATH", directory));
    assert_eq!(process["allocator"]["how"], "linked_dynamically");
    // Beside the other file of the same library.
    let snug_too = snug_library();
    let mut both = Command::new(&linked);
    both.arg("60").env("LD_LIBRARY_PATH", directory).env("LD_PRELOAD", &snug_too);
    let (_running, _, process) = expect("snug", &mut both);
    assert_eq!((&process["settings_source"], problems(&process)), (&"allocator".into(), vec![]));
    let jemalloc = need!(jemalloc_library());
    let renamed = scratch.path("libsnug.so");
    std::fs::copy(&jemalloc, &renamed).unwrap();
    expect("jemalloc", Command::new("sleep").arg("60").env("LD_PRELOAD", &renamed));
    // The program brings jemalloc's own library; the preload serves its calls.
    let with_jemalloc = scratch.compile("with_jemalloc", SLEEPER, &["-Wl,--no-as-needed", &jemalloc]);
    let (_running, _, process) =
        expect("snug", Command::new(&with_jemalloc).arg("60").env("LD_PRELOAD", &snug_too));
    assert_eq!(problems(&process), ["half-linked: note"]);
}

/// What is wrong with a process, but for what is said of the machine.
fn problems(process: &serde_json::Value) -> Vec<String> {
    let word = |problem: &serde_json::Value, name: &str| problem[name].as_str().unwrap().to_string();
    let problems = process["problems"].as_array().unwrap().iter();
    let of_itself = problems
        .filter(|problem| !["snug-warning", "huge-pages-always"].contains(&problem["id"].as_str().unwrap()));
    of_itself.map(|problem| format!("{}: {}", word(problem, "id"), word(problem, "severity"))).collect()
}

/// Runs before libsnug's constructor, which comes before it in LD_PRELOAD, and takes its time.
const SLOW: &str =
    "#include <unistd.h>\n__attribute__((constructor)) static void wait(void) { usleep(200000); }";

#[test]
fn a_process_that_just_starts_is_waited_for() {
    let library = snug_library();
    let scratch = Scratch::new();
    let slow = scratch.compile("slow.so", SLOW, &["-shared", "-fPIC"]);
    let mut command = Command::new("sleep");
    command.arg("60").env("LD_PRELOAD", format!("{library}:{slow}"));
    let running = Running(command.process_group(0).spawn().unwrap());
    common::eventually("the libraries are mapped", || {
        std::fs::read_to_string(format!("/proc/{}/maps", running.pid()))
            .is_ok_and(|maps| maps.contains("libc.so.6"))
    });
    let json = run(&mut snug(&["check", "--json", &running.pid()])).expect_code(0).json();
    let process = &json["processes"][0];
    assert!(process["counters"].is_object(), "{}", process["problems"]);
}

/// Root looks at processes of users, who choose what these name.
#[test]
fn a_fifo_that_a_process_names_is_not_opened() {
    let scratch = Scratch::new();
    let fifo = scratch.text("libsnug.so");
    // The loader does without what is not there.
    let mut command = Command::new("sleep");
    let (_running, pid) = start(command.arg("60").env("LD_PRELOAD", &fifo).stderr(Stdio::null()));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for arguments in [["check", &pid].as_slice(), &["stats", &pid], &["top", "--once", &pid]] {
        let call = snug(arguments);
        let mut limited = Command::new("timeout");
        limited.arg("60").arg(call.get_program()).args(arguments).stdin(Stdio::null());
        let answer = run(&mut limited);
        assert_ne!(answer.code, Some(124), "{arguments:?} waits for who writes to the FIFO");
        if arguments[0] == "check" {
            answer.expect_stdout("but it is not loaded: it is not an ELF library");
        }
    }
}

/// A terminal obeys some of what is written to it, and a line may look as if it were ours.
#[test]
fn names_of_processes_do_not_write_to_the_terminal() {
    let name = "sleep\x1b]0;title\x07\nforged: \x1b[2J\u{9b}2J";
    let (_running, pid) = start(Command::new("sleep").arg0(name).arg("60").env_remove("LD_PRELOAD"));
    for arguments in [["check", &pid].as_slice(), &["stats", &pid], &["top", "--once", &pid]] {
        let shown = run(&mut snug_in_terminal(arguments)).expect_code(0).stdout;
        assert!(shown.contains("sleep\u{fffd}]0;title\u{fffd}"), "{arguments:?}: {shown:?}");
        for raw in ["\x1b]", "\x07", "\x1b[2J", "\u{9b}", "\nforged"] {
            assert!(!shown.contains(raw), "{arguments:?}: {raw:?} in {shown:?}");
        }
    }
    let json = run(&mut snug(&["check", "--json", &pid])).json();
    assert_eq!(json["processes"][0]["command"], format!("{name} 60"));
}

/// As sudo does: a program of root's that one's own process became.
#[test]
fn who_may_not_be_ended_is_named_and_left() {
    need!(root());
    let scratch = Scratch::new();
    let source = "#define _GNU_SOURCE\n#include <unistd.h>\n\
                  int main(void) { return setresuid(0, 0, 0) != 0 ? 7 : (int)sleep(60); }";
    let program = scratch.compile("stays", source, &[]);
    assert!(Command::new("chmod").args(["4755", &program]).status().unwrap().success());
    let tool = scratch.path("snug");
    std::fs::copy(env!("CARGO_BIN_EXE_snug"), &tool).unwrap();
    let nobody = ["30", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut call = Command::new("timeout");
    let answer = run(call.args(nobody).arg(&tool).args(["check", "--", &program]).env_remove("LD_PRELOAD"))
        .expect_stderr("could not be ended and still runs: process ")
        .expect_stderr("(stays)");
    let pid = answer.stderr.split("still runs: process ").nth(1).unwrap().split(' ').next().unwrap();
    common::signal(pid, "-KILL");
}

#[test]
fn names_stand_for_processes_of_this_user() {
    need!(root());
    let scratch = Scratch::new();
    let program = scratch.compile("snugtestowned", SLEEPER, &[]);
    let tool = scratch.path("snug");
    std::fs::copy(env!("CARGO_BIN_EXE_snug"), &tool).unwrap();
    let nobody = |program: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program)
            .env_remove("LD_PRELOAD");
        command
    };
    let (_of_root, _) = start(Command::new(&program).arg("60").env_remove("LD_PRELOAD"));
    let call = |more: &[&str]| {
        run(nobody(&tool.display().to_string())
            .args(["check", "--expect", "glibc", "snugtestowned"])
            .args(more))
    };
    call(&[]).expect_code(3).expect_stderr("none of your processes").expect_stderr("--all-users");
    let (_of_nobody, _) = start(nobody(&program).arg("60"));
    call(&[]).expect_code(0).expect_stdout("As expected: it uses glibc.");
    call(&["--all-users"]).expect_code(3);
    // root sees all.
    run(&mut snug(&["check", "--expect", "glibc", "snugtestowned"]))
        .expect_code(0)
        .expect_stdout("all 2 processes");
}

/// glibc reads the tunable at the start, whatever it then gets: the system decides.
#[test]
fn huge_pages_that_glibc_was_told_to_ask_for_are_told() {
    let mut sleep = Command::new("sleep");
    let sleep = sleep.arg("100").env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").env_remove("LD_PRELOAD");
    let process = Running(sleep.spawn().unwrap());
    eventually("it runs sleep", || {
        std::fs::read_to_string(format!("/proc/{}/comm", process.pid())).is_ok_and(|name| name == "sleep\n")
    });
    let report = run(&mut snug(&["check", "--json", &process.pid()])).json();
    let problems = report["processes"][0]["problems"].as_array().unwrap();
    let (wanted, said) = match report["transparent_huge_pages"].as_str().unwrap() {
        "always" => ("huge-pages-always", "are in huge pages now|none of its memory is in huge pages now"),
        "madvise" => ("huge-pages-glibc", "are in huge pages now|none of its memory is in huge pages now"),
        _ => ("huge-pages-glibc", "which the system never gives"),
    };
    let found = problems.iter().find(|problem| problem["id"] == wanted).expect("it is a problem");
    let message = found["message"].as_str().unwrap();
    assert!(said.split('|').any(|text| message.contains(text)), "{message}");
}
