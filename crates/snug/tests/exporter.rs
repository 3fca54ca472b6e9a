//! `snug exporter` as its peers see it: what it answers, and that none of them keeps it from answering others.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{eventually, snug, Running};

struct Exporter {
    _process: Running,
    address: String,
}

impl Exporter {
    /// Of the process of the test. It may open so many files, sockets included.
    fn start(descriptors: u32) -> Exporter {
        let own = std::process::id().to_string();
        let snug = snug(&["exporter", "--listen", "127.0.0.1:0", "--cache", "0s", "--pid", &own]);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $0; exec \"$@\"", &descriptors.to_string()]);
        command.arg(snug.get_program()).args(snug.get_args()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = Running(command.spawn().unwrap());
        let stderr = BufReader::new(process.0.stderr.take().unwrap());
        let place = |line: String| Some(line.split_once("http://")?.1.strip_suffix("/metrics")?.to_string());
        let address = stderr.lines().map_while(Result::ok).find_map(place).expect("it says where it listens");
        Exporter { _process: process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Head and text of what it answers; empty if it does not.
    fn ask(&self, method: &str, target: &str) -> (String, String) {
        let mut stream = self.connect();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (head.to_string(), text.to_string())
    }

    fn answers(&self) -> bool {
        let (head, text) = self.ask("GET", "/metrics");
        head.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nsnug_exporter_processes ")
    }
}

#[test]
fn every_request_has_its_answer() {
    let exporter = Exporter::start(1024);
    let (text, page) = ("text/plain; version=0.0.4; charset=utf-8", "text/html; charset=utf-8");
    for (method, target, status, content_type, begin) in [
        ("GET", "/metrics", "200 OK", text, "# HELP snug_"),
        ("GET", "/metrics?name=x", "200 OK", text, "# HELP snug_"),
        ("HEAD", "/metrics", "200 OK", text, ""),
        ("GET", "/", "200 OK", page, "<!doctype html>"),
        ("HEAD", "/", "200 OK", page, ""),
        ("GET", "/other", "404 Not Found", text, "not found; metrics are at /metrics\n"),
        ("POST", "/metrics", "405 Method Not Allowed", text, "only GET\n"),
    ] {
        let (head, answered) = exporter.ask(method, target);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{method} {target}: {head}");
        assert!(head.contains(&format!("\r\nContent-Type: {content_type}\r\n")), "{method} {target}: {head}");
        assert!(answered.starts_with(begin), "{method} {target}: {answered}");
        assert_eq!(answered.is_empty(), method == "HEAD", "{method} {target}: {answered}");
    }
}

#[test]
fn peers_that_ask_nothing_do_not_stop_it() {
    let exporter = Exporter::start(64);
    let idle: Vec<TcpStream> = (0..40).map(|_| exporter.connect()).collect();
    assert!(exporter.answers());
    drop(idle);
}

#[test]
fn it_survives_that_it_has_no_descriptor() {
    let exporter = Exporter::start(20);
    let idle: Vec<TcpStream> = (0..40).map(|_| exporter.connect()).collect();
    // The answer may be that it can't read anything now.
    exporter.ask("GET", "/metrics");
    drop(idle);
    eventually("it answers again", || exporter.answers());
}
