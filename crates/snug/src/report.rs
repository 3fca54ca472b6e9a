//! `snug report`: shows saved comparisons again, and sets several side by side.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use snug_base::failure::{Context, Failure, Result};
use snug_base::file;
use snug_base::terminal::{self, styled};
use snug_compare::change::{Change, Changes, Origin};
use snug_compare::condition::{self, Scope};
use snug_compare::results::Comparison;
use snug_compare::saved::{self, Saved};
use snug_compare::view::Difference;
use snug_compare::{overview, summary};
use snug_report::narrow::{self, Column};
use snug_report::output::{self, OutputArguments};
use snug_report::{overview as show, table};

/// Show saved comparisons again, or compare several with each other
#[derive(Debug, Args)]
#[command(
    override_usage = "snug report [OPTIONS] <[NAME=]FILE>...",
    after_help = "Examples:
  snug report results/compare.json --html report.html
  snug report results/compare.json --baseline jemalloc
  snug report yesterday.json today.json
  snug report laptop=a/compare.json staging=b/compare.json --html report.html --markdown comment.md
  snug report main.json branch.json --fail-if 'branch.snug.rss_mean > 1.05x'
  snug report --overview=memory,throughput --baseline jemalloc puma/ sidekiq/ celery/

FILE is a compare.json that snug compare wrote, or the directory it is in. Several files are compared with the first, \
each allocator with itself: ratios with 95 % intervals, and \"no difference\" where more than 10 % is ruled out. Without \
NAME= a file goes by its own name, or by that of its directory.

Exit codes: 0; 1 a file can't be written, or --fail-if can't be decided; 2 the arguments are invalid, or a \
file is no result of this or an older snug compare; 4 a condition of --fail-if is true."
)]
pub(crate) struct ReportArguments {
    /// Exit with 4 if this is true, such as "snug.rss_mean > 0.8x"; may be repeated
    ///
    /// As for `snug compare`. If there are several files, names begin with that of the file, and x is times what the
    /// same allocator has in the first: "today.snug.rss_mean > 1.05x".
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
    /// One table of all files, with a row for each allocator and a column for each file: for comparisons of
    /// different programs
    ///
    /// One table for each QUANTITY: memory (mean RSS, or PSS where processes fork), idle (what is left after idling),
    /// throughput, p99, or a name as in --fail-if. Its last column is the geometric mean of the ratios to --baseline.
    #[arg(long, value_name = "QUANTITY", value_delimiter = ',', num_args = 0..=1, require_equals = true,
          default_missing_value = "memory", conflicts_with_all = ["html", "csv", "json", "out"])]
    pub overview: Vec<String>,
    /// The allocator that the others are compared with [default: glibc as it is, or else the first]
    #[arg(long, value_name = "ALLOCATOR")]
    pub baseline: Option<String>,
    /// Saved comparisons; the others are compared with the first
    #[arg(required = true, value_name = "[NAME=]FILE")]
    pub files: Vec<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    /// Write the report in all formats, and each plot as SVG, into this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReportArguments) -> Result<()> {
    output::check(&arguments.output)?;
    let files = saved::load_all(&arguments.files)?;
    let scopes = scopes(&files, arguments.baseline.as_deref());
    let conditions = condition::parse_all(&arguments.fail_if, &scopes)?;
    if !arguments.overview.is_empty() {
        write_overview(arguments, &files)?;
        return condition::check(&conditions, &scopes);
    }
    let (mut comparison, changes) = saved::put_together(&files);
    if let Some(baseline) = &arguments.baseline {
        let [file] = files.as_slice() else {
            let message = "--baseline is for one file, or for --overview";
            return Err(Failure::usage(message, "several files are compared with the first"));
        };
        file.require_baseline(baseline)?;
        comparison.summary = summary::summarise_against(&comparison, baseline);
    }
    write(arguments, &files, &comparison, &changes)?;
    condition::check(&conditions, &scopes)
}

/// What conditions may speak of: allocators, each with its file if there are several.
fn scopes(files: &[Saved], baseline: Option<&str>) -> Vec<Scope> {
    let [first, others @ ..] = files else { return Vec::new() };
    let rows = &first.comparison.summary.allocators;
    let place = |label: &str| rows.iter().position(|row| row.allocator == label);
    let mut scopes = Vec::new();
    for file in files {
        for row in &file.comparison.summary.allocators {
            // That of this file, or the same allocator in the first file.
            let label = match others {
                [] => baseline.unwrap_or(&file.comparison.summary.baseline),
                _ => &row.allocator,
            };
            let itself = scopes.len();
            scopes.push(Scope {
                file: (!others.is_empty()).then(|| file.name.clone()),
                label: row.allocator.clone(),
                names: &[],
                quantities: row.medians(),
                baseline: place(label).filter(|place| *place != itself),
            });
        }
    }
    scopes
}

fn write(
    arguments: &ReportArguments,
    files: &[Saved],
    comparison: &Comparison,
    changes: &[Changes],
) -> Result<()> {
    let sources: Vec<(&str, &Comparison)> = match files {
        [_] => Vec::new(),
        several => several.iter().map(|file| (file.name.as_str(), &file.comparison)).collect(),
    };
    let origin = Origin { sources, changes };
    if let Some(out) = &arguments.out {
        fs::create_dir_all(out).cannot(|| format!("make the directory {}", out.display()))?;
        output::write_directory(out, comparison, &origin)?;
        anstream::eprintln!("results: {}/report.html, and beside it other formats and plots", out.display());
    }
    if output::write_wanted(&arguments.output, comparison, &origin)? {
        return Ok(());
    }
    let colours = terminal::stdout_colours();
    let mut stdout = anstream::stdout().lock();
    let written = match changes {
        [] => table::write(comparison, colours, &mut stdout),
        _ => write_changes(changes, comparison, colours, &mut stdout),
    };
    written.cannot(|| "write to stdout".into())
}

/// A table for each quantity asked for, on stdout or as Markdown.
fn write_overview(arguments: &ReportArguments, files: &[Saved]) -> Result<()> {
    let baseline = arguments.baseline.as_deref();
    let overviews = arguments
        .overview
        .iter()
        .map(|name| overview::overview(files, name, baseline))
        .collect::<Result<Vec<_>>>()?;
    let to_stdout = |write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        write(&mut anstream::stdout().lock()).cannot(|| "write to stdout".into())
    };
    match arguments.output.markdown.as_deref() {
        None => to_stdout(&|out| show::write_text(&overviews, terminal::stdout_colours(), out)),
        Some(path) if path == Path::new("-") => to_stdout(&|out| show::write_markdown(&overviews, out)),
        Some(path) => {
            let mut content = Vec::new();
            show::write_markdown(&overviews, &mut content).cannot(|| format!("make {}", path.display()))?;
            file::write(path, content)
        }
    }
}

/// A table for each file after the first, and the sentence.
fn write_changes(
    changes: &[Changes],
    comparison: &Comparison,
    colours: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for one in changes {
        let bold = |text: &str| styled(text, terminal::BOLD, colours);
        writeln!(out, "{}", bold(&format!("{} against {}", one.after, one.before)))?;
        for rows in one.rows.chunk_by(|left, right| left.allocator == right.allocator) {
            writeln!(out)?;
            write_change(rows, colours, out)?;
        }
        for remark in &one.remarks {
            writeln!(out, "{} {remark}", styled("note:", terminal::WARNING, colours))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "{}", styled(&terminal::prose(&comparison.summary.conclusion), terminal::BOLD, colours))
}

/// What changed under one allocator.
fn write_change(rows: &[Change], colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let bold = |text: &str| styled(text, terminal::BOLD, colours);
    let coloured = |row: &Change| {
        let style = match row.shown.verdict {
            Difference::Better => terminal::GOOD,
            Difference::Worse => terminal::BAD,
            _ => terminal::FAINT,
        };
        styled(&row.shown.ratio, style, colours)
    };
    let of = |text: fn(&Change) -> &str| rows.iter().map(move |row| text(row).to_string());
    writeln!(out, "{}", bold(&rows[0].allocator))?;
    let quantities = rows.iter().map(|row| terminal::wrapped(&row.shown.heading, 13));
    let columns = [
        Column::numbers(bold("before"), of(|row| &row.shown.before)),
        Column::numbers(bold("after"), of(|row| &row.shown.after)),
        Column::numbers(bold("ratio"), rows.iter().map(coloured)),
        Column::text(bold("95 % interval"), of(|row| &row.shown.interval)),
        Column::text(String::new(), of(|row| row.shown.words)).staying(),
    ];
    narrow::write(&Column::text(bold("quantity"), quantities), &columns, terminal::stdout_columns(), out)
}
