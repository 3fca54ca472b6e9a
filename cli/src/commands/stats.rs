//! `snug stats`: what is known about the memory of one running process.

use std::io::Write;

use crate::allocator::{access, stats};
use crate::base::failure::{Context, Result};
use crate::base::terminal;
use crate::commands::arguments::StatsArguments;
use crate::commands::exporter;
use crate::process::tree;
use crate::show::json;
use crate::show::stats_text::StatsText;

/// Runs the command.
pub(crate) fn run(arguments: &StatsArguments) -> Result<()> {
    let pid = tree::find_one(&arguments.process)?;
    if arguments.prometheus {
        access::look_at(pid)?;
        let metrics = exporter::metrics_of(pid)?;
        return anstream::stdout().write_all(metrics.as_bytes()).cannot(|| "write to stdout".into());
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
