//! The overview of several comparisons: as a table for the terminal, and as one in Markdown.

use std::io::{self, Write};

use crate::markdown::{code, text};
use crate::narrow::{self, Column};
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
        let label = |row: &OverviewRow| {
            let bold = |line: &str| if row.kind == Kind::Snug { bold(line) } else { line.into() };
            narrow::label(&row.label).lines().map(bold).collect::<Vec<_>>().join("\n")
        };
        let first = Column::text(bold(&overview.heading), overview.rows.iter().map(label));
        let cell = |row: &OverviewRow, index: usize| row.cells[index].clone().unwrap_or_else(|| "–".into());
        let column = |(index, file): (usize, &String)| {
            Column::numbers(bold(file), overview.rows.iter().map(|row| cell(row, index)))
        };
        let last = bold(&format!("× {}", overview.baseline));
        let last = Column::numbers(last, overview.rows.iter().map(ratio));
        let columns: Vec<Column> = overview.files.iter().enumerate().map(column).chain([last]).collect();
        narrow::write(&first, &columns, terminal::stdout_columns(), out)?;
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
}
