//! Findings of `snug check`, for people: the verdict, one line per process, then what is wrong with its fix, and lines
//! to paste.

use std::io::{self, Write};

use comfy_table::{Cell, ContentArrangement, Table};

use crate::hooks_text;
use snug_base::terminal::{self, printable, styled};
use snug_inspect::deploy::Snippet;
use snug_inspect::options::{ConfKey, OptionSource};
use snug_inspect::report::{CheckReport, Problem, ProcessReport, SettingsSource, Severity};

/// Writes text. `colours` allows bold and colours.
pub struct CheckText {
    pub colours: bool,
    /// The lines to paste for every way of deploying, and not only for one.
    pub all_lines: bool,
}

impl CheckText {
    pub fn write(&self, report: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}\n", styled(&printable(&verdict(report)), terminal::BOLD, self.colours))?;
        writeln!(out, "{}", self.processes(report))?;
        for (place, processes) in grouped_places(report) {
            let of = of_processes(&processes, report);
            writeln!(out, "\n{}{of}", if of.is_empty() { place } else { format!("{place};") })?;
        }
        for (linkage, processes) in grouped_linkages(report) {
            writeln!(out, "\nprogram{}: {linkage}", of_processes(&processes, report))?;
        }
        for (settings, source, processes) in grouped_settings(report) {
            let source = match source {
                SettingsSource::Allocator => "settings in effect",
                _ => "settings in the environment",
            };
            writeln!(out, "\n{source}{}: {}", of_processes(&processes, report), printable(&settings))?;
        }
        for line in hooks_text::lines(report) {
            writeln!(out, "\nhooks: {}", printable(&line))?;
        }
        for (keys, processes) in grouped_conf_keys(report) {
            writeln!(out, "\nMALLOC_CONF, key by key{}:", of_processes(&processes, report))?;
            for line in conf_lines(keys) {
                writeln!(out, "  {}", printable(&line))?;
            }
        }
        for (problem, processes) in grouped_problems(report) {
            let (name, style) = match problem.severity {
                Severity::Error => ("wrong", terminal::BAD),
                Severity::Warning => ("warning", terminal::WARNING),
                Severity::Note => ("note", terminal::FAINT),
            };
            let label = styled(&format!("{name}:"), style, self.colours);
            let message = printable(&problem.message);
            writeln!(out, "\n{label} {message}{}", of_processes(&processes, report))?;
            writeln!(out, "  fix: {}", printable(&problem.fix))?;
        }
        self.changes(report, out)
    }

    fn changes(&self, report: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
        // What one tries first.
        let first = report.changes.iter().find(|change| change.title == "Shell").or(report.changes.first());
        let shown: Vec<&Snippet> = match self.all_lines {
            true => report.changes.iter().collect(),
            false => first.into_iter().collect(),
        };
        if !shown.is_empty() {
            writeln!(out, "\nLines that change it:")?;
        }
        for change in &shown {
            let title = styled(change.title, terminal::BOLD, self.colours);
            writeln!(out, "\n{title} ({}):", change.file)?;
            for line in change.text.lines() {
                writeln!(out, "{}", format!("    {}", printable(line)).trim_end())?;
            }
        }
        let others = report.changes.iter().filter(|change| !shown.contains(change));
        let others: Vec<&str> = others.map(|change| change.title).collect();
        if !others.is_empty() {
            writeln!(out, "\nWith --lines also those for: {}.", others.join(", "))?;
        }
        Ok(())
    }
}

/// Places, with the processes that are there.
fn grouped_places(report: &CheckReport) -> Vec<(String, Vec<i32>)> {
    grouped(report, |process| process.place.text())
}

/// Kinds of programs, with the processes that are of them.
fn grouped_linkages(report: &CheckReport) -> Vec<(String, Vec<i32>)> {
    grouped(report, |process| Some(process.linkage.text()))
}

/// What there is to say, with the processes of which it is true.
fn grouped(report: &CheckReport, text: impl Fn(&ProcessReport) -> Option<String>) -> Vec<(String, Vec<i32>)> {
    let mut groups: Vec<(String, Vec<i32>)> = Vec::new();
    for process in &report.processes {
        let Some(text) = text(process).as_deref().map(printable) else { continue };
        match groups.iter_mut().find(|group| group.0 == text) {
            Some(group) => group.1.push(process.pid),
            None => groups.push((text, vec![process.pid])),
        }
    }
    groups
}

impl CheckText {
    fn processes(&self, report: &CheckReport) -> String {
        let mut table = Table::new();
        table.load_preset("                   ");
        table.set_content_arrangement(ContentArrangement::Disabled);
        let heading = |text: &str| Cell::new(styled(text, terminal::BOLD, self.colours));
        table.set_header(["PID", "allocator", "how", "process"].map(heading));
        for process in &report.processes {
            let expected = report.expected.is_none_or(|kind| process.uses(kind));
            let style = match (report.expected.is_some(), expected) {
                (false, _) => terminal::BOLD,
                (true, true) => terminal::GOOD,
                (true, false) => terminal::BAD,
            };
            let how = process.allocator.as_ref().map_or("", |used| used.how.text());
            let command: String = printable(&process.command).chars().take(60).collect();
            table.add_row([
                Cell::new(if process.pid > 0 { process.pid.to_string() } else { "-".into() }),
                Cell::new(styled(&printable(&process.allocator_text()), style, self.colours)),
                Cell::new(how),
                Cell::new(format!("{}{command}", "  ".repeat(process.depth))),
            ]);
        }
        if let Some(first) = table.column_mut(0) {
            first.set_padding((0, 1));
        }
        let text = table.to_string();
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Says of which processes something is true, where it is not of all.
fn of_processes(pids: &[i32], report: &CheckReport) -> String {
    if pids.len() == report.processes.len() {
        return String::new();
    }
    let shown: Vec<String> = pids.iter().take(5).map(i32::to_string).collect();
    let more = if pids.len() > 5 { format!(" and {} more", pids.len() - 5) } else { String::new() };
    format!(" (PID {}{more})", shown.join(", "))
}

/// Settings, with the processes that have them.
fn grouped_settings(report: &CheckReport) -> Vec<(String, SettingsSource, Vec<i32>)> {
    let mut groups: Vec<(String, SettingsSource, Vec<i32>)> = Vec::new();
    for process in report.processes.iter().filter(|process| !process.settings.is_empty()) {
        let separator = if process.settings_source == SettingsSource::Allocator { ":" } else { "=" };
        let pairs = process.settings.iter().map(|(name, value)| {
            let from = process.settings_from.get(name).and_then(|origin| origin.text());
            let from = from.map_or_else(String::new, |from| format!(" ({from})"));
            format!("{name}{separator}{value}{from}")
        });
        let text = pairs.collect::<Vec<_>>().join(" ");
        match groups.iter_mut().find(|group| group.0 == text && group.1 == process.settings_source) {
            Some(group) => group.2.push(process.pid),
            None => groups.push((text, process.settings_source, vec![process.pid])),
        }
    }
    groups
}

/// Keys of MALLOC_CONF, with the processes that have them.
fn grouped_conf_keys(report: &CheckReport) -> Vec<(&[ConfKey], Vec<i32>)> {
    let mut groups: Vec<(&[ConfKey], Vec<i32>)> = Vec::new();
    for process in report.processes.iter().filter(|process| !process.malloc_conf.is_empty()) {
        match groups.iter_mut().find(|group| group.0 == process.malloc_conf) {
            Some(group) => group.1.push(process.pid),
            None => groups.push((&process.malloc_conf, vec![process.pid])),
        }
    }
    groups
}

/// One line for each key: as it is written, what became of it, and why.
fn conf_lines(keys: &[ConfKey]) -> Vec<String> {
    let separator = |key: &ConfKey| if key.value.is_empty() { "" } else { ":" };
    let line = |key: &ConfKey| {
        let from = match key.source {
            OptionSource::MallocConfLink => "/etc/malloc.conf, ",
            _ => "",
        };
        let outcome = key.outcome.text();
        format!("{from}{}{}{}: {outcome}: {}", key.key, separator(key), key.value, key.text)
    };
    keys.iter().map(line).collect()
}

/// Problems, worst first, with the processes that have them.
fn grouped_problems(report: &CheckReport) -> Vec<(&Problem, Vec<i32>)> {
    let mut groups: Vec<(&Problem, Vec<i32>)> = Vec::new();
    for process in &report.processes {
        for problem in &process.problems {
            match groups.iter_mut().find(|group| group.0 == problem) {
                Some(group) => group.1.push(process.pid),
                None => groups.push((problem, vec![process.pid])),
            }
        }
    }
    groups.sort_by_key(|(problem, _)| std::cmp::Reverse(problem.severity));
    groups
}

/// The answer in one sentence.
pub fn verdict(report: &CheckReport) -> String {
    let count = report.processes.len();
    if let Some(kind) = report.expected {
        let unexpected = report.unexpected();
        if let (true, Some(doubt)) = (unexpected.is_empty(), report.doubt()) {
            return format!("Cannot tell whether {} is used everywhere: {doubt}.", kind.name());
        }
        return match unexpected.as_slice() {
            [] if count == 1 => format!("As expected: it uses {}.", kind.name()),
            [] => format!("As expected: all {count} processes use {}.", kind.name()),
            [one] if count == 1 && one.uses(kind) => {
                let failure = one.failure().unwrap_or_default();
                format!("Not as expected: it would use {}, but it {failure}.", kind.name())
            }
            [one] if count == 1 => {
                format!("Not as expected: it uses {}, not {}.", one.allocator_text(), kind.name())
            }
            several => {
                let of = |process: &&ProcessReport| match process.failure() {
                    Some(failure) => format!("{} {failure}", process.pid),
                    None => format!("{} uses {}", process.pid, process.allocator_text()),
                };
                let shown: Vec<String> = several.iter().take(5).map(of).collect();
                let more = if several.len() > 5 { ", ..." } else { "" };
                format!(
                    "Not as expected: {} of {count} processes {} {}: {}{more}.",
                    several.len(),
                    if several.iter().any(|process| process.uses(kind)) {
                        "fail or do not use"
                    } else {
                        "do not use"
                    },
                    kind.name(),
                    shown.join(", ")
                )
            }
        };
    }
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for process in &report.processes {
        let name = process.allocator.as_ref().map_or("an unknown allocator", |used| used.kind.name());
        match kinds.iter_mut().find(|(other, _)| *other == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let errors = report.worst() == Some(Severity::Error);
    let ending = if errors { ", and something is wrong" } else { "" };
    match kinds.as_slice() {
        [(name, 1)] => format!("It uses {name}{ending}."),
        [(name, count)] => format!("All {count} processes use {name}{ending}."),
        kinds => {
            let parts: Vec<String> =
                kinds.iter().map(|(name, count)| format!("{count} use {name}")).collect();
            format!("Of {count} processes, {}{ending}.", parts.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_inspect::kinds::Kind;
    use snug_inspect::linkage::Linkage;
    use snug_inspect::report::*;
    use snug_process::place::Place;
    use std::collections::BTreeMap;

    fn process(pid: i32, kind: Kind, problems: Vec<Problem>) -> ProcessReport {
        ProcessReport {
            pid,
            parent: 1,
            depth: usize::from(pid != 1),
            command: "puma".into(),
            arguments: vec!["puma".into()],
            place: Place::Host,
            executable: "/usr/bin/ruby".into(),
            linkage: Linkage::default(),
            allocator: Some(AllocatorUsed {
                kind,
                version: Some("1.0".into()),
                how: How::Preloaded,
                file: "/l".into(),
            }),
            settings: BTreeMap::from([("X".to_string(), "1".to_string())]),
            settings_from: BTreeMap::new(),
            settings_source: SettingsSource::Environment,
            malloc_conf: Vec::new(),
            counters: None,
            is_forked: false,
            hooks: None,
            problems,
        }
    }

    fn report(processes: Vec<ProcessReport>, expected: Option<Kind>) -> CheckReport {
        CheckReport {
            expected,
            expectation_met: None,
            transparent_huge_pages: "madvise".into(),
            processes,
            unreadable: Vec::new(),
            changes: Vec::new(),
        }
    }

    fn render(report: &CheckReport) -> String {
        let mut out = Vec::new();
        CheckText { colours: false, all_lines: false }.write(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reports_are_as_they_were() {
        let problem = |id, severity| Problem { id, severity, message: "bad".into(), fix: "do".into() };
        let of = |pid, kind, id, severity| process(pid, kind, vec![problem(id, severity)]);
        let snippet = |title| Snippet { title, file: "f", text: format!("for {title}\n") };
        let mut to_change = report(vec![process(1, Kind::Glibc, vec![])], Some(Kind::Snug));
        to_change.changes = ["Docker", "systemd", "Shell"].map(snippet).to_vec();
        let mixed = vec![process(1, Kind::Snug, vec![]), process(2, Kind::Glibc, vec![])];
        let failed = of(1, Kind::Snug, FAILED_ITSELF, Severity::Error);
        let cases = [
            (
                "the same problem of three",
                report((1..4).map(|pid| of(pid, Kind::Glibc, "x", Severity::Error)).collect(), None),
            ),
            ("as expected", report(vec![process(1, Kind::Snug, vec![])], Some(Kind::Snug))),
            ("what to change", to_change.clone()),
            ("two allocators", report(mixed.clone(), None)),
            ("two allocators, one expected", report(mixed.clone(), Some(Kind::Snug))),
            (
                "does not start",
                report(vec![of(1, Kind::Snug, "missing-library", Severity::Error)], Some(Kind::Snug)),
            ),
            ("one failed by itself", report(vec![failed, mixed[1].clone()], Some(Kind::Snug))),
        ];
        let mut told: String =
            cases.iter().map(|(name, report)| format!("==== {name}\n{}", render(report))).collect();
        let all = CheckText { colours: false, all_lines: true };
        told += &format!("==== all lines\n{}", snug_base::testing::written(|out| all.write(&to_change, out)));
        expect_test::expect_file!["../golden/check.txt"].assert_eq(&told);
    }

    #[test]
    fn what_was_not_seen_is_not_as_expected() {
        let one = vec![process(1, Kind::Snug, vec![])];
        let hidden = CheckReport { unreadable: vec![7, 8], ..report(one.clone(), Some(Kind::Snug)) };
        assert_eq!(hidden.is_as_expected(), None);
        assert_eq!(
            verdict(&hidden),
            "Cannot tell whether snug is used everywhere: 2 processes belong to other users: 7, 8."
        );
        let wrong = CheckReport { unreadable: vec![7], ..report(one.clone(), Some(Kind::Jemalloc)) };
        assert_eq!(wrong.is_as_expected(), Some(false), "what was seen is enough");
        let shell = Problem { id: SHELL, severity: Severity::Note, message: "m".into(), fix: "f".into() };
        let mut by_shell = vec![process(0, Kind::Snug, vec![shell])];
        assert_eq!(
            report(by_shell.clone(), Some(Kind::Snug)).is_as_expected(),
            Some(true),
            "it is handed on"
        );
        by_shell[0].allocator.as_mut().unwrap().how = How::CLibrary;
        let by_shell = report(by_shell, Some(Kind::Jemalloc));
        assert_eq!(by_shell.is_as_expected(), None);
        assert!(verdict(&by_shell).contains("what puma starts is unknown"), "{}", verdict(&by_shell));
    }
}
