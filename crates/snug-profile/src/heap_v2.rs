//! Sites in the format of jemalloc's heap profiles, `heap_v2`, with the functions' names in front: what `jeprof --raw`
//! writes. So it holds lines of interpreters, too, and is read without the program's files.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::sites::{Frame, Site};

/// Frames get addresses of their own, so far apart that a return address less one belongs to no other.
const FIRST_ADDRESS: u64 = 0x10000;
const APART: u64 = 16;
/// Readers take a smaller mean for what a sampler of every byte missed, and scale it.
const LEAST_BLOCK_BYTES: u64 = 16;

/// The profile. Both pairs of a line's numbers, live and ever allocated, are those of the sites: whichever is asked for.
pub fn write(sites: &[Site], out: &mut impl Write) -> io::Result<()> {
    let mut addresses: HashMap<&Frame, u64> = HashMap::new();
    let mut named: Vec<(u64, &Frame)> = Vec::new();
    for frame in sites.iter().flat_map(|site| &site.frames) {
        let next = FIRST_ADDRESS + APART * addresses.len() as u64;
        if *addresses.entry(frame).or_insert(next) == next {
            named.push((next, frame));
        }
    }
    writeln!(out, "--- symbol")?;
    for (address, frame) in named {
        // Of the innermost frame readers take the address itself, of callers the one before.
        let name = name_of(frame);
        writeln!(out, "{:#018x} {name}\n{address:#018x} {name}", address - 1)?;
    }
    writeln!(out, "---\n--- heap\nheap_v2/1")?;
    let counts = sites.iter().map(counts_of);
    let total = counts.fold((0, 0), |sum, (blocks, bytes)| (sum.0 + blocks, sum.1 + bytes));
    write_counts(total, out)?;
    for site in sites {
        write!(out, "@")?;
        for frame in &site.frames {
            write!(out, " {:#x}", addresses[frame])?;
        }
        writeln!(out)?;
        write_counts(counts_of(site), out)?;
    }
    writeln!(out, "\nMAPPED_LIBRARIES:")
}

fn counts_of(site: &Site) -> (u64, u64) {
    let blocks = site.blocks.round().max(1.0) as u64;
    (blocks, (site.bytes.round() as u64).max(blocks * LEAST_BLOCK_BYTES))
}

fn write_counts((blocks, bytes): (u64, u64), out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  t*: {blocks}: {bytes} [{blocks}: {bytes}]")
}

/// As readers leave it: they take what is in parentheses for arguments, in angle brackets for those of a template, and
/// two dashes for the next name.
fn name_of(frame: &Frame) -> String {
    let text = frame.text().replace(" (", " ").replace("--", "-");
    let kept = text.chars().filter(|c| *c != ')' && *c != '(');
    kept.map(|c| match c {
        '<' => '[',
        '>' => ']',
        c if c.is_control() => ' ',
        c => c,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_first_and_sums_are_right() {
        let site = |bytes, blocks, frames: &[Frame]| Site {
            bytes,
            blocks,
            samples: 1,
            frames: frames.to_vec(),
            ..Site::default()
        };
        let main = Frame::new("<main>", "/app/b.rb", 7);
        let sites = [
            site(5000.4, 2.0, &[Frame::new("keeps", "/app/a.rb", 3), main.clone()]),
            site(40.0, 10.0, &[Frame::new("f(int)--g", "", 0), main]),
        ];
        let mut written = Vec::new();
        write(&sites, &mut written).unwrap();
        let expected = "--- symbol
0x000000000000ffff keeps /app/a.rb:3
0x0000000000010000 keeps /app/a.rb:3
0x000000000001000f [main] /app/b.rb:7
0x0000000000010010 [main] /app/b.rb:7
0x000000000001001f fint-g
0x0000000000010020 fint-g
---
--- heap
heap_v2/1
  t*: 12: 5160 [12: 5160]
@ 0x10000 0x10010
  t*: 2: 5000 [2: 5000]
@ 0x10020 0x10010
  t*: 10: 160 [10: 160]

MAPPED_LIBRARIES:
";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
