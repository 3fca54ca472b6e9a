//! The cost of all that a program requires as it starts, for people: a tree, and sums by library.

use std::io::{self, Write};

use crate::difference::BootDifference;
use crate::report::{BootCost, BootMemory, BootReport, RequiredFile};
use snug_base::terminal::{self, short_number, signed, styled};

/// Names that are shown of the others that require a file.
const ALSO: usize = 1;

/// Writes all of it. Files and libraries whose memory is below `cut_off_bytes` are added up.
pub fn write(report: &BootReport, cut_off_bytes: f64, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = |text: String| styled(&text, terminal::BOLD, colours);
    let (language, version) = (language_name(&report.language), &report.language_version);
    let (files, time) = (report.files, time(report.cost.time_s));
    writeln!(out, "{}", heading(format!("{}: {language} {version}, {files} files, {time}", report.program)))?;
    let moments = [
        ("before the first file", Some(report.at_start)),
        ("at the end", Some(report.at_end)),
        ("after a collection", report.after_collection),
    ];
    for (when, memory) in moments {
        let Some(BootMemory { live_bytes, rss_bytes }) = memory else { continue };
        let (live, rss) = (terminal::bytes(live_bytes as f64), terminal::bytes(rss_bytes as f64));
        writeln!(out, "{live:>10} live {rss:>10} RSS  {when}")?;
    }
    writeln!(out, "\nEach file with all that it requires, by the larger of LIVE and RSS.")?;
    if exceeds_its_parent(&report.required, None) {
        writeln!(out, "A file below another exceeds it where memory was freed after the lower one.")?;
    }
    writeln!(out, "{}", heading(format!("{:>9} {:>9} {:>9}  REQUIRED", "LIVE", "RSS", "TIME")))?;
    write_files(&report.required, cut_off_bytes, 0, out)?;
    let with_objects = report.libraries.iter().any(|library| library.objects.is_some());
    let objects = if with_objects { format!(" {:>9} {:>9}", "OBJECTS", "THEIRS") } else { String::new() };
    let titles = format!("{:>9} {:>9} {:>9} {:>6}{objects}  LIBRARY", "LIVE", "RSS", "TIME", "FILES");
    writeln!(out, "\n{}", heading(titles))?;
    let mut others = (0, 0, BootCost::default());
    for library in &report.libraries {
        let of_objects = library.objects.unwrap_or_default();
        if (library.cost.memory_bytes() as f64) < cut_off_bytes && (of_objects.bytes as f64) < cut_off_bytes {
            others = (others.0 + 1, others.1 + library.files, others.2.plus(library.cost));
            continue;
        }
        let objects = match with_objects {
            true => format!(
                " {:>9} {:>9}",
                terminal::short_count(of_objects.objects as f64),
                terminal::bytes(of_objects.bytes as f64)
            ),
            false => String::new(),
        };
        writeln!(out, "{} {:>6}{objects}  {}", cost(library.cost), library.files, library.library)?;
    }
    if others.0 > 0 {
        let gap = if with_objects { " ".repeat(20) } else { String::new() };
        writeln!(out, "{} {:>6}{gap}  ({})", cost(others.2), others.1, terminal::counted(others.0, "other"))?;
    }
    Ok(())
}

/// Whether a file costs more than the one that requires it: memory can go down again.
fn exceeds_its_parent(files: &[RequiredFile], parent: Option<BootCost>) -> bool {
    let exceeds = |cost: BootCost| {
        parent.is_some_and(|parent| cost.live_bytes > parent.live_bytes || cost.rss_bytes > parent.rss_bytes)
    };
    files.iter().any(|file| exceeds(file.cost) || exceeds_its_parent(&file.required, Some(file.cost)))
}

fn write_files(
    files: &[RequiredFile],
    cut_off_bytes: f64,
    depth: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    let (mut count, mut rest) = (0, BootCost::default());
    for file in files {
        if (file.cost.memory_bytes() as f64) < cut_off_bytes {
            (count, rest) = (count + 1, rest.plus(file.cost));
            continue;
        }
        let also = match file.also_required_by.as_slice() {
            [] => String::new(),
            names => {
                let more = names.len().saturating_sub(ALSO);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("  (also required by {}{more})", names[..names.len().min(ALSO)].join(", "))
            }
        };
        writeln!(out, "{}  {indent}{}{also}", cost(file.cost), file.name)?;
        write_files(&file.required, cut_off_bytes, depth + 1, out)?;
    }
    // What is small above is small below, too.
    if count > 0 && rest.memory_bytes() as f64 >= cut_off_bytes {
        writeln!(out, "{}  {indent}({})", cost(rest), terminal::counted(count, "other"))?;
    }
    Ok(())
}

/// Writes which libraries cost more than before, and which less.
pub fn write_difference(
    found: &BootDifference,
    cut_off_bytes: f64,
    colours: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for note in &found.notes {
        writeln!(out, "{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    for (name, old) in &found.old {
        let new = found.new.get(name).copied().unwrap_or(0.0);
        let (label, show): (&str, fn(f64) -> String) = match name.as_str() {
            "live_bytes" => ("live", terminal::bytes),
            "rss_bytes" => ("RSS", terminal::bytes),
            "time_s" => ("time", time),
            _ => ("files", terminal::short_count),
        };
        let percent = match *old > 0.0 {
            true => format!("  {} %", signed(100.0 * (new / old - 1.0), |percent| format!("{percent:.1}"))),
            false => String::new(),
        };
        writeln!(out, "{label:>9}  {} then, {} now{percent}", show(*old), show(new))?;
    }
    let titles = format!("{:>9} {:>9} {:>9} {:>6}  LIBRARY", "LIVE", "RSS", "TIME", "FILES");
    writeln!(out, "\n{}", styled(&titles, terminal::BOLD, colours))?;
    let (mut count, mut rest) = (0, BootCost::default());
    for change in &found.libraries {
        let growth = change.growth;
        let largest = growth.live_bytes.abs().max(growth.rss_bytes.abs()) as f64;
        if largest < cut_off_bytes && change.old_files > 0 && change.new_files > 0 {
            (count, rest) = (count + 1, rest.plus(growth));
            continue;
        }
        let remark = match (change.old_files, change.new_files) {
            (0, _) => "  (new)",
            (_, 0) => "  (gone)",
            _ => "",
        };
        let files = change.new_files as i64 - change.old_files as i64;
        writeln!(out, "{} {files:>+6}  {}{remark}", growth_text(growth), change.library)?;
    }
    if count > 0 && (rest.live_bytes, rest.rss_bytes) != (0, 0) {
        writeln!(out, "{} {:>6}  ({})", growth_text(rest), "", terminal::counted(count, "other"))?;
    }
    Ok(())
}

fn language_name(language: &str) -> &str {
    match language {
        "ruby" => "Ruby",
        "python" => "Python",
        other => other,
    }
}

fn cost(cost: BootCost) -> String {
    let bytes = |count: i64| match count < 0 {
        true => format!("-{}", terminal::bytes(-count as f64)),
        false => terminal::bytes(count as f64),
    };
    format!("{:>9} {:>9} {:>9}", bytes(cost.live_bytes), bytes(cost.rss_bytes), time(cost.time_s))
}

fn growth_text(growth: BootCost) -> String {
    let bytes = |count: i64| signed(count as f64, terminal::bytes);
    let time = signed(growth.time_s, time);
    format!("{:>9} {:>9} {time:>9}", bytes(growth.live_bytes), bytes(growth.rss_bytes))
}

fn time(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{} ms", short_number(seconds * 1e3)),
        false => format!("{} s", short_number(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::difference;
    use crate::report::{BootObjects, LibraryCost};

    fn cost_of(live_bytes: i64, rss_bytes: i64) -> BootCost {
        BootCost { live_bytes, rss_bytes, time_s: 0.0123 }
    }

    fn file(name: &str, live_bytes: i64, required: Vec<RequiredFile>) -> RequiredFile {
        RequiredFile {
            name: name.into(),
            cost: cost_of(live_bytes, 2 * live_bytes),
            required,
            ..RequiredFile::default()
        }
    }

    fn report() -> BootReport {
        let small = || (0..3).map(|n| file(&format!("small{n}"), 60_000, Vec::new()));
        let mut json = file("json", 1_000_000, small().collect());
        json.also_required_by = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let library = |name: &str, live_bytes, objects| LibraryCost {
            library: name.into(),
            files: 2,
            cost: cost_of(live_bytes, -live_bytes),
            objects,
        };
        BootReport {
            program: "ruby shop.rb".into(),
            language: "ruby".into(),
            language_version: "3.3.1".into(),
            files: 5,
            cost: BootCost { time_s: 1.5, ..cost_of(2_000_000, 3_000_000) },
            at_start: BootMemory { live_bytes: 1_000_000, rss_bytes: 9_000_000 },
            at_end: BootMemory { live_bytes: 3_000_000, rss_bytes: 12_000_000 },
            after_collection: Some(BootMemory { live_bytes: 2_500_000, rss_bytes: 12_000_000 }),
            libraries: vec![
                library("ruby", 1_500_000, Some(BootObjects { objects: 12_345, bytes: 700_000 })),
                library("rack", 20_000, None),
            ],
            required: vec![file("shop", 2_000_000, vec![json])],
        }
    }

    #[test]
    fn a_tree_and_libraries() {
        let text = snug_base::testing::written(|out| write(&report(), 300e3, false, out));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "ruby shop.rb: Ruby 3.3.1, 5 files, 1.50 s",
                "   1.00 MB live    9.00 MB RSS  before the first file",
                "   3.00 MB live    12.0 MB RSS  at the end",
                "   2.50 MB live    12.0 MB RSS  after a collection",
                "",
                "Each file with all that it requires, by the larger of LIVE and RSS.",
                "     LIVE       RSS      TIME  REQUIRED",
                "  2.00 MB   4.00 MB   12.3 ms  shop",
                "  1.00 MB   2.00 MB   12.3 ms    json  (also required by a and 4 more)",
                "   180 kB    360 kB   36.9 ms      (3 others)",
                "",
                "     LIVE       RSS      TIME  FILES   OBJECTS    THEIRS  LIBRARY",
                "  1.50 MB  -1.50 MB   12.3 ms      2    12.3 k    700 kB  ruby",
                "  20.0 kB  -20.0 kB   12.3 ms      2                      (1 other)",
            ]
        );
    }

    /// The order is the one that the line above says, and where a file exceeds the one above it, that is said.
    #[test]
    fn the_order_and_what_exceeds_are_said() {
        let mut random = snug_base::random::Random::new(8);
        let mut said = 0;
        for _ in 0..100 {
            let mut bytes = || random.between(-1e6, 5e6) as i64;
            let child = RequiredFile { cost: cost_of(bytes(), bytes()), ..file("child", 0, vec![]) };
            let parent = RequiredFile { cost: cost_of(bytes(), bytes()), ..file("parent", 0, vec![child]) };
            let (above, below) = (parent.cost, parent.required[0].cost);
            let text = snug_base::testing::written(|out| {
                write(&BootReport { required: vec![parent], ..report() }, 0.0, false, out)
            });
            let exceeds = below.live_bytes > above.live_bytes || below.rss_bytes > above.rss_bytes;
            assert_eq!(text.contains("exceeds it where"), exceeds, "{text}");
            said += u32::from(exceeds);
        }
        assert!((20..100).contains(&said), "{said}");
    }

    #[test]
    fn what_grew() {
        let mut new = report();
        new.libraries[0].cost = cost_of(2_500_000, -1_500_000);
        new.libraries[1].library = "sinatra".into();
        new.after_collection = Some(BootMemory { live_bytes: 5_000_000, rss_bytes: 12_000_000 });
        let text = snug_base::testing::written(|out| {
            write_difference(&difference(&report(), &new), 300e3, false, out)
        });
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "    files  5 then, 5 now  +0.0 %",
                "     live  2.50 MB then, 5.00 MB now  +100.0 %",
                "      RSS  12.0 MB then, 12.0 MB now  +0.0 %",
                "     time  1.50 s then, 1.50 s now  +0.0 %",
                "",
                "     LIVE       RSS      TIME  FILES  LIBRARY",
                " +1.00 MB      +0 B  +0.00 ms     +0  ruby",
                " -20.0 kB  +20.0 kB  -12.3 ms     -2  rack  (gone)",
                " +20.0 kB  -20.0 kB  +12.3 ms     +2  sinatra  (new)",
            ]
        );
    }

    #[test]
    fn what_hardly_changed_is_no_minus_zero() {
        let old = report();
        for bytes in -3..=3 {
            for time_s in [-1e-2, -1e-4, -5e-6, -4e-6, -1e-9, 0.0, 1e-9, 4e-6, 1e-2] {
                let mut new = report();
                new.cost.time_s += time_s;
                for cost in new.libraries.iter_mut().map(|library| &mut library.cost) {
                    cost.live_bytes += bytes;
                    cost.rss_bytes -= bytes;
                    cost.time_s += time_s;
                }
                let memory = new.after_collection.as_mut().unwrap();
                memory.live_bytes = memory.live_bytes.wrapping_add_signed(1000 * bytes);
                memory.rss_bytes = memory.rss_bytes.wrapping_add_signed(bytes);
                for cut_off_bytes in [0.0, 300e3] {
                    let text = snug_base::testing::written(|out| {
                        write(&new, cut_off_bytes, false, out)?;
                        write_difference(&difference(&old, &new), cut_off_bytes, false, out)
                    });
                    snug_base::testing::assert_no_minus_zero(&text);
                }
            }
        }
    }
}
