//! Draws made-up processes into memory, and presses keys.

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use ratatui::Terminal;

use crate::arguments::SortColumn;
use crate::model::{Action, Model};
use crate::once;
use crate::palette::Palette;
use crate::view;
use snug_heap::counters::{Account, Class, Counters};
use snug_heap::glibc_heap::HeapSize;
use snug_inspect::identity::Identity;
use snug_inspect::kinds::Kind;
use snug_inspect::report::{AllocatorUsed, How, Problem, Severity};
use snug_live::watch::{HeapReading, Reading};

fn reading(pid: i32, role: &str, kind: Kind, megabytes: u64) -> Reading {
    let account = Account {
        head: Counters {
            cached_bytes: 1_000_000,
            cached_at_ns: 1,
            dirty_bytes: 2_000_000,
            heap_top_bytes: 50_000_000,
            settings: "background:1,thp:0".into(),
            ..Counters::default()
        },
        classes: vec![
            Class {
                size_bytes: 64,
                slabs: 3,
                slab_bytes: 49152,
                outstanding_blocks: 700,
                ..Class::default()
            },
            Class {
                size_bytes: 1024,
                slabs: 9,
                slab_bytes: 47_000_000,
                outstanding_blocks: 41_000,
                ..Class::default()
            },
        ],
    };
    let heap = HeapReading { account, taken_bytes_per_s: Some(3e6), taken_blocks_per_s: Some(12_345.0) };
    Reading {
        pid,
        parent: if pid == 10 { 1 } else { 10 },
        depth: usize::from(pid != 10),
        app: String::new(),
        role: role.into(),
        command: format!("{role} --with options"),
        identity: Identity {
            allocator: Some(AllocatorUsed {
                kind,
                version: Some("9.9".into()),
                how: How::Preloaded,
                file: "/l".into(),
            }),
            ..Identity::default()
        },
        rss_bytes: megabytes * 1_000_000,
        swap_bytes: None,
        pss_bytes: (pid != 12).then_some(megabytes * 500_000),
        cpu_cores: Some(0.125),
        faults_per_s: Some(1500.0),
        stat: snug_process::proc::Stat::default(),
        threads: 5,
        heap: (kind == Kind::Snug).then_some(heap),
        glibc_heap: None,
        hooks: None,
        rss_history: vec![10_000_000, 20_000_000, megabytes * 1_000_000],
        live_history: vec![],
    }
}

fn model() -> Model {
    let mut model = Model::new(SortColumn::Rss, 2.0);
    model.update(vec![
        reading(10, "puma", Kind::Snug, 60),
        reading(11, "puma worker 0", Kind::Jemalloc, 90),
        reading(12, "puma worker 1", Kind::Glibc, 30),
    ]);
    model
}

fn press(model: &mut Model, codes: &[KeyCode]) -> Action {
    let mut action = Action::Nothing;
    for code in codes {
        action = model.key(KeyEvent::new(*code, KeyModifiers::NONE));
    }
    action
}

fn terminal(width: u16, height: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).unwrap()
}

/// The lines of the screen, without spaces at their ends.
fn lines(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = terminal(width, height);
    terminal.draw(|frame| view::draw(frame, model, Palette { colours: true })).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_string()).collect()
}

/// A model with these readings.
fn model_of(sort: SortColumn, readings: Vec<Reading>) -> Model {
    let mut model = Model::new(sort, 2.0);
    model.update(readings);
    model
}

/// Made-up processes, and what their screens look like.
fn scenes() -> Vec<(&'static str, Model)> {
    let readings = || model().readings().to_vec();
    let of = |pid, app: &str| Reading { app: app.into(), ..reading(pid, "puma worker 0", Kind::Snug, 60) };
    let under_snug = || readings().into_iter().find(|reading| reading.heap.is_some()).unwrap();
    let mut details = under_snug();
    let (id, severity, message) = ("x", Severity::Warning, "huge pages are always".into());
    details.identity.problems.push(Problem { id, severity, message, fix: String::new() });
    let mut uncounted = under_snug();
    uncounted.heap.as_mut().unwrap().account.head.cached_at_ns = 0;
    let more_than_the_whole = |metadata_bytes| {
        let mut reading = under_snug();
        let account = &mut reading.heap.as_mut().unwrap().account;
        account.classes[1].outstanding_blocks = 70_000;
        (account.head.metadata_bytes, account.head.slab_purged_bytes) = (metadata_bytes, metadata_bytes);
        reading
    };
    let mut estimated = readings();
    let glibc = estimated.iter_mut().find(|reading| reading.kind() == Some(Kind::Glibc)).unwrap();
    glibc.glibc_heap = Some(HeapSize { live_bytes: 15_000_000, held_bytes: 20_000_000 });
    let mut estimated = model_of(SortColumn::Live, estimated);
    press(&mut estimated, &[KeyCode::Down]);
    let known = |reading: &Reading| reading.pss_bytes.is_some();
    let no_pss = readings().into_iter().map(|reading| Reading { pss_bytes: None, ..reading }).collect();
    let by_rss = |readings| model_of(SortColumn::Rss, readings);
    let mut paused = model();
    press(&mut paused, &[KeyCode::Char(' ')]);
    let mut help = model();
    press(&mut help, &[KeyCode::Char('?')]);
    let mut classes = model();
    press(&mut classes, &[KeyCode::Down, KeyCode::Char('c')]);
    let mut no_classes = model();
    press(&mut no_classes, &[KeyCode::Char('c')]);
    let mut tree = model_of(SortColumn::Pss, readings());
    press(&mut tree, &[KeyCode::Char('t')]);
    vec![
        ("three processes under three allocators", model()),
        ("workers of several applications", by_rss(vec![of(10, ""), of(11, "shop"), of(12, "blog")])),
        ("PSS is known of all", by_rss(readings().into_iter().filter(known).collect())),
        ("PSS is known of none", by_rss(no_pss)),
        ("no process", by_rss(vec![])),
        ("what is live under glibc is estimated", estimated),
        ("a heap and what is wrong", by_rss(vec![details])),
        ("caches were not counted yet", by_rss(vec![uncounted])),
        ("parts that are more than the whole", by_rss(vec![more_than_the_whole(0)])),
        ("parts that are far more than the whole", by_rss(vec![more_than_the_whole(u64::MAX)])),
        ("paused", paused),
        ("help", help),
        ("size classes", classes),
        ("size classes of another allocator", no_classes),
        ("the tree", tree),
    ]
}

#[test]
fn screens_look_as_they_did() {
    let mut text = String::new();
    for (name, mut model) in scenes() {
        text += &format!("==== {name}\n{}\n", lines(&mut model, 160, 24).join("\n"));
    }
    let mut readings = model().readings().to_vec();
    readings[0].identity = Identity { not_permitted: true, ..Identity::default() };
    text += &format!("==== snug top --once, where the first may not be read\n{}", once::table(&readings));
    expect_test::expect_file!["../golden/screens.txt"].assert_eq(&text);
}

#[test]
fn any_size_can_be_drawn() {
    for view in [&[][..], &[KeyCode::Char('?')], &[KeyCode::Down, KeyCode::Char('c')]] {
        for (width, height) in [(1, 1), (5, 3), (20, 5), (40, 10), (79, 24), (80, 20), (300, 90)] {
            let mut model = model();
            press(&mut model, view);
            lines(&mut model, width, height);
        }
    }
    assert_eq!(lines(&mut model(), 10, 5)[1], "too small");
}

#[test]
fn sorting_and_the_tree() {
    let pids = |model: &Model| model.readings().iter().map(|reading| reading.pid).collect::<Vec<_>>();
    let mut model = model();
    assert_eq!(pids(&model), [11, 10, 12]);
    press(&mut model, &[KeyCode::Char('r')]);
    assert_eq!(pids(&model), [12, 10, 11]);
    press(&mut model, &[KeyCode::Char('r'), KeyCode::Char('>')]);
    assert_eq!((model.sort, pids(&model)), (SortColumn::Pss, vec![11, 10, 12]), "what is unknown is last");
    press(&mut model, &[KeyCode::Char('r')]);
    assert_eq!(pids(&model), [10, 11, 12], "and remains last");
}

#[test]
fn the_selection_stays_with_its_process() {
    let mut model = model();
    press(&mut model, &[KeyCode::End]);
    assert_eq!(model.selected().unwrap().pid, 12);
    model.update(vec![reading(12, "x", Kind::Glibc, 500), reading(10, "y", Kind::Snug, 1)]);
    assert_eq!(model.place(), Some(0));
    model.update(vec![reading(10, "y", Kind::Snug, 1)]);
    assert_eq!(model.selected().unwrap().pid, 10, "the nearest, when it has ended");
    model.update(vec![]);
    assert!(model.selected().is_none());
    assert!(lines(&mut model, 80, 24).join(" ").contains("No processes to show"));
}

#[test]
fn size_classes_are_those_of_snug() {
    let mut model = model();
    press(&mut model, &[KeyCode::Char('c')]);
    let message = model.message.clone().unwrap();
    assert!(message.bad && message.text.contains("11 uses jemalloc 9.9"), "{message:?}");
    assert_eq!(press(&mut model, &[KeyCode::Char('p')]), Action::Nothing, "nor can it be asked to purge");
    press(&mut model, &[KeyCode::Down, KeyCode::Char('c')]);
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(press(&mut model, &[KeyCode::Esc]), Action::Quit);
}

#[test]
fn keys_that_end_or_wait() {
    let mut model = model();
    assert_eq!(press(&mut model, &[KeyCode::Char('q')]), Action::Quit);
    let control = |code| KeyEvent::new(KeyCode::Char(code), KeyModifiers::CONTROL);
    assert_eq!(model.key(control('c')), Action::Interrupted);
    assert_eq!(model.key(control('z')), Action::Suspend);
    press(&mut model, &[KeyCode::Char(' ')]);
    assert!(model.paused);
    assert_eq!(press(&mut model, &[KeyCode::Char(' ')]), Action::Read);
    press(&mut model, &[KeyCode::Char('+')]);
    assert_eq!(model.interval_s, 1.0);
}

#[test]
fn without_colours_emphasis_remains() {
    let mut terminal = terminal(120, 24);
    let mut model = model();
    let mut used = |colours| {
        terminal.clear().unwrap();
        terminal.draw(|frame| view::draw(frame, &mut model, Palette { colours })).unwrap();
        let cells = terminal.backend().buffer().content();
        let coloured = cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count();
        let bold = cells.iter().filter(|cell| cell.modifier.contains(Modifier::BOLD)).count();
        (coloured, bold)
    };
    let (coloured, bold) = used(true);
    assert!(coloured > 0 && bold > 0);
    let (none, more_bold) = used(false);
    assert!(none == 0 && more_bold > bold, "{none} {more_bold} {bold}");
}

#[test]
fn processes_under_snug_can_be_asked() {
    let mut model = model();
    press(&mut model, &[KeyCode::Down]);
    assert_eq!(press(&mut model, &[KeyCode::Char('p')]), Action::Purge(10));
    assert_eq!(press(&mut model, &[KeyCode::Char('s')]), Action::AskSettings(10));
    let pairs = [("background", "1"), ("purge_cpu_percent", "1")];
    model.show_settings(10, pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec());
    let text = lines(&mut model, 80, 24).join("\n");
    assert!(text.contains("settings of 10") && text.contains("purge_cpu_percent"), "{text}");
    press(&mut model, &[KeyCode::Down, KeyCode::Enter]);
    press(&mut model, &[KeyCode::Char('1'), KeyCode::Char('q'), KeyCode::Backspace, KeyCode::Char('5')]);
    let text = lines(&mut model, 80, 24).join("\n");
    assert!(text.contains("purge_cpu_percent = 15_"), "{text}");
    let set = Action::Set(10, "purge_cpu_percent".into(), "15".into());
    assert_eq!(press(&mut model, &[KeyCode::Enter]), set);
    assert_eq!(model.view, crate::model::View::Processes);
    model.show_settings(10, vec![]);
    assert_eq!(press(&mut model, &[KeyCode::Enter]), Action::Nothing);
    assert!(lines(&mut model, 80, 24).join(" ").contains("nothing can change"));
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(model.view, crate::model::View::Processes);
}
