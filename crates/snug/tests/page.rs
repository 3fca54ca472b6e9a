//! The HTML report and the flame graph in a real browser: nothing is asked of the network, nothing is complained about on the console,
//! the plots are there and fit, by day and by night, on a desk and on a telephone.

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{run, snug, snug_library, Running, Scratch};
use serde_json::Value;
use snug_base::need;

const SAVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server.json");

/// What a script at the end of the page sees; it becomes the text of an element that is added.
const LOOK: &str = r##"<script>
const seen = (element) => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
const plots = [...document.querySelectorAll('.picture svg')].filter(seen);
const memory = document.querySelector('#memory');
const shown = [...memory.querySelectorAll('.picture svg')].find(seen);
const box = shown.getBoundingClientRect();
shown.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 50 }));
const readout = memory.querySelector('.readout');
const entry = memory.querySelector('.legend tr[data-series]');
entry.click();
const result = {
  widths: plots.map((plot) => Math.round(plot.getBoundingClientRect().width)),
  lines: plots.map((plot) => plot.querySelectorAll('polyline.main').length),
  marks: plots.map((plot) => plot.querySelectorAll('.mark').length),
  bands: [...shown.querySelectorAll('text')].map((text) => text.textContent),
  readout: readout ? readout.innerText : '',
  hidden: shown.querySelectorAll('g.series.away').length,
  loads: performance.getEntriesByType('resource').length,
  cut: [...document.querySelectorAll('#table .scroll, #phases .scroll')].filter(seen).map((part) => part.scrollWidth - part.clientWidth),
  page: document.documentElement.scrollWidth, window: innerWidth,
  paper: getComputedStyle(document.body).backgroundColor,
};
const output = document.createElement('output');
output.id = 'seen';
output.textContent = JSON.stringify(result);
document.body.append(output);
</script></body>"##;

/// A program whose function `keeps` keeps nearly all that it allocates, and `drops` nothing.
const KEEPS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *keeps(void) { return malloc(4000); }
__attribute__((noinline)) void *drops(void) { return malloc(9000); }
int main(void) {
  static void *volatile kept;
  puts("ready");
  fflush(stdout);
  for (;; usleep(1000)) for (int i = 0; i < 10; i++) { kept = keeps(); void *volatile p = drops(); free(p); }
}
"#;

/// What a script at the end of a flame graph does and sees.
const LOOK_AT_FLAME: &str = r##"<script>
const frames = () => [...document.querySelectorAll('.graph button')];
const named = (name) => frames().find((frame) => frame.textContent.split(/[ (]/)[0] === name);
const width = (frame) => Math.round(frame.getBoundingClientRect().width);
const graph = document.querySelector('.graph');
const result = { all: frames()[0].textContent, same: width(frames()[0]) === Math.round(graph.clientWidth) };
result.kind = named('keeps').className;
const search = document.querySelector('#flame input');
search.value = 'KEEPS';
search.dispatchEvent(new Event('input'));
result.found = document.querySelector('.found').textContent;
result.matches = frames().filter((frame) => frame.classList.contains('match')).length;
search.value = '';
search.dispatchEvent(new Event('input'));
const before = frames().length;
named('keeps').click();
result.widened = width(named('keeps')) === Math.round(graph.clientWidth) && named('main').classList.contains('above');
result.pointed = document.querySelector('.pointed').textContent;
document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
result.whole = frames().length === before && !document.querySelector('.above');
result.rows = document.querySelectorAll('.lines:not([hidden]) tbody tr').length;
const views = [...document.querySelectorAll('.views button')];
result.views = views.map((view) => view.textContent);
const lead = () => [...document.querySelectorAll('.lead')].filter((text) => text.offsetParent).map((text) => text.textContent).join('|');
const first = () => [...document.querySelectorAll('.graph button')].map((frame) => frame.title).join('|');
const [grownLead, grownFrames] = [lead(), first()];
const allocated = views.find((view) => view.textContent === 'allocated');
allocated.click();
result.allocated = [lead(), named('drops') !== undefined, first() !== grownFrames, allocated.getAttribute('aria-pressed')];
views[0].click();
result.back = lead() === grownLead && first() === grownFrames;
result.page = document.documentElement.scrollWidth;
result.window = innerWidth;
result.paper = getComputedStyle(document.body).backgroundColor;
const output = document.createElement('output');
output.id = 'seen';
output.textContent = JSON.stringify(result);
document.body.append(output);
</script></body>"##;

/// What the browser made of a page.
struct Visit {
    /// What the script saw; null if it did not run to its end.
    seen: Value,
    console: Vec<String>,
    /// First lines of what was asked of the network.
    requests: Vec<String>,
}

/// The browser.
fn chromium() -> Result<String, String> {
    let named = std::env::var("CHROMIUM").ok();
    let mut names = named.iter().map(String::as_str).chain(["chromium", "chromium-browser", "google-chrome"]);
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = names.find(works).map(String::from);
    found.ok_or("chromium is not installed".into())
}

/// Everything that would leave the browser goes to a proxy of ours, which answers nothing and remembers.
fn proxy() -> (u16, Arc<Mutex<Vec<JoinHandle<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let readers = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&readers);
    std::thread::spawn(move || {
        // Chromium opens connections that it never uses: each is read by itself, and asks for nothing.
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let reader = std::thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(stream).read_line(&mut line);
                line.trim().to_string()
            });
            kept.lock().unwrap().push(reader);
        }
    });
    (port, readers)
}

fn visit(chromium: &str, scratch: &Scratch, name: &str, page: &str, more: &[&str]) -> Visit {
    let file = scratch.path(&format!("{name}.html"));
    std::fs::write(&file, page).unwrap();
    let (port, readers) = proxy();
    let profile = format!("--user-data-dir={}", scratch.text(&format!("{name}-profile")));
    let output = Command::new("timeout")
        .args(["-k", "5", "60", chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--hide-scrollbars"])
        .args([&profile, &format!("--proxy-server=127.0.0.1:{port}"), "--proxy-bypass-list=<-loopback>"])
        .args(more)
        .args(["--virtual-time-budget=2000", "--dump-dom", &format!("file://{}", file.display())])
        .output()
        .expect("chromium can be started");
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let seen = dom.split_once("<output id=\"seen\">").and_then(|(_, rest)| rest.split_once("</output>"));
    let seen =
        seen.map_or(Value::Null, |(json, _)| serde_json::from_str(&json.replace("&amp;", "&")).unwrap());
    assert!(dom.contains("</html>"), "chromium gave no page: {log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(String::from).collect();
    // The browser asks its maker for things by itself, whatever it shows, and in spite of all options against it; which
    // hosts, depends on its version. What the page asks for it must name.
    std::thread::sleep(Duration::from_millis(200)); // its last connection may not be accepted yet
    let requests =
        std::mem::take(&mut *readers.lock().unwrap()).into_iter().map(|reader| reader.join().unwrap());
    let of_the_page = |line: &String| !line.is_empty() && page.contains(host(line));
    let requests = requests.filter(of_the_page).collect();
    Visit { seen, console, requests }
}

/// The host in `GET http://host/path HTTP/1.1` or `CONNECT host:443 HTTP/1.1`.
fn host(line: &str) -> &str {
    let target = line.split(' ').nth(1).unwrap_or_default();
    let target = target.strip_prefix("http://").unwrap_or(target);
    target.split(['/', ':']).next().unwrap_or_default()
}

fn report(files: &[&str]) -> String {
    let mut arguments = vec!["report"];
    arguments.extend(files);
    arguments.extend(["--html", "-"]);
    run(&mut snug(&arguments)).expect_code(0).stdout.replace("</body>", LOOK)
}

#[test]
fn the_page_is_whole_in_a_browser() {
    let chromium = need!(chromium());
    let scratch = Scratch::new();
    let page = report(&[SAVED]);
    let check = |name: &str, more: &[&str]| -> Value {
        let visit = visit(&chromium, &scratch, name, &page, more);
        assert!(visit.console.is_empty(), "{name}: {:?}", visit.console);
        assert!(visit.requests.is_empty(), "{name}: {:?}", visit.requests);
        let seen = visit.seen;
        assert_eq!(seen["lines"], serde_json::json!([4, 0, 4]), "{name}: {seen}");
        assert_eq!(seen["marks"], serde_json::json!([12, 4, 24]), "{name}: {seen}");
        let texts = seen["bands"].as_array().unwrap();
        assert!(["boot", "load", "idle"].iter().all(|phase| texts.contains(&Value::from(*phase))), "{seen}");
        let readout = seen["readout"].as_str().unwrap();
        assert!(readout.contains("snug") && readout.contains("MB") && readout.contains("at"), "{seen}");
        assert_eq!(seen["loads"], 0, "{name}: {seen}");
        assert_eq!(seen["hidden"], 1, "{name}: a click on the legend hides a line");
        assert!(
            seen["page"].as_u64() <= seen["window"].as_u64(),
            "{name}: nothing is wider than the page: {seen}"
        );
        seen
    };
    let wide = check("wide", &["--window-size=1280,900"]);
    let numbers = |seen: &Value, name: &str| {
        let numbers: Vec<u64> =
            seen[name].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect();
        assert!(!numbers.is_empty(), "{name}: {seen}");
        numbers
    };
    assert!(numbers(&wide, "widths").iter().all(|width| *width > 600), "{wide}");
    assert_eq!(wide["paper"], "rgb(255, 255, 255)");
    assert!(numbers(&wide, "cut").iter().all(|pixels| *pixels == 0), "a table is cut: {wide}");
    let narrow = check("narrow", &["--window-size=500,900"]);
    assert!(numbers(&narrow, "widths").iter().all(|width| *width > 300), "{narrow}");
    assert!(narrow["window"].as_u64() <= Some(520), "the window is narrow: {narrow}");
    let dark = check("dark", &["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"]);
    assert_eq!(dark["paper"], "rgb(22, 25, 29)");
}

#[test]
fn several_files_make_a_page_too() {
    let chromium = need!(chromium());
    let scratch = Scratch::new();
    let visit = visit(&chromium, &scratch, "two", &report(&[SAVED, SAVED]), &["--window-size=1280,900"]);
    assert!(
        visit.console.is_empty() && visit.requests.is_empty(),
        "{:?} {:?}",
        visit.console,
        visit.requests
    );
    assert_eq!(visit.seen["lines"], serde_json::json!([8, 0, 8]));
}

#[test]
fn a_flame_graph_is_whole_in_a_browser() {
    let chromium = need!(chromium());
    let library = snug_library();
    let scratch = Scratch::new();
    let mut command = Command::new(scratch.compile("program", KEEPS, &[]));
    let running = Running::when_ready(command.env("LD_PRELOAD", library).env_remove("SNUG"));
    let file = scratch.text("profile.html");
    let profile = ["profile", &running.pid(), "--for", "1s", "--mean-bytes", "16384", "--html", &file];
    run(&mut snug(&profile)).expect_code(0);
    let page = std::fs::read_to_string(file).unwrap().replace("</body>", LOOK_AT_FLAME);
    let papers = [
        ("flame-wide", &["--window-size=1280,900"][..], "rgb(255, 255, 255)"),
        ("flame-narrow", &["--window-size=500,900"], "rgb(255, 255, 255)"),
        (
            "flame-dark",
            &["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"],
            "rgb(22, 25, 29)",
        ),
    ];
    for (name, more, paper) in papers {
        let visit = visit(&chromium, &scratch, name, &page, more);
        assert!(
            visit.console.is_empty() && visit.requests.is_empty(),
            "{:?} {:?}",
            visit.console,
            visit.requests
        );
        let seen = visit.seen;
        assert_eq!((&seen["all"], &seen["kind"]), (&"all".into(), &"native".into()), "{name}: {seen}");
        assert_eq!(
            seen["views"],
            serde_json::json!(["grown", "kept", "live", "allocated", "peak"]),
            "{name}: {seen}"
        );
        let allocated = &seen["allocated"];
        assert!(allocated[0].as_str().unwrap().contains(" allocated in "), "{name}: {seen}");
        assert!(!allocated[0].as_str().unwrap().contains("still live"), "{name}: {seen}");
        assert_eq!(
            (&allocated[1], &allocated[2], &allocated[3]),
            (&true.into(), &true.into(), &"true".into()),
            "{seen}"
        );
        for yes in ["same", "widened", "whole", "back"] {
            assert_eq!(seen[yes], true, "{name}: {yes}: {seen}");
        }
        assert!(seen["matches"].as_u64() >= Some(1) && seen["rows"].as_u64() >= Some(1), "{name}: {seen}");
        assert!(seen["found"].as_str().unwrap().ends_with(" of all, in frames that match"), "{name}: {seen}");
        assert!(seen["pointed"].as_str().unwrap().starts_with("keeps (program): "), "{name}: {seen}");
        assert!(seen["page"].as_u64() <= seen["window"].as_u64(), "{name}: too wide: {seen}");
        assert_eq!(seen["paper"], paper, "{name}");
    }
}

#[test]
fn a_page_that_does_wrong_would_be_noticed() {
    let chromium = need!(chromium());
    let scratch = Scratch::new();
    let wrong = "<!DOCTYPE html><html><body><img src=\"http://example.invalid/picture.png\">\
                 <script>console.error('complaint'); missing();</script></body></html>";
    let visit = visit(&chromium, &scratch, "wrong", wrong, &[]);
    assert!(visit.requests.iter().any(|line| line.contains("example.invalid")), "{:?}", visit.requests);
    assert!(visit.console.iter().any(|line| line.contains("complaint")), "{:?}", visit.console);
    assert!(visit.console.iter().any(|line| line.contains("missing is not defined")), "{:?}", visit.console);
    assert_eq!(visit.seen, Value::Null);
}
