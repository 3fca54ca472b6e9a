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
fn one_word_and_an_exit_code() {
    let better = FakePrometheus::start(pods(8, 30, 0.8));
    ask(&better.url, &[]).expect_code(0).expect_stdout("better: memory is 0.80 times that of the baseline");
    let json = ask(&better.url, &["--json", "--require", "better"]).expect_code(0).json();
    let memory = &json["quantities"][0];
    assert_eq!((&json["answer"], &memory["name"]), (&"better".into(), &"memory_bytes".into()), "{json}");
    assert!((memory["ratio"].as_f64().unwrap() - 0.8).abs() < 0.01, "{memory}");
    assert_eq!((memory["canary_pods"].as_u64(), memory["baseline_pods"].as_u64()), (Some(8), Some(30)));
    let same = FakePrometheus::start(pods(8, 30, 1.0));
    ask(&same.url, &[]).expect_code(0).expect_stdout("no difference: memory is 1.00 times");
    ask(&same.url, &["--require", "better"]).expect_code(1).expect_stdout("no difference");
    let worse = FakePrometheus::start(pods(8, 30, 1.3));
    ask(&worse.url, &[]).expect_code(1).expect_stdout("worse: memory is 1.30 times");
    let few = FakePrometheus::start(pods(2, 30, 0.5));
    ask(&few.url, &[])
        .expect_code(3)
        .expect_stdout("not enough data: it takes 3 pods of the canary and 30 of the baseline at least");
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
    ask(&server.url, &latency).expect_code(0).expect_stdout("latency").expect_stdout("121 ms");
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
    std::fs::write(scratch.path("empty"), "\n").unwrap();
    ask(&server.url, &["--bearer-token-file", &scratch.text("token")]).expect_code(0);
    ask(&server.url, &["--basic-auth-file", &scratch.text("pair")]).expect_code(0);
    let asked = server.asked.lock().unwrap().join("\n").to_lowercase();
    assert!(asked.contains("authorization: bearer secret"), "{asked}");
    assert!(asked.contains("authorization: basic yw5uytpvcgvucw=="), "{asked}");
    ask(&server.url, &["--bearer-token-file", &scratch.text("empty")])
        .expect_code(2)
        .expect_stderr("is empty");
    ask(&server.url, &["--basic-auth-file", &scratch.text("token")])
        .expect_code(2)
        .expect_stderr("NAME:PASSWORD");
    ask(&server.url, &["--bearer-token-file", "/nonexistent"]).expect_stderr("cannot read /nonexistent");
}

#[test]
fn servers_that_do_not_answer() {
    let gone = format!("http://127.0.0.1:{}", common::free_port());
    ask(&gone, &[]).expect_code(3).expect_stderr("cannot ask Prometheus at").expect_stderr("port-forward");
    let says =
        |status, text| ask(&FakePrometheus::start(Manner::Says { status, text }).url, &[]).expect_code(3);
    says(401, "").expect_stderr("refused our credentials").expect_stderr("--bearer-token-file");
    says(403, "<html>").expect_stderr("refused our credentials");
    says(500, "oops").expect_stderr("answers 500");
    says(302, "").expect_stderr("answers 302");
    says(200, "<html>Grafana")
        .expect_stderr("does not answer as Prometheus does")
        .expect_stderr("<html>Grafana");
    let refused = r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected identifier"}"#;
    says(400, refused).expect_stderr("refuses the query: parse error").expect_stderr("the query is sum by");
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    says(200, vector).expect_stderr("refuses the query");
}

#[test]
fn answers_that_say_nothing() {
    let empty = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let server = FakePrometheus::start(Manner::Says { status: 200, text: empty });
    ask(&server.url, &[])
        .expect_code(3)
        .expect_stderr("no series of the canary")
        .expect_stderr("the query is");
    let server = FakePrometheus::start(Manner::OnlyNan);
    ask(&server.url, &[]).expect_code(3).expect_stderr("only NaN");
    let server = FakePrometheus::start(Manner::OneReading);
    ask(&server.url, &[]).expect_code(3).expect_stdout("every pod of the canary has one reading only");
    let server = FakePrometheus::start(pods(8, 30, 0.8));
    ask(&server.url, &["--baseline", "pod=\"none\""])
        .expect_code(3)
        .expect_stderr("no series of the baseline");
    ask(&server.url, &["--baseline", CANARY])
        .expect_code(2)
        .expect_stderr("of the canary and of the baseline");
    ask(&server.url, &["--unit", "node"]).expect_code(3).expect_stderr("lacks one of the labels node");
}

#[test]
fn what_makes_no_sense_is_said() {
    let bad = |more: &[&str], message: &str| {
        ask("http://127.0.0.1:1", more).expect_code(2).expect_stderr(message);
    };
    bad(&["--tolerance", "20"], "--tolerance is not below --effect");
    bad(&["--effect", "0"], "0.1");
    bad(&["--window", "1s"], "--window");
    bad(&["--memory", "a{b}"], "not the name of a metric");
    bad(&["--ca-file", "/dev/null"], "--ca-file is for https");
    bad(&["--end", "yesterday"], "2026-11-20T12:00:00Z");
    bad(&["--end", "2026-11-20T12:00:00Z", "--wait", "1s"], "cannot be used with");
    for (url, message) in
        [("prometheus:9090", "no URL"), ("ftp://prometheus", "no URL"), ("http://", "no URL")]
    {
        ask(url, &[]).expect_code(2).expect_stderr(message);
    }
    ask("https://127.0.0.1:1", &["--ca-file", "/dev/null"])
        .expect_code(2)
        .expect_stderr("holds no certificate");
    let words = ["canary", "--prometheus", "http://127.0.0.1:1", "--canary", " {} "];
    run(&mut snug(&words)).expect_code(2).expect_stderr("--canary is empty");
}
