//! The command line: one enum of subcommands. The options of each stand in its module, with all that `--help` says.

use clap::{CommandFactory, Parser, Subcommand};

use crate::advise::AdviseArguments;
use crate::blame::BlameArguments;
use crate::boot::BootArguments;
use crate::check::CheckArguments;
use crate::compare::arguments::CompareArguments;
use crate::generate::GenerateArguments;
use crate::install::InstallArguments;
use crate::leak::arguments::LeakArguments;
use crate::profile::ProfileArguments;
use crate::purge::PurgeArguments;
use crate::report::ReportArguments;
use crate::run::RunArguments;
use crate::set::SetArguments;
use crate::stats::StatsArguments;
use snug_exporter::arguments::ExporterArguments;
use snug_fleet::command_canary::arguments::CanaryArguments;
use snug_fleet::command_fleet::arguments::FleetArguments;
use snug_top::arguments::TopArguments;

/// snug: which memory allocator a program uses, what it costs, and which one suits it best.
#[derive(Debug, Parser)]
#[command(
    name = "snug",
    version = snug_base::VERSION,
    about = "Run programs under a better malloc, and see where their memory goes",
    after_help = "Examples:\n  snug run -- bundle exec puma\n  snug check puma\n  \
        snug compare --runs 3 -- ruby script.rb\n  snug report a.json b.json\n\n`snug COMMAND --help` has \
        more.\n\nExit codes:\n  \
        0    it was done, or the answer is yes\n  \
        1    the answer is no, or it failed\n  \
        2    the arguments are invalid\n  \
        3    unknown: no such process, or no permission\n  \
        4    a condition of --fail-if is true\n  \
        130  Ctrl-C\n  \
        141  the reader of the output went away\n\n\
        snug run ends with the exit code of its program, or 125 to 127.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Subcommands,
}

/// The command line. `-h` lists the options; `--help` has examples, exit codes and all that there is to say besides.
pub(crate) fn command_line() -> clap::Command {
    Arguments::command().mut_subcommands(|command| {
        let Some(text) = command.get_after_help().map(ToString::to_string) else { return command };
        let more = format!("`snug {} --help` says more, with examples.", command.get_name());
        command.after_help(more).after_long_help(with_short_examples(&text))
    })
}

/// Columns that an example may take: as many as terminals have at least.
const EXAMPLE_COLUMNS: usize = 80;

/// The text with each example in lines that a shell reads as one. Clap breaks longer ones anywhere.
fn with_short_examples(text: &str) -> String {
    let (examples, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    if !examples.starts_with("Example") {
        return text.into();
    }
    let lines: Vec<String> = examples.lines().map(in_short_lines).collect();
    format!("{}\n\n{rest}", lines.join("\n")).trim_end().into()
}

/// A command in lines of at most so many columns, broken where it has a space outside of quotes.
fn in_short_lines(line: &str) -> String {
    let (mut lines, mut rest) = (Vec::new(), line.to_string());
    while rest.chars().count() > EXAMPLE_COLUMNS {
        let mut quote = None;
        let spaces = rest.char_indices().filter(|(place, letter)| {
            match (quote, *letter) {
                (None, '\'' | '"') => quote = Some(*letter),
                (Some(open), letter) if open == letter => quote = None,
                _ => {}
            }
            *letter == ' ' && quote.is_none() && !rest[..*place].trim().is_empty()
        });
        let places: Vec<usize> = spaces.map(|(place, _)| place).collect();
        let fits = |place: &&usize| rest[..**place].chars().count() + 2 <= EXAMPLE_COLUMNS;
        let Some(place) = places.iter().rev().find(fits).or(places.first()).copied() else { break };
        lines.push(format!("{} \\", &rest[..place]));
        rest = format!("    {}", &rest[place + 1..]);
    }
    lines.push(rest);
    lines.join("\n")
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    Run(RunArguments),
    Check(CheckArguments),
    Compare(CompareArguments),
    Report(ReportArguments),
    Advise(AdviseArguments),
    Leak(LeakArguments),
    Top(TopArguments),
    Stats(StatsArguments),
    Profile(ProfileArguments),
    Blame(BlameArguments),
    Boot(BootArguments),
    Purge(PurgeArguments),
    Set(SetArguments),
    Exporter(ExporterArguments),
    Install(InstallArguments),
    Canary(CanaryArguments),
    Fleet(FleetArguments),
    #[command(hide = true)]
    Generate(GenerateArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::time::time;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_are_written_in_one_way_everywhere() {
        let parsed = |text: &str| time(text).map(|time| time.as_millis());
        assert_eq!(
            ["2", "2s", "0.5", "500ms", "1m 30s", "1m30s"].map(parsed),
            [2000, 2000, 500, 500, 90_000, 90_000].map(Ok)
        );
        assert!(["-1", "NaN", "inf", "soon", "", "2 x"].map(parsed).iter().all(|parsed| parsed.is_err()));
        // Every option with a time takes both, whatever its command.
        for command in Arguments::command().get_subcommands() {
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                assert!(
                    !names.iter().any(|name| name.as_str() == "SECONDS"),
                    "{argument} of {}",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn no_command_takes_a_process_that_can_be_none() {
        let mut taken = 0;
        for command in Arguments::command().get_subcommands() {
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                let is_of_process = |name: &clap::builder::Str| {
                    name.split('|').any(|name| name == "PID")
                        || (name.as_str() == "NAME" && command.get_name() == "top")
                };
                if !names.iter().any(is_of_process) {
                    continue;
                }
                for wrong in ["", " ", "0", "2147483648", "-1"] {
                    let place = argument.get_long().map_or(String::new(), |long| format!("--{long}="));
                    let words = ["snug", command.get_name(), &format!("{place}{wrong}")].map(String::from);
                    let words = if wrong == "-1" && place.is_empty() {
                        vec![words[0].clone(), words[1].clone(), "--".into(), wrong.into()]
                    } else {
                        words.to_vec()
                    };
                    let is_program =
                        words.len() == 4 && command.get_arguments().any(|argument| argument.is_last_set());
                    let refused = Arguments::command().try_get_matches_from(&words);
                    assert!(is_program || refused.is_err(), "{words:?}");
                    taken += 1;
                }
            }
        }
        assert!(taken >= 9 * 5, "{taken}");
    }

    /// Of 80 columns: clap breaks no line of an example, as each is short enough already, and goes on where it says so.
    #[test]
    fn helps_fit_terminals_and_examples_can_be_copied() {
        let mut broken = 0;
        for command in command_line().get_subcommands() {
            let name = command.get_name().to_string();
            let mut command = command.clone().term_width(80);
            let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
            for line in short.lines().chain(long.lines()) {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            assert!(!short.contains("Examples:") && short.lines().count() < long.lines().count(), "{name}");
            let examples =
                long.split("Examples:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
            let lines: Vec<&str> = examples.lines().collect();
            for pair in lines.windows(2) {
                let goes_on =
                    !pair[1].trim_start().starts_with("snug") && !pair[1].trim_start().starts_with("SNUG");
                assert_eq!(pair[0].ends_with(" \\"), goes_on, "{name}: {pair:?}");
                broken += u32::from(goes_on);
            }
        }
        assert!(broken > 5, "{broken}");
        let line = "  snug x --selector 'a b c d e f' ".to_string() + &"--long 'with a space' ".repeat(5);
        let short = in_short_lines(&line);
        assert!(short.lines().all(|line| line.len() <= 80 && line.matches('\'').count() % 2 == 0), "{short}");
    }

    #[test]
    fn every_command_has_an_example() {
        for command in command_line().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
