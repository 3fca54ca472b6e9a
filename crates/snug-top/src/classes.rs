//! The size classes of one process: where its small blocks are, and how full their slabs.

use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::Frame;

use crate::model::Model;
use crate::palette::{aligned, Palette};
use snug_base::terminal;
use snug_heap::counters::{Account, Class};

const TITLES: [(&str, u16); 7] =
    [("SIZE", 8), ("BLOCKS", 9), ("IN USE", 8), ("SLABS", 7), ("SPACE", 8), ("UNUSED", 8), ("FULL", 5)];

/// Draws the classes of the selected process.
pub(crate) fn draw(frame: &mut Frame, area: Rect, model: &mut Model, palette: Palette) {
    let Some(reading) = model.selected() else { return };
    let Some(heap) = &reading.heap else {
        let text = format!("{} is no longer under snug: no size classes to show", reading.pid);
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let rows = rows(&heap.account, area.width);
    let page = usize::from(area.height.saturating_sub(1)).max(1);
    let scroll = model.scroll.min(rows.len().saturating_sub(page));
    let header = Row::new(
        TITLES.iter().map(|(title, width)| Line::styled(aligned(title, *width, true), palette.faint())),
    );
    let widths = TITLES.iter().map(|(_, width)| Constraint::Length(*width)).chain([Constraint::Fill(1)]);
    let shown = rows.into_iter().skip(scroll).map(|cells| {
        let count = TITLES.len();
        Row::new(cells.into_iter().enumerate().map(|(column, text)| match TITLES.get(column) {
            Some((_, width)) => Line::from(aligned(&text, *width, true)),
            None => Line::styled(text, if column == count { palette.bars() } else { palette.faint() }),
        }))
    });
    frame.render_widget(Table::new(shown, widths).header(header).column_spacing(1), area);
    model.scroll = scroll;
    model.page_rows = page;
}

/// Cells of all rows: classes that have slabs, then runs and large blocks.
fn rows(account: &Account, width: u16) -> Vec<Vec<String>> {
    let used: Vec<&Class> = account.classes.iter().filter(|class| class.slabs > 0).collect();
    let head = &account.head;
    let most = used.iter().map(|class| class.slab_bytes).max().unwrap_or(0);
    let bars_width = usize::from(width.saturating_sub(TITLES.iter().map(|(_, width)| width + 1).sum()));
    let mut rows: Vec<Vec<String>> = used.iter().map(|class| class_row(class, most, bars_width)).collect();
    let bytes = |count: u64| terminal::bytes(count as f64);
    for (name, blocks, held, requested) in [
        ("runs", head.run_blocks, head.run_bytes, head.run_requested_bytes),
        ("large", head.large_blocks, head.large_bytes, head.large_requested_bytes),
    ] {
        let full = if held == 0 { "-".into() } else { percent(requested, held) };
        rows.push(vec![
            name.into(),
            blocks.to_string(),
            bytes(requested),
            "-".into(),
            bytes(held),
            bytes(held.saturating_sub(requested)),
            full,
        ]);
    }
    rows
}

fn class_row(class: &Class, most_bytes: u64, bars_width: usize) -> Vec<String> {
    let bytes = |count: u64| terminal::bytes(count as f64);
    let in_use = class.outstanding_bytes().min(class.slab_bytes);
    let columns = |count: u64| (count as f64 / most_bytes.max(1) as f64 * bars_width as f64).round() as usize;
    let (full, held) = (columns(in_use), columns(class.slab_bytes));
    vec![
        class.size_bytes.to_string(),
        class.outstanding_blocks.to_string(),
        bytes(in_use),
        class.slabs.to_string(),
        bytes(class.slab_bytes),
        bytes(class.slab_bytes - in_use),
        percent(in_use, class.slab_bytes),
        format!("{}{}", "█".repeat(full), "░".repeat(held.saturating_sub(full))),
    ]
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0}%", part as f64 / whole.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_what_is_used_of_what_is_held() {
        let class =
            Class { size_bytes: 64, slabs: 2, slab_bytes: 8192, outstanding_blocks: 64, ..Class::default() };
        let row = class_row(&class, 8192, 10);
        assert_eq!(row, ["64", "64", "4.10 kB", "2", "8.19 kB", "4.10 kB", "50%", "█████░░░░░"]);
    }
}
