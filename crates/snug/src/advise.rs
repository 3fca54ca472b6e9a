//! `snug advise`: compares allocators on a program and says which to use, if any, with the lines that deploy it.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use regex_lite::Regex;

use crate::compare;
use crate::compare::arguments::CompareArguments;
use snug_base::failure::{Context, Result};
use snug_base::terminal::{self, styled};
use snug_compare::advice as decide;
use snug_compare::advice::{Advice, Composition, Decision};
use snug_compare::results::Comparison;
use snug_inspect::deploy::{self, Deployment};
use snug_inspect::inspector::Inspector;
use snug_inspect::kinds::Kind;
use snug_inspect::library;
use snug_live::record::{RecordedProcess, Recorder, Recording, Roots};
use snug_process::proc::{Pid, ProcFilesystem};
use snug_report::output;

/// Seconds between two looks at what memory consists of: each reads the mappings' sums, which is dear.
const LOOK_EVERY_S: f64 = 0.5;

/// Recommend an allocator for a program, if any, and show how to deploy it
#[derive(Debug, Args)]
#[command(
    override_usage = "snug advise [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  snug advise -- ruby script.rb
  snug advise --ready 3000 --requests 2000 -- bundle exec puma -p 3000

First a comparison runs, with the options and results of snug compare. Then one allocator is recommended, or \
MALLOC_ARENA_MAX=2, or none: it must use less memory with 95 % confidence, save 5 % and 5 MB, and not be \
clearly slower in time, requests per second or p99 latency. If the runs differ too much to tell, snug advise \
says so. The lines that deploy it follow: Dockerfile, Procfile, systemd, Kubernetes. If nothing helps, a \
breakdown of the memory shows why; it is measured under snug, which should therefore be among the allocators. \
If --json - or another format takes stdout, all of this goes to stderr.

Exit codes: those of snug compare."
)]
pub(crate) struct AdviseArguments {
    #[command(flatten)]
    pub compare: CompareArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &AdviseArguments) -> Result<()> {
    let mut looker = Looker::new();
    let only = arguments.compare.only()?;
    let measured = compare::measure(&arguments.compare, &mut |allocator, moment| {
        if decide::looks_inside(allocator) {
            looker.look(moment.load_groups);
        }
    })?;
    let Some(measured) = measured else { return Ok(()) };
    let comparison = &measured.comparison;
    let decision = decide::decide(comparison, composition(&looker.recorder.finish(), only.as_ref()).as_ref());
    // A format that has stdout must be all that is there.
    let written = match output::takes_stdout(&arguments.compare.output) {
        true => write(&decision, comparison, false, &mut anstream::stderr().lock()),
        false => write(&decision, comparison, terminal::stdout_colours(), &mut anstream::stdout().lock()),
    };
    written.cannot(|| "write the advice".into())?;
    measured.check()
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
    writeln!(out, "\n{}", styled(&terminal::prose(&decision.answer), style, colours))?;
    for line in &decision.evidence {
        writeln!(out, "{}", terminal::prose(&format!("  {line}")))?;
    }
    let Advice::Use(index) = decision.advice else { return Ok(()) };
    let allocator = &comparison.allocators[index];
    let variables: Vec<(String, String)> = allocator
        .environment
        .iter()
        .filter(|(name, _)| *name != "LD_PRELOAD")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let path = allocator.library.as_deref().map(Path::new);
    let package = path.and_then(|path| library::open(path).ok()?.package());
    let snippets = deploy::lines(&Deployment {
        kind: allocator.kind,
        library: path,
        package: package.as_ref(),
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
    recorder: Recorder<ProcFilesystem, Inspector>,
}

impl Looker {
    fn new() -> Looker {
        let roots = Roots::started_by(std::process::id() as Pid);
        let recorder = Recorder::new(ProcFilesystem::new(), Inspector::new(String::new()), roots);
        Looker { begin: Instant::now(), next_s: 0.0, recorder }
    }

    fn look(&mut self, load_groups: &[Pid]) {
        load_groups.iter().for_each(|group| self.recorder.leave_out(*group));
        let now_s = self.begin.elapsed().as_secs_f64();
        if now_s >= self.next_s {
            self.recorder.read(now_s);
            self.next_s = now_s + LOOK_EVERY_S;
        }
    }
}

/// Means over all moments, of the processes under snug whose command lines match, if anything is to. None if there were
/// none.
fn composition(recording: &Recording, only: Option<&Regex>) -> Option<Composition> {
    let mut sum = Composition::default();
    let mut moments = HashSet::new();
    let counts = |process: &&RecordedProcess| {
        process.kind == Some(Kind::Snug) && only.is_none_or(|only| only.is_match(&process.command))
    };
    for process in recording.processes.iter().filter(counts) {
        for (moment, reading) in &process.readings {
            let Some(held) = reading.heap else { continue };
            moments.insert(*moment);
            let heap = held.held_bytes.min(reading.anonymous_bytes) as f64;
            sum.rss += reading.rss_bytes as f64;
            sum.shared += reading.shared_bytes as f64;
            sum.files += reading
                .rss_bytes
                .saturating_sub(reading.anonymous_bytes + reading.lazy_free_bytes + reading.shared_bytes)
                as f64;
            sum.heap += heap;
            sum.live += (held.live_bytes as f64).min(heap);
            sum.mapped += reading.anonymous_bytes as f64 - heap;
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
        looks: moments.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_heap::glibc_heap::HeapSize;
    use snug_live::record::Footprint;

    #[test]
    fn memory_of_processes_under_snug_alone_is_taken_apart() {
        let process = |kind, reading| RecordedProcess {
            kind: Some(kind),
            readings: vec![(0, reading)],
            ..RecordedProcess::example()
        };
        let reading = Footprint {
            rss_bytes: 150,
            anonymous_bytes: 80,
            shared_bytes: 50,
            heap: Some(HeapSize { live_bytes: 30, held_bytes: 60 }),
            ..Footprint::default()
        };
        // Ours, or that of a load, of which the walk over glibc's heaps tells as much.
        let other = Footprint {
            rss_bytes: 9000,
            anonymous_bytes: 8000,
            heap: Some(HeapSize { live_bytes: 4000, held_bytes: 5000 }),
            ..Footprint::default()
        };
        let recording = Recording {
            processes: vec![process(Kind::Snug, reading), process(Kind::Glibc, other)],
            ..Recording::default()
        };
        let found = composition(&recording, None).unwrap();
        assert_eq!((found.rss, found.heap, found.live), (150.0, 60.0, 30.0));
        assert_eq!((found.mapped, found.files, found.shared), (20.0, 20.0, 50.0));
        assert_eq!(found.looks, 1);
        assert_eq!(composition(&Recording::default(), None), None);
        let command = &recording.processes[0].command;
        assert_eq!(composition(&recording, Some(&Regex::new(command).unwrap())).unwrap().rss, 150.0);
        assert_eq!(composition(&recording, Some(&Regex::new("another").unwrap())), None);
    }
}
