//! A profile for people: a tree of callers and callees; what grew between two; and folded stacks, one line for each, for flame graphs.

use std::io::{self, Write};

use crate::analysis::profile_difference::ProfileDifference;
use crate::analysis::sites::{Branch, Site};
use crate::base::terminal::{self, bytes, printable, signed, styled};

/// Smaller parts of the whole are added up.
const LEAST_SHARE: f64 = 0.01;
/// Of a longer chain of single callees so many are shown, at its beginning and at its end.
const CHAIN_BEGIN: usize = 1;
const CHAIN_END: usize = 6;
/// Callers that are shown of a line that grew.
const CALLERS: usize = 3;

/// Writes the tree of all sites; of none, nothing. A chain of single callees does not move to the right, and a long one is
/// shown by its ends.
pub(crate) fn write_tree(root: &Branch, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    if root.below.is_empty() {
        return Ok(());
    }
    let heading = format!("{:>9} {:>5}  {}", "BYTES", "", "WHERE");
    writeln!(out, "{}", styled(&heading, terminal::BOLD, colours))?;
    write_below(root, root.bytes, 0, out)
}

fn write_below(node: &Branch, total: f64, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = 0.0;
    for child in &node.below {
        if child.bytes < total * LEAST_SHARE {
            rest += child.bytes;
            continue;
        }
        let chain = chain_from(child);
        let hidden = chain.len().saturating_sub(CHAIN_BEGIN + CHAIN_END);
        for (index, node) in chain.iter().enumerate() {
            let is_hidden = hidden > 1 && (CHAIN_BEGIN..CHAIN_BEGIN + hidden).contains(&index);
            if !is_hidden {
                write_line(node.bytes, total, depth, &printable(&node.frame.text()), out)?;
            } else if index == CHAIN_BEGIN {
                writeln!(out, "{:15}  {}... {hidden} frames", "", "  ".repeat(depth))?;
            }
        }
        write_below(chain[chain.len() - 1], total, depth + 1, out)?;
    }
    if rest >= total * LEAST_SHARE {
        write_line(rest, total, depth, "(others)", out)?;
    }
    Ok(())
}

/// The node, and what below it holds all that it holds.
fn chain_from(node: &Branch) -> Vec<&Branch> {
    let mut chain = vec![node];
    let mut last = node;
    while let [only] = last.below.as_slice() {
        if only.bytes < last.bytes * (1.0 - LEAST_SHARE) {
            break;
        }
        chain.push(only);
        last = only;
    }
    chain
}

fn write_line(count: f64, total: f64, depth: usize, what: &str, out: &mut dyn Write) -> io::Result<()> {
    let percent = if total > 0.0 { 100.0 * count / total } else { 0.0 };
    writeln!(out, "{:>9} {percent:>4.0}%  {}{what}", bytes(count), "  ".repeat(depth))
}

/// Writes which lines have more than before, and which less.
pub(crate) fn write_difference(
    found: &ProfileDifference,
    colours: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{} of {}, then of {}: {}, from {} to {}; estimates",
        found.view,
        found.old_pid,
        found.new_pid,
        signed(found.growth_bytes, bytes),
        bytes(found.old_total_bytes),
        bytes(found.new_total_bytes)
    )?;
    for note in &found.notes {
        writeln!(out, "{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    let heading = format!("{:>9} {:>9} {:>9}  {}", "GROWTH", "OLD", "NEW", "WHERE");
    writeln!(out, "{}", styled(&heading, terminal::BOLD, colours))?;
    let least = LEAST_SHARE * found.lines.iter().map(|line| line.growth_bytes.abs()).sum::<f64>();
    let mut others = [0.0; 3];
    for line in &found.lines {
        let numbers = [line.growth_bytes, line.old_bytes, line.new_bytes];
        if line.growth_bytes.abs() < least || line.growth_bytes == 0.0 {
            others.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            continue;
        }
        write_growth(numbers, &printable(&line.line.text()), out)?;
        if line.growth_bytes > 0.0 {
            for caller in line.callers.iter().take(CALLERS) {
                writeln!(out, "{:31}  by {}", "", printable(&caller.text()))?;
            }
        }
    }
    if others.iter().any(|number| *number != 0.0) {
        write_growth(others, "(others)", out)?;
    }
    Ok(())
}

fn write_growth([growth, old, new]: [f64; 3], what: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:>9} {:>9} {:>9}  {what}", signed(growth, bytes), bytes(old), bytes(new))
}

/// Writes folded stacks: outermost frame first, semicolons between, then the bytes.
pub(crate) fn write_folded(sites: &[Site], out: &mut dyn Write) -> io::Result<()> {
    for site in sites {
        let names = site.frames.iter().rev().map(|frame| frame.text().replace(';', ","));
        writeln!(out, "{} {:.0}", names.collect::<Vec<_>>().join(";"), site.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::profile_difference::{difference, SavedProfile};
    use crate::analysis::sites::{tree, Frame};

    #[test]
    fn lines_that_grew_are_written_with_their_callers() {
        let frame = |function: &str| Frame { function: function.into(), file: "a.rb".into(), line: 2 };
        let profile = |sites: &[(f64, &[&str])]| SavedProfile {
            pid: 7,
            view: "live".into(),
            measured_s: 1.0,
            total_bytes: sites.iter().map(|(bytes, _)| bytes).sum(),
            dropped: 0,
            sites: sites
                .iter()
                .map(|(bytes, names)| Site {
                    bytes: *bytes,
                    frames: names.iter().map(|name| frame(name)).collect(),
                    ..Site::default()
                })
                .collect(),
        };
        let old = profile(&[(5e6, &["f", "main"]), (3e6, &["g", "main"]), (1e6, &["same", "main"])]);
        let new = profile(&[(7e6, &["f", "main"]), (2e6, &["g", "main"]), (1e6, &["same", "main"])]);
        let text = crate::show::written(|out| write_difference(&difference(&old, &new).unwrap(), false, out));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "live of 7, then of 7: +1.00 MB, from 9.00 MB to 10.0 MB; estimates",
                "   GROWTH       OLD       NEW  WHERE",
                " +2.00 MB   5.00 MB   7.00 MB  f (a.rb:2)",
                "                                 by main (a.rb:2)",
                " -1.00 MB   3.00 MB   2.00 MB  g (a.rb:2)",
                "     +0 B   1.00 MB   1.00 MB  (others)",
            ]
        );
    }

    #[test]
    fn what_hardly_shrank_is_no_minus_zero() {
        let profile = |bytes: f64| SavedProfile {
            pid: 7,
            view: "live".into(),
            measured_s: 1.0,
            total_bytes: bytes,
            dropped: 0,
            sites: vec![Site { bytes, frames: vec![Frame::default()], ..Site::default() }],
        };
        for change in [-1.0, -0.5, -0.4, -1e-9, 0.0, 1e-9, 0.4, 1.0] {
            let found = difference(&profile(5e6), &profile(5e6 + change)).unwrap();
            crate::show::assert_no_minus_zero(&crate::show::written(|out| {
                write_difference(&found, false, out)
            }));
        }
    }

    #[test]
    fn sites_are_written_as_a_tree_and_folded() {
        let frame = |function: &str| Frame { function: function.into(), file: "a.rb".into(), line: 2 };
        let site = |bytes, names: &[&str]| Site {
            bytes,
            blocks: 1.0,
            samples: 1,
            frames: names.iter().map(|name| frame(name)).collect(),
        };
        let sites = [
            site(6e6, &["f", "run", "main"]),
            site(3.9e6, &["g", "run", "main"]),
            site(6e4, &["h", "run", "main"]),
            site(6e4, &["i", "run", "main"]),
        ];
        let mut text = Vec::new();
        write_tree(&tree(&sites), false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  10.0 MB  100%  main (a.rb:2)",
                "  10.0 MB  100%  run (a.rb:2)",
                "  6.00 MB   60%    f (a.rb:2)",
                "  3.90 MB   39%    g (a.rb:2)",
                "   120 kB    1%    (others)",
            ]
        );
        let mut folded = Vec::new();
        write_folded(&sites[..1], &mut folded).unwrap();
        assert_eq!(String::from_utf8(folded).unwrap(), "main (a.rb:2);run (a.rb:2);f (a.rb:2) 6000000\n");
    }

    #[test]
    fn of_a_long_chain_the_ends_are_shown() {
        let shown = |length: usize| {
            let frames = (0..length).map(|number| Frame { function: number.to_string(), ..Frame::default() });
            let chain = Site { bytes: 1e6, frames: frames.collect(), ..Site::default() };
            let other = Site { bytes: 1e6, frames: vec![Frame::default()], ..Site::default() };
            let text = crate::show::written(|out| write_tree(&tree(&[chain, other]), false, out));
            let last_words = text.lines().skip(1).map(|line| line[17..].to_string());
            last_words.collect::<Vec<String>>()
        };
        assert_eq!(shown(40), ["39", "... 33 frames", "5", "4", "3", "2", "1", "0", ""]);
        assert_eq!(
            shown(8),
            ["7", "6", "5", "4", "3", "2", "1", "0", ""],
            "for one the line is as well used"
        );
    }
}
