//! The answer about a canary, for people.

use std::io::{self, Write};

use crate::analysis::canary::conclusion::{Aspect, CanaryRow, Conclusion};
use crate::analysis::canary::{Answer, Missing};
use crate::base::terminal::{self, bytes, short_number, styled};

/// Writes a line for each quantity, notes, and the answer.
pub(crate) fn write(conclusion: &Conclusion, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = format!(
        "{:<10}{:>12}{:>12}{:>8}  {:<18}{:<18}",
        "", "CANARY", "BASELINE", "RATIO", "95 % INTERVAL", "PODS          ANSWER"
    );
    writeln!(out, "{}", styled(heading.trim_end(), terminal::BOLD, colours))?;
    for row in &conclusion.quantities {
        write_row(row, colours, out)?;
    }
    writeln!(out)?;
    for note in &conclusion.notes {
        writeln!(out, "{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    writeln!(out, "{}", styled(&sentence(conclusion), style(conclusion.answer), colours))
}

fn style(answer: Answer) -> anstyle::Style {
    match answer {
        Answer::Better => terminal::GOOD,
        Answer::Worse => terminal::BAD,
        Answer::NoDifference => terminal::BOLD,
        Answer::NotEnoughData => terminal::WARNING,
    }
}

fn write_row(row: &CanaryRow, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let value = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| written(row.aspect, value));
    let ratio = row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"));
    let interval = row.interval.map_or_else(String::new, |(low, high)| match high {
        Some(high) => format!("{low:.2} to {high:.2}"),
        None => format!("{low:.2} or more"),
    });
    let pods = format!("{} and {}", row.canary_pods, row.baseline_pods);
    writeln!(
        out,
        "{:<10}{:>12}{:>12}{ratio:>8}  {interval:<18}{pods:<14}{}",
        row.aspect.heading(),
        value(row.canary),
        value(row.baseline),
        styled(row.answer.text(), style(row.answer), colours)
    )
}

fn written(aspect: Aspect, value: f64) -> String {
    match aspect {
        Aspect::Memory => bytes(value),
        Aspect::Cpu => format!("{} cores", short_number(value)),
        Aspect::Latency if value < 1.0 => format!("{} ms", short_number(1000.0 * value)),
        Aspect::Latency => format!("{} s", short_number(value)),
        Aspect::Restarts | Aspect::OomKills if value == 0.0 => "0 /h".into(),
        Aspect::Restarts | Aspect::OomKills => format!("{} /h", short_number(value)),
    }
}

/// The answer in one line: the word first.
pub(crate) fn sentence(conclusion: &Conclusion) -> String {
    let word = conclusion.answer.text();
    let worse: Vec<&CanaryRow> =
        conclusion.quantities.iter().filter(|row| row.answer == Answer::Worse).collect();
    let memory = conclusion.quantities.iter().find(|row| row.aspect == Aspect::Memory);
    let about = match conclusion.answer {
        Answer::Worse => {
            let parts: Vec<String> = worse.iter().map(|row| change(row)).collect();
            parts.join("; ")
        }
        Answer::Better | Answer::NoDifference => memory.map(change).unwrap_or_default(),
        Answer::NotEnoughData => conclusion.missing.as_ref().map(missing).unwrap_or_default(),
    };
    format!("{word}: {about}")
}

fn change(row: &CanaryRow) -> String {
    let heading = row.aspect.heading();
    let times = |value: f64| format!("{value:.2}");
    match (row.ratio, row.interval) {
        (Some(ratio), Some((low, Some(high)))) => {
            format!(
                "{heading} is {} times that of the baseline ({} to {})",
                times(ratio),
                times(low),
                times(high)
            )
        }
        (_, Some((low, None))) => format!("{heading} are {} times those of the baseline or more", times(low)),
        _ => heading.to_string(),
    }
}

fn missing(missing: &Missing) -> String {
    match missing {
        Missing::Seconds(seconds) => format!("ask again in {}", duration(*seconds)),
        Missing::Pods { canary, baseline } => {
            format!("it takes about {canary} pods of the canary and {baseline} of the baseline: time alone does not help")
        }
        Missing::Overlap(reason) => reason.clone(),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 5400.0 => format!("{:.0} minutes", (seconds / 60.0).ceil()),
        seconds if seconds < 48.0 * 3600.0 => format!("{:.0} hours", (seconds / 3600.0).ceil()),
        seconds => format!("{:.0} days", (seconds / 86_400.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::written as text_of;

    fn row(aspect: Aspect, answer: Answer) -> CanaryRow {
        CanaryRow {
            name: aspect.name(),
            aspect,
            canary: Some(3.55e8),
            baseline: Some(4.12e8),
            ratio: Some(0.86),
            interval: Some((0.83, Some(0.89))),
            answer,
            missing: None,
            canary_pods: 12,
            baseline_pods: 40,
            pods_left_out: 0,
        }
    }

    fn conclusion(answer: Answer, missing: Option<Missing>) -> Conclusion {
        Conclusion {
            answer,
            missing,
            quantities: vec![row(Aspect::Memory, answer)],
            notes: vec!["short".into()],
        }
    }

    #[test]
    fn the_word_comes_first() {
        let text = text_of(|out| write(&conclusion(Answer::Better, None), false, out));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "memory          355 MB      412 MB   0.86x  0.83 to 0.89      12 and 40     better"
        );
        assert_eq!(lines[4], "better: memory is 0.86 times that of the baseline (0.83 to 0.89)");
        let wait = conclusion(Answer::NotEnoughData, Some(Missing::Seconds(4000.0)));
        assert_eq!(sentence(&wait), "not enough data: ask again in 67 minutes");
        let pods = conclusion(Answer::NotEnoughData, Some(Missing::Pods { canary: 30, baseline: 40 }));
        assert!(sentence(&pods).contains("30 pods of the canary"));
        let unbounded =
            CanaryRow { ratio: None, interval: Some((3.0, None)), ..row(Aspect::OomKills, Answer::Worse) };
        let worse = Conclusion { quantities: vec![unbounded], ..conclusion(Answer::Worse, None) };
        assert_eq!(sentence(&worse), "worse: OOM kills are 3.00 times those of the baseline or more");
    }
}
