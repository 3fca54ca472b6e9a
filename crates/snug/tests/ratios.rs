//! Every ratio that is shown is the ratio of the two numbers shown beside it, lies in the interval that is shown, and is
//! called a difference if that does not hold 1: read back from what is printed, in every format, of made-up comparisons.

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

/// The saved comparison with `runs` of each allocator, each changed, as a file.
fn changed(scratch: &Scratch, name: &str, runs: u64, change: impl FnMut(&mut Value)) -> String {
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(SAVED).unwrap()).unwrap();
    let all = json["runs"].as_array_mut().unwrap();
    all.retain(|run| run["round"].as_u64().unwrap() <= runs);
    all.iter_mut().for_each(change);
    json["settings"]["rounds"] = runs.into();
    std::fs::write(scratch.path(name), json.to_string()).unwrap();
    scratch.text(name)
}

/// The saved comparison with other numbers.
fn made_up(scratch: &Scratch, name: &str, seed: u64, runs: u64) -> String {
    let mut source = Source(seed);
    changed(scratch, name, runs, |run| {
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
    })
}

/// A number for a name, the same each time.
fn fixed(seed: u64, name: &str) -> f64 {
    let hash = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
    let mut source = Source(name.bytes().fold(seed, hash));
    source.uniform();
    source.uniform()
}

/// The saved comparison with numbers of 0.1 to 0.2 and of 100 to 200 in the units that are shown. Runs differ by 0.1 %,
/// allocators by 1.2 % at most, files whose seeds differ by 100 no more: less than what is printed of such numbers tells.
fn close(scratch: &Scratch, name: &str, seed: u64, runs: u64) -> String {
    let mut source = Source(seed);
    changed(scratch, name, runs, |run| {
        let allocator = run["allocator"].as_str().unwrap().to_string();
        let mut near_1 = |name: &str| {
            let offset = 0.012 * (fixed(seed, &format!("{name} {allocator}")) - 0.5);
            (1.0 + offset) * (1.0 + 0.001 * (source.uniform() - 0.5))
        };
        let mut value = |name: &str, unit: f64| unit * (1.0 + fixed(seed % 100, name)) * near_1(name);
        for (name, memory) in run["memory"].as_object_mut().unwrap() {
            *memory = value(name, 100e6).into();
        }
        run["latency"]["requests_per_s"] = value("requests_per_s", 100.0).into();
        // The load takes about 6 s of CPU time.
        run["latency"]["requests"] = (value("requests", 6.0 / 0.2e-3) as u64).into();
        for one in run["latency"]["percentiles"].as_array_mut().unwrap() {
            one["latency_s"] = value(&one["percent"].to_string(), 0.1e-3).into();
        }
        run["metrics"]["jobs_per_s"] = value("jobs_per_s", 0.1).into();
        let factor = near_1("rss_bytes");
        for bytes in run["samples"]["rss_bytes"].as_array_mut().unwrap() {
            *bytes = ((bytes.as_f64().unwrap() * factor) as u64).into();
        }
    })
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

/// Checks what stands beside a ratio: it lies in the interval, and the words follow from that.
#[track_caller]
fn assert_interval(where_: &str, ratio: &str, interval: &str, words: &str) {
    let ratio = number(ratio.trim_end_matches('×'));
    if interval.contains("too wide to tell") {
        return assert_eq!(words, "not enough data", "{where_}: {ratio}, {interval}");
    }
    let ends = all("([0-9.]+)(?: to |-)([0-9.]+)", interval);
    assert_eq!(ends.len(), 1, "{where_}: {ratio}, {interval}");
    let (low, high) = (number(&ends[0][0]), number(&ends[0][1]));
    assert!(low <= ratio && ratio <= high, "{where_}: {ratio} is not in {interval}");
    let expected = match () {
        () if low > 1.0 || high < 1.0 => {
            if words == "may be chance" {
                words
            } else {
                ""
            }
        }
        () if low >= 0.9 && high <= 1.1 => "no difference",
        () => "not enough data",
    };
    assert_eq!(words, expected, "{where_}: {ratio}, {interval}");
}

/// The words that a text begins with; none if it does not begin with any.
fn words(text: &str) -> &'static str {
    let all = ["no difference", "not enough data", "may be chance"];
    all.into_iter().find(|words| text.starts_with(words)).unwrap_or_default()
}

/// What a mark or a class stands for.
fn meant(mark: &str) -> &'static str {
    match mark {
        "=" | "same" => "no difference",
        "~" | "open" => "not enough data",
        "?" | "chance" => "may be chance",
        _ => "",
    }
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

/// The cells of a line of a table on a terminal, each with the column after it.
fn cells(line: &str) -> Vec<(usize, &str)> {
    let found = Regex::new(r"\S+(?: \S+)*").unwrap();
    found.find_iter(line).map(|cell| (cell.end(), cell.as_str())).collect()
}

/// The rows of the table on a terminal, whose parts stand below each other: values, and ratios without the marks behind them. Below each ratio stands its
/// interval, in a column that ends where its own does.
fn terminal_rows(text: &str) -> Vec<Vec<(String, Option<String>)>> {
    let lines: Vec<Vec<(usize, &str)>> = text.lines().map(cells).collect();
    let begins =
        |line: &[(usize, &str)], name: &str| line.first().is_some_and(|cell| cell.1.starts_with(name));
    let (mut head, mut place) = (&lines[0], 0);
    let mut table: Vec<Vec<(String, Option<String>)>> = Vec::new();
    for pair in lines.windows(2) {
        let (line, below) = (&pair[0], &pair[1]);
        if begins(line, "allocator") {
            (head, place) = (line, 0);
        }
        let is_row = ["glibc", "jemalloc", "snug"].iter().any(|name| begins(line, name));
        if !is_row || line.len() != head.len() {
            continue;
        }
        let mut row: Vec<(String, Option<String>)> = Vec::new();
        for ((_, heading), (end, cell)) in head.iter().zip(line).skip(1) {
            match (*heading, row.last_mut()) {
                ("x", Some(last)) => {
                    let (ratio, mark) = cell.split_once(' ').unwrap_or((cell, ""));
                    if let Some((_, interval)) = below.iter().find(|(other, _)| other == end) {
                        assert_interval("terminal", ratio, interval, meant(mark));
                    }
                    last.1 = Some(ratio.to_string());
                }
                _ => row.push((cell.to_string(), None)),
            }
        }
        table.resize(table.len().max(place + 1), Vec::new());
        table[place].extend(row);
        place += 1;
    }
    table
}

fn check_terminal(text: &str) -> usize {
    let table = terminal_rows(text);
    assert_eq!(table.len(), 4, "{text}");
    let wide = text.lines().filter(|line| line.chars().count() > 80 && line.contains("  "));
    assert_eq!(wide.count(), 0, "tables are no wider than 80 columns: {text}");
    check_rows("terminal", &table)
}

fn check_markdown(text: &str) -> usize {
    let mut checked = 0;
    for table in text.split("\n\n").filter(|part| part.starts_with("| allocator")) {
        let cell = |text: &str| match text.split_once(" (") {
            None => (text.to_string(), None),
            Some((value, rest)) => {
                let found = all("([a-z ]*: )?([0-9.]+)×(?:, ([^)]*))?", rest).pop();
                let ratio = found.map(|found| {
                    if !found[2].is_empty() {
                        assert_interval("markdown", &found[1], &found[2], words(&found[0]));
                    }
                    found[1].clone()
                });
                (value.to_string(), ratio)
            }
        };
        let row =
            |line: &str| line.trim_matches('|').split(" | ").skip(1).map(|text| cell(text.trim())).collect();
        checked += check_rows("markdown", &table.lines().skip(2).map(row).collect::<Vec<_>>());
    }
    checked
}

fn check_page(text: &str) -> usize {
    let tiles = all(
        "<p class=\"ratio\">([0-9.]+)×</p>\n<p>([^<]*) instead of ([^<]*)</p>\n<p class=\"remark\">([^<]*)</p>",
        text,
    );
    assert!(tiles.len() >= 3, "{tiles:?}");
    for tile in &tiles {
        assert_ratio("tile", &tile[1], &tile[2], &tile[0]);
        if !tile[3].contains("unproven") {
            assert_interval("tile", &tile[0], &tile[3], words(&tile[3]));
        }
    }
    // Whatever is shown comes first.
    let lead = all(
        "class=\"lead\">[^<]*?(?:([0-9.]+) times the mean memory|mean memory [^<]*?\\(([0-9.]+) times)",
        text,
    );
    let lead: Vec<Vec<String>> = lead.into_iter().map(|groups| vec![groups.concat()]).collect();
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
                let pattern = "<span class=\"([a-z]+)\"><b>([0-9.]+)×</b>(?:<small>[a-z ]*</small>)?</span>\
                    (?:<small>([^<]*)</small>)?";
                let ratio = all(pattern, cell).pop().map(|found| {
                    if !found[2].is_empty() {
                        assert_interval("page", &found[1], &found[2], meant(&found[0]));
                    }
                    found[1].clone()
                });
                assert_eq!(ratio.is_some(), cell.contains("×</b>"), "{cell}");
                (value, ratio)
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

/// Checks the clauses of the sentence. Returns how many intervals it has.
fn check_sentence(text: &str) -> usize {
    let mut checked = 0;
    for clause in text.split("; ") {
        let found = all("([0-9.]+) times(.*)", clause).pop();
        let Some(found) = found.filter(|found| found[1].contains(" to ")) else { continue };
        let interval = found[1].rsplit("interval ").next().unwrap();
        let clause = clause.to_lowercase();
        let all_words = ["no difference", "not enough data", "may be chance"];
        let words = all_words.into_iter().find(|words| clause.contains(words)).unwrap_or_default();
        assert_interval("sentence", &found[0], interval, words);
        checked += 1;
    }
    checked
}

/// A way to make comparisons up: where to, a name, a seed, and how many runs.
type MadeUp = fn(&Scratch, &str, u64, u64) -> String;

#[test]
fn ratios_are_those_of_the_numbers_beside_them() {
    let scratch = Scratch::new();
    let mut checked = [0; 5];
    let files = (0..16).map(|seed| match seed % 2 {
        0 => made_up(&scratch, &format!("{seed}.json"), seed, 1 + seed / 2 % 3),
        _ => close(&scratch, &format!("{seed}.json"), seed, 2 + seed / 2 % 2),
    });
    for file in files {
        let shown = |option: &str| run(&mut snug(&["report", &file, option, "-"])).expect_code(0).stdout;
        checked[0] += check_terminal(&run(&mut snug(&["report", &file])).expect_code(0).stdout);
        checked[1] += check_markdown(&shown("--markdown"));
        checked[2] += check_page(&shown("--html"));
        let json: Value = serde_json::from_str(&shown("--json")).unwrap();
        checked[3] += check_sentence(json["summary"]["conclusion"].as_str().unwrap());
        let rows = json["summary"]["allocators"].as_array().unwrap();
        for row in &rows[1..] {
            for (name, quantity) in row["quantities"].as_object().unwrap() {
                let Some(ratio) = quantity["ratio"]["value"].as_f64() else { continue };
                let median = |row: &Value| row["quantities"][name]["median"].as_f64().unwrap();
                assert!((ratio - median(row) / median(&rows[0])).abs() < 1e-9, "JSON: {name}");
                if let Some(ends) = quantity["ratio"]["interval"].as_array() {
                    let (low, high) = (ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap());
                    assert!(low <= ratio && ratio <= high, "JSON: {name}: {ratio} is not in {ends:?}");
                }
                checked[4] += 1;
            }
        }
    }
    assert!(checked.iter().all(|count| *count > 0) && checked.iter().sum::<usize>() > 4000, "{checked:?}");
}

#[test]
fn so_are_those_of_an_overview() {
    let scratch = Scratch::new();
    let ways: [(&str, MadeUp); 2] = [("skewed", made_up), ("close", close)];
    let seeds = (0..4).flat_map(|seed| ways.map(|(name, way)| (seed, name, way)));
    for (seed, name, way) in seeds {
        let file = way(&scratch, &format!("{name}.json"), seed, 3);
        for quantity in ["memory", "idle", "throughput", "p99", "metric:jobs_per_s"] {
            let option = format!("--overview={quantity}");
            let shown = |more: &[&str]| {
                run(&mut snug(&[&["report", &file, &option], more].concat())).expect_code(0).stdout
            };
            let terminal = shown(&[]);
            let rows = terminal.lines().map(cells).filter(|row| row.len() == 3).skip(1);
            let rows: Vec<[&str; 3]> = rows.map(|row| [row[0].1, row[1].1, row[2].1]).collect();
            let markdown = shown(&["--markdown", "-"]);
            let lines = markdown.lines().filter(|line| line.contains('`'));
            let lines: Vec<Vec<&str>> =
                lines.map(|line| line.trim_matches('|').split(" | ").collect()).collect();
            let base = rows.iter().find(|row| row[0] == "glibc").unwrap_or_else(|| panic!("{terminal}"));
            assert_eq!((rows.len(), lines.len()), (4, 4), "{terminal}{markdown}");
            for (row, line) in rows.iter().zip(&lines) {
                assert_ratio("overview", row[1], base[1], row[2]);
                assert_ratio("overview in markdown", line[1], base[1], line[2]);
            }
        }
    }
}

/// Of a program that really runs: what is advised is in the table above.
#[test]
fn so_is_that_of_an_advice() {
    let scratch = Scratch::new();
    let out = scratch.text("out");
    let options =
        ["advise", "--force", "--runs", "3", "--with", "glibc,glibc:MALLOC_ARENA_MAX=1", "--out", &out];
    let text =
        run(&mut snug(&[&options[..], &["--", "sh", "-c", "sleep 0.5"]].concat())).expect_code(0).stdout;
    let advised = all("  glibc:MALLOC_ARENA_MAX=1: ([0-9.]+) times \\(([^)]*)\\) the memory", &text);
    assert_eq!(advised.len(), 1, "{text}");
    let table = terminal_rows(&text);
    assert_eq!(table.len(), 2, "{text}");
    let memory = table[1].iter().find_map(|(_, ratio)| ratio.as_ref());
    assert_eq!(memory, Some(&advised[0][0]), "{text}");
    let (low, high) = advised[0][1].split_once(" to ").unwrap();
    let ratio = number(&advised[0][0]);
    assert!(number(low) <= ratio && ratio <= number(high), "{text}");
}

#[test]
fn so_are_those_between_files() {
    let scratch = Scratch::new();
    let ways: [MadeUp; 2] = [made_up, close];
    for (seed, way) in (0..4).flat_map(|seed| ways.map(|way| (seed, way))) {
        let (old, new) = (way(&scratch, "old.json", seed, 3), way(&scratch, "new.json", seed + 100, 3));
        let shown = |option: &str| run(&mut snug(&["report", &old, &new, option, "-"])).expect_code(0).stdout;
        let page = shown("--html");
        let section =
            page.split("<section id=\"changes\">").nth(1).unwrap().split("</section>").next().unwrap();
        let rows = all(
            "<td class=\"number\">([^<]*)</td><td class=\"number\">([^<]*)</td>\n<td[^>]*><b>([^<]*)</b>\
             </td><td class=\"([a-z]+)\">([^<]*)</td>",
            section,
        );
        assert!(rows.len() >= 30, "{}", rows.len());
        for row in &rows {
            assert_ratio("page of changes", &row[1], &row[0], &row[2]);
            assert_interval("page of changes", &row[2], &row[4], meant(&row[3]));
        }
        let markdown = shown("--markdown");
        let lines: Vec<_> =
            markdown.lines().filter(|line| line.contains("× |") || line.contains("×** |")).collect();
        assert!(!lines.is_empty(), "{markdown}");
        for line in lines {
            let cells: Vec<&str> = line.split(" | ").collect();
            assert_ratio("changes in markdown", cells[3], cells[2], cells[4]);
            let ratio = cells[4].trim_matches('*');
            assert_interval("changes in markdown", ratio, cells[5], words(cells[5]));
        }
        let terminal = run(&mut snug(&["report", &old, &new])).expect_code(0).stdout;
        let pattern = "  ([0-9][^ ]*(?: [^ ]+)?) {2,}([0-9][^ ]*(?: [^ ]+)?) {2,}([0-9.]+×) {2,}([^\n]+?)(?: {2,}([a-z ]+))?\n";
        let rows = all(pattern, &terminal);
        assert!(rows.len() >= 30, "{terminal}");
        for row in &rows {
            assert_ratio("changes on a terminal", &row[1], &row[0], &row[2]);
            assert_interval("changes on a terminal", &row[2], &row[3], words(&row[4]));
        }
    }
}
