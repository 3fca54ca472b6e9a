//! Draws made-up processes into memory, and presses keys.

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use ratatui::Terminal;

use crate::arguments::SortColumn;
use crate::model::{Action, Model};
use crate::once;
use crate::view::{self, Palette};
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

#[test]
fn processes_with_all_columns() {
    let lines = lines(&mut model(), 130, 24);
    let sums = "snug top  3 processes  RSS 180 MB  PSS 75.0 MB in 2 of 3  live 41.0 MB in 1 under snug";
    assert!(lines[0].starts_with(sums), "{}", lines[0]);
    assert!(lines[0].ends_with("every 2 s"));
    let words = |line: &String| line.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ");
    assert!(
        words(&lines[1]).starts_with("PID ROLE ALLOCATOR ▼RSS PSS LIVE CACHED DIRTY FRAG ALLOC/s CPU RSS")
    );
    assert_eq!(words(&lines[2]), "11 puma worker 0 jemalloc 9.9 90.0 MB 45.0 MB unknown - - - - 12% ▁▂█");
    assert_eq!(
        words(&lines[3]),
        "10 puma snug 9.9 60.0 MB 30.0 MB 41.0 MB 1.00 MB 2.00 MB 18% 3.00 MB 12% ▁▂█"
    );
    assert!(words(&lines[4]).starts_with("12 puma worker 1 glibc 9.9 30.0 MB - unknown"));
    assert!(lines[13].contains("11 puma worker 0 ──"), "the details are of the selected one: {lines:#?}");
    assert!(lines[16].contains("unknown: only snug keeps counters"), "{lines:#?}");
    assert!(lines[23].starts_with("q quit"));
}

#[test]
fn workers_of_several_applications_are_told_apart() {
    let mut model = Model::new(SortColumn::Pid, 2.0);
    let of = |pid, app: &str| Reading { app: app.into(), ..reading(pid, "puma worker 0", Kind::Snug, 60) };
    model.update(vec![of(10, ""), of(11, "shop"), of(12, "blog")]);
    let text = lines(&mut model, 130, 24).join("\n");
    assert!(text.contains("puma worker 0 [shop]") && text.contains("puma worker 0 [blog]"), "{text}");
}

#[test]
fn sums_of_what_is_not_known_are_no_zeros() {
    let mut model = model();
    let mut readings = model.readings().to_vec();
    readings.retain(|reading| reading.pss_bytes.is_some());
    model.update(readings.clone());
    assert!(lines(&mut model, 130, 24)[0].contains("PSS 75.0 MB  live"));
    readings.iter_mut().for_each(|reading| reading.pss_bytes = None);
    model.update(readings);
    assert!(lines(&mut model, 130, 24)[0].contains("PSS unknown  live"));
    model.update(vec![]);
    assert!(lines(&mut model, 130, 24)[0].contains("RSS 0 B  PSS 0 B"));
}

#[test]
fn what_is_estimated_is_marked() {
    let mut readings = model().readings().to_vec();
    let glibc = readings.iter_mut().find(|reading| reading.kind() == Some(Kind::Glibc)).unwrap();
    glibc.glibc_heap = Some(HeapSize { live_bytes: 15_000_000, held_bytes: 20_000_000 });
    let mut model = Model::new(SortColumn::Live, 2.0);
    model.update(readings);
    press(&mut model, &[KeyCode::Down]);
    let text = lines(&mut model, 130, 24);
    assert!(text[3].contains("12 puma worker 1") && text[3].contains("~15.0 MB"), "{text:#?}");
    assert!(text[3].contains(" ~25%"), "{text:#?}");
    assert!(text.join("\n").contains("~15.0 MB live of 20.0 MB resident, estimated"), "{text:#?}");
    assert!(text[0].contains("live 41.0 MB in 1 under snug"), "estimates are no part of the sum: {text:#?}");
}

#[test]
fn what_was_not_counted_yet_is_no_zero() {
    let mut readings = model().readings().to_vec();
    readings.retain(|reading| reading.heap.is_some());
    readings.truncate(1);
    let row = |readings: &[Reading]| {
        let mut model = Model::new(SortColumn::Cached, 2.0);
        model.update(readings.to_vec());
        lines(&mut model, 130, 24).into_iter().find(|line| line.contains("puma")).unwrap()
    };
    assert!(row(&readings).contains("1.00 MB"), "{}", row(&readings));
    readings[0].heap.as_mut().unwrap().account.head.cached_at_ns = 0;
    assert!(!row(&readings).contains("1.00 MB") && row(&readings).contains(" - "), "{}", row(&readings));
    let mut model = Model::new(SortColumn::Cached, 2.0);
    model.update(readings);
    let text = lines(&mut model, 200, 30).join("\n");
    let heap = "50.0 MB = live 41.0 MB + cached - + dirty - + unused in slabs 8.97 MB + tables -";
    assert!(text.contains(heap), "{text}");
}

#[test]
fn details_of_a_heap_add_up() {
    let mut model = model();
    press(&mut model, &[KeyCode::Down]);
    let mut chosen = model.selected().unwrap().clone();
    chosen.identity.problems.push(Problem {
        id: "x",
        severity: Severity::Warning,
        message: "huge pages are always".into(),
        fix: String::new(),
    });
    model.update(vec![chosen]);
    let text = lines(&mut model, 200, 30).join("\n");
    let heap =
        "50.0 MB = live 41.0 MB + cached 1.00 MB + dirty 2.00 MB + unused in slabs 5.97 MB + tables 0 B";
    assert!(text.contains(heap), "{text}");
    assert!(text.contains("10.0 MB of RSS: code, stacks"), "{text}");
    assert!(text.contains("3.00 MB/s in 12.3 k blocks/s"), "{text}");
    assert!(text.contains("background:1 thp:0") && text.contains("huge pages are always"), "{text}");
}

#[test]
fn parts_that_are_more_than_the_whole_are_not_called_equal_to_it() {
    let mut chosen = model().readings().iter().find(|reading| reading.heap.is_some()).unwrap().clone();
    for metadata_bytes in [0, 1 << 40, u64::MAX] {
        let account = &mut chosen.heap.as_mut().unwrap().account;
        account.classes[1].outstanding_blocks = 70_000;
        account.head.metadata_bytes = metadata_bytes;
        account.head.slab_purged_bytes = metadata_bytes;
        let mut model = Model::new(SortColumn::Rss, 2.0);
        model.update(vec![chosen.clone()]);
        let text = lines(&mut model, 200, 30).join("\n");
        assert!(
            text.contains("live 70.7 MB + cached 1.00 MB + dirty 2.00 MB + unused in slabs 0 B"),
            "{text}"
        );
        assert!(text.contains(", of ") && !text.contains("= live"), "{text}");
    }
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
    press(&mut model, &[KeyCode::Char('t')]);
    let lines = lines(&mut model, 80, 10);
    assert!(lines[3].contains("   puma worker 0"), "{lines:#?}");
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
    let lines = lines(&mut model, 80, 12);
    let words = |line: &String| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&lines[2])[..7], ["64", "700", "44.8", "kB", "3", "49.2", "kB"], "{lines:#?}");
    assert!(lines[3].contains("1024") && lines[3].contains("89%") && lines[3].contains("█░"), "{lines:#?}");
    assert!(lines[4].contains("runs") && lines[5].contains("large"), "{lines:#?}");
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
    assert!(model.paused && lines(&mut model, 80, 24)[0].starts_with("snug top paused"));
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
fn one_table_for_scripts() {
    let mut readings = model().readings().to_vec();
    readings[0].identity = Identity { not_permitted: true, ..Identity::default() };
    let text = once::table(&readings);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[1].contains("not permitted") && lines[1].contains("unknown"), "{text}");
    assert!(lines[2].contains("41.0 MB") && lines[2].contains("18%"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('▁'));
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
