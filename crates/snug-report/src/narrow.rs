//! Tables that are no wider than a terminal. Columns that do not fit beside the others follow below, in a part of their
//! own that begins with the first column again. Knows nothing of what they hold.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

/// No first column is wider: the rest of a long name goes to the next line.
const NAME_WIDTH: u16 = 40;

/// A column with its heading.
pub struct Column {
    heading: Cell,
    cells: Vec<Cell>,
    stays: bool,
}

impl Column {
    /// A column of text.
    pub fn text(heading: String, cells: impl IntoIterator<Item = String>) -> Column {
        Column {
            heading: Cell::new(heading),
            cells: cells.into_iter().map(Cell::new).collect(),
            stays: false,
        }
    }

    /// A column of numbers.
    pub fn numbers(heading: String, cells: impl IntoIterator<Item = String>) -> Column {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        Column { heading: right(heading), cells: cells.into_iter().map(right).collect(), stays: false }
    }

    /// The same, always beside the column before it.
    pub fn staying(self) -> Column {
        Column { stays: true, ..self }
    }
}

/// Writes a table in as many parts as it takes to be no wider than so many columns of a terminal.
pub fn write(first: &Column, columns: &[Column], width: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = columns;
    loop {
        let ends = (1..=rest.len()).filter(|end| rest.get(*end).is_none_or(|next| !next.stays));
        let mut part = (0, String::new());
        for end in ends {
            let wider = (end, part_of(first, &rest[..end]));
            if part.0 > 0 && columns_of(&wider.1) > width {
                break;
            }
            part = wider;
        }
        writeln!(out, "{}", part.1)?;
        rest = &rest[part.0..];
        if rest.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
    }
}

fn part_of(first: &Column, columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_preset("     ══                ").set_content_arrangement(ContentArrangement::Disabled);
    let all = || std::iter::once(first).chain(columns);
    table.set_header(all().map(|column| column.heading.clone()));
    for row in 0..first.cells.len() {
        table.add_row(all().map(|column| column.cells[row].clone()));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
        first.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(NAME_WIDTH)));
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The line below the headings is as long as the table is wide, whatever colours there are.
fn columns_of(table: &str) -> usize {
    table.lines().find(|line| line.starts_with('═')).map_or(0, |line| line.chars().count())
}

/// Breaks a long label where its parts meet.
pub fn label(label: &str) -> String {
    const WIDTH: usize = NAME_WIDTH as usize - 2;
    let mut lines = vec![String::new()];
    for part in label.split_inclusive([':', ',', '/']) {
        let current = lines.last_mut().expect("there is always one line");
        if !current.is_empty() && current.chars().count() + part.chars().count() > WIDTH {
            lines.push(format!("  {part}"));
        } else {
            current.push_str(part);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;
    use snug_base::testing::written;

    #[test]
    fn long_labels_are_broken_between_parts() {
        let text = label("jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0");
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.len() <= 42), "{text}");
    }

    /// Whatever the columns: no line is wider, each part has the names, and every cell is there once, in order.
    #[test]
    fn parts_are_narrow_and_lose_nothing() {
        let mut random = Random::new(9);
        for _ in 0..200 {
            let count = random.between(1.0, 30.0) as usize;
            let names = Column::text("name".into(), ["one", "two"].map(String::from));
            let column = |index: usize, random: &mut Random| {
                let cell =
                    |row: usize| format!("{index:0width$}r{row}", width = random.between(2.0, 12.0) as usize);
                let cells = [0, 1].map(cell);
                let column = Column::numbers(format!("h{index}"), cells);
                if random.chance(0.4) && index > 0 && index % 2 == 1 {
                    column.staying()
                } else {
                    column
                }
            };
            let mut columns: Vec<Column> = Vec::new();
            for index in 0..count {
                columns.push(column(index, &mut random));
            }
            let text = written(|out| write(&names, &columns, 80, out));
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let headings: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with('h')).collect();
            assert_eq!(headings, (0..count).map(|index| format!("h{index}")).collect::<Vec<_>>(), "{text}");
            let parts = text.matches("name").count();
            assert_eq!((text.matches("one").count(), text.matches("two").count()), (parts, parts), "{text}");
            for (index, column) in columns.iter().enumerate().filter(|(_, column)| column.stays) {
                let with = text.lines().find(|line| line.contains(&format!("h{index}"))).unwrap();
                assert!(with.contains(&format!("h{} ", index - 1)), "{}: {text}", column.stays);
            }
        }
    }
}
