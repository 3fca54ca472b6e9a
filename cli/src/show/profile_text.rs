//! A profile for people: a tree of callers and callees; and folded stacks, one line for each, for flame graphs.

use std::io::{self, Write};

use crate::analysis::sites::{Branch, Site};
use crate::base::terminal::{self, bytes, styled};

/// Smaller parts of the whole are added up.
const LEAST_SHARE: f64 = 0.01;

/// Writes the tree of all sites. A chain of single callees does not move to the right.
pub(crate) fn write_tree(root: &Branch, colours: bool, out: &mut dyn Write) -> io::Result<()> {
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
        write_line(child.bytes, total, depth, &child.frame.text(), out)?;
        let branches = child.below.len() != 1 || child.below[0].bytes < child.bytes * (1.0 - LEAST_SHARE);
        write_below(child, total, depth + usize::from(branches), out)?;
    }
    if rest >= total * LEAST_SHARE {
        write_line(rest, total, depth, "(others)", out)?;
    }
    Ok(())
}

fn write_line(count: f64, total: f64, depth: usize, what: &str, out: &mut dyn Write) -> io::Result<()> {
    let percent = if total > 0.0 { 100.0 * count / total } else { 0.0 };
    writeln!(out, "{:>9} {percent:>4.0}%  {}{what}", bytes(count), "  ".repeat(depth))
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
    use crate::analysis::sites::{tree, Frame};

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
}
