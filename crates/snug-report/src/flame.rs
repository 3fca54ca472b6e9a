//! A profile as one HTML page that needs nothing else: a flame graph, its callers above, and the sites as a table, which
//! is there without a script, too.

use std::io::{self, Write};

use askama::Template;
use serde::Serialize;

use snug_base::file::file_name;
use snug_base::terminal::{self, bytes, bytes_range, bytes_within, short_count};
use snug_base::VERSION;
use snug_profile::lines::{flat_lines, FlatLine};
use snug_profile::sites::{Branch, Frame, Site};

/// Frames with a smaller share of all are not in the graph by their names: a page can't hold all of a large program.
const LEAST_SHARE: f64 = 0.0002;
/// What stands for those of one caller, so that widths add up.
const TOO_SMALL: &str = "[too small to show]";
/// Kinds of frames, as flame.js numbers them.
const REMARK: u8 = 0;
const NATIVE: u8 = 1;
const LANGUAGE: u8 = 2;
/// Lines in the first table.
const LINES: usize = 20;
/// Sites in the table, and the callers of each.
const SITES: usize = 40;
const CALLERS: usize = 4;

/// What the page says beside the frames.
pub struct About<'a> {
    /// The PID, and its command.
    pub process: &'a str,
    /// When the measurement ended.
    pub ended_at: &'a str,
    /// What was measured, as a sentence without its end.
    pub summary: &'a str,
    /// 0: they were not counted.
    pub samples: u64,
    pub dropped: u64,
}

/// One of the views of a page.
pub struct FlameView<'a> {
    pub name: String,
    pub about: About<'a>,
    pub sites: &'a [Site],
    /// Their tree.
    pub root: &'a Branch,
}

/// Writes the page of all sites, whose tree is `root`.
pub fn write(about: &About<'_>, sites: &[Site], root: &Branch, out: &mut dyn Write) -> io::Result<()> {
    render(about, &[("all", about, sites, root)], out)
}

/// Writes a page that switches between views, of which the first is shown at first.
pub fn write_views(views: &[FlameView<'_>], out: &mut dyn Write) -> io::Result<()> {
    match views {
        [] => Ok(()),
        [view] => write(&view.about, view.sites, view.root, out),
        [first, ..] => {
            let views = views.iter().map(|view| (view.name.as_str(), &view.about, view.sites, view.root));
            render(&first.about, &views.collect::<Vec<_>>(), out)
        }
    }
}

type NamedView<'a> = (&'a str, &'a About<'a>, &'a [Site], &'a Branch);

fn render(about: &About<'_>, views: &[NamedView<'_>], out: &mut dyn Write) -> io::Result<()> {
    let nodes: Vec<(&str, FlameFrame)> = views
        .iter()
        .map(|(name, _, _, root)| (*name, FlameFrame::new(root, root.bytes * LEAST_SHARE, "all")))
        .collect();
    // In a script nothing may look like its end.
    let trees = serde_json::to_string(&nodes).map_err(io::Error::other)?.replace('<', "\\u003c");
    let page = FlamePage {
        style: include_str!("../templates/page.css"),
        own_style: include_str!("../templates/flame.css"),
        script: include_str!("../templates/flame.js"),
        process: about.process,
        ended_at: about.ended_at,
        views: views.iter().enumerate().map(|(index, view)| ViewPart::new(index, view)).collect(),
        trees,
        snug_version: VERSION,
    };
    out.write_all(page.render().map_err(io::Error::other)?.as_bytes())
}

#[derive(Template)]
#[template(path = "flame.html")]
struct FlamePage<'a> {
    style: &'static str,
    own_style: &'static str,
    script: &'static str,
    process: &'a str,
    ended_at: &'a str,
    views: Vec<ViewPart<'a>>,
    /// JSON: the name and the outermost frame of each view.
    trees: String,
    snug_version: &'a str,
}

/// What the page has for one view, beside the graph.
struct ViewPart<'a> {
    name: &'a str,
    is_first: bool,
    lead: String,
    samples: String,
    dropped: u64,
    lines: Vec<LineRow>,
    more_lines: usize,
    sites: Vec<SiteRow>,
    more_sites: usize,
}

impl<'a> ViewPart<'a> {
    fn new(index: usize, (name, about, sites, root): &NamedView<'a>) -> ViewPart<'a> {
        let total = root.bytes;
        let share = |bytes: f64| format!("{:.1} %", if total > 0.0 { 100.0 * bytes / total } else { 0.0 });
        let lines = flat_lines(sites);
        let line_row = |line: &FlatLine| {
            let (low, high) = line.own.interval();
            let unsure = line.own.uncertainty();
            LineRow {
                own: bytes_within(line.own.bytes, unsure),
                own_share: share(line.own.bytes),
                total: bytes_within(line.total_bytes, unsure),
                total_share: share(line.total_bytes),
                interval: bytes_range(low, high),
                samples: line.own.samples,
                blocks: short_count(line.own.blocks.round()),
                code: line.frame.text(),
                working_for: line.working_for.as_ref().map(Frame::text).unwrap_or_default(),
            }
        };
        let row = |site: &Site| SiteRow {
            bytes: bytes(site.bytes),
            share: share(site.bytes),
            blocks: short_count(site.blocks.round()),
            innermost: site.frames.first().map(Frame::text).unwrap_or_default(),
            callers: site.frames.iter().skip(1).take(CALLERS).map(Frame::text).collect(),
        };
        ViewPart {
            name,
            is_first: index == 0,
            lead: format!("{}.", about.summary),
            samples: match about.samples {
                0 => "samples".into(),
                samples => terminal::counted(samples as usize, "sample"),
            },
            dropped: about.dropped,
            lines: lines.iter().take(LINES).map(line_row).collect(),
            more_lines: lines.len().saturating_sub(LINES),
            sites: sites.iter().take(SITES).map(row).collect(),
            more_sites: sites.len().saturating_sub(SITES),
        }
    }
}

/// A row of the table of lines.
struct LineRow {
    own: String,
    own_share: String,
    total: String,
    total_share: String,
    interval: String,
    samples: u64,
    blocks: String,
    code: String,
    working_for: String,
}

/// A row of the table of stacks.
struct SiteRow {
    bytes: String,
    share: String,
    blocks: String,
    innermost: String,
    callers: Vec<String>,
}

/// A frame as the script wants it: name, place, kind, bytes, and the frames below it, the most bytes first.
#[derive(Serialize)]
struct FlameFrame(String, String, u8, u64, Vec<FlameFrame>);

impl FlameFrame {
    fn new(branch: &Branch, least_bytes: f64, root_name: &str) -> FlameFrame {
        let frame = &branch.frame;
        let file = file_name(&frame.file);
        let place = match (frame.line, &frame.source) {
            (0, Some(source)) => format!("{}:{}, {file}", source.file, source.line),
            (0, None) => file.to_string(),
            (line, _) => format!("{}:{line}", frame.file),
        };
        // Ruby's methods that are written in C have no file, remarks neither; a frame of Python may have no line.
        let is_language = frame.line > 0 || [".rb", ".py"].iter().any(|ending| file.ends_with(ending));
        let kind = match frame.function.is_empty() || frame.function.starts_with('[') {
            true => REMARK,
            false if is_language || frame.file.is_empty() => LANGUAGE,
            false => NATIVE,
        };
        let name = if frame.function.is_empty() { root_name } else { &frame.function };
        let (shown, small): (Vec<&Branch>, Vec<&Branch>) =
            branch.below.iter().partition(|child| child.bytes >= least_bytes.max(1.0));
        let mut below: Vec<_> =
            shown.into_iter().map(|child| FlameFrame::new(child, least_bytes, "?")).collect();
        let rest: f64 = small.iter().map(|child| child.bytes).sum();
        if rest >= 1.0 {
            below.push(FlameFrame(TOO_SMALL.into(), String::new(), REMARK, rest.round() as u64, Vec::new()));
            below.sort_by_key(|frame| std::cmp::Reverse(frame.3));
        }
        FlameFrame(name.to_string(), place, kind, branch.bytes.round().max(0.0) as u64, below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::testing::written;
    use snug_profile::sites;

    fn page(function: &str) -> String {
        let site = |bytes, inner: &str| Site {
            bytes,
            blocks: 2.0,
            samples: 2,
            frames: vec![Frame::new(inner, "/app/shop.rb", 7), Frame::new("main", "/usr/bin/ruby", 0)],
            ..Site::default()
        };
        let sites = [site(3_000_000.0, function), site(100.0, "tiny")];
        let about =
            About { process: "7 puma", ended_at: "today", summary: "3 MB live", samples: 4, dropped: 0 };
        written(|out| write(&about, &sites, &sites::tree(&sites), out))
    }

    #[test]
    fn the_tree_has_callers_above_and_adds_up_what_nobody_sees() {
        let page = page("Cart#add");
        let tree = page.split_once("id=\"trees\">").unwrap().1.split_once("</script>").unwrap().0;
        let tree: serde_json::Value = serde_json::from_str(tree).unwrap();
        let expected = serde_json::json!([
            "all",
            "",
            0,
            3_000_100,
            [[
                "main",
                "ruby",
                NATIVE,
                3_000_100,
                [
                    ["Cart#add", "/app/shop.rb:7", LANGUAGE, 3_000_000, []],
                    ["[too small to show]", "", REMARK, 100, []]
                ]
            ]]
        ]);
        assert_eq!(tree, serde_json::json!([["all", expected]]));
        assert!(page.contains("of 4 samples"));
    }

    #[test]
    fn a_page_has_all_views() {
        let frame = Frame { function: "f".into(), ..Frame::default() };
        let sites = [Site { bytes: 7e6, blocks: 1.0, samples: 9, frames: vec![frame], ..Site::default() }];
        let tree = sites::tree(&sites);
        let view = |name: &str, summary| FlameView {
            name: name.into(),
            about: About { process: "7", ended_at: "today", summary, samples: 9, dropped: 0 },
            sites: &sites,
            root: &tree,
        };
        let two = written(|out| write_views(&[view("live", "LIVE"), view("peak", "PEAK")], out));
        assert!(two.contains("LIVE.") && two.contains("PEAK.") && two.contains("[\"peak\",["), "{two}");
        assert_eq!(two.matches("data-view=\"peak\" hidden").count(), 3, "{two}");
        assert!(!two.contains("data-view=\"live\" hidden"), "{two}");
    }

    #[test]
    fn names_can_neither_end_the_script_nor_be_markup() {
        let page = page("</script><img src=x onerror=alert(1)>");
        assert!(!page.contains("<img"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
    }
}
