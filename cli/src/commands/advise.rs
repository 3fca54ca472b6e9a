//! `snug advise`: compares allocators on a program and says which to use, if any, with the lines that deploy it.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::allocator::deploy::{self, Deployment};
use crate::allocator::heaps::RealHeaps;
use crate::allocator::kinds::Kind;
use crate::allocator::memory::{Process, Roots, Watched, Watcher};
use crate::analysis::advice as decide;
use crate::analysis::advice::{Advice, Composition, Decision};
use crate::analysis::results::Comparison;
use crate::base::failure::{Context, Result};
use crate::base::terminal::{self, styled};
use crate::commands::arguments::AdviseArguments;
use crate::commands::compare;
use crate::process::proc::{Pid, ProcFilesystem};
use crate::show::output;

/// Seconds between two looks at what memory consists of: each reads the mappings' sums, which is dear.
const LOOK_EVERY_S: f64 = 0.5;

/// Runs the command.
pub fn run(arguments: &AdviseArguments) -> Result<()> {
    let mut looker = Looker::new();
    let measured = compare::measure(&arguments.compare, &mut |allocator| {
        if decide::looks_inside(allocator) {
            looker.look();
        }
    })?;
    let Some(measured) = measured else { return Ok(()) };
    let comparison = &measured.comparison;
    let decision = decide::decide(comparison, composition(&looker.watcher.finish()).as_ref());
    // A format that has stdout must be all that is there.
    let written = match output::takes_stdout(&arguments.compare.output) {
        true => write(&decision, comparison, false, &mut anstream::stderr().lock()),
        false => write(&decision, comparison, terminal::stdout_colours(), &mut anstream::stdout().lock()),
    };
    written.cannot(|| "write the advice".into())?;
    measured.judge()
}

fn write(
    decision: &Decision,
    comparison: &Comparison,
    colours: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let style = match decision.advice {
        Advice::Use(_) => terminal::GOOD,
        Advice::Stay => terminal::BOLD,
        Advice::Unknown => terminal::WARNING,
    };
    writeln!(out, "\n{}", styled(&decision.answer, style, colours))?;
    for line in &decision.evidence {
        writeln!(out, "  {line}")?;
    }
    let Advice::Use(index) = decision.advice else { return Ok(()) };
    let allocator = &comparison.allocators[index];
    let variables: Vec<(String, String)> = allocator
        .environment
        .iter()
        .filter(|(name, _)| *name != "LD_PRELOAD")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let snippets = deploy::lines(&Deployment {
        kind: allocator.kind,
        library: allocator.library.as_deref().map(Path::new),
        variables: &variables,
        program: &comparison.program,
    });
    for snippet in snippets {
        writeln!(out, "\n{} ({})", styled(snippet.title, terminal::BOLD, colours), snippet.file)?;
        for line in snippet.text.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    writeln!(
        out,
        "\nThen see that it is active in every process: snug check --expect {} NAME",
        allocator.kind.name()
    )
}

/// Looks at the processes below this one now and then, while a comparison runs them.
struct Looker {
    begin: Instant,
    next_s: f64,
    watcher: Watcher<ProcFilesystem, RealHeaps>,
}

impl Looker {
    fn new() -> Looker {
        let roots = Roots { root: std::process::id() as Pid, own: None };
        let watcher = Watcher::new(ProcFilesystem::new(), RealHeaps::new(), roots);
        Looker { begin: Instant::now(), next_s: 0.0, watcher }
    }

    fn look(&mut self) {
        let now_s = self.begin.elapsed().as_secs_f64();
        if now_s >= self.next_s {
            self.watcher.read(now_s);
            self.next_s = now_s + LOOK_EVERY_S;
        }
    }
}

/// Means over all moments. Only processes under snug count: a load is not, nor are we. None if there were none.
fn composition(watched: &Watched) -> Option<Composition> {
    let mut sum = Composition::default();
    let mut moments = HashSet::new();
    let under_snug =
        |process: &&Process| process.identity.as_ref().is_some_and(|identity| identity.kind == Kind::Snug);
    for process in watched.processes.iter().filter(under_snug) {
        for (moment, reading) in &process.readings {
            let Some((live, heap)) = reading.heap else { continue };
            moments.insert(*moment);
            let heap = heap.min(reading.anonymous) as f64;
            sum.rss += reading.rss as f64;
            sum.shared += reading.shared as f64;
            sum.files +=
                reading.rss.saturating_sub(reading.anonymous + reading.lazy_free + reading.shared) as f64;
            sum.heap += heap;
            sum.live += (live as f64).min(heap);
            sum.mapped += reading.anonymous as f64 - heap;
            sum.is_python |= process.command.contains("python");
        }
    }
    let mean = |total: f64| total / moments.len() as f64;
    (!moments.is_empty()).then(|| Composition {
        rss: mean(sum.rss),
        files: mean(sum.files),
        shared: mean(sum.shared),
        heap: mean(sum.heap),
        live: mean(sum.live),
        mapped: mean(sum.mapped),
        is_python: sum.is_python,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::memory::{Identity, Reading};

    #[test]
    fn memory_of_processes_under_snug_alone_is_taken_apart() {
        let process = |kind, reading| Process {
            identity: Some(Identity { kind, counters_at: None }),
            readings: vec![(0, reading)],
            ..Process::example()
        };
        let reading =
            Reading { rss: 150, anonymous: 80, shared: 50, heap: Some((30, 60)), ..Reading::default() };
        // Ours, or that of a load, of which the walk over glibc's heaps tells as much.
        let other = Reading { rss: 9000, anonymous: 8000, heap: Some((4000, 5000)), ..Reading::default() };
        let watched = Watched {
            processes: vec![process(Kind::Snug, reading), process(Kind::Glibc, other)],
            ..Watched::default()
        };
        let found = composition(&watched).unwrap();
        assert_eq!((found.rss, found.heap, found.live), (150.0, 60.0, 30.0));
        assert_eq!((found.mapped, found.files, found.shared), (20.0, 20.0, 50.0));
        assert_eq!(composition(&Watched::default()), None);
    }
}
