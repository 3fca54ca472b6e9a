//! Files of results: all formats into the directory, and those asked for into files of their own or to stdout.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::chart::PICTURE;
use crate::{csv, html, markdown, plot};
use snug_base::failure::{Context, Failure, Result, USAGE};
use snug_base::{file, json};
use snug_compare::change::Origin;
use snug_compare::results::Comparison;

/// Results in files of one's own choice
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArguments {
    /// Also write the report as one HTML page to this file; '-' is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the report as Markdown, for a pull request; '-' is stdout
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also write the runs as CSV, one row each; '-' is stdout
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write everything that was measured as JSON; '-' is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A format of a report.
struct ReportFormat {
    option: &'static str,
    /// Its name in the output directory.
    file_name: &'static str,
    /// The file it was asked for.
    path: fn(&OutputArguments) -> Option<&Path>,
    write: Write,
}

type Write = fn(&Comparison, &Origin, &mut dyn io::Write) -> io::Result<()>;

static FORMATS: [ReportFormat; 4] = [
    ReportFormat {
        option: "--csv",
        file_name: "runs.csv",
        path: |arguments| arguments.csv.as_deref(),
        write: |comparison, _, out| csv::write(comparison, out),
    },
    ReportFormat {
        option: "--markdown",
        file_name: "report.md",
        path: |arguments| arguments.markdown.as_deref(),
        write: markdown::write,
    },
    ReportFormat {
        option: "--json",
        file_name: "compare.json",
        path: |arguments| arguments.json.as_deref(),
        write: |comparison, _, out| json::write_whole(comparison, out),
    },
    ReportFormat {
        option: "--html",
        file_name: "report.html",
        path: |arguments| arguments.html.as_deref(),
        write: html::write,
    },
];

/// The formats that were asked for, each with its file.
fn wanted(arguments: &OutputArguments) -> Vec<(&'static ReportFormat, &Path)> {
    FORMATS.iter().filter_map(|format| Some((format, (format.path)(arguments)?))).collect()
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Finds what would fail only after all runs: files that can't be made, two formats on one stdout.
pub fn check(arguments: &OutputArguments) -> Result<()> {
    let (on_stdout, in_files): (Vec<_>, Vec<_>) =
        wanted(arguments).into_iter().partition(|(_, path)| is_stdout(path));
    if on_stdout.len() > 1 {
        let options: Vec<&str> = on_stdout.iter().map(|(format, _)| format.option).collect();
        let message = format!("{} can't all go to stdout ('-')", options.join(" and "));
        return Err(Failure::new(message).exit_code(USAGE));
    }
    for (format, path) in in_files {
        file::check_place(format.option, path)?;
    }
    Ok(())
}

/// Whether a format goes to stdout, which then holds nothing else.
pub fn takes_stdout(arguments: &OutputArguments) -> bool {
    wanted(arguments).iter().any(|(_, path)| is_stdout(path))
}

/// Writes the formats that were asked for. Returns whether one went to stdout, in place of the table.
pub fn write_wanted(arguments: &OutputArguments, comparison: &Comparison, origin: &Origin) -> Result<bool> {
    let mut stdout_taken = false;
    for (format, path) in wanted(arguments) {
        if is_stdout(path) {
            let mut stdout = std::io::stdout().lock();
            (format.write)(comparison, origin, &mut stdout).cannot(|| "write to stdout".into())?;
            stdout_taken = true;
        } else {
            to_file(path, comparison, origin, format.write)?;
        }
    }
    Ok(stdout_taken)
}

/// Writes every format and every plot into the directory. Returns the names of the files.
pub fn write_directory(out: &Path, comparison: &Comparison, origin: &Origin) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for format in &FORMATS {
        let path = out.join(format.file_name);
        to_file(&path, comparison, origin, format.write)?;
        written.push(path);
    }
    for plot in plot::plots(comparison) {
        let svg = out.join(format!("{}.svg", plot.name));
        file::write(&svg, plot.chart.to_svg(&PICTURE))?;
        written.push(svg);
    }
    Ok(written)
}

fn to_file(path: &Path, comparison: &Comparison, origin: &Origin, write: Write) -> Result<()> {
    let mut content = Vec::new();
    write(comparison, origin, &mut content).cannot(|| format!("make {}", path.display()))?;
    file::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(csv: Option<&str>, html: Option<&str>) -> OutputArguments {
        let path = |path: Option<&str>| path.map(PathBuf::from);
        OutputArguments { csv: path(csv), html: path(html), ..OutputArguments::default() }
    }

    #[test]
    fn impossible_places_are_refused_early() {
        let message = |csv, html| check(&arguments(csv, html)).unwrap_err().message;
        assert!(message(Some("-"), Some("-")).contains("--csv and --html"));
        assert!(message(Some("/nonexistent/x.csv"), None).contains("directory does not exist"));
        assert!(message(None, Some("/")).contains("is a directory"));
        assert!(check(&arguments(Some("-"), Some("x.html"))).is_ok());
    }

    #[test]
    fn one_format_may_have_stdout() {
        assert!(takes_stdout(&arguments(None, Some("-"))));
        assert!(!takes_stdout(&arguments(Some("x.csv"), None)));
    }
}
