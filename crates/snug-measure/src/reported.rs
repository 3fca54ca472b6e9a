//! The lines `snug-metric: NAME=VALUE` of what programs, and commands that make load, print. Pure.

use std::collections::BTreeMap;

use snug_base::terminal::printable;

/// What lines `snug-metric: NAME=VALUE` say. A name that comes again replaces the value before.
#[derive(Debug, Default)]
pub struct OwnMetrics(BTreeMap<String, f64>);

impl OwnMetrics {
    /// Goes on with what follows.
    pub fn read(&mut self, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("snug-metric:"));
        let pairs = lines.filter_map(|line| line.split_once('='));
        let read = pairs.filter_map(|(name, value)| Some((name.trim(), value.trim().parse::<f64>().ok()?)));
        self.0.extend(read.map(|(name, value)| (name.to_string(), value)));
    }

    /// `errors` that are not a finite number: nobody knows how many there were.
    pub fn uncounted_errors(&self) -> Option<f64> {
        self.0.get("errors").copied().filter(|errors| !errors.is_finite())
    }

    /// The values, and a note for each that is left out: NaN and infinity, which programs print that divide by 0, can
    /// neither be compared nor saved.
    pub fn finish(self) -> (BTreeMap<String, f64>, Vec<String>) {
        let (values, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.0.into_iter().partition(|(_, value)| value.is_finite());
        let note = |(name, value): (String, f64)| {
            format!("snug-metric {}={value} was left out: it is not a finite number", printable(&name))
        };
        (values, others.into_iter().map(note).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::{fixture, saved, summary};

    fn own(output: &[u8]) -> (BTreeMap<String, f64>, Vec<String>) {
        let mut own = OwnMetrics::default();
        own.read(output);
        own.finish()
    }

    #[test]
    fn metrics_are_read_from_output() {
        let output =
            b"hello\nsnug-metric: requests_per_s=51.3\n  snug-metric: p99_ms = 12\nsnug-metric: bad=x\n";
        let (metrics, notes) = own(output);
        assert_eq!((metrics.len(), notes.len()), (2, 0));
        assert_eq!(metrics["requests_per_s"], 51.3);
        assert_eq!(metrics["p99_ms"], 12.0);
    }

    #[test]
    fn what_is_no_number_is_left_out_and_noted() {
        let line = |name: &str, value: &str| format!("snug-metric: {name}={value}\n");
        let lines =
            [line("a", "NaN"), line("b", "-Infinity"), line("c", "1e999"), line("d", "7"), line("d", "nan")];
        let (metrics, notes) = own(lines.concat().as_bytes());
        assert!(metrics.is_empty(), "{metrics:?}");
        let noted: Vec<&str> = notes.iter().map(|note| note.split(" was left out").next().unwrap()).collect();
        assert_eq!(
            noted,
            ["snug-metric a=NaN", "snug-metric b=-inf", "snug-metric c=inf", "snug-metric d=NaN"]
        );
        let (metrics, notes) = own(format!("{}{}", line("a", "NaN"), line("a", "5")).as_bytes());
        assert_eq!((metrics["a"], notes.len()), (5.0, 0), "the last one counts");
        let uncounted = |lines: &[String]| {
            let mut own = OwnMetrics::default();
            lines.iter().for_each(|line| own.read(line.as_bytes()));
            own.uncounted_errors().map(|errors| errors.to_string())
        };
        let [no_number, seven] = ["Infinity", "7"].map(|value| line("errors", value));
        assert_eq!(uncounted(&[seven.clone(), no_number.clone()]).as_deref(), Some("inf"));
        assert_eq!([uncounted(&[no_number, seven]), uncounted(&[line("a", "NaN")])], [None, None]);
    }

    /// Programs that measured nothing print what comes of dividing by it.
    #[test]
    fn whatever_was_reported_can_be_read_when_it_was_saved() {
        let numbers = [
            "NaN",
            "-nan",
            "inf",
            "-Infinity",
            "1e999",
            "-1e999",
            "1e308",
            "-1e308",
            "1e-320",
            "-0",
            "7",
            "",
        ];
        let report = "snug-metric: rate_per_s=#\nsnug-metric: p99_ms=#\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("compare.json");
        for first in 0..numbers.len() {
            let mut comparison = fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]);
            for (index, run) in comparison.runs.iter_mut().enumerate() {
                let output = report.replace('#', numbers[(first + index / 2) % numbers.len()]);
                let (metrics, notes) = own(output.as_bytes());
                (run.metrics, run.notes) = (metrics, notes);
            }
            comparison.summary = summary::summarise(&comparison);
            std::fs::write(&path, serde_json::to_string(&comparison).unwrap()).unwrap();
            let read = saved::load_all(&[path.display().to_string()]);
            let read = read.unwrap_or_else(|failure| panic!("{failure} {}", numbers[first]));
            for (read, run) in read[0].comparison.runs.iter().zip(&comparison.runs) {
                assert_eq!(read.metrics, run.metrics, "{}", numbers[first]);
            }
        }
    }
}
