//! What a name in a condition means: which allocator, and which of its quantities. Pure.

use std::collections::BTreeMap;

use crate::lexer;
use crate::quantities::{self, split_phase};
use snug_inspect::kinds::closest;

/// An allocator, with its file where there are several, and the medians of its quantities, which are empty before the
/// first run.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub file: Option<String>,
    pub label: String,
    /// Names of its quantities; none: those of comparisons.
    pub names: &'static [&'static str],
    pub quantities: BTreeMap<String, f64>,
}

/// Endings that may be left out.
const ENDINGS: &[&str] = &["", "_bytes", "_s"];

/// Finds the allocator, by its place in the scopes, and the quantity that a name means.
pub fn resolve(parts: &[String], scopes: &[Scope]) -> Result<(usize, String), String> {
    let with_files = scopes.iter().any(|scope| scope.file.is_some());
    let written = parts.join(".");
    let (file, rest) = if with_files {
        let (file, rest) = parts.split_first().ok_or("a name is empty")?;
        (Some(file), rest)
    } else {
        (None, parts)
    };
    let known = || {
        let names = scopes.iter().map(|scope| match &scope.file {
            Some(file) => format!("{}.{}", quoted(file), quoted(&scope.label)),
            None => quoted(&scope.label),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let Some((label, quantity)) = rest.split_first() else {
        return Err(format!(
            "{written:?} is incomplete; write FILE.ALLOCATOR.QUANTITY, with one of {}",
            known()
        ));
    };
    let matches = |scope: &Scope| scope.label == *label && scope.file.as_ref() == file;
    let Some(scope) = scopes.iter().position(matches) else {
        let forgotten = scopes.iter().find(|scope| with_files && Some(&scope.label) == file);
        if let Some(scope) = forgotten {
            let example = scope.file.as_deref().map(quoted).unwrap_or_default();
            return Err(format!("which file does {written} mean? Write {example}.{written}, for example"));
        }
        let guess = closest(label, scopes.iter().map(|scope| scope.label.as_str()));
        let guess = guess.map_or_else(String::new, |name| format!(" (did you mean {}?)", quoted(name)));
        let (label, names) = (written_label(file, label), known());
        return Err(match scopes.iter().all(|scope| scope.names.is_empty()) {
            true => format!("no allocator {label:?} in the comparison{guess}; there are {names}"),
            false => format!("nothing is called {label:?} here{guess}; there are {names}"),
        });
    };
    let names = scopes[scope].names;
    if quantity.is_empty() {
        let example = if names.is_empty() { "rss_mean" } else { short_name(names, "_bytes") };
        return Err(format!("{written} names no quantity; write {written}.{example}, for example"));
    }
    let quantity = quantity.join(".");
    let quantity = if names.is_empty() { quantity_name(&quantity)? } else { one_of(names, &quantity)? };
    Ok((scope, quantity))
}

fn written_label(file: Option<&String>, label: &str) -> String {
    file.map_or_else(|| label.to_string(), |file| format!("{file}.{label}"))
}

/// As it would be typed.
pub fn quoted(name: &str) -> String {
    if lexer::is_word(name) {
        name.to_string()
    } else {
        format!("'{name}'")
    }
}

/// The full one of these names, of which the unit may be left out.
fn one_of(names: &[&str], written: &str) -> Result<String, String> {
    let found =
        ENDINGS.iter().map(|ending| format!("{written}{ending}")).find(|full| names.contains(&full.as_str()));
    found.ok_or_else(|| {
        let names: Vec<&str> =
            names.iter().map(|name| ENDINGS.iter().fold(*name, |name, end| without(name, end))).collect();
        let guess = closest(written, names.iter().copied());
        let guess = guess.map_or_else(String::new, |guess| format!(" (did you mean {guess}?)"));
        format!("no quantity {written:?}{guess}; there are {}", names.join(", "))
    })
}

fn without<'a>(name: &'a str, ending: &str) -> &'a str {
    if ending.is_empty() {
        name
    } else {
        name.strip_suffix(ending).unwrap_or(name)
    }
}

/// The first name with this ending, without it.
pub fn short_name<'a>(names: &[&'a str], ending: &str) -> &'a str {
    names.iter().find_map(|name| name.strip_suffix(ending)).unwrap_or_default()
}

/// The full name of a quantity: what the summary calls it.
pub fn quantity_name(name: &str) -> Result<String, String> {
    if let Some(metric) = name.strip_prefix("metric.").or_else(|| name.strip_prefix("metric:")) {
        return Ok(format!("metric:{metric}"));
    }
    let (phase, rest) = match split_phase(name) {
        ("", rest) => (String::new(), rest),
        (phase, rest) => (format!("{phase}."), rest),
    };
    // Percentiles are written p99.9, and called p99_9.
    let rest = if rest.starts_with("latency_p") { rest.replace('.', "_") } else { rest.to_string() };
    let fits = |full: &String| quantities::find(full).is_some() || quantities::percentile(full).is_some();
    let found = ENDINGS.iter().map(|ending| format!("{rest}{ending}")).find(fits);
    if let Some(row) = found.as_deref().and_then(quantities::find).filter(|row| !row.by_phase) {
        if !phase.is_empty() {
            return Err(format!("{name:?}: {} is measured of whole runs only", row.name));
        }
    }
    found.map(|found| format!("{phase}{found}")).ok_or_else(|| {
        let names = quantities::short_names();
        let guess = closest(&rest, names.iter().copied());
        let guess = guess.map_or_else(String::new, |guess| format!(" (did you mean {phase}{guess}?)"));
        format!(
            "no quantity {name:?}{guess}; there are {}, latency_p50 and other percentiles, each also of a phase, as \
             idle.rss_mean, and metric.NAME for what the program prints",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_quantity_of_a_comparison_can_be_named() {
        for comparison in [fixture::server(), fixture::comparison(&[("glibc", &[1.0])])] {
            for row in &comparison.summary.allocators {
                for name in row.quantities.keys() {
                    assert_eq!(quantity_name(name).as_ref(), Ok(name), "add it to quantities::ROWS");
                }
            }
        }
    }
}
