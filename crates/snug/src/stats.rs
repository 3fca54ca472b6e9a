//! `snug stats`: what is known about the memory of one running process.

use std::io::Write;

use clap::Args;

use snug_base::failure::{Context, Result};
use snug_base::{json, terminal};
use snug_exporter as exporter;
use snug_inspect::access;
use snug_live::{copied, residence, stats};
use snug_process::command_line::process_named as process;
use snug_process::proc::Pid;
use snug_process::tree;
use snug_report::copied_text;
use snug_report::residence_text;
use snug_report::stats_text::StatsText;

/// Show the memory of a running process and the counters of its heap
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug stats 4711
  snug stats 4711 --classes
  snug stats 4711 --where
  snug stats gunicorn --copied
  snug stats 4711 --json | jq .heap.live_allocated_bytes

The process is not stopped. Live memory is counted under snug and estimated under glibc, from the chunks in its \
heaps; other allocators don't expose it. Both need permission to ptrace: where kernel.yama.ptrace_scope is 1, root or \
the capability CAP_SYS_PTRACE. With --where each resident page counts in one line: blocks of malloc, what interpreters map \
for their objects, stacks, code, files.

With --copied each page that a forked worker no longer shares with its parent is compared with the parent's, byte by byte, \
and counts under one cause: if there are several, under the one that would have had it copied even without the others. \
This shows how much hooks, a warm-up or a purge before the fork would save: docs/how-to/hooks.md.

To see many processes, use snug top; to keep their history, snug exporter.

Exit codes: 0 shown; 2 the arguments are invalid; 3 no such process, or no permission to look at it.")]
pub(crate) struct StatsArguments {
    /// The process; for a name, the topmost process of that name
    #[arg(value_name = "PID|NAME", value_parser = process)]
    pub process: String,
    /// Also show the heap's size classes
    #[arg(long)]
    pub classes: bool,
    /// Show what all resident memory is, in a table that adds up to RSS
    #[arg(long = "where", conflicts_with_all = ["classes", "prometheus"])]
    pub residence: bool,
    /// Show what forked workers share with their parent, what they have copied since, and why; of a worker, or
    /// of all below the process
    #[arg(long, conflicts_with_all = ["classes", "prometheus", "residence"])]
    pub copied: bool,
    /// Write JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Write the metrics of snug exporter, with the estimate under glibc
    #[arg(long)]
    pub prometheus: bool,
}

/// Processes below the first one that are named.
const NAMED_MOST: usize = 5;

/// Says which processes a name stands for as well: of a server that forks its workers the first one does little.
fn name_others(pid: Pid, name: &str) {
    let others = tree::below(pid);
    let named =
        others.iter().take(NAMED_MOST).map(|(pid, role)| format!("{pid} ({})", terminal::printable(role)));
    let named: Vec<String> = named.collect();
    let more = if others.len() > NAMED_MOST { ", ..." } else { "" };
    if !named.is_empty() {
        terminal::note(&format!(
            "this is process {pid} alone; below it are {}{more}: `snug top {name}` shows all",
            named.join(", ")
        ));
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &StatsArguments) -> Result<()> {
    let pid = tree::find_one(&arguments.process)?;
    if arguments.process.parse::<Pid>().is_err() && !arguments.copied {
        name_others(pid, &arguments.process);
    }
    if arguments.prometheus {
        access::look_at(pid)?;
        let metrics = exporter::metrics_of(pid)?;
        return anstream::stdout().write_all(metrics.as_bytes()).cannot(|| "write to stdout".into());
    }
    if arguments.copied {
        let copied = copied::collect(pid)?;
        let mut stdout = anstream::stdout().lock();
        let written = match arguments.json {
            true => json::write_indented(json::STATS_COPIED, &copied, &mut stdout),
            false => copied_text::write(&copied, terminal::stdout_colours(), &mut stdout),
        };
        return written.cannot(|| "write to stdout".into());
    }
    if arguments.residence {
        let residence = residence::collect(pid)?;
        let mut stdout = anstream::stdout().lock();
        let written = match arguments.json {
            true => json::write_indented(json::STATS_WHERE, &residence, &mut stdout),
            false => residence_text::write(&residence, terminal::stdout_colours(), &mut stdout),
        };
        return written.cannot(|| "write to stdout".into());
    }
    let stats = stats::collect(pid)?;
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.json {
        json::write_indented(json::STATS, &stats, &mut stdout)
    } else {
        let writer = StatsText { colours: terminal::stdout_colours(), classes: arguments.classes };
        writer.write(&stats, &mut stdout)
    };
    written.cannot(|| "write to stdout".into())
}
