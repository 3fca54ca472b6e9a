//! The terminal while `snug top` has it: taken over at the start, and given back however the program ends.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};

use nix::sys::signal::{self, SigSet, Signal};
use ratatui::DefaultTerminal;

use snug_base::failure::{Context, Failure, Result, USAGE};

/// Held while something is drawn; taken for good by whoever gives the terminal back at a signal.
static DRAWING: Mutex<()> = Mutex::new(());

/// Fails unless this is a terminal that can be drawn on.
pub(crate) fn require_terminal() -> Result<()> {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb {
        return Ok(());
    }
    let what = if dumb { "this terminal can't be drawn on (TERM=dumb)" } else { "this is not a terminal" };
    Err(Failure::new(format!("snug top draws on a terminal, and {what}"))
        .advise("for one table: snug top --once; for numbers in scripts: snug stats")
        .exit_code(USAGE))
}

/// Takes the terminal over. Call before any other thread starts: signals that end the program are from then on
/// waited for by a thread, which gives the terminal back first. A panic gives it back, too.
pub(crate) fn open() -> Result<DefaultTerminal> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block().cannot(|| "block signals".into())?;
    std::thread::spawn(move || {
        if let Ok(signal) = set.wait() {
            // Not released: nothing is drawn any more.
            let _drawing = drawing();
            ratatui::restore();
            std::process::exit(128 + signal as i32);
        }
    });
    ratatui::try_init().cannot(|| "take over the terminal".into())
}

/// Whoever draws holds this.
pub(crate) fn drawing() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Gives the terminal back.
pub(crate) fn close() {
    ratatui::restore();
}

/// Gives the terminal back, stops this program as Ctrl-Z does, and takes the terminal over again afterwards.
pub(crate) fn suspend() -> Result<DefaultTerminal> {
    ratatui::restore();
    signal::raise(Signal::SIGSTOP).cannot(|| "stop".into())?;
    let terminal = ratatui::try_init().cannot(|| "take over the terminal".into())?;
    Ok(terminal)
}
