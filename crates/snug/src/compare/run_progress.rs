//! The progress of a comparison while it runs: a bar on a terminal, else a line for each run.

use std::ffi::OsStr;

use indicatif::ProgressBar;

use snug_base::{progress, terminal};
use snug_compare::results::{Allocator, Run, Until};
use snug_compare::until;
use snug_measure::comparison::{ComparePlan, Follower};
use snug_measure::request::Moment;
use snug_report::plot;

/// To who compares a server as if it were a program that ends.
const SERVER_HINT: &str = "hint: the program waits for connections and may never end by itself. If it is a server, press \
                           Ctrl-C and say when it is ready, and what is its load: snug compare --ready PORT --requests N";

/// The bar on a terminal, or else one line per run on stderr.
pub(super) struct RunProgress<'a> {
    bar: ProgressBar,
    is_terminal: bool,
    plan: &'a ComparePlan,
    /// Is told of each reading, too.
    observe: &'a mut dyn FnMut(&Allocator, &Moment),
    /// A server that is compared as a program that ends.
    has_hinted: bool,
}

impl<'a> RunProgress<'a> {
    /// Without a bar nothing would be seen before the first run has ended: a line says what is going to be run.
    pub(super) fn new(
        plan: &'a ComparePlan,
        allocators: &[Allocator],
        observe: &'a mut dyn FnMut(&Allocator, &Moment),
    ) -> RunProgress<'a> {
        let runs = u64::from(plan.rounds) * allocators.len() as u64;
        let bar = progress::bar(Some(runs), "{bar:20} {pos}/{len} runs, {elapsed}  {wide_msg}");
        let is_terminal = progress::is_shown();
        if !is_terminal {
            anstream::eprintln!(
                "{}",
                announcement(&plan.program, plan.rounds, allocators, plan.until.is_some())
            );
        }
        RunProgress { bar, is_terminal, plan, observe, has_hinted: false }
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Follower for RunProgress<'_> {
    fn starts(&mut self, index: usize, round: u32, label: &str) {
        self.bar.set_position(index as u64);
        self.bar.set_prefix(format!("round {round}/{} {label}", self.plan.rounds));
        self.bar.set_message(self.bar.prefix());
    }

    /// Says how narrow intervals are, and how many runs are expected now, in all.
    fn looked(&mut self, until: &Until, allocators: usize) {
        let expected = until::expected_rounds(until);
        self.bar.set_length(expected as u64 * allocators as u64);
        self.bar.suspend(|| anstream::eprintln!("{}", until::progress(until)));
    }

    fn sees(&mut self, allocator: &Allocator, moment: &Moment) {
        if moment.waits && !std::mem::replace(&mut self.has_hinted, true) {
            self.bar.suspend(|| anstream::eprintln!("{SERVER_HINT}"));
        }
        if self.is_terminal {
            let (time_s, size) = (moment.time_s, terminal::bytes(moment.rss_bytes as f64));
            let phase = moment.phase.map_or_else(String::new, |phase| format!(" {phase}"));
            // There is nothing to go by before the first run has ended.
            let left = match self.bar.position() {
                0 => String::new(),
                _ => format!(", about {} s left", self.bar.eta().as_secs()),
            };
            self.bar.set_message(format!("{}:{phase} {time_s:.0} s, {size}{left}", self.bar.prefix()));
        }
        (self.observe)(allocator, moment);
    }

    fn finished(&mut self, run: &Run) {
        let result = match &run.failure {
            None => {
                let mean = run.memory.get("rss_mean_bytes").copied().unwrap_or(0.0);
                format!("{:.2} s, mean RSS {}", run.wall_s, terminal::bytes(mean))
            }
            Some(failure) => format!("FAILED: {failure}"),
        };
        // A failed run that is not the last: say so at once.
        if !self.is_terminal && run.failure.is_none() || run.failure.is_some() && self.plan.keep_going {
            self.bar.suspend(|| anstream::eprintln!("round {} {}: {result}", run.round, run.allocator));
        }
    }
}

/// What is going to be run.
fn announcement(program: &[impl AsRef<OsStr>], rounds: u32, allocators: &[Allocator], until: bool) -> String {
    let program = plot::shorten(&terminal::shell_line(program), 80);
    let runs = rounds as usize * allocators.len();
    let runs = terminal::counted(runs, "run");
    match allocators {
        _ if until => {
            format!("up to {runs} of {program}: up to {rounds} under each of {} allocators", allocators.len())
        }
        [only] => format!("{runs} of {program} under {}", only.label),
        _ => format!("{runs} of {program}: {rounds} under each of {} allocators", allocators.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    #[test]
    fn what_will_be_run_is_said_in_a_line() {
        let said = |labels: &[(&str, &[f64])], rounds| {
            let comparison = fixture::comparison(labels);
            announcement(&comparison.program, rounds, &comparison.allocators, rounds == 30)
        };
        assert_eq!(said(&[("glibc", &[1.0])], 1), "1 run of ruby app.rb under glibc");
        assert_eq!(
            said(&[("glibc", &[1.0]), ("snug", &[1.0])], 3),
            "6 runs of ruby app.rb: 3 under each of 2 allocators"
        );
        assert_eq!(
            said(&[("glibc", &[1.0]), ("snug", &[1.0])], 30),
            "up to 60 runs of ruby app.rb: up to 30 under each of 2 allocators"
        );
    }
}
