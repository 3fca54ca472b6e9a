//! The black box of a program, for people.

use std::io::{self, Write};

use crate::profile_text::{self, Extent};
use snug_base::terminal::{self, bytes, printable, styled};
use snug_base::time::duration;
use snug_profile::black_box::{BlackBox, WatchedProcess};
use snug_profile::difference::LineGrowth;
use snug_profile::sites::{Branch, Site};

/// Lines that grew are shown so far.
const GROWN: usize = 5;

/// What is told of a black box.
pub struct BlameAnswer<'a> {
    pub black_box: &'a BlackBox,
    pub is_watched: bool,
    /// Of the terminal.
    pub columns: usize,
    /// The processes that the lines are of.
    pub accused: &'a [&'a WatchedProcess],
    pub sites: &'a [Site],
    pub tree: &'a Branch,
    /// Since the first writing.
    pub grown: &'a [LineGrowth],
}

/// Writes all of it.
pub fn write(answer: &BlameAnswer<'_>, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let black_box = answer.black_box;
    let extent = Extent::usual(answer.columns);
    writeln!(out, "{}", styled(&printable(&black_box.verdict(answer.is_watched)), terminal::BOLD, colours))?;
    writeln!(out, "{}", memory(black_box))?;
    writeln!(out, "\n{:>7} {:>9} {:>9}  PROCESS", "PID", "RSS", "SAMPLED")?;
    for process in &black_box.processes {
        let sampled = if process.samples > 0 { bytes(process.live.total_bytes) } else { "-".into() };
        let remark = match (&process.ending, &process.unread) {
            (Some(ending), _) => format!("  {} at {}", ending.how.text(), ending.at),
            (None, Some(why)) => format!("  no samples: {why}"),
            (None, None) => String::new(),
        };
        let (pid, rss) = (process.pid, bytes(process.rss_bytes as f64));
        writeln!(out, "{pid:>7} {rss:>9} {sampled:>9}  {}", printable(&format!("{}{remark}", process.role)))?;
    }
    writeln!(out)?;
    if answer.sites.is_empty() {
        return writeln!(out, "No samples: {}", printable(&why_no_samples(answer.accused)));
    }
    let at = answer.accused.iter().map(|process| process.live.at.as_str()).max().unwrap_or_default();
    let pids: Vec<String> = answer.accused.iter().map(|process| process.pid.to_string()).collect();
    let mean = answer.accused.iter().map(|process| process.mean_bytes).max().unwrap_or(0);
    let (pids, at) = (pids.join(", "), printable(at));
    let (total, mean) = (bytes(answer.tree.bytes), bytes(mean as f64));
    writeln!(out, "{total} live in PID {pids} at {at}, by samples every {mean}; estimates")?;
    profile_text::write(answer.sites, &extent, colours, out)?;
    let dropped: u64 = answer.accused.iter().map(|process| process.dropped).sum();
    if dropped > 0 {
        writeln!(out, "{dropped} samples found no room, and are missing")?;
    }
    write_grown(answer, colours, out)
}

fn write_grown(answer: &BlameAnswer<'_>, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let total: f64 = answer.grown.iter().map(|line| line.growth_bytes.max(0.0)).sum();
    let shown = answer.grown.iter().filter(|line| line.growth_bytes > 0.01 * total).take(GROWN);
    let shown: Vec<&LineGrowth> = shown.collect();
    let first = answer
        .accused
        .iter()
        .filter_map(|process| process.first.as_ref())
        .map(|first| first.at.as_str())
        .min();
    let (Some(first), false) = (first, shown.is_empty()) else { return Ok(()) };
    let heading = format!("These lines grew most since {}:", printable(first));
    writeln!(out, "\n{}", styled(&heading, terminal::BOLD, colours))?;
    for line in shown {
        writeln!(out, "{:>9}  {}", format!("+{}", bytes(line.growth_bytes)), printable(&line.line.text()))?;
    }
    Ok(())
}

fn memory(black_box: &BlackBox) -> String {
    let used = bytes(black_box.used_bytes as f64);
    let of = match black_box.limit_bytes {
        Some(limit) => {
            let percent = 100.0 * black_box.used_bytes as f64 / limit as f64;
            format!(" of {} ({percent:.0} %)", bytes(limit as f64))
        }
        None => ", without a limit".into(),
    };
    format!("Memory when last read, {} after the start: {used}{of}", duration(black_box.ran_s))
}

fn why_no_samples(accused: &[&WatchedProcess]) -> String {
    let told = accused.iter().find_map(|process| process.unread.clone());
    told.unwrap_or_else(|| "the program ended before there were any, or allocated too little".into())
}
