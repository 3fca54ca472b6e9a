//! Every ratio that is shown is the ratio of the two numbers shown beside it: read back from what is printed, in
//! every format, of made-up comparisons.

mod common;

use common::{run, snug, Scratch};
use regex_lite::Regex;
use serde_json::Value;

const SAVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server.json");

/// Numbers as they come from a machine: of any size, scattered unevenly.
struct Source(u64);

impl Source {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mostly near 1, now and then far above it.
    fn skewed(&mut self) -> f64 {
        0.9 + 0.2 * self.uniform() + if self.uniform() > 0.8 { self.uniform() } else { 0.0 }
    }
}

/// The saved comparison with other numbers, as a file; `runs` of each allocator are kept.
fn made_up(scratch: &Scratch, name: &str, seed: u64, runs: u64) -> String {
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(SAVED).unwrap()).unwrap();
    let mut source = Source(seed);
    let all = json["runs"].as_array_mut().unwrap();
    all.retain(|run| run["round"].as_u64().unwrap() <= runs);
    for run in all {
        for key in ["cpu_user_s", "wall_s"] {
            run[key] = (run[key].as_f64().unwrap() * source.skewed()).into();
        }
        let factor = source.skewed();
        for (_, value) in run["memory"].as_object_mut().unwrap().iter_mut() {
            *value = (value.as_f64().unwrap() * factor * source.skewed()).into();
        }
        run["latency"]["requests_per_s"] =
            (run["latency"]["requests_per_s"].as_f64().unwrap() * factor).into();
        for one in run["latency"]["percentiles"].as_array_mut().unwrap() {
            one["latency_s"] = (one["latency_s"].as_f64().unwrap() * source.skewed()).into();
        }
        for column in ["rss_bytes", "page_faults"] {
            for value in run["samples"][column].as_array_mut().unwrap() {
                *value = ((value.as_f64().unwrap() * factor) as u64).into();
            }
        }
        run["metrics"]["jobs_per_s"] = (3.0 * source.skewed()).into();
    }
    json["settings"]["rounds"] = runs.into();
    std::fs::write(scratch.path(name), json.to_string()).unwrap();
    scratch.text(name)
}

/// A number as printed, with what makes thousands of it.
fn number(text: &str) -> f64 {
    let text = text.trim().trim_matches('*');
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    let digits = digits.trim_end_matches("/s");
    let factor = [("k", 1e3), ("M", 1e6)].into_iter().find(|(name, _)| *name == unit).map_or(1.0, |(_, f)| f);
    factor * digits.parse::<f64>().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[track_caller]
fn assert_ratio(where_: &str, own: &str, other: &str, ratio: &str) {
    let expected = format!("{:.2}", number(own) / number(other));
    assert_eq!(ratio.trim().trim_matches('*').trim_end_matches('×'), expected, "{where_}: {own} to {other}");
}

fn all(pattern: &str, text: &str) -> Vec<Vec<String>> {
    let found = Regex::new(pattern).unwrap();
    let groups = |found: regex_lite::Captures| {
        found.iter().skip(1).map(|group| group.map_or_else(String::new, |one| one.as_str().into())).collect()
    };
    found.captures_iter(text).map(groups).collect()
}

/// Checks the rows of a table: the first is the baseline's. Returns how many ratios there were.
fn check_rows(where_: &str, rows: &[Vec<(String, Option<String>)>]) -> usize {
    let mut checked = 0;
    for row in &rows[1..] {
        for ((own, ratio), (other, _)) in row.iter().zip(&rows[0]) {
            if let Some(ratio) = ratio {
                assert_ratio(where_, own, other, ratio);
                checked += 1;
            }
        }
    }
    checked
}

fn check_terminal(text: &str) -> usize {
    let cells = |line: &str| -> Vec<String> {
        line.trim().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect()
    };
    let head = text.lines().find(|line| line.trim_start().starts_with("allocator")).unwrap();
    let head = cells(head);
    let names = ["glibc", "jemalloc", "snug"];
    let rows = text.lines().filter(|line| {
        names.iter().any(|name| line.trim_start().starts_with(name)) && cells(line).len() == head.len()
    });
    let mut table = Vec::new();
    for line in rows {
        let line = cells(line);
        let mut row: Vec<(String, Option<String>)> = Vec::new();
        for (heading, cell) in head.iter().zip(&line).skip(1) {
            match (heading.as_str(), row.last_mut()) {
                ("x", Some(last)) => last.1 = Some(cell.trim_end_matches([' ', '~', '?']).to_string()),
                _ => row.push((cell.clone(), None)),
            }
        }
        table.push(row);
    }
    assert_eq!(table.len(), 4, "{text}");
    check_rows("terminal", &table)
}

fn check_markdown(text: &str) -> usize {
    let mut checked = 0;
    for table in text.split("\n\n").filter(|part| part.starts_with("| allocator")) {
        let cell = |text: &str| match text.split_once(" (") {
            None => (text.to_string(), None),
            Some((value, rest)) => {
                (value.to_string(), all("([0-9.]+)×", rest).pop().map(|mut one| one.remove(0)))
            }
        };
        let row =
            |line: &str| line.trim_matches('|').split(" | ").skip(1).map(|text| cell(text.trim())).collect();
        checked += check_rows("markdown", &table.lines().skip(2).map(row).collect::<Vec<_>>());
    }
    checked
}

fn check_page(text: &str) -> usize {
    let tiles = all("<p class=\"ratio\">([0-9.]+)×</p>\n<p>([^<]*) instead of ([^<]*)</p>", text);
    assert!(tiles.len() >= 3, "{tiles:?}");
    for tile in &tiles {
        assert_ratio("tile", &tile[1], &tile[2], &tile[0]);
    }
    let lead = all("class=\"lead\">[^<]*?([0-9.]+) times", text);
    assert!(
        lead.is_empty() || lead[0][0] == tiles[0][0],
        "the sentence says {}, the tile {}",
        lead[0][0],
        tiles[0][0]
    );
    let mut checked = tiles.len();
    for table in text.split("<table class=\"quantities\">").skip(1) {
        let table = table.split("</table>").next().unwrap();
        let row = |row: &str| {
            let cells = row.split("<td").skip(1);
            let cell = |cell: &str| {
                let value =
                    all("class=\"value\">([^<]*)<", cell).pop().map_or("0".into(), |mut one| one.remove(0));
                (value, all("<b>([0-9.]+)×</b>", cell).pop().map(|mut one| one.remove(0)))
            };
            cells.map(cell).collect::<Vec<_>>()
        };
        checked += check_rows("page", &table.split("<tr").skip(2).map(row).collect::<Vec<_>>());
    }
    for legend in text.split("<table class=\"legend\">").skip(1) {
        let legend = legend.split("</table>").next().unwrap();
        if !legend.contains("× glibc") {
            continue;
        }
        let rows = all("(?s)<tr data-series=\"([^\"]*)\".*?<td class=\"number\">([^<]*)</td><td class=\"number\">([^<]*)</td>", legend);
        let base = rows.iter().find(|row| row[0] == "glibc").unwrap_or_else(|| panic!("{legend}"));
        for row in rows.iter().filter(|row| row[2] != "–") {
            let bare = |text: &str| text.trim_end_matches(" MB").to_string();
            assert_ratio("legend", &bare(&row[1]), &bare(&base[1]), &row[2]);
            checked += 1;
        }
    }
    checked
}

#[test]
fn ratios_are_those_of_the_numbers_beside_them() {
    let scratch = Scratch::new();
    let mut checked = 0;
    for seed in 0..8 {
        let file = made_up(&scratch, "made-up.json", seed, 1 + seed % 3);
        let shown = |option: &str| run(&mut snug(&["report", &file, option, "-"])).expect_code(0).stdout;
        checked += check_terminal(&run(&mut snug(&["report", &file])).expect_code(0).stdout);
        checked += check_markdown(&shown("--markdown"));
        checked += check_page(&shown("--html"));
        let json: Value = serde_json::from_str(&shown("--json")).unwrap();
        let rows = json["summary"]["allocators"].as_array().unwrap();
        for row in &rows[1..] {
            for (name, quantity) in row["quantities"].as_object().unwrap() {
                let Some(ratio) = quantity["ratio"]["value"].as_f64() else { continue };
                let median = |row: &Value| row["quantities"][name]["median"].as_f64().unwrap();
                assert!((ratio - median(row) / median(&rows[0])).abs() < 1e-9, "JSON: {name}");
                checked += 1;
            }
        }
    }
    assert!(checked > 2000, "{checked}");
}

#[test]
fn so_are_those_between_files() {
    let scratch = Scratch::new();
    for seed in 0..4 {
        let (old, new) =
            (made_up(&scratch, "old.json", seed, 3), made_up(&scratch, "new.json", seed + 100, 3));
        let shown = |option: &str| run(&mut snug(&["report", &old, &new, option, "-"])).expect_code(0).stdout;
        let page = shown("--html");
        let section =
            page.split("<section id=\"changes\">").nth(1).unwrap().split("</section>").next().unwrap();
        let rows = all(
            "<td class=\"number\">([^<]*)</td><td class=\"number\">([^<]*)</td>\n<td[^>]*><b>([^<]*)</b>",
            section,
        );
        assert!(rows.len() >= 30, "{}", rows.len());
        for row in &rows {
            assert_ratio("page of changes", &row[1], &row[0], &row[2]);
        }
        let markdown = shown("--markdown");
        for line in markdown.lines().filter(|line| line.contains("× |") || line.contains("×** |")) {
            let cells: Vec<&str> = line.split(" | ").collect();
            assert_ratio("changes in markdown", cells[3], cells[2], cells[4]);
        }
        let terminal = run(&mut snug(&["report", &old, &new])).expect_code(0).stdout;
        let rows = all("  ([0-9][^ ]*(?: [^ ]+)?) {2,}([0-9][^ ]*(?: [^ ]+)?) {2,}([0-9.]+×)", &terminal);
        assert!(rows.len() >= 30, "{terminal}");
        for row in &rows {
            assert_ratio("changes on a terminal", &row[1], &row[0], &row[2]);
        }
    }
}
