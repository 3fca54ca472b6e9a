//! `snug compare` on servers: ready, load, idle, and all that can go wrong with them.

mod common;

use std::fs::File;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{jemalloc_library, run, snug, Answer, Scratch};
use serde_json::Value;
use snug_base::need;

/// A server of one test, with a port of its own.
struct Server {
    scratch: Scratch,
    port: u16,
}

impl Server {
    fn new() -> Server {
        let scratch = Scratch::new();
        std::fs::write(scratch.path("server.py"), common::SERVER).unwrap();
        Server { scratch, port: common::free_port() }
    }

    /// The command; `how` is what the server does.
    fn command(&self, options: &[&str], how: &str) -> Command {
        let (out, script, port) =
            (self.scratch.text("out"), self.scratch.text("server.py"), self.port.to_string());
        let mut command = snug(&["compare", "--force", "--runs", "1", "--out", &out]);
        if !options.contains(&"--with") {
            command.args(["--with", "glibc"]);
        }
        let here = |option: &&str| option.replace("PORT", &port);
        command.args(options.iter().map(here)).args(["--", "/usr/bin/python3", &script, &port, how]);
        command
    }

    fn compare(&self, options: &[&str], how: &str) -> Answer {
        run(&mut self.command(options, how))
    }

    /// The first run in the results.
    fn run(&self) -> Value {
        let text =
            std::fs::read_to_string(self.scratch.path("out/compare.json")).expect("compare.json was written");
        let results: Value = serde_json::from_str(&text).expect("it is JSON");
        results["runs"][0].clone()
    }

    /// Nothing of the server is left. Its sleeping child has the port in its command line, as other runs of these
    /// tests may go on beside this one.
    fn expect_gone(&self) {
        assert!(!common::process_exists(&format!("sleep 5151.{}", self.port)), "its child is still there");
        assert!(!common::process_exists(&self.scratch.text("server.py")), "the server is still there");
    }
}

fn phases(run: &Value) -> Vec<&str> {
    run["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect()
}

#[test]
fn requests_make_the_load() {
    let server = Server::new();
    let options = [
        "--ready",
        "PORT",
        "--requests",
        "60",
        "--concurrency",
        "3",
        "--path",
        "/grow",
        "--path",
        "/",
        "--warmup",
        "6",
        "--idle",
        "400ms",
        "--header",
        "X-Who: me",
        "--url",
        "http://127.0.0.1:PORT",
    ];
    server.compare(&options, "").expect_code(0);
    server.expect_gone();
    let run = server.run();
    assert_eq!(phases(&run), ["boot", "warm", "load", "idle"]);
    let latency = &run["latency"];
    assert_eq!((latency["requests"].as_u64(), latency["failed"].as_u64()), (Some(60), Some(0)));
    assert!(latency["requests_per_s"].as_f64().unwrap() > 1.0);
    let percentiles = latency["percentiles"].as_array().unwrap();
    assert!(percentiles.iter().any(|p| p["percent"] == 99.0 && p["latency_s"].as_f64().unwrap() > 0.0));
    // 3 MB while warming up, 30 under load: idle begins with all of them.
    let results: Value =
        serde_json::from_str(&std::fs::read_to_string(server.scratch.path("out/compare.json")).unwrap())
            .unwrap();
    let quantities = &results["summary"]["allocators"][0]["quantities"];
    let median =
        |name: &str| quantities[name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {quantities}"));
    assert!(median("idle.rss_mean_bytes") > median("boot.rss_peak_bytes") + 30e6);
    assert!((0.4..3.0).contains(&median("idle.wall_s")));
    assert!(median("load.page_faults") > 5000.0 && median("idle.page_faults") < median("load.page_faults"));
    assert!(median("latency_p99_s") >= median("latency_p50_s"));
    assert_eq!(median("requests_per_s"), latency["requests_per_s"].as_f64().unwrap());
    for (total, each) in [("cpu_s", "cpu_per_request_s"), ("page_faults", "page_faults_per_request")] {
        let (total, each) = (median(&format!("load.{total}")), median(&format!("load.{each}")));
        assert!((each * 60.0 - total).abs() < total * 1e-6, "{each} of {total}");
    }
    assert_eq!(results["settings"]["serving"]["load_count"], 60);
}

#[test]
fn ready_by_line_and_by_url() {
    let server = Server::new();
    server.compare(&["--ready", "line:Listening on", "--idle", "200ms"], "").expect_code(0);
    assert_eq!(phases(&server.run()), ["boot", "idle"]);
    let options = ["--ready", "http://127.0.0.1:PORT/missing", "--load-for", "300ms", "--idle", "0s"];
    server.compare(&options, "").expect_code(0);
    let run = server.run();
    assert_eq!(phases(&run), ["boot", "load"]);
    assert!(run["latency"]["requests"].as_u64().unwrap() > 5);
    assert!((0.3..2.0).contains(
        &(run["phases"][1]["end_s"].as_f64().unwrap() - run["phases"][1]["start_s"].as_f64().unwrap())
    ));
    // A server that answers with 500 is not ready.
    let options = ["--ready", "http://127.0.0.1:PORT/error", "--ready-timeout", "700ms"];
    server.compare(&options, "").expect_code(1).expect_stderr("not ready after 0.7 s");
    server.expect_gone();
}

#[test]
fn a_command_makes_the_load_and_is_not_measured() {
    let server = Server::new();
    let hog =
        "/usr/bin/python3 -c \"import time, urllib.request; hog = bytearray(200 << 20); time.sleep(0.4); \
               urllib.request.urlopen('http://127.0.0.1:PORT/grow').read()\"; echo snug-metric: pages=7"
            .replace("PORT", &server.port.to_string());
    server.compare(&["--ready", "PORT", "--load", &hog, "--idle", "200ms"], "").expect_code(0);
    let run = server.run();
    assert_eq!(phases(&run), ["boot", "load", "idle"]);
    assert!(run["memory"]["rss_peak_bytes"].as_f64().unwrap() < 100e6, "the load's 200 MB do not count");
    assert_eq!(run["processes_seen"], 1);
    assert_eq!(run["metrics"]["pages"], 7.0);
    assert!(run["cpu_user_s"].as_f64().unwrap() < 5.0);

    // As long as asked, however often that is; what runs then is stopped.
    let load = "echo again; sleep 0.1";
    server
        .compare(&["--ready", "PORT", "--load", load, "--load-for", "500ms", "--idle", "0s"], "")
        .expect_code(0);
    let log = std::fs::read_to_string(server.scratch.path("out/logs/1-glibc.load.stdout")).unwrap();
    assert!((2..=6).contains(&log.lines().count()), "{log}");

    let failing = ["--ready", "PORT", "--load", "echo why it failed >&2; exit 4"];
    server
        .compare(&failing, "")
        .expect_code(1)
        .expect_stderr("the load exited with code 4")
        .expect_stderr("why it failed");
    server.expect_gone();
}

#[test]
fn failed_requests_fail_the_run() {
    let server = Server::new();
    let call = |more: &[&str]| {
        let options =
            ["--ready", "PORT", "--requests", "10", "--path", "/", "--path", "/missing", "--idle", "0s"];
        server.compare(&[&options[..], more].concat(), "")
    };
    call(&[])
        .expect_code(1)
        .expect_stderr("5 of 10 requests failed")
        .expect_stderr("GET /missing: status 404");
    call(&["--allow-status", "404,500"]).expect_code(0);
    assert_eq!(server.run()["latency"]["failed"], 0);
    let dies = ["--ready", "PORT", "--requests", "10", "--path", "/die"];
    server.compare(&dies, "").expect_code(1).expect_stderr("the server exited with code 9 in the load phase");
    server.expect_gone();
}

#[test]
fn lines_of_the_load_are_columns() {
    let server = Server::new();
    let call = |lines: &str, options: &[&str]| {
        let load = format!("printf '{lines}'");
        let fixed = [
            "--with",
            "glibc,glibc:MALLOC_ARENA_MAX=2",
            "--ready",
            "PORT",
            "--load",
            &load,
            "--idle",
            "100ms",
        ];
        server.compare(&[&fixed, options].concat(), "")
    };
    let lines = r"snug-metric: p99_ms=3.5\nsnug-metric: requests_per_s=1200.5\nsnug-metric: errors=0\n";
    let rate = ["--fail-if", "glibc.requests_per_s > 1000", "--fail-if", "glibc.metric.p99_ms > 3 ms"];
    let answer = call(lines, &rate).expect_code(4).expect_stderr("holds: 1200 > 1000");
    assert!(answer.stdout.contains("requests_per_s") && answer.stdout.contains("p99_ms"), "{answer:#?}");
    assert_eq!(server.run()["metrics"]["requests_per_s"], 1200.5);
    assert!(server.scratch.path("out/frontier.svg").exists());
    call(r"snug-metric: errors=2\n", &[]).expect_code(1).expect_stderr("reported 2 errors");
    server.expect_gone();
}

/// Bytes that are kept of a log at most.
const LOG_BYTES: u64 = 20_000_000;

/// Writes a line of so many bytes.
fn noise(bytes: u32) -> String {
    format!("{{ head -c {bytes} /dev/zero | tr '\\0' x; echo; }}")
}

#[test]
fn the_log_of_a_load_that_runs_again_and_again_is_bounded() {
    let server = Server::new();
    let noise = noise(12_000_000);
    let load = format!("{noise}; {noise} >&2; echo snug-metric: pages=7; sleep 0.2");
    let options = ["--ready", "PORT", "--load", &load, "--load-for", "2s", "--warmup", "1", "--idle", "0s"];
    server.compare(&options, "").expect_code(0);
    assert_eq!(server.run()["metrics"]["pages"], 7.0);
    for ending in ["stdout", "stderr"] {
        let log = std::fs::read(server.scratch.path(&format!("out/logs/1-glibc.load.{ending}"))).unwrap();
        assert!(log.len() as u64 <= LOG_BYTES, "{ending}: {} bytes", log.len());
        assert!(!log.contains(&0), "{ending} has a hole");
        assert!(String::from_utf8(log).unwrap().contains("[snug: "), "{ending}");
    }
}

#[test]
fn the_log_of_a_load_is_whole_though_the_server_ended() {
    let server = Server::new();
    let die = format!("urllib.request.urlopen('http://127.0.0.1:{}/die')", server.port);
    let die = format!("/usr/bin/python3 -c \"import urllib.request; {die}\"");
    let load = format!("{}; sleep 1; {die}; sleep 60", noise(40_000_000));
    let answer = server.compare(&["--ready", "PORT", "--load", &load, "--idle", "0s"], "");
    answer.expect_code(1).expect_stderr("in the load phase");
    let log = std::fs::read(server.scratch.path("out/logs/1-glibc.load.stdout")).unwrap();
    assert!(log.len() as u64 <= LOG_BYTES && !log.contains(&0), "{} bytes", log.len());
}

#[test]
fn servers_that_do_not_come_up() {
    let server = Server::new();
    server
        .compare(&["--ready", "PORT"], "exit")
        .expect_code(1)
        .expect_stderr("exited with code 3 before it was ready")
        .expect_stderr("the cause of it");
    server
        .compare(&["--ready", "PORT", "--ready-timeout", "500ms"], "slow")
        .expect_code(1)
        .expect_stderr("not ready after 0.5 s")
        .expect_stderr("accepted no connection");
    server.expect_gone();
    let shell = |timeout: &str, script: &str| {
        let options =
            ["--with", "glibc", "--runs", "1", "--ready", "line:ready.", "--ready-timeout", timeout];
        let out = server.scratch.text("shell");
        let command = ["--out", &out, "--force", "--", "sh", "-c", script];
        run(snug(&["compare"]).args(options).args(command)).expect_code(1)
    };
    shell("1s", "echo ' -------------- celery@host v5.2.6'; exec sleep 30")
        .expect_stderr("add -l info to its command");
    shell("30s", "sleep 2 & exit 0")
        .expect_stderr("did it go into the background? Keep it in the foreground");
    let taken = TcpListener::bind(("127.0.0.1", server.port)).unwrap();
    server.compare(&["--ready", "PORT"], "").expect_code(1).expect_stderr("something was listening on");
    drop(taken);
}

#[test]
fn servers_that_do_not_end() {
    let server = Server::new();
    let options = ["--ready", "PORT", "--idle", "0s", "--grace", "300ms"];
    server.compare(&options, "stubborn").expect_code(0).expect_stdout("did not end within 0.3 s of SIGTERM");
    server.expect_gone();
    server.compare(&options, "child").expect_code(0);
    server.expect_gone();
}

#[test]
fn the_allocator_is_loaded_into_servers_but_not_into_the_load() {
    let library = need!(jemalloc_library());
    let server = Server::new();
    let load = "test -z \"$LD_PRELOAD\"";
    server
        .compare(&["--ready", "PORT", "--with", &library, "--load", load, "--idle", "100ms"], "")
        .expect_code(0);
    assert_eq!(server.run()["evidence"]["processes_loaded"], 1);
}

#[test]
fn interruption_stops_server_and_load() {
    let server = Server::new();
    let mut command =
        server.command(&["--ready", "PORT", "--load", "sleep 6161.PORT & sleep 6161.PORT"], "child");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let load = format!("sleep 6161.{}", server.port);
    common::eventually("the load runs", || common::process_runs(&load));
    std::thread::sleep(Duration::from_millis(100));
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    server.expect_gone();
    assert!(!common::process_exists(&load));
}

#[test]
fn nothing_is_left_of_a_comparison_that_was_killed() {
    let server = Server::new();
    let mut command = server.command(&["--ready", "PORT", "--load", "sleep 7171.PORT & sleep 7171.PORT"], "");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let load = format!("sleep 7171.{}", server.port);
    common::eventually("the load runs", || common::process_runs(&load));
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    child.wait().unwrap();
    common::eventually("the load ends", || !common::process_exists(&load));
    common::eventually("the server ends", || !common::process_exists(&server.scratch.text("server.py")));
}

#[test]
fn a_server_that_is_compared_like_a_program_gets_a_hint() {
    let scratch = Scratch::new();
    let serve = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)";
    let output = File::create(scratch.path("stderr")).unwrap();
    let mut child =
        snug(&["compare", "--with", "glibc", "--out", &scratch.text("out"), "--", "python3", "-c", serve])
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
    let told = || std::fs::read_to_string(scratch.path("stderr")).unwrap();
    common::eventually("the hint", || told().contains("hint: the program waits for connections"));
    common::signal(&child.id().to_string(), "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
