//! `snug profile -- PROGRAM` on real programs.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{eventually, process_exists, run, snug, snug_library, Answer, Running, Scratch, SLEEPER};
use snug_base::need;
use snug_base::testing::program;

/// What all programs here begin with.
const KEEPS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
void *volatile kept;
static void many(void *(*allocate)(void)) { for (int i = 0; i < 5000; i++) kept = allocate(); }
__attribute__((noinline)) void *keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
__attribute__((noinline)) void *keeps_more(void) { void **p = malloc(3900); memset(p, 1, 3900); return p; }
"#;

/// What is surely found of the 20 MB of a `many`. Samples come every 256 KiB at the most here, so the standard deviation
/// is at most the root of 20 MB times that, 2.3 MB.
const MOST: f64 = 10e6;

struct Place {
    scratch: Scratch,
    library: String,
}

impl Place {
    /// None: there is no library.
    fn new() -> Place {
        Place { library: snug_library(), scratch: Scratch::new() }
    }

    /// Compiles a program that begins with KEEPS.
    fn compile(&self, name: &str, main: &str) -> String {
        self.scratch.compile(name, &format!("{KEEPS}{main}"), &["-pthread"])
    }

    /// A call of snug profile.
    fn profile(&self, arguments: &[&str]) -> Command {
        let mut command = snug(&["profile"]);
        command.args(arguments).env("SNUG_LIBRARY", &self.library);
        command
    }

    /// A profile of such a program in JSON, with samples enough.
    fn measure(&self, main: &str, arguments: &[&str]) -> Answer {
        let program = self.compile("program", main);
        run(self.profile(&["--json", "--mean-bytes", "16384"]).args(arguments).args(["--", &program]))
    }
}

/// Function of the innermost frame of the site with the most bytes.
#[track_caller]
fn first(answer: &Answer) -> String {
    let json = answer.json();
    json["sites"][0]["frames"][0]["function"].as_str().unwrap_or_else(|| panic!("{answer:#?}")).into()
}

/// Bytes whose innermost frame is a function.
fn bytes_of(answer: &Answer, function: &str) -> f64 {
    let json = answer.json();
    let sites = json["sites"].as_array().unwrap().iter();
    let of_function = sites.filter(|site| site["frames"][0]["function"] == function);
    of_function.map(|site| site["bytes"].as_f64().unwrap()).sum()
}

/// A child whose stdout has said a line.
fn started(command: &mut Command) -> (Running, BufReader<impl Read>) {
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut reader = BufReader::new(running.0.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    (running, reader)
}

/// Waits for the end; the exit code and what was written since.
fn ended(mut running: Running, mut reader: BufReader<impl Read>) -> Answer {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    reader.read_to_string(&mut stdout).unwrap();
    running.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Answer { code: running.0.wait().unwrap().code(), stdout, stderr }
}

fn kill(signal: &str, process: &str) {
    assert!(Command::new("kill").args(["-s", signal, "--", process]).status().unwrap().success());
}

/// The PID of the program that a process of snug has started.
fn child_of(snug: &Child) -> String {
    let path = format!("/proc/{0}/task/{0}/children", snug.id());
    std::fs::read_to_string(path).unwrap().trim().to_string()
}

#[test]
fn a_profile_for_pprof_can_be_all_that_goes_to_stdout() {
    let place = Place::new();
    let program = place.compile("program", r#"int main(void) { many(keeps); puts("the program's"); }"#);
    let call = || place.profile(&["--mean-bytes", "16384", "--pprof", "-", "--", &program]);
    let output = call().output().unwrap();
    let holds = |text: &str| output.stdout.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("inuse_space") && holds("keeps"), "{output:?}");
    assert!(!holds("the program's") && !holds("with 95 % confidence"), "{output:?}");
    let rest = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(rest.contains("the program's") && rest.contains("with 95 % confidence"), "{rest}");
    let closed = call().stdout(Stdio::from(std::fs::File::create("/dev/full").unwrap())).output().unwrap();
    assert_eq!(closed.status.code(), Some(1), "what can't be written is said: {closed:?}");
}

#[test]
fn a_program_that_ends_at_once_is_read_at_its_end() {
    let place = Place::new();
    let program = place.compile("program", r#"int main(void) { many(keeps); puts("the program's"); }"#);
    let [html, folded] = ["html", "folded"].map(|name| place.scratch.text(name));
    let files = ["--mean-bytes", "16384", "--html", &html, "--folded", &folded];
    let answer = run(place.profile(&files).args(["--", &program])).expect_code(0);
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines[0], "the program's", "{answer:#?}");
    assert!(
        lines[1].starts_with(&format!("{program}: "))
            && lines[1].contains("live when it was seen to be most"),
        "{answer:#?}"
    );
    assert!(answer.stdout.contains("keeps (program)"), "{answer:#?}");
    assert_eq!(
        answer.stderr.lines().filter(|line| !line.contains("as --mean-bytes asks")).count(),
        0,
        "{answer:#?}"
    );
    assert!(std::fs::read_to_string(&html).unwrap().contains("keeps"));
    assert!(std::fs::read_to_string(&folded).unwrap().contains("many (program);keeps (program) "));
}

#[test]
fn sampling_begins_before_main() {
    let place = Place::new();
    let main =
        "__attribute__((constructor)) static void early(void) { many(keeps); } int main(void) { _exit(0); }";
    let answer = place.measure(main, &[]).expect_code(0);
    let bytes = bytes_of(&answer, "keeps");
    assert!((MOST..30e6).contains(&bytes), "{bytes} of 20 MB");
}

#[test]
fn what_was_freed_before_the_end_is_said_to_be() {
    let place = Place::new();
    let main = "int main(void) { for (int i = 0; i < 5000; i++) free(keeps()); }";
    let grown = place.measure(main, &["--view", "grown"]).expect_code(0).expect_stderr("--view allocated");
    assert_eq!(grown.json()["sites"].as_array().unwrap().len(), 0);
    assert_eq!(first(&place.measure(main, &["--view", "allocated"]).expect_code(0)), "keeps");
    let little = place.compile("little", "int main(void) { keeps(); }");
    let answer =
        run(&mut place.profile(&["--", &little])).expect_code(0).expect_stderr("smaller --mean-bytes");
    assert!(answer.stdout.contains(": 0 B live") && answer.stdout.lines().count() == 1, "{answer:#?}");
}

/// As most programs do, Python's among them.
#[test]
fn what_is_freed_at_the_end_is_shown_as_it_was_at_the_peak() {
    let place = Place::new();
    let main = "static void *all[5000]; int main(void) { for (int i = 0; i < 5000; i++) all[i] = keeps(); usleep(3000000); \
                for (int i = 0; i < 5000; i++) free(all[i]); }";
    let answer = place.measure(main, &[]).expect_code(0);
    assert_eq!(answer.json()["view"], "peak", "{answer:#?}");
    assert!(bytes_of(&answer, "keeps") > MOST, "{answer:#?}");
}

const CXX: &str = r#"
#include <vector>
#include <unistd.h>
namespace shop {
template <typename Item> struct Cart {
  std::vector<Item> items;
  __attribute__((noinline)) void add(Item item) {
    items.push_back(item); // line 8
  }
};
}
int main() {
  static shop::Cart<long> *carts = new shop::Cart<long>[2000];
  for (int i = 0; i < 2000 * 500; i++) carts[i % 2000].add(i);
  usleep(200000);
}
"#;

/// Names as in the source, and its lines: of debug information in the program, compressed, and in a file beside it.
#[test]
fn native_code_has_names_and_lines() {
    let place = Place::new();
    let source = place.scratch.text("shop.cpp");
    std::fs::write(&source, CXX).unwrap();
    let program = place.scratch.text("shop");
    let do_all = |commands: &[&[&str]]| {
        for command in commands {
            assert!(Command::new(command[0]).args(&command[1..]).status().unwrap().success(), "{command:?}");
        }
    };
    let debug = place.scratch.text("shop.debug");
    let link = format!("--add-gnu-debuglink={debug}");
    let split: &[&[&str]] = &[
        &["objcopy", "--only-keep-debug", &program, &debug],
        &["strip", &program],
        &["objcopy", &link, &program],
    ];
    for (option, is_split, has_lines) in
        [("-g0", false, false), ("-g", false, true), ("-g -gz=zlib", false, true), ("-g", true, true)]
    {
        let [first, second] =
            option.split_once(' ').map_or([option, "-DNONE"], |(first, second)| [first, second]);
        do_all(&[&["g++", "-O1", "-Wl,--build-id", first, second, &source, "-o", &program]]);
        if is_split {
            do_all(split);
        }
        let answer =
            run(place.profile(&["--mean-bytes", "16384", "--all"]).args(["--", &program])).expect_code(0);
        let place_text = if has_lines { "shop.cpp:8)" } else { "(shop)" };
        let line = answer.stdout.lines().find(|line| line.contains("shop::Cart<long>::add"));
        assert!(line.is_some_and(|line| line.contains(place_text)), "{option} {is_split}: {answer:#?}");
        assert!(!answer.stdout.contains("_ZN"), "{answer:#?}");
    }
}

#[test]
fn stacks_are_chosen_and_the_distance_is_said() {
    let place = Place::new();
    let main = "int main(void) { for (int i = 0; i < 4000; i++) { many(keeps); usleep(10000); if (i == 9) return 0; many(keeps_more); } }";
    let program = place.compile("program", main);
    let shown = |more: &[&str]| {
        let arguments = ["--mean-bytes", "1024"];
        run(place.profile(&arguments).args(more).args(["--", &program])).expect_code(0)
    };
    let focused = shown(&["--focus", "keeps_more"]).expect_stderr("as --mean-bytes asks, but up to");
    assert!(
        focused.stdout.contains("keeps_more (program)") && focused.stdout.contains("asked for"),
        "{focused:#?}"
    );
    assert!(!focused.stdout.contains("keeps (program)"), "{focused:#?}");
    let ignored = shown(&["--ignore", "keeps_more", "--top", "1"]);
    assert!(
        !ignored.stdout.contains("keeps_more") && ignored.stdout.contains("keeps (program)"),
        "{ignored:#?}"
    );
}

#[test]
fn a_short_ruby_script_is_profiled() {
    let place = Place::new();
    need!(program("ruby"));
    let script = place.scratch.text("script.rb");
    std::fs::write(&script, "def keeps\n  $kept << 'x' * 4000\nend\n$kept = []\n3000.times { keeps }\n")
        .unwrap();
    let answer = run(&mut place.profile(&["--json", "--", "ruby", &script])).expect_code(0);
    let json = answer.json();
    let frames = json["sites"][0]["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["function"] == "keeps" && frame["line"] == 2), "{json}");
}

#[test]
fn the_programs_failure_is_told() {
    let place = Place::new();
    let code = place.measure("int main(void) { many(keeps); return 7; }", &[]).expect_code(1);
    assert_eq!(first(&code.expect_stderr("the program exited with code 7")), "keeps");
    for signal in ["SIGTERM", "SIGABRT", "SIGSEGV"] {
        let answer = place.measure(&format!("int main(void) {{ many(keeps); raise({signal}); }}"), &[]);
        let answer = answer.expect_code(1).expect_stderr(&format!("the program was killed by {signal}"));
        assert_eq!(first(&answer), "keeps");
    }
}

/// The kernel promises no last moment then, but most often there is one.
#[test]
fn a_killed_program_is_profiled_or_told() {
    let place = Place::new();
    let answer = place.measure("int main(void) { many(keeps); kill(getpid(), SIGKILL); pause(); }", &[]);
    let answer = answer.expect_stderr("the program was killed by SIGKILL");
    match answer.code {
        Some(1) => assert_eq!(first(&answer), "keeps"),
        _ => drop(answer.expect_code(3).expect_stderr("SIGKILL leaves no time")),
    }
}

#[test]
fn any_thread_may_end_the_program() {
    let place = Place::new();
    for end in ["exit(0)", "_exit(0)"] {
        let main = format!(
            "static void *ends(void *unused) {{ many(keeps_more); {end}; return unused; }}\n\
             int main(void) {{ pthread_t t; many(keeps); pthread_create(&t, 0, ends, 0); for (;;) pause(); }}"
        );
        let answer = place.measure(&main, &[]).expect_code(0);
        assert!(bytes_of(&answer, "keeps") > MOST && bytes_of(&answer, "keeps_more") > MOST, "{answer:#?}");
    }
}

#[test]
fn what_runs_on_without_its_first_thread_is_told() {
    let place = Place::new();
    let main = "static void *lasts(void *unused) { usleep(6000000); exit(3); return unused; }\n\
                int main(void) { pthread_t t; many(keeps); pthread_create(&t, 0, lasts, 0); pthread_exit(0); }";
    let answer = place.measure(main, &[]).expect_code(1).expect_stderr("exited with code 3");
    assert_eq!(first(&answer.expect_stderr("its first thread ended")), "keeps");
}

#[test]
fn after_an_exec_the_profile_is_that_of_the_new_program() {
    let place = Place::new();
    let second = place.compile("second", "int main(void) { many(keeps_more); usleep(200000); }");
    let exec = format!(r#"execl("{second}", "second", (char *)0)"#);
    for main in [
        format!("int main(void) {{ many(keeps); {exec}; }}"),
        format!(
            "static void *execs(void *unused) {{ {exec}; return unused; }}\n\
             int main(void) {{ pthread_t t; many(keeps); pthread_create(&t, 0, execs, 0); for (;;) pause(); }}"
        ),
    ] {
        let answer = place.measure(&main, &[]).expect_code(0);
        assert!(bytes_of(&answer, "keeps_more") > MOST && bytes_of(&answer, "keeps") == 0.0, "{answer:#?}");
    }
}

/// What a wrapper held, as a shell or `bundle exec` may, is nothing that its addresses could be named by any more.
#[test]
fn after_an_exec_the_peak_is_that_of_the_new_program() {
    let place = Place::new();
    let second = place.compile("second", "int main(void) { many(keeps_more); usleep(300000); }");
    // One sample, of more than all those of the second one.
    let main = format!(
        r#"int main(void) {{ kept = malloc(400 << 20); usleep(600000); execl("{second}", "second", (char *)0); }}"#
    );
    let answer = place.measure(&main, &[]).expect_code(0);
    assert_eq!((first(&answer).as_str(), answer.json()["view"].as_str()), ("keeps_more", Some("peak")));
}

#[test]
fn what_is_executed_without_snug_has_no_profile() {
    let place = Place::new();
    for main in [
        r#"int main(void) { many(keeps); unsetenv("LD_PRELOAD"); execlp("sleep", "sleep", "0.2", (char *)0); }"#,
        "static void *execs(void *unused) { unsetenv(\"LD_PRELOAD\"); execlp(\"sleep\", \"sleep\", \"0.2\", (char *)0); \
         return unused; }\nint main(void) { pthread_t t; many(keeps); pthread_create(&t, 0, execs, 0); for (;;) pause(); }",
    ] {
        place.measure(main, &[]).expect_code(1).expect_stderr("not snug");
    }
}

/// Signals stop a program that is traced; each is to arrive, from whom it came.
#[test]
fn signals_reach_the_program() {
    let place = Place::new();
    let main = r#"
static volatile int of_user, of_child, in_real_time;
static void count(int signal, siginfo_t *info, void *unused) {
  (void)unused;
  if (signal == SIGUSR1 && info->si_pid != getpid() && info->si_code == SI_USER) of_user++;
  if (signal == SIGCHLD) of_child++;
  if (signal == SIGRTMIN + 5 && info->si_value.sival_int == 42) in_real_time++;
}
int main(void) {
  struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  sigaction(SIGCHLD, &action, 0);
  sigaction(SIGRTMIN + 5, &action, 0);
  many(keeps);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 500; i++) sigqueue(getppid(), SIGRTMIN + 5, (union sigval){.sival_int = 42});
    kill(getppid(), SIGUSR1);
    _exit(0);
  }
  int status;
  while (waitpid(child, &status, 0) != child) {}
  for (int i = 0; i < 500 && of_child < 1; i++) usleep(10000);
  fprintf(stderr, "user %d child %d real-time %d status %d\n", of_user, of_child, in_real_time, status);
}"#;
    let answer = place.measure(main, &[]).expect_code(0);
    assert_eq!(first(&answer.expect_stderr("user 1 child 1 real-time 500 status 0")), "keeps");
}

#[test]
fn a_program_that_is_stopped_stays_so_until_it_is_continued() {
    let place = Place::new();
    let program = place.compile(
        "ticks",
        r#"static volatile sig_atomic_t over;
static void end(int signal) { over = signal; }
int main(void) { signal(SIGUSR1, end); many(keeps); while (!over) { puts("tick"); fflush(stdout); usleep(20000); } }"#,
    );
    // In a process group of its own: the kernel drops SIGTSTP in one whose session has no shell any more, as under nohup.
    let (running, mut reader) = started(place.profile(&["--", &program]).process_group(0));
    let pid = child_of(&running.0);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    for signal in ["STOP", "TSTP"] {
        kill(signal, &pid);
        eventually("the program stops", || "tT".contains(state()));
        let cpu = || std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        // Its state changes a moment before it leaves the processor.
        eventually("it does nothing while it is stopped", || {
            let before = cpu();
            std::thread::sleep(Duration::from_millis(300));
            cpu() == before
        });
        assert!("tT".contains(state()), "it is stopped still");
        kill("CONT", &pid);
        reader.read_line(&mut String::new()).unwrap();
        eventually("the program goes on", || !"tT".contains(state()));
    }
    std::thread::sleep(Duration::from_millis(200)); // for some more ticks
    kill("USR1", &pid);
    let answer = ended(running, reader).expect_code(0);
    assert!(answer.stdout.contains("keeps (ticks)") && answer.stdout.contains("tick\n"), "{answer:#?}");
}

#[test]
fn a_program_that_runs_on_is_ended_when_the_time_is_over() {
    let place = Place::new();
    let answer = place.measure("int main(void) { many(keeps); for (;;) pause(); }", &["--for", "500ms"]);
    assert_eq!(first(&answer.expect_code(0)), "keeps");
    assert!(!process_exists(&place.scratch.text("program")), "it is gone");
}

#[test]
fn a_signal_to_end_shows_what_there_is() {
    let place = Place::new();
    let program = place.compile(
        "stays",
        r#"int main(void) { many(keeps); puts("ready"); fflush(stdout); for (;;) pause(); }"#,
    );
    for signal in ["INT", "TERM", "HUP"] {
        let (running, reader) = started(&mut place.profile(&["--", &program]));
        kill(signal, &running.pid());
        let answer = ended(running, reader).expect_code(0);
        assert!(answer.stdout.contains("keeps (stays)"), "{answer:#?}");
        assert_eq!(answer.stderr, "");
        assert!(!process_exists(&program), "it is gone");
    }
}

/// The terminal sends Ctrl-C to the program as well, which may have something to do then.
#[test]
fn a_program_may_end_in_its_own_way_after_ctrl_c() {
    let place = Place::new();
    let main = r#"
static volatile int asked;
static void ask(int signal) { asked = signal; }
int main(void) {
  signal(SIGINT, ask);
  many(keeps);
  puts("ready");
  fflush(stdout);
  while (!asked) usleep(1000);
  usleep(800000);
  puts("saved");
  return 9;
}"#;
    let program = place.compile("saves", main);
    let (running, reader) = started(place.profile(&["--", &program]).process_group(0));
    kill("INT", &format!("-{}", running.pid()));
    let answer = ended(running, reader).expect_code(0);
    assert!(answer.stdout.starts_with("saved\n") && answer.stdout.contains("keeps (saves)"), "{answer:#?}");
}

#[test]
fn the_program_has_the_users_settings_and_stdin() {
    let place = Place::new();
    let settings = |user: &str, more: &[&str]| {
        let script = "read line; echo \"$line $SNUG\"";
        let mut command = place.profile(more);
        command
            .args(["--view", "allocated", "--", "sh", "-c", script])
            .env("SNUG", user)
            .stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
        let out = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(out.stdout).unwrap();
        let is_said = String::from_utf8(out.stderr).unwrap().contains("--mean-bytes has no effect");
        (stdout.lines().next().unwrap_or_default().to_string(), is_said)
    };
    assert_eq!(settings("", &[]), ("typed profile:524288".into(), false));
    assert_eq!(settings("thp:1", &["--mean-bytes", "4096"]), ("typed thp:1,profile:4096".into(), false));
    assert_eq!(settings("profile:65536,thp:1", &[]), ("typed profile:65536,thp:1".into(), false));
    assert_eq!(settings("profile:65536", &["--mean-bytes", "4096"]), ("typed profile:65536".into(), true));
}

#[test]
fn json_is_alone_on_stdout() {
    let place = Place::new();
    let answer =
        place.measure(r#"int main(void) { many(keeps); puts("the program's"); }"#, &[]).expect_code(0);
    let json = answer.json();
    assert_eq!((&json["format"], &json["view"]), (&"snug-profile".into(), &"peak".into()), "{json}");
    assert!(answer.stderr.starts_with("the program's\n"), "{answer:#?}");
}

#[test]
fn work_of_other_processes_is_told() {
    let place = Place::new();
    let main = "int main(void) { many(keeps); if (fork() == 0) { for (clock_t t; (t = clock()) < CLOCKS_PER_SEC / 2;) {} \
                _exit(0); } wait(0); }";
    let answer = place.measure(&format!("#include <time.h>\n{main}"), &[]).expect_code(0);
    assert_eq!(first(&answer.expect_stderr("processes that it started")), "keeps");
}

#[test]
fn where_tracing_is_not_permitted_the_last_reading_counts() {
    let place = Place::new();
    let confine = place.scratch.compile("confine", common::REFUSE_CALL, &[]);
    let confined = |main: &str| {
        let program = place.compile("program", main);
        let mut command = Command::new(&confine);
        command.args([libc::SYS_ptrace.to_string(), libc::EPERM.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_snug")).args([
            "profile",
            "--json",
            "--mean-bytes",
            "16384",
            "--",
            &program,
        ]);
        run(command.env("SNUG_LIBRARY", &place.library).env_remove("SNUG").env_remove("LD_PRELOAD"))
    };
    let answer = confined("int main(void) { many(keeps); usleep(3000000); many(keeps_more); return 7; }");
    let answer = answer.expect_code(1).expect_stderr("the program exited with code 7");
    let answer =
        answer.expect_stderr("could not be traced (Operation not permitted").expect_stderr("are missing");
    assert!(bytes_of(&answer, "keeps") > MOST, "{answer:#?}");
    let answer = confined("int main(void) { _exit(0); }");
    if answer.code != Some(0) {
        answer.expect_code(3).expect_stderr("ended before its samples could be read").expect_stderr("ptrace");
    }
}

#[test]
fn programs_that_cannot_be_profiled_are_explained() {
    let place = Place::new();
    run(&mut place.profile(&["--", "no-such-program"])).expect_code(127).expect_stderr("program not found");
    run(&mut place.profile(&["--", "/etc/passwd"])).expect_code(126).expect_stderr("not executable");
    let fixed = place.scratch.compile("fixed", SLEEPER, &["-static"]);
    run(&mut place.profile(&["--", &fixed])).expect_code(125).expect_stderr("is a static program");
    let missing = "/nonexistent/libsnug.so";
    run(place.profile(&["--", "true"]).env("SNUG_LIBRARY", missing)).expect_code(125).expect_stderr(missing);
    // What the kernel alone finds out.
    let no_loader = place.scratch.compile("no-loader", SLEEPER, &["-Wl,--dynamic-linker=/nonexistent/ld.so"]);
    run(&mut place.profile(&["--", &no_loader])).expect_code(127).expect_stderr("cannot run");
}

#[test]
fn a_program_is_as_fast_as_without_the_tracer() {
    let place = Place::new();
    // Threads, forks and system calls stop nothing.
    let main = "static void *nothing(void *unused) { return unused; }\n\
        int main(void) { many(keeps); for (int i = 0; i < 300; i++) { pthread_t t; pthread_create(&t, 0, nothing, 0); \
        pthread_join(t, 0); if (fork() == 0) _exit(0); wait(0); } for (int i = 0; i < 300000; i++) getppid(); }";
    let program = place.compile("busy", main);
    let time = |command: &mut Command| {
        let begin = Instant::now();
        run(command).expect_code(0);
        begin.elapsed()
    };
    let alone = (0..3).map(|_| time(&mut Command::new(&program))).min().unwrap();
    let profiled = (0..3).map(|_| time(&mut place.profile(&["--", &program]))).min().unwrap();
    assert!(profiled < alone * 4 + Duration::from_millis(500), "{profiled:?}, and {alone:?} by itself");
}
