//! The comparison as Markdown, to be pasted into a pull request: the sentence, the table, what to know before
//! believing it, and how to repeat it.

use std::io::{self, Write};

use snug_base::terminal;
use snug_compare::change::{Changes, Origin};
use snug_compare::quantities::Quantity;
use snug_compare::results::Comparison;
use snug_compare::view::{self, Cell, Difference, Others, Table};
use snug_inspect::kinds::Kind;

/// Writes GitHub's flavour of Markdown.
pub fn write(comparison: &Comparison, origin: &Origin, out: &mut dyn Write) -> io::Result<()> {
    let program = terminal::shell_line(&comparison.program);
    writeln!(out, "## Memory of {}\n", code(&program))?;
    writeln!(out, "**{}**\n", text(&comparison.summary.conclusion))?;
    for changes in origin.changes {
        write_changes(out, changes)?;
    }
    write_table(out, comparison, &view::table(comparison))?;
    if let Some(phases) = view::phase_table(comparison) {
        writeln!(out, "\nMemory by phase ({}):\n", comparison.summary.memory_measure.to_uppercase())?;
        write_table(out, comparison, &phases)?;
    }
    writeln!(out, "\n{}", reading(comparison))?;
    write_doubts(out, comparison)?;
    if let Some(others) = view::others(comparison) {
        write_others(out, comparison, &others)?;
    }
    writeln!(out, "\n<details><summary>How to repeat it</summary>")?;
    let alone = [("", comparison)];
    for (name, source) in if origin.sources.is_empty() { &alone[..] } else { &origin.sources } {
        write_facts(out, name, source)?;
    }
    writeln!(out, "\n</details>")
}

/// What was measured besides, folded away.
fn write_others(out: &mut dyn Write, comparison: &Comparison, others: &Others) -> io::Result<()> {
    writeln!(out, "\n<details><summary>Also measured: {}</summary>\n", others.headings())?;
    write_table(out, comparison, &others.table)?;
    if !others.absent.is_empty() {
        writeln!(out, "\nZero throughout: {}.", others.absent)?;
    }
    writeln!(out, "\n</details>")
}

/// How one comparison can be repeated, and what it ran on.
fn write_facts(out: &mut dyn Write, name: &str, comparison: &Comparison) -> io::Result<()> {
    let name = if name.is_empty() { String::new() } else { format!("{}: ", text(name)) };
    writeln!(out, "\n{}\n", fenced(&repeat(comparison)))?;
    writeln!(
        out,
        "{name}{}; measured {} with snug {}.\n",
        text(&comparison.machine.line()),
        text(&comparison.started_at),
        text(&comparison.snug_version)
    )?;
    for allocator in &comparison.allocators {
        let version = allocator.version.as_deref().map_or_else(String::new, |v| format!(" {}", text(v)));
        let library = allocator.library.as_deref().map_or_else(|| "the program's own".into(), code);
        let set = allocator.environment.iter().map(|(name, value)| code(&format!("{name}={value}")));
        let set = set.collect::<Vec<_>>().join(" ");
        let set = if set.is_empty() { String::new() } else { format!("; sets {set}") };
        writeln!(out, "- {}:{version} {library}{set}", code(&allocator.label))?;
    }
    Ok(())
}

fn write_changes(out: &mut dyn Write, changes: &Changes) -> io::Result<()> {
    let (before, after) = (text(&changes.before), text(&changes.after));
    writeln!(out, "| {after} against {before} | quantity | {before} | {after} | ratio | 95 % interval |")?;
    writeln!(out, "|---|---|--:|--:|--:|---|")?;
    for row in &changes.rows {
        let shown = &row.shown;
        let label = if shown.first { code(&row.allocator) } else { String::new() };
        let ratio = match shown.verdict {
            Difference::Better | Difference::Worse | Difference::Differs => format!("**{}**", shown.ratio),
            _ => shown.ratio.clone(),
        };
        let heading = text(&shown.heading);
        writeln!(
            out,
            "| {label} | {heading} | {} | {} | {ratio} | {} |",
            shown.before,
            shown.after,
            shown.says()
        )?;
    }
    for remark in &changes.remarks {
        writeln!(out, "\n{}", text(remark))?;
    }
    writeln!(out)
}

/// The command that repeats the comparison, in its directory.
pub fn repeat(comparison: &Comparison) -> String {
    let directory = terminal::shell_line(std::slice::from_ref(&comparison.directory));
    format!("cd {directory} && {}", terminal::shell_line(&comparison.invocation))
}

/// How the numbers are to be read, in two sentences.
pub fn reading(comparison: &Comparison) -> String {
    let runs = match view::run_count(comparison) {
        None => "One run each: no interval, so no difference is proven.".into(),
        Some(runs) => format!(
            "Medians of {runs} interleaved runs. In brackets: times {} with the 95 % interval; \
             \"no difference\" where none is shown and more than 10 % is ruled out; \"not enough data\" where neither is; \
             \"may be chance\" where one is, and yet one such among as many ratios as are shown here is no surprise \
             (Holm's method, 5 %).",
            text(&comparison.summary.baseline)
        ),
    };
    let which = match &comparison.settings.only {
        Some(only) => format!("processes that match {}", code(only)),
        None => "the whole process tree".into(),
    };
    let when = view::window(comparison).map_or_else(String::new, |window| format!(" {window}"));
    format!("{runs} Memory is that of {which}{when}, in MB (10⁶ bytes).")
}

fn write_table(out: &mut dyn Write, comparison: &Comparison, table: &Table) -> io::Result<()> {
    let heading = |quantity: &Quantity| match quantity.unit {
        "" => text(&quantity.heading),
        "/s" => text(&format!("{}/s", quantity.heading)),
        unit => text(&format!("{} ({unit})", quantity.heading)),
    };
    let headings: Vec<String> = table.quantities.iter().map(heading).collect();
    writeln!(out, "| allocator | {} |", headings.join(" | "))?;
    writeln!(out, "|---|{}", "--:|".repeat(headings.len()))?;
    for row in &table.rows {
        let emphasised = row.kind == Kind::Snug;
        let shown = |cell: &Option<Cell>| match cell {
            Some(cell) => shown(cell, emphasised),
            None => "–".into(),
        };
        let cells: Vec<String> = row.cells.iter().map(shown).collect();
        let remark = if row.remark.is_empty() { String::new() } else { format!(" ({})", row.remark) };
        writeln!(out, "| {}{remark} | {} |", code(&row.label), cells.join(" | "))?;
    }
    debug_assert!(table.rows.len() == comparison.allocators.len());
    Ok(())
}

fn shown(cell: &Cell, emphasised: bool) -> String {
    let value = cell.value.as_str();
    let value = if emphasised { format!("**{value}**") } else { value.to_string() };
    match cell.verdict {
        Difference::Baseline | Difference::NoRatio => value,
        Difference::Unproven => format!("{value} ({})", cell.ratio),
        verdict => match verdict.words() {
            "" => format!("{value} ({}, {})", cell.ratio, cell.interval),
            words => format!("{value} ({words}: {}, {})", cell.ratio, cell.interval),
        },
    }
}

/// Failed runs and warnings.
fn write_doubts(out: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    let failed: Vec<_> = comparison.runs.iter().filter(|run| run.failure.is_some()).collect();
    if !failed.is_empty() {
        writeln!(
            out,
            "\n> [!CAUTION]\n> {} of {} runs failed and are in no number above:",
            failed.len(),
            comparison.runs.len()
        )?;
        for run in failed {
            let reason = run.failure.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            writeln!(out, "> - round {} under {}: {}", run.round, code(&run.allocator), text(reason))?;
        }
    }
    if !comparison.summary.warnings.is_empty() {
        writeln!(out, "\n> [!WARNING]")?;
        for warning in &comparison.summary.warnings {
            writeln!(out, "> - {}", text(warning))?;
        }
    }
    Ok(())
}

/// A fenced block that the content cannot end.
pub fn fenced(content: &str) -> String {
    let mut fence = String::from("```");
    while content.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}sh\n{content}\n{fence}")
}

/// A code span that the content cannot end, and that does not end a table's cell.
pub fn code(content: &str) -> String {
    let content = content.replace(['\n', '\r'], " ").replace('|', "\\|");
    let mut fence = String::from("`");
    while content.contains(&fence) {
        fence.push('`');
    }
    let space = if content.starts_with('`') || content.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{content}{space}{fence}")
}

/// Text in which nothing is markup.
pub fn text(content: &str) -> String {
    let mut escaped = String::with_capacity(content.len());
    for c in content.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => escaped.extend(['\\', c]),
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' | '\r' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::{fixture, summary};

    fn render(comparison: &Comparison) -> String {
        snug_base::testing::written(|out| write(comparison, &Origin::default(), out))
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells() {
        let text = render(&fixture::server());
        for table in text.split("\n\n").filter(|part| part.starts_with("| ")) {
            let cells = |line: &str| line.matches('|').count() - line.matches("\\|").count();
            let first = cells(table.lines().next().unwrap());
            assert!(table.lines().all(|line| cells(line) == first), "{table}");
        }
        assert!(text.contains("mean, idle") && text.contains("```sh\ncd /srv/app && snug compare"), "{text}");
        let program = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[50.0, 51.0])]);
        assert!(render(&program).contains("(no difference: 1.00×"), "{text}");
    }

    #[test]
    fn other_kinds_of_memory_are_folded_away() {
        let mut comparison = fixture::server();
        fixture::set_memory(&mut comparison, &[("threads_peak", 15.0), ("swap_peak_bytes", 0.0)]);
        let text = render(&comparison);
        let (_, folded) = text.split_once("<details><summary>Also measured: mean PSS, ").unwrap();
        let (folded, rest) = folded.split_once("</details>").unwrap();
        assert!(
            folded.contains("| most threads |") && folded.contains("Zero throughout: peak in swap."),
            "{text}"
        );
        assert!(rest.contains("<details><summary>How to repeat it"), "{text}");
    }

    #[test]
    fn failures_and_warnings_are_shown() {
        let mut comparison = fixture::comparison(&[("glibc", &[100.0, 101.0]), ("snug", &[50.0, 51.0])]);
        comparison.runs[3].failure = Some("exited with code 3; its stderr:\n  boom".into());
        comparison.runs[0].notes.push("a note".into());
        comparison.summary = summary::summarise(&comparison);
        let text = render(&comparison);
        assert!(text.contains("1 of 4 runs failed") && text.contains("exited with code 3"), "{text}");
        assert!(text.contains("`snug` (1 of 2 runs failed)") && text.contains("a note"), "{text}");
    }

    #[test]
    fn nothing_of_the_program_is_markup() {
        assert_eq!(code("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(text("a_b <i> [x]"), "a\\_b &lt;i> \\[x\\]");
        assert!(fenced("```").starts_with("````sh\n"));
    }

    #[test]
    fn a_comparison_that_was_stopped_shows_the_runs_there_are() {
        fixture::assert_stop_is_shown(render);
    }
}
