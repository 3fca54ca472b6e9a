//! Draws the model of `snug top`. Reads nothing but the model, so that tests can draw into memory.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use ratatui::Frame;

use crate::arguments::SortColumn;
use crate::columns::{self, Content};
use crate::model::{Model, View};
use crate::palette::{aligned, Palette};
use crate::{classes, popups};
use snug_base::terminal::{self, printable};
use snug_heap::counters::{Account, TickCounts};
use snug_inspect::kinds::Kind;
use snug_inspect::sampled;
use snug_live::watch::{HeapReading, Reading};

/// Rows of the details pane, borders included.
const DETAILS_ROWS: u16 = 10;
/// Terminals lower than this have no room for details.
const DETAILS_FROM_ROWS: u16 = 20;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame, model: &mut Model, palette: Palette) {
    let area = frame.area();
    let with_details = model.details && area.height >= DETAILS_FROM_ROWS && model.view == View::Processes;
    let [head, main, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(if with_details { DETAILS_ROWS } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head_line(model, palette, area.width)), head);
    match model.view {
        View::Classes => classes::draw(frame, main, model, palette),
        _ => processes(frame, main, model, palette),
    }
    if with_details {
        draw_details(frame, details, model, palette);
    }
    frame.render_widget(Paragraph::new(foot_line(model, palette)), foot);
    match &model.view {
        View::Help => popups::help(frame, area, palette),
        View::Settings(settings) => popups::settings(frame, area, settings, palette),
        _ => {}
    }
}

/// The sums, and how often they are read.
fn head_line(model: &Model, palette: Palette, width: u16) -> Line<'static> {
    let readings = model.readings();
    let sum = |value: &dyn Fn(&Reading) -> Option<u64>| -> u64 { readings.iter().filter_map(value).sum() };
    let count = terminal::counted(readings.len(), "process");
    let rss = terminal::bytes(sum(&|reading| Some(reading.rss_bytes)) as f64);
    let known = readings.iter().filter(|reading| reading.pss_bytes.is_some()).count();
    let pss = terminal::bytes(sum(&|reading| reading.pss_bytes) as f64);
    let pss = match known {
        known if known == readings.len() => pss,
        0 => "unknown".into(),
        known => format!("{pss} in {known} of {}", readings.len()),
    };
    let mut text = format!("  {count}  RSS {rss}  PSS {pss}");
    let known = readings.iter().filter(|reading| reading.heap.is_some()).count();
    if known > 0 {
        let live = terminal::bytes(sum(&Reading::live_bytes) as f64);
        let of = if known == readings.len() { String::new() } else { format!(" in {known} under snug") };
        text += &format!("  live {live}{of}");
    }
    let title = if model.paused { "snug top paused" } else { "snug top" };
    let state = format!("every {} s", model.interval_s);
    let spare = usize::from(width).saturating_sub(title.len() + text.chars().count() + state.len() + 1);
    let mut spans = vec![Span::styled(title, palette.title()), Span::raw(text)];
    if spare > 0 {
        spans.push(Span::raw(" ".repeat(spare)));
        spans.push(Span::styled(state, palette.faint()));
    }
    Line::from(spans)
}

fn foot_line(model: &Model, palette: Palette) -> Line<'static> {
    if let Some(message) = &model.message {
        let style = if message.bad { palette.bad() } else { palette.good() };
        return Line::from(Span::styled(message.text.clone(), style));
    }
    let keys: &[(&str, &str)] = match model.view {
        View::Processes => &[
            ("q", "quit"),
            ("?", "help"),
            ("<>", "sort"),
            ("t", "tree"),
            ("d", "details"),
            ("c", "classes"),
            ("p", "purge"),
            ("s", "set"),
        ],
        View::Classes => &[("Esc", "back"), ("↑↓", "scroll"), ("q", "quit")],
        View::Help => &[("Esc", "back"), ("q", "quit")],
        View::Settings(_) => &[("↑↓", "choose"), ("Enter", "change"), ("Esc", "back")],
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(*key, palette.title()));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    Line::from(spans)
}

fn processes(frame: &mut Frame, area: Rect, model: &mut Model, palette: Palette) {
    model.page_rows = usize::from(area.height.saturating_sub(1)).max(1);
    let columns = columns::that_fit(area.width);
    if columns.is_empty() || area.height < 2 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    if model.readings().is_empty() {
        let text = "No processes to show yet. New ones appear as they start.";
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let header = Row::new(columns.iter().map(|(column, width)| {
        let sorted = column.content == Content::Value(model.sort) && !model.tree;
        let mark = if !sorted {
            ""
        } else if model.reversed {
            "▲"
        } else {
            "▼"
        };
        let title = format!("{mark}{}", column.title);
        let style = if sorted { palette.title() } else { palette.faint() };
        Line::styled(aligned(&title, *width, columns::is_number(column.content)), style)
    }));
    let rows: Vec<Row> =
        model.readings().iter().map(|reading| row(reading, &columns, model, palette)).collect();
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let table =
        Table::new(rows, widths).header(header).column_spacing(1).row_highlight_style(palette.selected());
    let mut state = TableState::new().with_selected(model.place());
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(
    reading: &Reading,
    columns: &[(&columns::Column, u16)],
    model: &Model,
    palette: Palette,
) -> Row<'a> {
    Row::new(columns.iter().map(|(column, width)| {
        let mut text = columns::cell(reading, column, *width);
        if model.tree && column.content == Content::Value(SortColumn::Role) {
            text = format!("{}{text}", "  ".repeat(reading.depth));
        }
        let style = match column.content {
            Content::Allocator if reading.kind() == Some(Kind::Snug) => palette.good(),
            Content::Trend => palette.bars(),
            _ if text == "unknown" || text == "-" => palette.faint(),
            _ => Style::new(),
        };
        Line::styled(aligned(&text, *width, columns::is_number(column.content)), style)
    }))
}

/// Everything about the selected process.
fn draw_details(frame: &mut Frame, area: Rect, model: &Model, palette: Palette) {
    let Some(reading) = model.selected() else { return };
    let title = format!(" {} {} ", reading.pid, printable(&reading.role_text()));
    let block = Block::new().borders(Borders::TOP).title(Span::styled(title, palette.title()));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let plots_width = if inside.width >= 90 { 40 } else { 0 };
    let [text, _, plots] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(1), Constraint::Length(plots_width)])
            .areas(inside);
    frame.render_widget(Paragraph::new(detail_lines(reading, palette)).wrap(Wrap { trim: false }), text);
    if plots_width > 0 {
        draw_plots(frame, plots, reading, palette);
    }
}

fn draw_plots(frame: &mut Frame, area: Rect, reading: &Reading, palette: Palette) {
    let plots = [("RSS", &reading.rss_history), ("live", &reading.live_history)];
    let plots: Vec<_> = plots.into_iter().filter(|(_, history)| !history.is_empty()).collect();
    // Both from zero and to the same height, so that the gap between them can be seen.
    let most = plots.iter().flat_map(|(_, history)| history.iter()).max().copied().unwrap_or(0);
    let areas = Layout::vertical(plots.iter().map(|_| Constraint::Fill(1))).split(area);
    for ((name, history), area) in plots.into_iter().zip(areas.iter()) {
        let shown = &history[history.len().saturating_sub(area.width.into())..];
        let last = terminal::bytes(*shown.last().unwrap_or(&0) as f64);
        let block = Block::new().title(Span::styled(format!("{name} {last}"), palette.faint()));
        let plot = Sparkline::default().block(block).data(shown).max(most).style(palette.bars());
        frame.render_widget(plot, *area);
    }
}

fn detail_lines(reading: &Reading, palette: Palette) -> Vec<Line<'static>> {
    let how =
        reading.identity.allocator.as_ref().map_or(String::new(), |used| format!(" ({})", used.how.text()));
    let faults = reading
        .faults_per_s
        .map_or(String::new(), |faults| format!(", {} page faults/s", terminal::short_count(faults)));
    let field = |name: &str, value: String| {
        Line::from(vec![Span::styled(format!("{name:<11}"), palette.faint()), Span::raw(printable(&value))])
    };
    let threads = terminal::counted(reading.threads as usize, "thread");
    let mut lines = vec![
        field("command", reading.command.clone()),
        field("allocator", format!("{}{how}, {threads}{faults}", reading.identity.text())),
    ];
    match (&reading.heap, &reading.glibc_heap) {
        (Some(heap), _) => lines.extend(heap_lines(reading, heap, &field)),
        (None, Some(estimate)) => {
            let amount = |count: u64| terminal::bytes(count as f64);
            let (live, held) = (amount(estimate.live_bytes), amount(estimate.held_bytes));
            let heap = format!("~{live} live of {held} resident, estimated from the chunks in glibc's heaps");
            lines.push(field("heap", heap));
            lines.extend(settings_line(reading, &field));
        }
        (None, None) => {
            let why = match (&reading.identity.counters_error, reading.kind()) {
                _ if reading.identity.not_permitted => "it belongs to another user".to_string(),
                (Some(error), _) => format!("snug's counters can't be read: {error}"),
                (None, Some(Kind::Snug)) => "snug's counters were not found".into(),
                (None, Some(Kind::Glibc)) => {
                    format!("glibc's heaps were not walked, or could not be; try snug stats {}", reading.pid)
                }
                (None, _) => {
                    "only snug keeps counters that others can read: `snug run` starts a program under it"
                        .into()
                }
            };
            lines.push(field("live", format!("unknown: {why}")));
            lines.extend(settings_line(reading, &field));
        }
    }
    let settings = reading.heap.as_ref().map(|heap| heap.account.head.settings.as_str());
    if let Some(mean) = settings.and_then(sampled::mean_bytes) {
        let text =
            format!("sampling   on, profile:{mean}; snug check {} shows what switched it on", reading.pid);
        lines.push(Line::from(Span::styled(text, palette.bad())));
    }
    for problem in reading.identity.problems.iter().filter(|problem| problem.id != sampled::ID).take(2) {
        let message = printable(&problem.message);
        lines.push(Line::from(Span::styled(format!("{:<11}{message}", "check"), palette.bad())));
    }
    lines
}

fn settings_line(reading: &Reading, field: &dyn Fn(&str, String) -> Line<'static>) -> Option<Line<'static>> {
    let settings: Vec<String> =
        reading.identity.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!settings.is_empty()).then(|| field("settings", settings.join(" ")))
}

fn heap_lines(
    reading: &Reading,
    heap: &HeapReading,
    field: &dyn Fn(&str, String) -> Line<'static>,
) -> Vec<Line<'static>> {
    let account = &heap.account;
    let head = &account.head;
    let bytes = |count: u64| terminal::bytes(count as f64);
    let resident = account.resident_bytes();
    let rates = match (heap.taken_bytes_per_s, heap.taken_blocks_per_s) {
        (Some(bytes), Some(blocks)) => {
            format!(
                "{}/s in {} blocks/s, beyond what caches serve",
                terminal::bytes(bytes),
                terminal::short_count(blocks)
            )
        }
        _ => "known after the next reading".into(),
    };
    vec![
        field("heap", heap_sum(account)),
        field(
            "not heap",
            format!(
                "{} of RSS: code, stacks, other mappings",
                bytes(reading.rss_bytes.saturating_sub(resident))
            ),
        ),
        field("allocates", rates),
        field(
            "gave back",
            format!(
                "{} in {} purges, {} of them while idle",
                bytes(head.purged_bytes),
                head.purges,
                head.idle_purges
            ),
        ),
        field("settings", head.settings.replace(',', " ")),
    ]
}

/// What the heap holds, and the parts of it. What was not counted passes for one of the others.
fn heap_sum(account: &Account) -> String {
    let bytes = |count: u64| terminal::bytes(count as f64);
    let (live, resident, counts) = (account.live_bytes(), account.resident_bytes(), account.tick_counts());
    let counted = |count: fn(TickCounts) -> u64| counts.map(count);
    let [cached, dirty, tables] = [
        counted(|counts| counts.cached_bytes),
        counted(|counts| counts.dirty_bytes),
        counted(|counts| counts.metadata_bytes),
    ];
    let known = [Some(live), cached, dirty, tables].into_iter().flatten().fold(0, u64::saturating_add);
    let shown = |count: Option<u64>| count.map_or_else(|| "-".into(), bytes);
    let parts = format!(
        "live {} + cached {} + dirty {} + unused in slabs {} + tables {}",
        bytes(live),
        shown(cached),
        shown(dirty),
        bytes(resident.saturating_sub(known)),
        shown(tables)
    );
    // Counters that were read while the program ran need not agree.
    match known <= resident {
        true => format!("{} = {parts}", bytes(resident)),
        false => format!("{parts}, of {}", bytes(resident)),
    }
}
