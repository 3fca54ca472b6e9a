//! The answer about a canary, for people.

use std::io::{self, Write};

use crate::canary::conclusion::{Aspect, CanaryRow, Conclusion};
use crate::canary::{Answer, Missing};
use snug_base::terminal::{self, styled};
use snug_compare::shown_ratio::{interval_end, times};

/// Writes a line for each quantity, notes, and the answer.
pub fn write(conclusion: &Conclusion, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = line(["", "CANARY", "BASELINE", "RATIO", "INTERVAL", "PODS", "ANSWER"]);
    writeln!(out, "{}", styled(heading.trim_end(), terminal::BOLD, colours))?;
    for row in &conclusion.quantities {
        write_row(row, colours, out)?;
    }
    if conclusion.quantities.iter().any(|row| row.decisive_interval.is_some()) {
        writeln!(out, "Intervals hold over all quantities, however often you ask.")?;
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
        Answer::NoDifference | Answer::NoneHappened => terminal::BOLD,
        Answer::NotEnoughData => terminal::WARNING,
    }
}

fn write_row(row: &CanaryRow, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let value = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| row.aspect.written(value));
    let ratio = row.shown_ratio().map_or_else(|| "-".into(), |ratio| format!("{}x", times(ratio)));
    let interval = shown_interval(row).map_or_else(String::new, |(low, high)| match high {
        Some(high) => format!("{low}-{high}"),
        None => format!("{low} or more"),
    });
    let pods = format!("{}, {}", row.canary_pods, row.baseline_pods);
    let answer = styled(row.answer.text(), style(row.answer), colours);
    let (canary, baseline) = (value(row.canary), value(row.baseline));
    writeln!(out, "{}", line([row.aspect.heading(), &canary, &baseline, &ratio, &interval, &pods, &answer]))
}

/// At most 80 columns with the longest word at its end.
fn line([heading, canary, baseline, ratio, interval, pods, answer]: [&str; 7]) -> String {
    format!("{heading:<9}{canary:>14}{baseline:>15}{ratio:>6} {interval:<12}{pods:<7} {answer}")
}

/// The ends of the interval as text; of the upper one None if nothing bounds it.
fn shown_interval(row: &CanaryRow) -> Option<(String, Option<String>)> {
    let shown = row.shown_ratio().and_then(|ratio| ratio.interval);
    let (low, high) = shown.map(|(low, high)| (low, Some(high))).or(row.decisive_interval)?;
    Some((interval_end(low), high.filter(|high| high.is_finite()).map(interval_end)))
}

/// The answer in one line: the word first.
pub fn sentence(conclusion: &Conclusion) -> String {
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
        Answer::NotEnoughData | Answer::NoneHappened => {
            conclusion.missing.as_ref().map(missing).unwrap_or_default()
        }
    };
    format!("{word}: {about}")
}

fn change(row: &CanaryRow) -> String {
    let heading = row.aspect.heading();
    match (row.shown_ratio(), shown_interval(row)) {
        (Some(ratio), Some((low, Some(high)))) => {
            format!("{heading} is {} times that of the baseline ({low} to {high})", times(ratio))
        }
        (_, Some((low, _))) => format!("{heading} are {low} times those of the baseline or more"),
        _ => heading.to_string(),
    }
}

fn missing(missing: &Missing) -> String {
    match missing {
        Missing::Seconds(seconds) => format!("ask again in {}", duration(*seconds)),
        Missing::Pods { canary, baseline } => {
            format!("it takes about {canary} pods of the canary and {baseline} of the baseline: time alone does not help")
        }
        Missing::FewestPods { canary, baseline } => format!(
            "it takes {canary} pods of the canary and {baseline} of the baseline at least, more if pods differ much"
        ),
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
    use crate::canary::conclusion::{conclude, FleetReadings, Question};
    use crate::canary::groups::PodSeries;
    use snug_base::random::Random;
    use snug_base::terminal::number_in;
    use snug_base::testing::written as text_of;
    use std::collections::BTreeMap;

    fn row(aspect: Aspect, answer: Answer) -> CanaryRow {
        CanaryRow {
            name: aspect.name(),
            aspect,
            canary: Some(3.55e8),
            baseline: Some(4.12e8),
            ratio: Some(0.86),
            interval: Some((0.84, Some(0.88))),
            decisive_interval: Some((0.83, Some(0.89))),
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
        assert_eq!(lines[1], "memory           355 MB         412 MB 0.86x 0.83-0.89   12, 40  better");
        assert_eq!(lines[5], "better: memory is 0.86 times that of the baseline (0.83 to 0.89)");
        let wait = conclusion(Answer::NotEnoughData, Some(Missing::Seconds(4000.0)));
        assert_eq!(sentence(&wait), "not enough data: ask again in 67 minutes");
        let pods = conclusion(Answer::NotEnoughData, Some(Missing::Pods { canary: 30, baseline: 40 }));
        assert!(sentence(&pods).contains("30 pods of the canary"));
        let unbounded = CanaryRow {
            ratio: None,
            decisive_interval: Some((3.0, None)),
            ..row(Aspect::OomKills, Answer::Worse)
        };
        let worse = Conclusion { quantities: vec![unbounded], ..conclusion(Answer::Worse, None) };
        assert_eq!(sentence(&worse), "worse: OOM kills are 3.00 times those of the baseline or more");
    }

    /// Most pods of the canary run in those hours in which all hold more, most of the baseline in the others.
    fn unbalanced(random: &mut Random) -> FleetReadings {
        let day = random.between(1.2, 3.0);
        let levels =
            [(Aspect::Memory, 1e9), (Aspect::Cpu, 1.0), (Aspect::Latency, 1.0)].map(|(aspect, unit)| {
                let level = unit * random.log_between(0.0005, 3.0);
                let ratio = random.log_between(0.85, 1.18);
                let mut pod = |number: usize| {
                    let is_canary = number % 2 == 0;
                    let is_late = is_canary == (number % 12 > 1);
                    let own = level * (0.02 * random.normal()).exp() * if is_canary { ratio } else { 1.0 };
                    let times = if is_late { 36..72 } else { 0..36 };
                    let value = |time: u32| own * if time < 36 { 1.0 } else { day };
                    let readings = times.map(|time| (f64::from(time) * 300.0, value(time))).collect();
                    PodSeries { unit: number.to_string(), is_canary, readings }
                };
                (aspect, (0..24).map(&mut pod).collect::<Vec<PodSeries>>())
            });
        FleetReadings { levels: levels.to_vec(), step_s: 300.0, span_s: 21_600.0, ..FleetReadings::default() }
    }

    #[test]
    fn the_ratio_is_that_of_the_numbers_beside_it() {
        let mut random = Random::new(11);
        let mut words = BTreeMap::new();
        for _ in 0..200 {
            let effect = random.log_between(0.03, 0.3);
            let question =
                Question { effect, tolerance: effect * random.between(0.05, 0.8), warm_up_s: 600.0 };
            let conclusion = conclude(&unbalanced(&mut random), question);
            let text = text_of(|out| write(&conclusion, false, out));
            for (row, line) in conclusion.quantities.iter().zip(text.lines().skip(1)) {
                let exact = row.canary.unwrap() / row.baseline.unwrap();
                assert!((exact - row.ratio.unwrap()).abs() < 1e-9, "JSON: {row:?}");
                let number = |from: usize, to: usize| number_in(line[from..to].trim()).unwrap();
                let (canary, baseline) = (number(9, 23), number(23, 38));
                assert_eq!(line[38..44].trim(), format!("{:.2}x", canary / baseline), "{text}");
                let ratio: f64 = line[38..43].trim().parse().unwrap();
                let (low, high) = line[45..57].split_once('-').unwrap();
                let (low, high) = (low.parse::<f64>().unwrap(), high.trim().parse::<f64>().unwrap());
                assert!(low <= ratio && ratio <= high, "{text}");
                let (decided, exact) = (row.decisive_interval.unwrap(), row.interval.unwrap());
                assert!(decided.0 <= exact.0 && decided.1 >= exact.1, "{row:?}");
                // Nobody needs more than the printed line and the two options to know the word.
                let percent = (100.0 * ratio).round() as i64 - 100;
                let within = low >= 1.0 - question.effect - 1e-9 && high <= 1.0 + question.effect + 1e-9;
                let is_noted = percent.abs() as f64 > 100.0 * question.tolerance + 1e-9;
                let word = match () {
                    () if low > 1.0 && is_noted => "worse",
                    () if high < 1.0 && is_noted => "better",
                    () if within => "no difference",
                    () => "not enough data",
                };
                assert!(line.ends_with(word) && line.chars().count() <= 80, "{text}");
                *words.entry(word).or_insert(0) += 1;
            }
        }
        assert!(words.len() == 4 && words.values().all(|count| *count > 15), "{words:?}");
    }
}
