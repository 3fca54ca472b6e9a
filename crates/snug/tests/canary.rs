//! `snug canary` against a stand-in for Prometheus: answers, exit codes, and what it says when there is no answer.
//! deploy/monitoring/tests has it against a real server.

mod common;

use common::prometheus::{FakePrometheus, Manner};
use common::{run, snug, Answer, Scratch};

const SELECTOR: &str = "namespace=\"shop\",container=\"web\"";
const CANARY: &str = "pod=~\"web-canary-.*\"";

fn pods(canary: usize, baseline: usize, ratio: f64) -> Manner {
    Manner::Pods { canary, baseline, ratio }
}

fn ask(url: &str, more: &[&str]) -> Answer {
    let first = ["canary", "--prometheus", url, "--selector", SELECTOR, "--canary", CANARY];
    let words: Vec<&str> = first.iter().chain(more).copied().collect();
    run(snug(&words).env_remove("SNUG_PROMETHEUS_TOKEN").env_remove("http_proxy").env_remove("HTTP_PROXY"))
}

#[test]
fn it_asks_again_while_there_are_too_few_pods() {
    let few = FakePrometheus::start(pods(2, 30, 0.5));
    // A busy machine may take longer for one question than the shortest of these.
    let is_asked_again = |wait: &&str| {
        let early = ask(&few.url, &["--wait", wait, "--every", "300ms"]).expect_code(3);
        early.stderr.matches("not enough data").count() >= 2
    };
    assert!(["1s", "5s", "30s"].iter().any(is_asked_again));
}

#[test]
fn what_it_asks() {
    let server = FakePrometheus::start(pods(8, 30, 0.8));
    let latency = ["--latency", "http_request_duration_seconds", "--end", "2026-11-20T12:00:00Z"];
    ask(&server.url, &latency).expect_code(0);
    let asked = server.asked.lock().unwrap().join("\n");
    for wanted in [
        "query=sum by (namespace, pod) (container_memory_working_set_bytes{namespace=\"shop\",container=\"web\",pod=~\"web-canary-.*\"})",
        "query=sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{namespace=\"shop\",container=\"web\"}[300s]))",
        "query=histogram_quantile(0.99, sum by (namespace, pod, le) (rate(http_request_duration_seconds_bucket{",
        "end=1795176000&step=300",
    ] {
        assert!(asked.contains(wanted), "{wanted}: {asked}");
    }
    assert!(!asked.to_lowercase().contains("authorization"));
    let members = ["--members", "kube_pod_labels"];
    ask(&server.url, &members);
    let asked = server.asked.lock().unwrap().join("\n");
    assert!(asked.contains("and on (namespace, pod) kube_pod_labels{pod=~\"web-canary-.*\"}"), "{asked}");
    // Without a container all are added up, but not the pod's own sum.
    let words = ["canary", "--prometheus", &server.url, "--canary", "{pod=~\"web-canary-.*\"}"];
    run(&mut snug(&words)).expect_code(0);
    let asked = server.asked.lock().unwrap().join("\n");
    let wanted =
        "(container_memory_working_set_bytes{pod=~\"web-canary-.*\",container!=\"\",container!=\"POD\"})";
    assert!(asked.contains(wanted), "{asked}");
}

#[test]
fn it_is_let_in() {
    let server = FakePrometheus::start(pods(8, 30, 0.8));
    let scratch = Scratch::new();
    std::fs::write(scratch.path("token"), "secret\n").unwrap();
    std::fs::write(scratch.path("pair"), "anna:opens\n").unwrap();
    ask(&server.url, &["--bearer-token-file", &scratch.text("token")]).expect_code(0);
    ask(&server.url, &["--basic-auth-file", &scratch.text("pair")]).expect_code(0);
    let asked = server.asked.lock().unwrap().join("\n").to_lowercase();
    assert!(asked.contains("authorization: bearer secret"), "{asked}");
    assert!(asked.contains("authorization: basic yw5uytpvcgvucw=="), "{asked}");
}
