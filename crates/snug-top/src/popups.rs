//! The popups of `snug top`: help, and the settings of one process.

use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::Frame;

use crate::model::SettingsEditor;
use crate::palette::Palette;

/// The keys, and what the columns mean.
pub(crate) fn help(frame: &mut Frame, area: Rect, palette: Palette) {
    const KEYS: &[(&str, &str)] = &[
        ("↑ ↓ PgUp PgDn", "select a process"),
        ("< >", "sort by the column to the left, right"),
        ("r", "reverse the order"),
        ("t", "show as a tree"),
        ("d Enter", "details on, off"),
        ("c", "size classes of the selected process"),
        ("p", "have it give free memory back now"),
        ("s", "change a setting of it while it runs"),
        ("space", "pause, go on"),
        ("+ -", "read more often, less often"),
        ("Esc", "back"),
        ("q Ctrl-C", "quit"),
    ];
    const WORDS: &[(&str, &str)] = &[
        ("RSS", "memory that the process holds"),
        ("PSS", "the same, shared pages divided"),
        ("LIVE", "allocated, not freed; ~ estimated"),
        ("CACHED", "freed, kept at hand by threads"),
        ("DIRTY", "free, not yet given back"),
        ("FRAG", "share of the heap not live"),
        ("ALLOC/s", "bytes out of slabs; caches serve more"),
    ];
    let lines: Vec<Line> = KEYS
        .iter()
        .map(|(key, what)| (*key, *what))
        .chain(std::iter::once(("", "")))
        .chain(WORDS.iter().copied())
        .map(|(name, what)| {
            Line::from(vec![Span::styled(format!(" {name:<14}"), palette.title()), Span::raw(what)])
        })
        .collect();
    popup(frame, area, " help ", 56, lines, palette);
}

/// The settings of a process, and the value that is typed.
pub(crate) fn settings(frame: &mut Frame, area: Rect, settings: &SettingsEditor, palette: Palette) {
    let mut lines: Vec<Line> = Vec::new();
    for (index, (name, value)) in settings.pairs.iter().enumerate() {
        let style = if index == settings.chosen { palette.selected() } else { Style::new() };
        lines.push(Line::styled(format!(" {name:<24} {value:<10}"), style));
    }
    if lines.is_empty() {
        lines.push(Line::from(" nothing can change while it runs"));
    }
    lines.push(Line::from(""));
    lines.push(match (&settings.typed, settings.pairs.get(settings.chosen)) {
        (Some(typed), Some((name, _))) => Line::styled(format!(" {name} = {typed}_"), palette.title()),
        _ => Line::styled(" until it ends; the variable SNUG is for good", palette.faint()),
    });
    popup(frame, area, &format!(" settings of {} ", settings.pid), 50, lines, palette);
}

fn popup(frame: &mut Frame, area: Rect, title: &str, width: u16, lines: Vec<Line>, palette: Palette) {
    let width = width.min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height);
    let inside =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, inside);
    let block = Block::bordered().title(Span::styled(title.to_string(), palette.title()));
    frame.render_widget(Paragraph::new(lines).block(block), inside);
}
