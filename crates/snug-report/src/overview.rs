//! The overview of several comparisons: as a table for the terminal, and as one in Markdown.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::markdown::{code, text};
use snug_base::terminal::{self, styled};
use snug_compare::overview::{Overview, OverviewRow};
use snug_inspect::kinds::Kind;

fn ratio(row: &OverviewRow) -> String {
    row.ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"))
}

/// Writes tables for the terminal.
pub fn write_text(overviews: &[Overview], colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let bold = |text: &str| styled(text, terminal::BOLD, colours);
    for (index, overview) in overviews.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let mut table = Table::new();
        table.load_preset("     ══                ");
        table.set_content_arrangement(ContentArrangement::Disabled);
        let last = format!("× {}", overview.baseline);
        let headings = overview.files.iter().chain([&last]).map(|heading| bold(heading));
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header([Cell::new(bold(&overview.heading))].into_iter().chain(headings.map(right)));
        for row in &overview.rows {
            let label = if row.kind == Kind::Snug { bold(&row.label) } else { row.label.clone() };
            let cells = row.cells.iter().map(|cell| cell.clone().unwrap_or_else(|| "–".into()));
            let cells = cells.chain([ratio(row)]).map(right);
            table.add_row([Cell::new(label)].into_iter().chain(cells));
        }
        writeln!(out, "{}", table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))?;
    }
    writeln!(out, "medians of the runs; last column: geometric mean of the ratios")
}

/// Writes tables in GitHub's flavour of Markdown.
pub fn write_markdown(overviews: &[Overview], out: &mut dyn Write) -> io::Result<()> {
    for (index, overview) in overviews.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let files: Vec<String> = overview.files.iter().map(|name| text(name)).collect();
        writeln!(out, "| {} | {} | × {} |", overview.heading, files.join(" | "), text(&overview.baseline))?;
        writeln!(out, "|---|{}--:|", "--:|".repeat(files.len()))?;
        for row in &overview.rows {
            let mark = if row.kind == Kind::Snug { "**" } else { "" };
            let version =
                row.version.as_deref().map_or_else(String::new, |version| format!(" {}", text(version)));
            let cells = row.cells.iter().map(|cell| cell.clone().unwrap_or_else(|| "–".into()));
            let cells: Vec<String> =
                cells.chain([ratio(row)]).map(|cell| format!("{mark}{cell}{mark}")).collect();
            writeln!(out, "| {mark}{}{mark}{version} | {} |", code(&row.label), cells.join(" | "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview() -> Overview {
        let row = |label: &str, kind, cells: &[Option<&str>], ratio| OverviewRow {
            label: label.into(),
            version: Some("1.0".into()),
            kind,
            cells: cells.iter().map(|cell| cell.map(String::from)).collect(),
            ratio,
        };
        Overview {
            heading: "mean memory, MB".into(),
            files: vec!["puma".into(), "side|kiq".into()],
            baseline: "glibc".into(),
            rows: vec![
                row("snug", Kind::Snug, &[Some("100"), Some("200")], Some(0.5)),
                row("glibc", Kind::Glibc, &[Some("200"), None], None),
            ],
        }
    }

    #[test]
    fn markdown_has_as_many_cells_in_every_row() {
        let mut out = Vec::new();
        write_markdown(&[overview()], &mut out).unwrap();
        let expected = "| mean memory, MB | puma | side\\|kiq | × glibc |\n|---|--:|--:|--:|\n\
                        | **`snug`** 1.0 | **100** | **200** | **0.50** |\n| `glibc` 1.0 | 200 | – | – |\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn text_has_a_line_for_each_allocator() {
        let mut out = Vec::new();
        write_text(&[overview()], false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().any(|line| line.split_whitespace().eq(["snug", "100", "200", "0.50"])),
            "{text}"
        );
        assert!(text.lines().any(|line| line.split_whitespace().eq(["glibc", "200", "–", "–"])), "{text}");
    }
}
