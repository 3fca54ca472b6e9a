//! `snug leak` with requests of its own: servers that leak, that are only partly well, and that never answer.

mod common;

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{free_port, run, snug, snug_library, Running, Scratch, SERVER};
use serde_json::Value;

fn start(program: &str, arguments: &[&str]) -> Running {
    Running(Command::new(program).args(arguments).stdout(Stdio::null()).spawn().unwrap())
}

fn script(scratch: &Scratch) -> String {
    std::fs::write(scratch.path("server.py"), SERVER).unwrap();
    scratch.text("server.py")
}

/// A watch of a server that keeps 20 kB for every second request.
fn watch_leaking_server(library: &str, watch_for: &str) -> Value {
    let scratch = Scratch::new();
    let (script, port) = (script(&scratch), free_port().to_string());
    let url = format!("http://127.0.0.1:{port}");
    let mut arguments = vec!["leak", "--json", "--for", watch_for, "--interval", "20ms", "--url", &url];
    arguments.extend(["--path", "/keep", "--path", "/", "--concurrency", "2"]);
    arguments.extend(["--", "/usr/bin/python3", &script, &port]);
    let answer = run(snug(&arguments).env("SNUG_LIBRARY", library)).expect_code(0);
    assert!(!answer.stderr.contains("requests failed"), "it was only starting: {answer:#?}");
    assert!(!common::process_exists(&script), "the server is still there");
    answer.json()
}

#[test]
fn a_leak_is_told_per_request() {
    let library = snug_library();
    // On a busy machine the server starts late and works irregularly.
    let mut reports = ["6s", "20s"].into_iter().map(|watch_for| watch_leaking_server(&library, watch_for));
    let report = reports.find(|report| report["verdict"] == "leak").expect("it leaks");
    let answer = report["answer"].as_str().unwrap();
    assert!(answer.contains(" per request"), "{answer}");
    let per_request = report["growth"]["bytes_per_request"].as_f64().unwrap();
    assert!((8e3..13e3).contains(&per_request), "{answer}");
    assert_eq!(report["request_unit"], "request");
    let load = &report["load"];
    assert_eq!((load["paths"][0].as_str(), load["concurrency"].as_u64()), (Some("/keep"), Some(2)), "{load}");
    assert_eq!((load["command"].is_null(), load["failed"].as_u64()), (true, Some(0)), "{load}");
    assert!(load["succeeded"].as_f64() >= report["requests"].as_f64(), "{load}");
}

#[test]
fn a_running_server_is_asked_and_left_alone_and_failures_are_told() {
    let scratch = Scratch::new();
    let (script, port) = (script(&scratch), free_port().to_string());
    let mut server = start("/usr/bin/python3", &[&script, &port]);
    let address = format!("127.0.0.1:{port}");
    common::eventually("the server listens", || TcpStream::connect(&address).is_ok());
    let url = format!("http://{address}/");
    let pid = server.pid();
    let watch = ["leak", "--json", "--for", "4s", "--interval", "20ms", "--url", &url];
    let missing = ["--path", "/", "--path", "/missing"];
    let answer = run(&mut snug(&[&watch[..], &missing, &[&pid]].concat())).expect_code(0);
    let answer = answer.expect_stderr("requests failed; the first: GET /missing: status 404 Not Found");
    let report = answer.json();
    assert_ne!(report["verdict"], "leak", "{}", report["answer"]);
    let (made, failed) = (report["requests"].as_f64().unwrap(), report["load"]["failed"].as_f64().unwrap());
    assert!(made > 10.0 && failed > 10.0, "{made} {failed}: failures do not end the load");
    assert!(report["notes"][0].as_str().unwrap().contains("/missing"), "{}", report["notes"]);
    // What is allowed is no failure, and another count takes the place of ours.
    let allowed = ["--allow-status", "404", "--requests-from", "echo 7"];
    let answer = run(&mut snug(&[&watch[..], &missing, &allowed, &[&pid]].concat())).expect_code(0);
    assert!(!answer.stderr.contains("failed"), "{answer:#?}");
    let report = answer.json();
    assert_eq!(report["series"]["requests"][0], 7.0);
    assert!(report["load"]["succeeded"].as_u64().unwrap() > 10);
    assert!(server.0.try_wait().unwrap().is_none(), "it still runs");
}

#[test]
fn a_server_that_never_answers_proves_nothing() {
    let sleeper = start("sleep", &["60"]);
    let pid = sleeper.pid();
    let watch = |url: &str| {
        let steady = ["leak", "--for", "5s", "--interval", "20ms", "--tolerance-percent", "50", "--url", url];
        run(&mut snug(&[&steady[..], &[&pid]].concat())).expect_code(0)
    };
    // Port 1 is given to nobody, unlike one that was free a moment ago.
    watch("http://127.0.0.1:1/up")
        .expect_stdout("Not enough data: memory does not grow, but none of ")
        .expect_stdout("requests succeeded; the first: GET /up: ")
        .expect_stderr("refused");
    // This one lets clients wait.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    watch(&format!("http://{}/", silent.local_addr().unwrap()))
        .expect_stdout("Not enough data: memory does not grow, but no request was answered");
}

#[test]
fn interruption_does_not_wait_for_answers() {
    let scratch = Scratch::new();
    let port = free_port();
    // Accepts nobody: the kernel does, up to the backlog.
    let silent = "import socket, sys, time
held = socket.create_server(('127.0.0.1', int(sys.argv[1])))
time.sleep(4646)";
    std::fs::write(scratch.path("silent.py"), silent).unwrap();
    let (script, port_text) = (scratch.text("silent.py"), port.to_string());
    let url = format!("http://127.0.0.1:{port}");
    let arguments = ["leak", "--with", "glibc", "--url", &url, "--", "/usr/bin/python3", &script, &port_text];
    let child = snug(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    common::eventually("the program runs", || common::process_exists(&script));
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    common::signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Those that were sent before it listened were refused.
    assert!(stderr.contains("no request was answered") || stderr.contains("refused"), "{output:?}");
    assert!(begin.elapsed() < Duration::from_secs(50), "a request may take a minute: {:?}", begin.elapsed());
    assert!(!common::process_exists(&script));
}

#[test]
fn the_end_of_the_program_ends_the_watch() {
    let scratch = Scratch::new();
    let (script, port) = (script(&scratch), free_port().to_string());
    let url = format!("http://127.0.0.1:{port}/");
    let ends = format!("timeout 8 /usr/bin/python3 {script} {port}; exit 0");
    let arguments =
        ["leak", "--json", "--with", "glibc", "--for", "60s", "--interval", "20ms", "--url", &url, "--"];
    let begin = Instant::now();
    let answer = run(&mut snug(&[&arguments[..], &["sh", "-c", &ends]].concat())).expect_code(0);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(answer.json()["requests"].as_f64().unwrap() > 0.0, "{answer:#?}");
}

#[test]
fn a_server_that_is_there_already_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    run(&mut snug(&["leak", "--with", "glibc", "--url", &url, "--", "sleep", "1"]))
        .expect_code(2)
        .expect_stderr("something was listening on");
}
