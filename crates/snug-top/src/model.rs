//! The state of `snug top`, and how keys change it. Pure: reading processes and drawing are elsewhere.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::arguments::SortColumn;
use crate::columns;
use snug_base::terminal::printable;
use snug_live::watch::Reading;
use snug_process::proc::Pid;

/// Everything that is shown.
pub(crate) struct Model {
    /// In the order in which they are shown.
    readings: Vec<Reading>,
    pub sort: SortColumn,
    pub reversed: bool,
    /// Children stand below their parents instead of being sorted.
    pub tree: bool,
    pub details: bool,
    pub paused: bool,
    pub interval_s: f64,
    pub view: View,
    selected: Option<Pid>,
    /// First row of the size classes that is shown.
    pub scroll: usize,
    pub message: Option<Message>,
    /// Rows that fit on a page, as last drawn.
    pub page_rows: usize,
}

/// What fills the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum View {
    Processes,
    Classes,
    Help,
    Settings(SettingsEditor),
}

/// The settings of a process that can change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingsEditor {
    pub pid: Pid,
    /// Names and values.
    pub pairs: Vec<(String, String)>,
    pub chosen: usize,
    /// The new value, while it is typed.
    pub typed: Option<String>,
}

/// A line for the user, until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub text: String,
    pub bad: bool,
}

/// What a key asks of the program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Nothing,
    Quit,
    Interrupted,
    Suspend,
    /// Read the processes now.
    Read,
    /// Ask a process to give memory back.
    Purge(Pid),
    /// Find out what can be set in a process, for `show_settings`.
    AskSettings(Pid),
    /// Change a setting of a process.
    Set(Pid, String, String),
}

impl Model {
    pub(crate) fn new(sort: SortColumn, interval_s: f64) -> Model {
        Model {
            readings: Vec::new(),
            sort,
            reversed: false,
            tree: false,
            details: true,
            paused: false,
            interval_s,
            view: View::Processes,
            selected: None,
            scroll: 0,
            message: None,
            page_rows: 10,
        }
    }

    /// Shows new readings, which come as a tree, parents first. The selection stays with its process.
    pub(crate) fn update(&mut self, readings: Vec<Reading>) {
        let place = self.place();
        self.readings = readings;
        self.order();
        if self.place().is_none() {
            let nearest = place.unwrap_or(0).min(self.readings.len().saturating_sub(1));
            self.selected = self.readings.get(nearest).map(|reading| reading.pid);
        }
    }

    fn order(&mut self) {
        if self.tree {
            let parents = self.readings.iter().map(|reading| (reading.pid, reading.parent)).collect();
            let pids: Vec<Pid> = self.readings.iter().map(|reading| reading.pid).collect();
            let order = snug_process::tree::descendants(&parents, &pids);
            self.readings.sort_by_key(|reading| order.iter().position(|pid| *pid == reading.pid));
            return;
        }
        let (sort, reversed) = (self.sort, self.reversed);
        self.readings.sort_by(|left, right| columns::compare(left, right, sort, reversed));
    }

    pub(crate) fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// The process that is selected.
    pub(crate) fn selected(&self) -> Option<&Reading> {
        self.place().map(|place| &self.readings[place])
    }

    /// Its row.
    pub(crate) fn place(&self) -> Option<usize> {
        self.readings.iter().position(|reading| Some(reading.pid) == self.selected)
    }

    /// Obeys a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Action {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Interrupted,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::Nothing,
            };
        }
        if let View::Settings(settings) = &mut self.view {
            if let Some(action) = settings.key(key.code) {
                if action != Action::Nothing {
                    self.view = View::Processes;
                }
                return action;
            }
        }
        match (key.code, &self.view) {
            (KeyCode::Char('p'), View::Processes) => return self.ask_heap(Action::Purge),
            (KeyCode::Char('s'), View::Processes) => return self.ask_heap(Action::AskSettings),
            (KeyCode::Char('q'), _) | (KeyCode::Esc, View::Processes) => return Action::Quit,
            (KeyCode::Esc, _) => self.view = View::Processes,
            (KeyCode::Char('?' | 'h'), View::Help) => self.view = View::Processes,
            (KeyCode::Char('?' | 'h'), _) => self.view = View::Help,
            (KeyCode::Char('c'), View::Classes) => self.view = View::Processes,
            (KeyCode::Char('c'), _) => self.show_classes(),
            (KeyCode::Up | KeyCode::Char('k'), _) => self.step(-1),
            (KeyCode::Down | KeyCode::Char('j'), _) => self.step(1),
            (KeyCode::PageUp, _) => self.step(-(self.page_rows as isize)),
            (KeyCode::PageDown, _) => self.step(self.page_rows as isize),
            (KeyCode::Home, _) => self.step(isize::MIN / 2),
            (KeyCode::End, _) => self.step(isize::MAX / 2),
            (KeyCode::Char('<'), _) => self.sort_beside(-1),
            (KeyCode::Char('>'), _) => self.sort_beside(1),
            (KeyCode::Char('r'), _) => {
                self.reversed = !self.reversed;
                self.order();
            }
            (KeyCode::Char('t'), _) => {
                self.tree = !self.tree;
                self.order();
            }
            (KeyCode::Char('d') | KeyCode::Enter, _) => self.details = !self.details,
            (KeyCode::Char(' '), _) => {
                self.paused = !self.paused;
                return if self.paused { Action::Nothing } else { Action::Read };
            }
            (KeyCode::Char('+'), _) => self.change_interval(0.5),
            (KeyCode::Char('-'), _) => self.change_interval(2.0),
            _ => {}
        }
        Action::Nothing
    }

    fn show_classes(&mut self) {
        if self.ask_heap(|_| Action::Read) == Action::Read {
            self.view = View::Classes;
            self.scroll = 0;
        }
    }

    /// What to ask the selected process, which must be under snug.
    fn ask_heap(&mut self, action: impl Fn(Pid) -> Action) -> Action {
        match self.selected() {
            Some(reading) if reading.heap.is_some() => action(reading.pid),
            Some(reading) => {
                let name = printable(&reading.identity.text());
                let text = format!("{} uses {name}: this works with snug only", reading.pid);
                self.message = Some(Message { text, bad: true });
                Action::Nothing
            }
            None => Action::Nothing,
        }
    }

    /// Offers settings to change.
    pub(crate) fn show_settings(&mut self, pid: Pid, pairs: Vec<(String, String)>) {
        self.view = View::Settings(SettingsEditor { pid, pairs, chosen: 0, typed: None });
    }

    fn step(&mut self, rows: isize) {
        if self.view == View::Classes {
            self.scroll = self.scroll.saturating_add_signed(rows);
            return;
        }
        let last = self.readings.len().saturating_sub(1);
        let place = self.place().unwrap_or(0).saturating_add_signed(rows).min(last);
        self.selected = self.readings.get(place).map(|reading| reading.pid);
    }

    fn sort_beside(&mut self, step: isize) {
        let sorts = columns::sorts();
        let place = sorts.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        let count = sorts.len() as isize;
        self.sort = sorts[((place as isize + step + count) % count) as usize];
        self.tree = false;
        self.order();
    }

    fn change_interval(&mut self, factor: f64) {
        self.interval_s = (self.interval_s * factor).clamp(0.25, 60.0);
        self.message = Some(Message { text: format!("reads every {} s now", self.interval_s), bad: false });
    }
}

impl SettingsEditor {
    /// Obeys a key; None if it means nothing here.
    fn key(&mut self, code: KeyCode) -> Option<Action> {
        if let Some(typed) = &mut self.typed {
            match code {
                KeyCode::Char(character) => typed.push(character),
                KeyCode::Backspace => {
                    typed.pop();
                }
                KeyCode::Esc => self.typed = None,
                KeyCode::Enter if !typed.is_empty() => {
                    let (name, _) = self.pairs.get(self.chosen)?;
                    return Some(Action::Set(self.pid, name.clone(), typed.clone()));
                }
                _ => {}
            }
            return Some(Action::Nothing);
        }
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => {
                self.chosen = (self.chosen + 1).min(self.pairs.len().saturating_sub(1));
            }
            KeyCode::Enter if !self.pairs.is_empty() => self.typed = Some(String::new()),
            _ => return None,
        }
        Some(Action::Nothing)
    }
}
