//! Progress on a terminal while a command waits: a bar on stderr, or a spinner where nobody knows for how long. Where
//! stderr is no terminal nothing is written.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::SigSet;

/// What takes no longer than this shows nothing: it would only flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Time between two looks of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Whether there is somebody to show it to.
pub fn is_shown() -> bool {
    io::stderr().is_terminal()
}

/// A bar of this length, or none if that is unknown, in a template of indicatif's.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let target =
        if is_shown() { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(length, target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Does something that may take a while, and shows that it is at it. `takes`: how long, if that is known.
pub fn during<T>(message: &str, takes: Option<Duration>, work: impl FnOnce() -> T) -> T {
    if !is_shown() {
        return work();
    }
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // The work stays on its own thread: the kernel ends a child whose parent thread ends, and signals belong there.
        let showing = move || {
            let _ = SigSet::all().thread_block();
            show(message, takes, &over);
        };
        // Where no thread can be had the work is done all the same.
        let _ = thread::Builder::new().spawn_scoped(scope, showing);
        let result = work();
        drop(done);
        result
    })
}

/// Draws until the other end of the channel is gone.
fn show(message: &str, takes: Option<Duration>, over: &Receiver<()>) {
    let begin = Instant::now();
    let is_over = |wait| over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
    if is_over(SHOWN_AFTER) {
        return;
    }
    let length = takes.map(|takes| takes.as_millis() as u64);
    let template =
        if takes.is_some() { "{bar:20} {elapsed}  {wide_msg}" } else { "{spinner} {elapsed}  {wide_msg}" };
    let bar = bar(length, template).with_elapsed(begin.elapsed()).with_message(message.to_string());
    loop {
        bar.set_position(begin.elapsed().as_millis() as u64);
        bar.tick();
        if is_over(DRAW_EVERY) {
            break;
        }
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_that_of_the_work() {
        assert_eq!(during("counting", None, || 6 * 7), 42);
    }

    #[test]
    fn it_ends_with_the_work() {
        for finished_early in [true, false] {
            let (done, over) = mpsc::channel::<()>();
            let shown = thread::spawn(move || show("waiting", Some(Duration::from_secs(9)), &over));
            if !finished_early {
                thread::sleep(SHOWN_AFTER + 2 * DRAW_EVERY);
                assert!(!shown.is_finished());
            }
            drop(done);
            shown.join().unwrap();
        }
    }
}
