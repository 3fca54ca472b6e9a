//! `snug profile --push` against a stand-in for Pyroscope: what arrives, and what is said when it is not taken.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{run, snug, snug_library, Answer, Running, Scratch};

/// Keeps 20 MB of one function and frees 20 MB of another.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *volatile kept[5000];
__attribute__((noinline)) void *keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
__attribute__((noinline)) void *drops(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
int main(void) {
  for (int i = 0; i < 5000; i++) kept[i] = keeps();
  for (int i = 0; i < 5000; i++) { void *volatile p = drops(); free(p); }
}
"#;

/// Keeps what it allocates, 12 MB a second, until it is killed.
const ENDLESS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void *keeps(void) { void **p = malloc(4000); memset(p, 1, 4000); return p; }
int main(void) {
  static void *volatile kept;
  puts("ready");
  fflush(stdout);
  for (;; usleep(1000)) {
    for (int i = 0; i < 3; i++) kept = keeps();
  }
}
"#;

/// Serves https on the port that it prints, with the certificate in its folder.
const HTTPS: &str = r#"
import http.server, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        good = self.path.startswith("/ingest?") and "format=pprof" in self.path
        self.send_response(200 if good else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *arguments):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
class Server(http.server.ThreadingHTTPServer):
    def finish_request(self, request, address):
        with context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, address)
    def handle_error(self, request, address):
        pass
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// What the server got.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    query: BTreeMap<String, String>,
    headers: String,
    body: Vec<u8>,
}

struct FakePyroscope {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl FakePyroscope {
    /// Answers all with this until the test ends.
    fn start(status: u16, header: &str, text: &'static str) -> FakePyroscope {
        let server = tiny_http::Server::http("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.server_addr());
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        let header: tiny_http::Header = header.parse().unwrap();
        std::thread::spawn(move || {
            for mut request in server.incoming_requests() {
                let mut body = Vec::new();
                request.as_reader().read_to_end(&mut body).unwrap();
                let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let headers = request.headers().iter().map(|header| format!("{header}\n").to_lowercase());
                log.lock().unwrap().push(Received {
                    path: path.into(),
                    query: pairs.map(|(name, value)| (name.into(), decoded(value))).collect(),
                    headers: headers.collect(),
                    body,
                });
                let answer = tiny_http::Response::from_string(text).with_header(header.clone());
                let _ = request.respond(answer.with_status_code(status));
            }
        });
        FakePyroscope { url, received }
    }

    fn takes_all() -> FakePyroscope {
        FakePyroscope::start(200, "Content-Type: text/plain", "")
    }

    /// The only thing that it got.
    fn only(&self) -> Received {
        let received = self.received.lock().unwrap();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }
}

/// A value of a query without its percent signs.
fn decoded(value: &str) -> String {
    let mut bytes = value.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            b'+' => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap()
}

/// Fields of a message of protocol buffers: number, and its value or its bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a number ends") + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        let mut inside: &[u8] = &[];
        match key & 7 {
            0 => {}
            2 => (inside, bytes) = bytes.split_at(value as usize),
            kind => panic!("no field of kind {kind} is expected"),
        }
        found.push((key >> 3, value, inside));
    }
    found
}

fn first<'a>(message: &[(u64, u64, &'a [u8])], number: u64) -> (u64, &'a [u8]) {
    message.iter().find(|field| field.0 == number).map_or((0, &[]), |field| (field.1, field.2))
}

fn numbers(packed: &[u8]) -> Vec<u64> {
    let (mut all, mut value, mut shift) = (Vec::new(), 0, 0);
    for byte in packed {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            all.push(value);
            (value, shift) = (0, 0);
        }
    }
    all
}

/// What a profile in the format of pprof says: the types of its values, when it began in s, and for each sample the
/// functions, the innermost first, with its two values.
type Profile = (Vec<(String, String)>, u64, Vec<(Vec<String>, u64, u64)>);

fn parse(profile: &[u8]) -> Profile {
    let message = fields(profile);
    let all =
        |number: u64| message.iter().filter(move |field| field.0 == number).map(|field| fields(field.2));
    let texts: Vec<&str> = message
        .iter()
        .filter(|field| field.0 == 6)
        .map(|field| std::str::from_utf8(field.2).unwrap())
        .collect();
    let text = |number: u64| texts[number as usize].to_string();
    let types = all(1).map(|kind| (text(first(&kind, 1).0), text(first(&kind, 2).0))).collect();
    let functions: BTreeMap<u64, String> =
        all(5).map(|function| (first(&function, 1).0, text(first(&function, 2).0))).collect();
    let locations: BTreeMap<u64, String> = all(4)
        .map(|location| {
            let line = fields(first(&location, 4).1);
            (first(&location, 1).0, functions[&first(&line, 1).0].clone())
        })
        .collect();
    let samples = all(2).map(|sample| {
        let frames = numbers(first(&sample, 1).1).iter().map(|id| locations[id].clone()).collect();
        let values = numbers(first(&sample, 2).1);
        assert_eq!(values.len(), 2);
        (frames, values[0], values[1])
    });
    (types, first(&message, 9).0 / 1_000_000_000, samples.collect())
}

/// Profiles the program and pushes it to this URL.
fn push(program: &str, url: &str, more: &[&str]) -> Answer {
    let library = snug_library().unwrap();
    let first = ["profile", "--mean-bytes", "16384", "--push", url];
    let mut command = snug(&first);
    command.args(more).args(["--", program]).env("SNUG_LIBRARY", library).env_remove("SNUG_PUSH_TOKEN");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    run(&mut command)
}

#[test]
fn what_arrives_is_what_is_shown() {
    if snug_library().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("my program", PROGRAM, &[]);
    for (view, of_view) in [("grown", "inuse"), ("allocated", "alloc")] {
        let server = FakePyroscope::takes_all();
        let answer = push(&program, &server.url, &["--json", "--view", view]).expect_code(0);
        let received = server.only();
        assert_eq!(received.path, "/ingest");
        let wanted = format!("my_program{{view={view}}}");
        assert_eq!((&received.query["name"], &*received.query["format"]), (&wanted, "pprof"));
        let answer = answer.expect_stderr(&format!("sent to {}: {wanted}, ", server.url));
        assert_eq!(&received.body[..2], [0x1f, 0x8b], "it is compressed by gzip");
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(&*received.body).read_to_end(&mut profile).unwrap();
        let (types, began_s, samples) = parse(&profile);
        let type_of = |what: &str, unit: &str| (format!("{of_view}_{what}"), unit.to_string());
        assert_eq!(types, [type_of("objects", "count"), type_of("space", "bytes")]);
        let times = ["from", "until"].map(|name| received.query[name].parse::<u64>().unwrap());
        assert_eq!(began_s, times[0]);
        assert!(times[0] > 1_700_000_000 && times[1] > times[0], "{times:?}");
        let json = answer.json();
        let sites = json["sites"].as_array().unwrap();
        let shown: Vec<_> = sites
            .iter()
            .map(|site| {
                let frames = site["frames"].as_array().unwrap().iter();
                let functions = frames.map(|frame| frame["function"].as_str().unwrap().to_string());
                let value = |name: &str| site[name].as_f64().unwrap().round() as u64;
                (functions.collect::<Vec<_>>(), value("blocks"), value("bytes"))
            })
            .collect();
        assert_eq!(samples, shown);
        let of = |name: &str| -> u64 {
            samples.iter().filter(|sample| sample.0[0] == name).map(|sample| sample.2).sum()
        };
        // Both allocate 20 MB, and some 1,200 samples of each tell it within a few percent.
        assert!((14_000_000..28_000_000).contains(&of("keeps")), "{samples:?}");
        assert_eq!(of("drops") > 14_000_000, view == "allocated", "{samples:?}");
    }
}

#[test]
fn its_name_its_place_and_how_it_is_let_in() {
    if snug_library().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    std::fs::write(scratch.path("token"), "secret\n").unwrap();
    std::fs::write(scratch.path("pair"), "anna:opens\n").unwrap();
    let server = FakePyroscope::takes_all();
    let url = format!("{}/profiles/ingest/", server.url);
    let name = "shop/web{env=a&b c+d%20,region=eu}";
    push(&program, &url, &["--push-name", name, "--bearer-token-file", &scratch.text("token")])
        .expect_code(0);
    let received = server.only();
    assert_eq!(received.path, "/profiles/ingest");
    assert_eq!(received.query["name"], "shop/web{env=a&b c+d%20,region=eu,view=peak}");
    assert!(received.headers.contains("authorization: bearer secret\n"), "{received:?}");
    let server = FakePyroscope::takes_all();
    push(&program, &server.url, &["--basic-auth-file", &scratch.text("pair")]).expect_code(0);
    let received = server.only();
    assert!(received.headers.contains("authorization: basic yw5uytpvcgvucw==\n"), "{received:?}");
    assert_eq!(received.query["name"], "program{view=peak}");
}

#[test]
fn a_process_that_runs_is_sent_by_its_name() {
    let Some(library) = snug_library() else { return };
    let scratch = Scratch::new();
    let program = scratch.compile("endless", ENDLESS, &[]);
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", &library).env_remove("SNUG").stdout(Stdio::piped());
    let mut process = Running(command.spawn().unwrap());
    process.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let server = FakePyroscope::takes_all();
    let pid = process.pid();
    let words = [
        "profile",
        &pid,
        "--for",
        "1s",
        "--mean-bytes",
        "16384",
        "--view",
        "allocated",
        "--push",
        &server.url,
    ];
    run(snug(&words).env("SNUG_PUSH_TOKEN", " of-the-environment ").env_remove("http_proxy"))
        .expect_code(0)
        .expect_stdout("keeps");
    let received = server.only();
    assert_eq!(received.query["name"], "endless{view=allocated}");
    assert!(received.headers.contains("authorization: bearer of-the-environment\n"), "{received:?}");
}

#[test]
fn servers_that_do_not_take_it() {
    if snug_library().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    let refuses = |status: u16, header: &str, text: &'static str| {
        let server = FakePyroscope::start(status, header, text);
        // The profile is shown all the same.
        push(&program, &server.url, &[]).expect_code(1).expect_stdout("keeps (program)")
    };
    let json = "Content-Type: application/json";
    refuses(400, json, "{\"code\":\"invalid_argument\",\"message\":\"bad profile\"}\nmore").expect_stderr(
        "refuses the profile: 400 Bad Request: {\"code\":\"invalid_argument\",\"message\":\"bad profile\"}\n",
    );
    refuses(401, json, "").expect_stderr("refused our credentials: 401").expect_stderr("--bearer-token-file");
    refuses(404, json, "404 page not found")
        .expect_stderr("does not take profiles there: 404 Not Found: 404 page not found")
        .expect_stderr("before /ingest");
    refuses(302, "Location: http://127.0.0.1:1/", "").expect_stderr("302").expect_stderr("login page");
    refuses(429, json, "slow down")
        .expect_stderr("429 Too Many Requests: slow down")
        .expect_stderr("less often");
    refuses(500, json, "").expect_stderr("refuses the profile: 500");
    refuses(200, "Content-Type: text/html; charset=utf-8", "<html>Grafana")
        .expect_stderr("does not answer as Pyroscope does: 200 OK: <html>Grafana");
    push(&program, &format!("http://127.0.0.1:{}", common::free_port()), &[])
        .expect_code(1)
        .expect_stdout("keeps (program)")
        .expect_stderr("cannot send the profile to http://127.0.0.1:")
        .expect_stderr("4040");
}

#[test]
fn what_makes_no_sense_is_said_before_the_measurement() {
    let own = std::process::id().to_string();
    let bad = |url: &str, more: &[&str], message: &str| {
        let words = ["profile", &own, "--for", "1d", "--push", url];
        run(snug(&words).args(more)).expect_code(2).expect_stderr(message);
    };
    bad("pyroscope:4040", &[], "--push http://pyroscope:4040");
    bad("ftp://pyroscope", &[], "no URL of a server");
    bad("http://pyroscope:4040/?a=b", &[], "no URL of a server");
    bad("http://pyroscope:4040", &["--ca-file", "/dev/null"], "--ca-file is for https");
    bad("https://pyroscope:4040", &["--ca-file", "/dev/null"], "holds no certificate");
    bad("http://pyroscope:4040", &["--bearer-token-file", "/nonexistent"], "cannot read /nonexistent");
    bad("http://pyroscope:4040", &["--push-name", "my shop"], "letters, digits");
    bad("http://pyroscope:4040", &["--push-name", "shop{env}"], "write env=VALUE");
    bad("http://pyroscope:4040", &["--black-box", "."], "cannot be used with");
    run(&mut snug(&["profile", &own, "--push-name", "shop"])).expect_code(2).expect_stderr("--push <URL>");
}

/// An authority of its own, and a certificate of 127.0.0.1 that it signed.
fn certificates(scratch: &Scratch) {
    std::fs::write(scratch.path("names"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for line in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=tests"),
        format!("req {key} -keyout server.key -out server.csr -subj /CN=127.0.0.1"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem"
            .into(),
    ] {
        let output = Command::new("openssl").args(line.split(' ')).current_dir(&scratch.0).output();
        let output = output.expect("openssl is needed: apt install openssl");
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

#[test]
fn https_with_an_authority_of_ones_own() {
    if snug_library().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    certificates(&scratch);
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-c", HTTPS]).current_dir(&scratch.0).stdout(Stdio::piped());
    let mut server = Running(server.spawn().expect("python3 is needed: apt install python3"));
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = format!("https://127.0.0.1:{}", port.trim());
    push(&program, &url, &["--ca-file", &scratch.text("ca.pem")])
        .expect_code(0)
        .expect_stderr("sent to https://");
    push(&program, &url, &[]).expect_code(1).expect_stderr("cannot send").expect_stderr("--ca-file");
    push(&program, &url.replace("https", "http"), &[]).expect_code(1);
}
