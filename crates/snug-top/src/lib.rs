//! `snug top`: a live view of the memory of processes.
//!
//! `snug_live::watch` reads the processes, `model` decides what is shown, `view` and `classes` draw it, `columns` knows
//! the columns, `screen` has the terminal.

pub mod arguments;
mod classes;
mod columns;
mod model;
mod once;
mod palette;
mod popups;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::cell::Cell;
use std::io::Write;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::arguments::TopArguments;
use crate::model::{Action, Message, Model};
use crate::palette::Palette;
use snug_base::failure::{Context, Failure, Result, INTERRUPTED};
use snug_base::{machine, terminal};
use snug_inspect::inspector::Inspector;
use snug_live::watch::{Choice, Watcher};
use snug_live::{control, outcome_text};
use snug_process::proc::{need_processes, Pid, ProcFilesystem, Processes};
use snug_process::tree;

/// How long a process may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often to look for an answer.
const LOOK_FOR_ANSWER: Duration = Duration::from_millis(50);
/// Time between the two readings of `--once`: rates need two.
const ONCE_BETWEEN: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(arguments: &TopArguments) -> Result<()> {
    if !arguments.once {
        screen::require_terminal()?;
    }
    need_processes()?;
    let inspector = Inspector::new(machine::describe().transparent_huge_pages);
    let choice = choice(arguments)?;
    let mut watcher = Watcher::new(ProcFilesystem::new(), inspector, choice).with_estimates();
    let mut model = Model::new(arguments.sort, arguments.interval.as_secs_f64());
    let start = Instant::now();
    let now_s = || start.elapsed().as_secs_f64();
    if arguments.once {
        watcher.read(now_s());
        std::thread::sleep(ONCE_BETWEEN);
        model.update(watcher.read(now_s()));
        once::sampled(model.readings()).iter().for_each(|note| terminal::note(note));
        return anstream::stdout()
            .write_all(once::table(model.readings()).as_bytes())
            .cannot(|| "write to stdout".into());
    }
    let mut terminal = screen::open()?;
    let palette = Palette { colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let requests = PendingRequests::new();
    let mut due = Instant::now();
    let result = loop {
        if due <= Instant::now() && !model.paused {
            model.update(watcher.read(now_s()));
            due = Instant::now() + Duration::from_secs_f64(model.interval_s);
        }
        if let Some(message) = requests.answer() {
            model.message = Some(message);
        }
        let drawn = {
            let _drawing = screen::drawing();
            terminal.draw(|frame| view::draw(frame, &mut model, palette)).map(|_| ())
        };
        if let Err(error) = drawn {
            break Err(error).cannot(|| "draw on the terminal".into());
        }
        let most = if requests.waiting() { LOOK_FOR_ANSWER } else { Duration::from_secs(3600) };
        match wait_for_key(&mut model, due, most) {
            Ok(Action::Quit) => break Ok(()),
            Ok(Action::Interrupted) => break Err(Failure::already_told(INTERRUPTED)),
            Ok(Action::Suspend) => match screen::suspend() {
                Ok(taken) => terminal = taken,
                Err(failure) => break Err(failure),
            },
            Ok(Action::Read) => due = Instant::now(),
            Ok(Action::Nothing) => {
                due = due.min(Instant::now() + Duration::from_secs_f64(model.interval_s));
            }
            Ok(action) => model.message = Some(requests.make(action, &mut model)),
            Err(error) => break Err(error).cannot(|| "read the keyboard".into()),
        }
    };
    screen::close();
    result
}

/// Requests to processes: made in threads of their own, because answers take time.
struct PendingRequests {
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    count: Cell<usize>,
}

impl PendingRequests {
    fn new() -> PendingRequests {
        let (sender, receiver) = channel();
        PendingRequests { sender, receiver, count: Cell::new(0) }
    }

    fn waiting(&self) -> bool {
        self.count.get() > 0
    }

    /// What a process has answered, if one has.
    fn answer(&self) -> Option<Message> {
        let message = self.receiver.try_recv().ok()?;
        self.count.set(self.count.get() - 1);
        Some(message)
    }

    /// Makes a request. Returns what to say meanwhile.
    fn make(&self, action: Action, model: &mut Model) -> Message {
        let told = |result: Result<String>| match result {
            Ok(text) => Message { text, bad: false },
            Err(failure) => Message { text: failure.to_string().replace('\n', "; "), bad: true },
        };
        let (text, request): (String, Box<dyn FnOnce() -> Result<String> + Send>) = match action {
            Action::AskSettings(pid) => {
                return told(control::changeable(pid).map(|pairs| {
                    model.show_settings(pid, pairs);
                    String::new()
                }))
            }
            Action::Purge(pid) => (
                format!("asking {pid} to give memory back"),
                Box::new(move || Ok(outcome_text::of_purge(&control::purge(pid, ANSWER_WITHIN)?))),
            ),
            Action::Set(pid, key, value) => (
                format!("asking {pid} to set {key} to {value}"),
                Box::new(move || Ok(outcome_text::of_set(&control::set(pid, &key, &value, ANSWER_WITHIN)?))),
            ),
            _ => return Message { text: String::new(), bad: false },
        };
        let sender = self.sender.clone();
        self.count.set(self.count.get() + 1);
        std::thread::spawn(move || {
            // Nobody listens any more if the program is about to end.
            let _ = sender.send(told(request()));
        });
        Message { text, bad: false }
    }
}

/// Waits for a key, a new size, or the next reading, `most` at most.
fn wait_for_key(model: &mut Model, due: Instant, most: Duration) -> std::io::Result<Action> {
    let time = if model.paused { most } else { due.saturating_duration_since(Instant::now()).min(most) };
    if !event::poll(time)? {
        return Ok(Action::Nothing);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => model.key(key),
        _ => Action::Nothing,
    })
}

/// What the arguments choose. Everything named must exist now.
fn choice(arguments: &TopArguments) -> Result<Choice> {
    let mut source = ProcFilesystem::new();
    let all = source.all();
    let mut choice = Choice { names: arguments.name.clone(), ..Choice::default() };
    for wanted in &arguments.processes {
        match wanted.parse::<Pid>() {
            Ok(pid) => choice.pids.push(pid),
            Err(_) => choice.names.push(wanted.clone()),
        }
    }
    for wanted in arguments.processes.iter().chain(&arguments.name) {
        tree::find_roots(&mut source, &all, wanted, None)?;
    }
    Ok(choice)
}
