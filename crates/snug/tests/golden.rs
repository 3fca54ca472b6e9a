//! What the tool prints on data that are always the same. Each file of golden/ is a session: the calls, after `$ `, are
//! run in order by a shell in a folder of their own, and what they say must be what stands there: stdout, stderr after
//! `2> `, and the exit code if it is not 0. `make accept` writes it anew.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::prometheus::{FakePrometheus, Manner};
use common::{commands, run, snug, Scratch};
use expect_test::expect_file;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Servers that stand in for Prometheus, by the variables of sessions that hold their addresses.
fn servers() -> BTreeMap<&'static str, FakePrometheus> {
    let pods = |canary, ratio| Manner::Pods { canary, baseline: 30, ratio };
    let says = |status, text| Manner::Says { status, text };
    let refused = r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected identifier"}"#;
    let empty = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let manners = [
        ("BETTER", pods(8, 0.8)),
        ("SAME", pods(8, 1.0)),
        ("WORSE", pods(8, 1.3)),
        ("FEW", pods(2, 0.5)),
        ("ONLY_NAN", Manner::OnlyNan),
        ("ONE_READING", Manner::OneReading),
        ("EMPTY", says(200, empty)),
        ("REFUSES", says(400, refused)),
        ("VECTOR", says(200, vector)),
        ("GRAFANA", says(200, "<html>Grafana")),
        ("SAYS_401", says(401, "")),
        ("SAYS_403", says(403, "<html>")),
        ("SAYS_500", says(500, "oops")),
        ("SAYS_302", says(302, "")),
    ];
    manners.into_iter().map(|(name, manner)| (name, FakePrometheus::start(manner))).collect()
}

/// A folder with data/, and comparisons and profiles that differ from it by a factor.
fn folder_of_data() -> Scratch {
    let scratch = Scratch::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for file in files(&data) {
        std::fs::copy(&file, scratch.path(file.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    let saved = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(data.join(name)).unwrap()).unwrap()
    };
    let multiply = |value: &mut Value, factor: f64| *value = (value.as_f64().unwrap() * factor).into();
    for (name, factor) in [("today", 0.8), ("worse", 1.2)] {
        let mut json = saved("server.json");
        for run in json["runs"].as_array_mut().unwrap().iter_mut().filter(|run| run["allocator"] == "snug") {
            let memory = run["memory"].as_object_mut().unwrap();
            memory.iter_mut().for_each(|(_, value)| multiply(value, factor));
        }
        std::fs::write(scratch.path(&format!("{name}.json")), json.to_string()).unwrap();
    }
    let mut later = saved("profile.json");
    multiply(&mut later["total_bytes"], 1.5);
    for site in later["sites"].as_array_mut().unwrap().iter_mut().skip(1).step_by(3) {
        multiply(&mut site["bytes"], 2.0);
    }
    std::fs::write(scratch.path("later.json"), later.to_string()).unwrap();
    let mut killed = saved("black-box.json");
    (killed["limit_bytes"], killed["processes"][0]["ending"]["for_memory"]) =
        (39_000_000.into(), true.into());
    std::fs::write(scratch.path("killed.json"), killed.to_string()).unwrap();
    let mut newer = saved("server.json");
    (newer["format_version"], newer["snug_version"]) = (99.into(), "9.0".into());
    std::fs::write(scratch.path("newer.json"), newer.to_string()).unwrap();
    scratch
}

/// The session as it is now.
fn played(session: &str, servers: &BTreeMap<&str, FakePrometheus>) -> String {
    let scratch = folder_of_data();
    let tool = snug(&[]);
    let path = format!(
        "{}:{}",
        Path::new(tool.get_program()).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut told = String::new();
    for call in session.lines().filter(|line| line.starts_with("$ ") || line.starts_with("// ")) {
        told += &format!("{call}\n");
        let Some(call) = call.strip_prefix("$ ") else { continue };
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", call])
            .current_dir(&scratch.0)
            .envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
        tool.get_envs().filter(|(_, value)| value.is_none()).for_each(|(name, _)| _ = shell.env_remove(name));
        shell.env("PATH", &path).env("COLUMNS", "80").env("XDG_CONFIG_HOME", &scratch.0);
        for name in ["SNUG_PROMETHEUS_TOKEN", "http_proxy", "HTTP_PROXY", "NO_COLOR"] {
            shell.env_remove(name);
        }
        shell.envs(servers.iter().map(|(name, server)| (name, &server.url)));
        let answer = run(&mut shell);
        told += &answer.stdout;
        answer.stderr.lines().for_each(|line| told += &format!("2> {line}\n"));
        if answer.code != Some(0) {
            told += &format!("exit code {}\n", answer.code.unwrap());
        }
    }
    let mut told = told.replace(&scratch.0.display().to_string(), "HERE");
    for (name, server) in servers {
        told = told.replace(&server.url, &format!("${name}"));
    }
    let version = include_str!("../../../VERSION").trim();
    told.replace(&format!("snug {version}"), "snug VERSION")
        .replace(&format!("\"snug_version\":\"{version}\""), "\"snug_version\":\"VERSION\"")
}

#[test]
fn the_tool_says_what_it_is_expected_to_say() {
    let servers = servers();
    std::thread::scope(|scope| {
        for file in files(&folder()) {
            let servers = &servers;
            scope.spawn(move || {
                let session = std::fs::read_to_string(&file).unwrap();
                let now = played(&session, servers);
                if let Some((was, is)) = session.lines().zip(now.lines()).find(|(was, is)| was != is) {
                    println!("{}:\n-{was}\n+{is}", file.display());
                }
                expect_file![&file].assert_eq(&now);
            });
        }
    });
}

#[test]
fn every_help_is_compared() {
    for command in commands().into_iter().chain(["generate".into()]) {
        let file = folder().join(format!("help/{command}.txt"));
        let session = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        for option in ["-h", "--help"] {
            assert!(session.contains(&format!("$ snug {command} {option}\n")), "{file:?}: {option}");
        }
    }
}
