//! A profile for people: the lines that allocated most, and a tree of callers and callees; what grew between two; and
//! folded stacks, one line for each, for flame graphs.

use std::io::{self, Write};

use snug_base::file::file_name;
use snug_base::terminal::{
    self, bytes, bytes_range, bytes_within, counted, printable, short_count, signed, styled,
};
use snug_profile::difference::ProfileDifference;
use snug_profile::lines::{flat_lines, FlatLine, SampledSum};
use snug_profile::sites::{tree, Branch, Frame, Site};

/// Smaller parts of the whole are added up, and more of them where the tree would be too long.
const LEAST_SHARES: [f64; 7] = [0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12];
/// Of a longer chain of single callees so many are shown, at its beginning and at its end.
const CHAIN_BEGIN: usize = 1;
const CHAIN_END: usize = 3;
/// Branches below each other that move to the right.
const DEPTH_MOST: usize = 6;
/// Callers that are shown of a line that grew.
const CALLERS: usize = 3;
/// Columns in front of the code: of a flat line, of one in the tree.
const FLAT_COLUMNS: usize = 34;
const TREE_COLUMNS: usize = 25;
const GROWTH_COLUMNS: usize = 31;

/// How much of a profile is shown.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Lines that allocated by themselves.
    pub top: usize,
    /// Lines of the tree; None: all, whatever their share and depth.
    pub tree_lines: Option<usize>,
    /// Columns of a line; what is longer loses parts of its path first. None: as long as it is.
    pub columns: Option<usize>,
}

impl Extent {
    /// What fits on a screen or two, of this width.
    pub fn usual(columns: usize) -> Extent {
        Extent { top: 10, tree_lines: Some(24), columns: Some(columns) }
    }

    pub const ALL: Extent = Extent { top: usize::MAX, tree_lines: None, columns: None };

    /// Code that follows so many columns of numbers.
    fn code(&self, frame: &Frame, after: usize) -> String {
        let text = printable(&frame.text());
        self.columns.map_or(text.clone(), |columns| shortened(&text, columns.saturating_sub(after)))
    }
}

/// A function and its place in so many characters: first the path loses its beginning, then the function the arguments of
/// its templates, then its middle.
fn shortened(text: &str, most: usize) -> String {
    let length = |text: &str| text.chars().count();
    if length(text) <= most {
        return text.to_string();
    }
    let (function, place) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((function, place)) => (function.to_string(), format!(" ({place})")),
        None => (text.to_string(), String::new()),
    };
    let function = match length(&function) + length(&place) > most {
        true => without_arguments(&function),
        false => function,
    };
    // Of both the larger part is the function's.
    let for_function = length(&function).min(most * 3 / 5);
    let place = shorter_path(&place, most.saturating_sub(for_function).max(4));
    let room = most.saturating_sub(length(&place));
    if length(&function) <= room {
        return function + &place;
    }
    let kept = room.saturating_sub(3);
    let (begin, skipped) = (kept / 3, length(&function) - (kept - kept / 3));
    let begin: String = function.chars().take(begin).collect();
    let end: String = function.chars().skip(skipped).collect();
    format!("{begin}...{end}{place}")
}

/// ` (FILE:LINE)` with as many folders as there is room for, the nearest first; else with the end of the file's name.
fn shorter_path(place: &str, most: usize) -> String {
    let length = |text: &str| text.chars().count();
    let Some(path) = place.strip_prefix(" (").filter(|_| length(place) > most) else {
        return place.into();
    };
    let cuts = path.char_indices().filter(|(at, c)| *c == '/' && *at > 0);
    let shorter = cuts.map(|(at, _)| format!(" (...{}", &path[at..]));
    let name = std::iter::once(format!(" ({}", file_name(path)));
    shorter.chain(name).find(|text| length(text) <= most).unwrap_or_else(|| {
        let end: String = path.chars().skip((length(path) + 5).saturating_sub(most)).collect();
        format!(" (...{end}")
    })
}

/// `std::vector<int>::push_back` as `std::vector<...>::push_back`.
fn without_arguments(function: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0;
    let mut before = ' ';
    for c in function.chars() {
        // Names of Ruby and Rust begin with one: <main>, <shop::Cart as Trait>::add.
        let opens = c == '<' && (depth > 0 || before.is_alphanumeric() || before == '_');
        if opens {
            depth += 1;
            if depth == 1 {
                kept.push_str("<...");
            }
        } else if c == '>' && depth > 0 && before != '-' {
            depth -= 1;
        }
        if depth == 0 {
            kept.push(c);
        }
        before = c;
    }
    if depth == 0 {
        kept
    } else {
        function.to_string()
    }
}

/// Writes the lines that allocated most, then the tree; of no sites, nothing.
pub fn write(sites: &[Site], extent: &Extent, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let root = tree(sites);
    if root.below.is_empty() {
        return Ok(());
    }
    write_flat(&flat_lines(sites), root.bytes, extent, colours, out)?;
    if extent.tree_lines != Some(0) {
        writeln!(out)?;
        write_tree(&root, extent, colours, out)?;
    }
    Ok(())
}

fn write_flat(
    lines: &[FlatLine],
    whole: f64,
    extent: &Extent,
    colours: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if extent.top == 0 {
        return Ok(());
    }
    let heading = format!("{:>9} {:>5}  {:>9} {:>5}  LINE, OR FUNCTION", "SELF", "", "TOTAL", "");
    writeln!(out, "{}", styled(&heading, terminal::BOLD, colours))?;
    for line in lines.iter().take(extent.top) {
        let unsure = line.own.uncertainty();
        writeln!(
            out,
            "{:>9} {:>3.0} %  {:>9} {:>3.0} %  {}",
            bytes_within(line.own.bytes, unsure),
            percent(line.own.bytes, whole),
            bytes_within(line.total_bytes, unsure),
            percent(line.total_bytes, whole),
            extent.code(&line.frame, FLAT_COLUMNS)
        )?;
        writeln!(out, "{:FLAT_COLUMNS$}{}", "", styled(&how_sure(&line.own), terminal::FAINT, colours))?;
        if let Some(caller) = &line.working_for {
            let code = extent.code(caller, FLAT_COLUMNS + 4);
            writeln!(
                out,
                "{:FLAT_COLUMNS$}{}",
                "",
                styled(&format!("for {code}"), terminal::FAINT, colours)
            )?;
        }
    }
    if let Some(left @ 1..) = lines.len().checked_sub(extent.top) {
        let rest: f64 = lines[extent.top..].iter().map(|line| line.own.bytes).sum();
        let (rest, share) = (bytes_within(rest, 1.0), percent(rest, whole));
        writeln!(out, "{rest:>9} {share:>3.0} %  in {} more", counted(left, "line"))?;
    }
    Ok(())
}

/// The interval of an estimate, and what it rests on.
fn how_sure(estimate: &SampledSum) -> String {
    let (low, high) = estimate.interval();
    let blocks = match short_count(estimate.blocks.round()).as_str() {
        "1" => "1 block".into(),
        count => format!("{count} blocks"),
    };
    let samples = counted(estimate.samples as usize, "sample");
    match low < high {
        true => format!("{}; {samples}, {blocks}", bytes_range(low, high)),
        false => format!("{samples}, {blocks}"), // each block is a sample
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}

/// Writes the tree of all sites; of none, nothing. A chain of single callees does not move to the right, and a long one is
/// shown by its ends.
pub fn write_tree(root: &Branch, extent: &Extent, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    if root.below.is_empty() {
        return Ok(());
    }
    let heading = format!("{:>9} {:>5} {:>7}  {}", "BYTES", "", "SAMPLES", "CALLERS, AND BELOW THEM CALLEES");
    writeln!(out, "{}", styled(&heading, terminal::BOLD, colours))?;
    let drawn = |least_share: f64| {
        let mut drawing =
            TreeLines { whole: root.bytes, least: root.bytes * least_share, extent, lines: Vec::new() };
        drawing.add_below(root, 0);
        drawing.lines
    };
    let Some(most) = extent.tree_lines else {
        return drawn(0.0).iter().try_for_each(|line| writeln!(out, "{line}"));
    };
    let mut shares = LEAST_SHARES.iter().map(|share| (*share, drawn(*share)));
    let fitting = shares.find(|(_, lines)| lines.len() <= most);
    let (share, lines) = fitting.unwrap_or_else(|| (1.0, drawn(LEAST_SHARES[LEAST_SHARES.len() - 1])));
    lines.iter().take(most).try_for_each(|line| writeln!(out, "{line}"))?;
    if share > LEAST_SHARES[0] {
        let note = match share {
            1.0 => format!("{:TREE_COLUMNS$}--all shows the rest", ""),
            share => format!("{:TREE_COLUMNS$}below {:.3} %: --all", "", 100.0 * share)
                .replace(".000", "")
                .replace(".500", ".5"),
        };
        writeln!(out, "{}", styled(&note, terminal::FAINT, colours))?;
    }
    Ok(())
}

/// Lines of a tree.
struct TreeLines<'a> {
    whole: f64,
    /// What has fewer bytes is added up.
    least: f64,
    extent: &'a Extent,
    lines: Vec<String>,
}

impl TreeLines<'_> {
    fn add_below(&mut self, node: &Branch, depth: usize) {
        let is_cut = self.extent.tree_lines.is_some() && depth > DEPTH_MOST;
        let mut rest = SampledSum::default();
        for child in &node.below {
            if is_cut || child.bytes < self.least {
                rest.bytes += child.bytes;
                rest.samples += child.samples;
                rest.variance += child.variance;
                continue;
            }
            let chain = self.chain_from(child);
            let hidden = match self.extent.tree_lines {
                Some(_) => chain.len().saturating_sub(CHAIN_BEGIN + CHAIN_END),
                None => 0,
            };
            for (index, node) in chain.iter().enumerate() {
                let is_hidden = hidden > 1 && (CHAIN_BEGIN..CHAIN_BEGIN + hidden).contains(&index);
                if !is_hidden {
                    self.add(node.estimate(), depth, &node.frame);
                } else if index == CHAIN_BEGIN {
                    self.lines.push(format!("{:TREE_COLUMNS$}{}... {hidden} frames", "", indentation(depth)));
                }
            }
            self.add_below(chain[chain.len() - 1], depth + 1);
        }
        if rest.bytes > 0.0 && rest.bytes >= self.least {
            let others =
                Frame { function: if is_cut { "(deeper)" } else { "(others)" }.into(), ..Frame::default() };
            self.add(rest, depth.min(DEPTH_MOST), &others);
        }
    }

    /// The node, and what below it holds all that it holds but for too little to show.
    fn chain_from<'b>(&self, node: &'b Branch) -> Vec<&'b Branch> {
        let mut chain = vec![node];
        let mut last = node;
        loop {
            let mut shown = last.below.iter().filter(|child| child.bytes > 0.0 && child.bytes >= self.least);
            let (Some(only), None) = (shown.next(), shown.next()) else { return chain };
            if last.bytes - only.bytes > self.least.min(node.bytes * LEAST_SHARES[0]) {
                return chain;
            }
            chain.push(only);
            last = only;
        }
    }

    fn add(&mut self, estimate: SampledSum, depth: usize, frame: &Frame) {
        let indentation = indentation(depth);
        self.lines.push(format!(
            "{:>9} {:>3.0} % {:>7}  {indentation}{}",
            bytes_within(estimate.bytes, estimate.uncertainty()),
            percent(estimate.bytes, self.whole),
            estimate.samples,
            self.extent.code(frame, TREE_COLUMNS + indentation.len())
        ));
    }
}

/// In front of code: what is deeper is numbered in place of moving on.
fn indentation(depth: usize) -> String {
    let moved = "  ".repeat(depth.min(DEPTH_MOST));
    if depth > DEPTH_MOST {
        format!("{moved}{depth}: ")
    } else {
        moved
    }
}

/// Writes which lines have more than before, and which less.
pub fn write_difference(
    found: &ProfileDifference,
    extent: &Extent,
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
    let least = LEAST_SHARES[0] * found.lines.iter().map(|line| line.growth_bytes.abs()).sum::<f64>();
    let mut others = [0.0; 3];
    for line in &found.lines {
        let numbers = [line.growth_bytes, line.old_bytes, line.new_bytes];
        if line.growth_bytes.abs() < least || line.growth_bytes == 0.0 {
            others.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            continue;
        }
        write_growth(numbers, &extent.code(&line.line, GROWTH_COLUMNS), out)?;
        if line.growth_bytes > 0.0 {
            for caller in line.callers.iter().take(CALLERS) {
                writeln!(out, "{:31}  by {}", "", extent.code(caller, GROWTH_COLUMNS + 5))?;
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
pub fn write_folded(sites: &[Site], out: &mut dyn Write) -> io::Result<()> {
    for site in sites {
        let names = site.frames.iter().rev().map(|frame| frame.text().replace(';', ","));
        writeln!(out, "{} {:.0}", names.collect::<Vec<_>>().join(";"), site.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;
    use snug_profile::difference::{difference, SavedProfile};

    fn saved_sites() -> Vec<Site> {
        let text = include_str!("../../snug/tests/data/profile.json");
        snug_profile::difference::parse::<SavedProfile>(text, ("snug-profile", 1)).unwrap().sites
    }

    /// What stands in tests/data/profile.txt is to be read by people, too. Of a large server, by what is in profile.json.
    #[test]
    fn a_servers_profile_reads_as_it_should() {
        let text = snug_base::testing::written(|out| write(&saved_sites(), &Extent::usual(80), false, out));
        let expected = include_str!("../../snug/tests/data/profile.txt");
        assert!(text == expected, "it became:\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 60, "{text}");
    }

    #[test]
    fn all_of_it_is_there_if_asked_for() {
        let sites = saved_sites();
        let text = snug_base::testing::written(|out| write(&sites, &Extent::ALL, false, out));
        for frame in sites.iter().flat_map(|site| &site.frames) {
            assert!(text.contains(&frame.text()), "{} is not in {text}", frame.text());
        }
    }

    /// Stacks of any shape.
    #[test]
    fn no_profile_is_longer_or_wider_than_a_page() {
        let mut random = Random::new(3);
        for _ in 0..100 {
            let (names, depth) = (2 + random.below(40), 1 + random.below(60));
            let site = |random: &mut Random| {
                let frames = (0..depth).map(|_| {
                    Frame::new(
                        "f<g<h>>::".repeat(random.below(9) as usize) + &random.below(names).to_string(),
                        "/a folder/and another".repeat(random.below(6) as usize),
                        random.below(3) as u32,
                    )
                });
                let frames = frames.collect();
                Site { frames, ..Site::of_sample(random.log_between(10.0, 1e9), random.between(1.0, 1e6)) }
            };
            let sites: Vec<Site> = (0..1 + random.below(200)).map(|_| site(&mut random)).collect();
            let text = snug_base::testing::written(|out| {
                write(&snug_profile::sites::merge(sites), &Extent::usual(80), false, out)
            });
            assert!(text.lines().count() <= 60, "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest <= 80), "{text}");
            let indented = text.lines().map(|line| line.len() - line.trim_start().len()).max();
            assert!(indented.is_some_and(|columns| columns <= 40), "{text}");
        }
    }

    #[test]
    fn code_that_is_too_long_loses_what_says_least() {
        let code = "Cart#add (shop-1.0/app/models/cart.rb:7)";
        for (most, expected) in [
            (60, code),
            (36, "Cart#add (.../app/models/cart.rb:7)"),
            (30, "Cart#add (.../cart.rb:7)"),
            (20, "Cart#add (cart.rb:7)"),
        ] {
            assert_eq!(shortened(code, most), expected);
        }
        let vector = "std::vector<shop::Item, std::allocator<shop::Item> >::push_back (vector.tcc:3)";
        assert_eq!(shortened(vector, 50), "std::vector<...>::push_back (vector.tcc:3)");
        let frozen = "_call_with_frames_removed (<frozen importlib._bootstrap_external>:241)";
        assert_eq!(shortened(frozen, 44), "_call_with_frames_removed (...external>:241)");
        assert_eq!(without_arguments("<main>"), "<main>");
        assert_eq!(without_arguments("<shop::Cart as Add<u8>>::add"), "<shop::Cart as Add<...>>::add");
        assert_eq!(without_arguments("operator->"), "operator->");
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
            snug_base::testing::assert_no_minus_zero(&snug_base::testing::written(|out| {
                write_difference(&found, &Extent::ALL, false, out)
            }));
        }
    }

    #[test]
    fn sites_are_written_as_a_tree_and_folded() {
        let frame = |function: &str| Frame::new(function, "a.rb", 2);
        let site = |bytes, names: &[&str]| Site {
            bytes,
            blocks: 1.0,
            samples: 1,
            frames: names.iter().map(|name| frame(name)).collect(),
            ..Site::default()
        };
        let sites = [
            site(6e6, &["f", "run", "main"]),
            site(3.9e6, &["g", "run", "main"]),
            site(6e4, &["h", "run", "main"]),
            site(6e4, &["i", "run", "main"]),
        ];
        let text =
            snug_base::testing::written(|out| write_tree(&tree(&sites), &Extent::usual(80), false, out));
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                "  10.0 MB 100 %       4  main (a.rb:2)",
                "  10.0 MB 100 %       4  run (a.rb:2)",
                "  6.00 MB  60 %       1    f (a.rb:2)",
                "  3.90 MB  39 %       1    g (a.rb:2)",
                "   120 kB   1 %       2    (others)",
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
            let text = snug_base::testing::written(|out| {
                write_tree(&tree(&[chain, other]), &Extent::usual(80), false, out)
            });
            let last_words = text.lines().skip(1).map(|line| line[25..].to_string());
            last_words.collect::<Vec<String>>()
        };
        assert_eq!(shown(40), ["39", "... 36 frames", "2", "1", "0", ""]);
        assert_eq!(shown(5), ["4", "3", "2", "1", "0", ""], "for one the line is as well used");
    }
}
