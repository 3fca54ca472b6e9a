//! The needs of containers, for people.

use std::io::{self, Write};

use crate::fleet::{FleetRow, FleetSizes, Unknown, PODS_LEAST};
use snug_base::terminal::{self, counted, rounded, styled};
use snug_base::time::duration;
use snug_report::narrow::{self, Column};

/// So many kinds of pods without an answer have a row.
const UNANSWERED_ROWS: usize = 10;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;
/// Less than a day's window has not shown the peak of a day; scrapes may begin a little late.
const DAY_LEAST_S: f64 = 23.0 * 3600.0;

/// Writes a line for each kind of container, then what it comes to. `window_s`: how long they were watched.
pub fn write(sizes: &FleetSizes, window_s: f64, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = |text: &str| {
        let lines: Vec<String> = text.lines().map(|line| styled(line, terminal::BOLD, colours)).collect();
        lines.join("\n")
    };
    let headings = [
        "pods",
        "highest\nunder snug",
        "limit\nnow",
        "limit\nenough",
        "request\nnow",
        "request\nenough",
        "frees",
    ];
    let (shown_rows, left_out) = shown_rows(sizes);
    let names = shown_rows.iter().map(|row| narrow::label(&name(row)));
    let cells: Vec<[String; 7]> = shown_rows.iter().map(|row| cells(row)).collect();
    let column = |(index, text): (usize, &&str)| {
        Column::numbers(heading(text), cells.iter().map(|cells| cells[index].clone()))
    };
    let columns: Vec<Column> = headings.iter().enumerate().map(column).collect();
    narrow::write(&Column::text(heading("container"), names), &columns, terminal::stdout_columns(), out)?;
    if left_out > 0 {
        writeln!(out, "and {} without an answer, which --json has", counted(left_out, "kind of pods"))?;
    }
    writeln!(out)?;
    let mut notes = reasons(sizes);
    if window_s < DAY_LEAST_S {
        notes.push(format!("{} do not show the peak of a day", duration(window_s)));
    }
    if sizes.containers.iter().any(|row| row.resize.is_some()) {
        notes.push("with --resize: the commands that give running pods under snug these sizes".into());
    }
    for note in notes {
        writeln!(out, "{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    let style = if shown(sizes.freed_bytes) > 0.0 { terminal::GOOD } else { terminal::BOLD };
    writeln!(out, "{}", styled(&sentence(sizes), style, colours))
}

fn cells(row: &FleetRow) -> [String; 7] {
    let shown = |bytes: Option<f64>| bytes.map_or_else(|| "-".into(), mebibytes);
    let need = row.under_snug.as_ref();
    [
        format!("{} of {}", row.canary_pods, row.pods),
        shown(need.map(|need| need.peak_bytes)),
        shown(row.limit_bytes),
        shown(need.map(|need| need.limit_bytes)),
        shown(row.request_bytes),
        shown(need.map(|need| need.request_bytes)),
        row.freed_bytes.map_or_else(|| "-".into(), gibibytes),
    ]
}

/// The rows with an answer, the first of the others, and how many more of these there are.
fn shown_rows(sizes: &FleetSizes) -> (Vec<&FleetRow>, usize) {
    let mut room = UNANSWERED_ROWS;
    let is_shown = |row: &&FleetRow| {
        let has_room = row.under_snug.is_some() || room > 0;
        room -= usize::from(has_room && row.under_snug.is_none());
        has_room
    };
    let shown: Vec<&FleetRow> = sizes.containers.iter().filter(is_shown).collect();
    let left_out = sizes.containers.len() - shown.len();
    (shown, left_out)
}

fn name(row: &FleetRow) -> String {
    format!("{}/{}/{}", row.namespace, row.workload, row.container)
}

/// Why containers have no answer, one note for each reason.
fn reasons(sizes: &FleetSizes) -> Vec<String> {
    let mut notes = Vec::new();
    for reason in [Unknown::NoPods, Unknown::TooFewPods, Unknown::AtItsLimit] {
        let is_why = |row: &&FleetRow| row.under_snug_unknown == Some(reason);
        let rows: Vec<&FleetRow> = sizes.containers.iter().filter(is_why).collect();
        let Some(first) = rows.first().map(|row| name(row)) else { continue };
        let whose = match rows.len() {
            1 => first,
            count => format!("{}, such as {first}", counted(count, "kind of pods")),
        };
        let why = match reason {
            Unknown::NoPods => "no pod of it uses snug".to_string(),
            Unknown::TooFewPods => {
                format!("fewer than {PODS_LEAST} pods under snug were there for half of the time")
            }
            Unknown::AtItsLimit => "a pod under snug came to its limit: what it wanted can't be seen".into(),
        };
        notes.push(format!("{whose}: {why}"));
    }
    let alone = sizes.containers.iter().filter(|row| row.pods == 1).count();
    if alone > UNANSWERED_ROWS && 2 * alone > sizes.containers.len() {
        notes.push(format!(
            "{alone} pods are the only ones of their kind: pods are added up by names as Kubernetes makes them, NAME-HASH-ID"
        ));
    }
    notes
}

/// What it comes to.
fn sentence(sizes: &FleetSizes) -> String {
    if !sizes.containers.iter().any(|row| row.under_snug.is_some()) {
        return "not enough data: of no container is it known what it needs under snug".into();
    }
    if sizes.requested_bytes == 0.0 {
        return "neither requests nor limits are known, so what is freed is not".into();
    }
    // Of what is shown, so that the parts add up to the whole.
    let (requested, freed) = (shown(sizes.requested_bytes), shown(sizes.freed_bytes));
    let by_snug = shown(sizes.freed_by_snug_bytes);
    let without = rounded(freed - by_snug, 1);
    let amount = |gibibytes: f64| format!("{gibibytes:.1} GiB");
    if freed <= 0.0 {
        let now = format!("nothing is freed: requests, now {},", amount(requested));
        return match freed < 0.0 {
            true => format!("{now} would rise by {} to be enough", amount(-freed)),
            false => format!("{now} are just enough"),
        };
    }
    let (freed, requested) = (amount(freed), amount(requested));
    let mut text = format!("requests fall by {freed} of {requested}, if all these pods use snug");
    // Where too few pods run without snug, what they would need is not known.
    let is_divided = |row: &FleetRow| row.freed_bytes.is_none() || row.freed_by_snug_bytes.is_some();
    text += &if !sizes.containers.iter().all(is_divided) {
        "; how much of that is because of snug is not known, as too few pods run without it".into()
    } else if without < 0.0 {
        let missing = amount(-without);
        format!("; snug saves {}, but today's requests are {missing} too small", amount(by_snug))
    } else if by_snug < 0.0 {
        let (larger, more) = (amount(without), amount(-by_snug));
        format!("; they are {larger} larger than what is needed today, but pods under snug need {more} more")
    } else {
        let (by_snug, without) = (amount(by_snug), amount(without));
        format!(": {by_snug} because of snug, {without} because they are larger than what is needed today")
    };
    if let (Some(node), Some(nodes @ 1..)) = (sizes.node_bytes, sizes.nodes_freed) {
        let nodes = counted(nodes as usize, "node");
        text += &format!("; {nodes} of {}, if memory is what fills them", gibibytes(node));
    }
    text
}

/// As Kubernetes writes it.
fn mebibytes(bytes: f64) -> String {
    format!("{:.0}Mi", rounded(bytes / MIB, 0))
}

fn gibibytes(bytes: f64) -> String {
    format!("{:.1} GiB", shown(bytes))
}

/// The number of `gibibytes`.
fn shown(bytes: f64) -> f64 {
    rounded(bytes / GIB, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Need;
    use snug_base::testing::written;

    fn sizes(freed_bytes: f64) -> FleetSizes {
        let need =
            Need { pods: 6, peak_bytes: 300.0 * MIB, limit_bytes: 400.0 * MIB, request_bytes: 320.0 * MIB };
        let known = FleetRow {
            namespace: "shop".into(),
            workload: "web".into(),
            container: "web".into(),
            pods: 40,
            canary_pods: 6,
            limit_bytes: Some(600.0 * MIB),
            request_bytes: Some(512.0 * MIB),
            under_snug: Some(need.clone()),
            under_snug_unknown: None,
            today: Some(need),
            today_unknown: None,
            freed_bytes: Some(freed_bytes),
            freed_by_snug_bytes: Some(2.0 * GIB),
            resize: None,
            resize_unknown: None,
        };
        let unknown = FleetRow {
            workload: "jobs".into(),
            under_snug: None,
            under_snug_unknown: Some(Unknown::NoPods),
            freed_bytes: None,
            ..known.clone()
        };
        FleetSizes {
            containers: vec![known, unknown],
            requested_bytes: 20.0 * GIB,
            freed_bytes,
            freed_by_snug_bytes: 2.0 * GIB,
            node_bytes: Some(2.0 * GIB),
            nodes_freed: Some(1),
        }
    }

    #[test]
    fn rows_notes_and_the_sum() {
        let mut all_use_it = sizes(0.5 * GIB);
        all_use_it.containers[0].freed_by_snug_bytes = None;
        all_use_it.nodes_freed = Some(0);
        // As of pods whose names are not Kubernetes'.
        let mut many = sizes(GIB);
        let unknown = many.containers.pop().unwrap();
        let alone = |number: usize| FleetRow { workload: format!("w{number}"), pods: 1, ..unknown.clone() };
        many.containers.extend((0..240).map(alone));
        let cases = [
            ("much is freed, some by snug", sizes(3.5 * GIB), 86400.0),
            ("snug saves more than is freed", sizes(0.5 * GIB), 86400.0),
            ("all use snug already", all_use_it, 86400.0),
            ("requests would rise; two hours", sizes(-GIB), 7200.0),
            ("240 kinds of pods without an answer", many, 86400.0),
        ];
        let told = cases.map(|(name, sizes, span_s)| {
            format!("==== {name}\n{}", written(|out| write(&sizes, span_s, false, out)))
        });
        expect_test::expect_file!["../golden/fleet.txt"].assert_eq(&told.concat());
    }

    /// The amounts in the sentence, in tenths.
    fn amounts(text: &str) -> Vec<i64> {
        let sentence = text.lines().last().unwrap();
        let numbers =
            sentence.split(" GiB").filter_map(|before| before.rsplit(' ').next()?.parse::<f64>().ok());
        numbers.map(|number| (number * 10.0).round() as i64).collect()
    }

    #[test]
    fn parts_add_up_to_the_whole_and_nothing_is_no_change() {
        for (freed, by_snug) in (-30..=30).flat_map(|freed| (-30..=30).map(move |by_snug| (freed, by_snug))) {
            let bytes = |step: i32| 0.034 * f64::from(step) * GIB;
            let mut sizes =
                FleetSizes { node_bytes: None, freed_by_snug_bytes: bytes(by_snug), ..sizes(bytes(freed)) };
            sizes.containers[0].freed_bytes = Some(sizes.freed_bytes);
            let text = written(|out| write(&sizes, 86400.0, false, out));
            snug_base::testing::assert_no_minus_zero(&text);
            assert!(!text.contains("by 0.0"), "{text}");
            match *amounts(&text) {
                [requested] => assert!(requested == 200 && text.contains("are just enough"), "{text}"),
                [requested, more] => assert!(requested == 200 && more > 0, "{text}"),
                [freed, _, first, second] if text.contains(" because of snug, ") => {
                    assert!(first >= 0 && second >= 0 && first + second == freed, "{text}");
                }
                [freed, _, first, second] => {
                    assert!(text.contains(", but ") && second > 0 && first - second == freed, "{text}");
                }
                _ => panic!("{text}"),
            }
        }
    }
}
