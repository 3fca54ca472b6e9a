//! Where the results go: all formats into the directory, and those asked for into files of their own or to stdout.

use std::fs;
use std::path::{Path, PathBuf};

use super::csv::CsvWriter;
use super::html::HtmlWriter;
use super::json::JsonWriter;
use super::markdown::MarkdownWriter;
use super::plot::{self, Painter};
use super::results::Comparison;
use super::Writer;
use crate::arguments::OutputArguments;
use crate::chart::PICTURE;
use crate::failure::{Context, Failure, Result, USAGE};

/// A format with the file it was asked for.
struct Wanted<'a> {
    option: &'static str,
    path: &'a Path,
}

impl Wanted<'_> {
    fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}

fn wanted(arguments: &OutputArguments) -> Vec<Wanted<'_>> {
    let all = [
        ("--csv", &arguments.csv),
        ("--markdown", &arguments.markdown),
        ("--json", &arguments.json),
        ("--html", &arguments.html),
    ];
    let given = all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    given.map(|(option, path)| Wanted { option, path }).collect()
}

/// Finds what would fail only after all runs: files that can't be made, two formats on one stdout.
pub fn check(arguments: &OutputArguments) -> Result<()> {
    let wanted = wanted(arguments);
    let on_stdout: Vec<&str> = wanted.iter().filter(|one| one.is_stdout()).map(|one| one.option).collect();
    if on_stdout.len() > 1 {
        let message = format!("{} can't all go to stdout ('-')", on_stdout.join(" and "));
        return Err(Failure::new(message).exit_code(USAGE));
    }
    for one in wanted.iter().filter(|one| !one.is_stdout()) {
        let parent = one.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let problem = if one.path.is_dir() {
            "it is a directory"
        } else if parent.is_some_and(|parent| !parent.is_dir()) {
            "its directory does not exist"
        } else {
            continue;
        };
        let message = format!("cannot write {} {}: {problem}", one.option, one.path.display());
        return Err(Failure::new(message).exit_code(USAGE));
    }
    Ok(())
}

/// Whether a format goes to stdout, which then holds nothing else.
pub fn takes_stdout(arguments: &OutputArguments) -> bool {
    wanted(arguments).iter().any(Wanted::is_stdout)
}

/// The writers of a report, by option and name in the output directory.
pub fn writers<'a>(
    html: HtmlWriter<'a>,
    markdown: MarkdownWriter<'a>,
) -> Vec<(&'static str, &'static str, Box<dyn Writer + 'a>)> {
    vec![
        ("--csv", "runs.csv", Box::new(CsvWriter)),
        ("--markdown", "report.md", Box::new(markdown)),
        ("--json", "compare.json", Box::new(JsonWriter)),
        ("--html", "report.html", Box::new(html)),
    ]
}

/// Writes the formats that were asked for. Returns whether one went to stdout, in place of the table.
pub fn write_wanted(
    arguments: &OutputArguments,
    comparison: &Comparison,
    writers: &[(&'static str, &'static str, Box<dyn Writer + '_>)],
) -> Result<bool> {
    let mut stdout_taken = false;
    for one in wanted(arguments) {
        let found = writers.iter().find(|(option, _, _)| *option == one.option);
        let Some((_, _, writer)) = found else { continue };
        if one.is_stdout() {
            let mut stdout = std::io::stdout().lock();
            writer.write(comparison, &mut stdout).cannot(|| "write to stdout".into())?;
            stdout_taken = true;
        } else {
            to_file(one.path, comparison, writer.as_ref())?;
        }
    }
    Ok(stdout_taken)
}

/// Writes every format and every plot into the directory. Returns the names of the files.
pub fn write_directory(
    out: &Path,
    comparison: &Comparison,
    writers: &[(&'static str, &'static str, Box<dyn Writer + '_>)],
) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (_, name, writer) in writers {
        let path = out.join(name);
        to_file(&path, comparison, writer.as_ref())?;
        written.push(path);
    }
    let painter = Painter::new();
    for plot in plot::plots(comparison) {
        let svg = out.join(format!("{}.svg", plot.name));
        fs::write(&svg, plot.chart.to_svg(&PICTURE)).cannot(|| format!("write {}", svg.display()))?;
        let png = out.join(format!("{}.png", plot.name));
        let picture = painter.png(&plot.chart).cannot(|| format!("make {}", png.display()))?;
        fs::write(&png, picture).cannot(|| format!("write {}", png.display()))?;
        written.extend([svg, png]);
    }
    Ok(written)
}

fn to_file(path: &Path, comparison: &Comparison, writer: &dyn Writer) -> Result<()> {
    let mut content = Vec::new();
    writer.write(comparison, &mut content).cannot(|| format!("make {}", path.display()))?;
    fs::write(path, content).cannot(|| format!("write {}", path.display()))
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
