//! Where the results go: all formats into the directory, and those asked for into files of their own or to stdout.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::change::Origin;
use crate::analysis::results::Comparison;
use crate::base::failure::{Context, Failure, Result, USAGE};
use crate::base::file;
use crate::show::chart::PICTURE;
use crate::show::plot::{self, Painter};
use crate::show::{csv, html, json, markdown};

/// Results in files of one's own choice
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
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

/// A format with the file it was asked for.
struct WantedFormat<'a> {
    option: &'static str,
    path: &'a Path,
}

impl WantedFormat<'_> {
    fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}

fn wanted(arguments: &OutputArguments) -> Vec<WantedFormat<'_>> {
    let all = [
        ("--csv", &arguments.csv),
        ("--markdown", &arguments.markdown),
        ("--json", &arguments.json),
        ("--html", &arguments.html),
    ];
    let given = all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    given.map(|(option, path)| WantedFormat { option, path }).collect()
}

/// Finds what would fail only after all runs: files that can't be made, two formats on one stdout.
pub(crate) fn check(arguments: &OutputArguments) -> Result<()> {
    let wanted = wanted(arguments);
    let on_stdout: Vec<&str> = wanted.iter().filter(|one| one.is_stdout()).map(|one| one.option).collect();
    if on_stdout.len() > 1 {
        let message = format!("{} can't all go to stdout ('-')", on_stdout.join(" and "));
        return Err(Failure::new(message).exit_code(USAGE));
    }
    for one in wanted.iter().filter(|one| !one.is_stdout()) {
        file::check_place(one.option, one.path)?;
    }
    Ok(())
}

/// Whether a format goes to stdout, which then holds nothing else.
pub(crate) fn takes_stdout(arguments: &OutputArguments) -> bool {
    wanted(arguments).iter().any(WantedFormat::is_stdout)
}

/// Writes a comparison in one format.
type Write = fn(&Comparison, &Origin, &mut dyn io::Write) -> io::Result<()>;

/// The formats of a report: option, name in the output directory, and what writes it.
const FORMATS: [(&str, &str, Write); 4] = [
    ("--csv", "runs.csv", |comparison, _, out| csv::write(comparison, out)),
    ("--markdown", "report.md", markdown::write),
    ("--json", "compare.json", |comparison, _, out| json::write_whole(comparison, out)),
    ("--html", "report.html", html::write),
];

/// Writes the formats that were asked for. Returns whether one went to stdout, in place of the table.
pub(crate) fn write_wanted(
    arguments: &OutputArguments,
    comparison: &Comparison,
    origin: &Origin,
) -> Result<bool> {
    let mut stdout_taken = false;
    for one in wanted(arguments) {
        let found = FORMATS.iter().find(|(option, _, _)| *option == one.option);
        let Some((_, _, write)) = found else { continue };
        if one.is_stdout() {
            let mut stdout = std::io::stdout().lock();
            write(comparison, origin, &mut stdout).cannot(|| "write to stdout".into())?;
            stdout_taken = true;
        } else {
            to_file(one.path, comparison, origin, *write)?;
        }
    }
    Ok(stdout_taken)
}

/// Writes every format and every plot into the directory. Returns the names of the files.
pub(crate) fn write_directory(out: &Path, comparison: &Comparison, origin: &Origin) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (_, name, write) in FORMATS {
        let path = out.join(name);
        to_file(&path, comparison, origin, write)?;
        written.push(path);
    }
    let painter = Painter::new();
    for plot in plot::plots(comparison) {
        let svg = out.join(format!("{}.svg", plot.name));
        file::write(&svg, plot.chart.to_svg(&PICTURE))?;
        let png = out.join(format!("{}.png", plot.name));
        let picture = painter.png(&plot.chart).cannot(|| format!("make {}", png.display()))?;
        file::write(&png, picture)?;
        written.extend([svg, png]);
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
