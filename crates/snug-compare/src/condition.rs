//! Conditions of `--fail-if`, NAME.QUANTITY OPERATOR NUMBER: `snug.rss_mean > 500 MB`, or `snug.rss_mean > 0.8x`, which
//! is 0.8 times what the baseline has. What can be known before the first run is checked before it. Pure, but for the
//! lines that `check` prints.

use std::collections::BTreeMap;

use crate::dimension::{self, unit_hint, Dimension};
use crate::quantities::{quantity_name, without_unit};
use snug_base::failure::{Failure, Result, CONDITION};
use snug_inspect::kinds::closest;

/// Those of two characters first.
const OPERATORS: &[&str] = &["<=", ">=", "==", "!=", "<", ">"];
/// The unit of numbers that are times what the baseline has.
const TIMES: &str = "x";

/// What a condition can name: an allocator, with its file where there are several, and the medians of its quantities,
/// which are empty before the first run.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub file: Option<String>,
    pub label: String,
    /// Names of its quantities; none: those of comparisons.
    pub names: &'static [&'static str],
    pub quantities: BTreeMap<String, f64>,
    /// The place of what it is compared with, among all scopes.
    pub baseline: Option<usize>,
}

impl Scope {
    fn name(&self) -> String {
        self.file.iter().chain([&self.label]).map(String::as_str).collect::<Vec<_>>().join(".")
    }

    fn value(&self, quantity: &str) -> Parsed<f64> {
        // A throughput may be measured by the load or reported by the program.
        let found = self.quantities.get(quantity);
        let found = found.or_else(|| self.quantities.get(&format!("metric:{quantity}")));
        found.map(|value| value * Dimension::of(quantity).1).ok_or_else(|| {
            let names: Vec<&str> = self.quantities.keys().map(String::as_str).collect();
            format!("{quantity} of {} was not measured; there are {}", self.label, names.join(", "))
        })
    }
}

/// A condition that was understood.
#[derive(Debug)]
pub struct Condition {
    text: String,
    scope: usize,
    quantity: String,
    operator: &'static str,
    number: f64,
    /// The scope of which it is so many times.
    times: Option<usize>,
}

type Parsed<T> = std::result::Result<T, String>;

/// Understands all conditions, or says what is wrong with the first that is wrong.
pub fn parse_all(texts: &[String], scopes: &[Scope]) -> Result<Vec<Condition>> {
    let parse = |text: &String| {
        parse(text, scopes).map_err(|problem| {
            let name = scopes.first().map_or_else(|| "snug".into(), Scope::name);
            let quantity = example(scopes.first());
            let times = match scopes.iter().find(|scope| scope.baseline.is_some()) {
                Some(scope) => {
                    format!(", or \"{}.{quantity} > 1.05x\" for times the baseline's", scope.name())
                }
                None => String::new(),
            };
            let advice =
                format!("write NAME.QUANTITY OPERATOR NUMBER, as in \"{name}.{quantity} > 100 MB\"{times}");
            Failure::usage(format!("--fail-if {text:?}: {problem}"), advice)
        })
    };
    texts.iter().map(parse).collect()
}

/// Prints what each condition came to, with both sides' values; fails if one holds, or can't be decided.
pub fn check(conditions: &[Condition], scopes: &[Scope]) -> Result<()> {
    let mut holding = Vec::new();
    for condition in conditions {
        let (holds, sides) = condition.decide(scopes).map_err(|problem| {
            Failure::new(format!("--fail-if {:?} can't be decided: {problem}", condition.text))
        })?;
        if holds {
            holding.push(format!("--fail-if {:?} holds: {sides}", condition.text));
        } else {
            anstream::eprintln!("--fail-if {:?} does not hold: {sides}", condition.text);
        }
    }
    match holding.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(holding.join("\n")).exit_code(CONDITION)),
    }
}

fn parse(text: &str, scopes: &[Scope]) -> Parsed<Condition> {
    let operator_at = |at: usize| OPERATORS.iter().find(|operator| text[at..].starts_with(**operator));
    let (at, operator) = text
        .char_indices()
        .find_map(|(at, _)| Some((at, *operator_at(at)?)))
        .ok_or("nothing is compared: expected one of < <= > >= == !=")?;
    // Names once stood in quotes where they hold more than letters and digits.
    let name = text[..at].trim().replace(['\'', '"'], "");
    let right = text[at + operator.len()..].trim();
    let (scope, quantity) = resolve(&name, scopes)?;
    if right.contains(" and ") {
        return Err(
            "one condition is one comparison: give the option once for each; any that holds fails".into()
        );
    }
    let is_unit = |unit: &str| unit == "/s" || unit.chars().all(char::is_alphabetic);
    let (value, unit) = dimension::number(right).filter(|(_, unit)| is_unit(unit)).ok_or_else(|| {
        format!("{right:?} is not a number: to compare with the baseline write how many times, as 0.8x")
    })?;
    let (number, times) = match unit {
        TIMES => {
            let label = &scopes[scope].label;
            let baseline = scopes[scope].baseline;
            (value, Some(baseline.ok_or_else(|| format!("{label} is not compared with a baseline"))?))
        }
        unit => (in_unit_of(&quantity, value, unit)?, None),
    };
    Ok(Condition { text: text.into(), scope, quantity, operator, number, times })
}

/// A number in the unit of the quantity's values, if it counts the same; 0 needs no unit.
fn in_unit_of(quantity: &str, value: f64, unit: &str) -> Parsed<f64> {
    let (number, counts) = Dimension::read(value, unit)?;
    let dimension = Dimension::of(quantity).0;
    if counts == dimension || value == 0.0 {
        return Ok(number);
    }
    let hint = match counts {
        Dimension::None if unit.is_empty() => unit_hint(dimension),
        _ if dimension == Dimension::None => ": leave the unit out",
        _ => "",
    };
    Err(format!("{dimension} can't be compared with {counts}{hint}"))
}

/// Finds the allocator, by its place in the scopes, and the quantity that a name means.
fn resolve(name: &str, scopes: &[Scope]) -> Parsed<(usize, String)> {
    let after =
        |scope: &Scope| name.strip_prefix(&scope.name()).map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    let fits = |scope: &&Scope| name == scope.name() || name.starts_with(&format!("{}.", scope.name()));
    let longest = scopes
        .iter()
        .enumerate()
        .filter(|(_, scope)| fits(scope))
        .max_by_key(|(_, scope)| scope.name().len());
    let Some((place, scope)) = longest else {
        let known = scopes.iter().map(Scope::name).collect::<Vec<_>>().join(", ");
        if name.starts_with(|c: char| c.is_ascii_digit() || "(-".contains(c)) || name.contains(" * ") {
            return Err(format!(
                "{name:?} is not a name; the quantity stands on the left, with nothing before it"
            ));
        }
        if let Some(scope) = scopes.iter().find(|scope| name.starts_with(&format!("{}.", scope.label))) {
            let example = scope.file.as_deref().unwrap_or_default();
            return Err(format!("which file does {name} mean? Write {example}.{name}, for example"));
        }
        let head = name.split('.').next().unwrap_or_default();
        let guess = closest(head, scopes.iter().map(|scope| scope.label.as_str()));
        let guess = guess.map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
        return Err(match scopes.iter().all(|scope| scope.names.is_empty()) {
            true => format!("no allocator {head:?} in the comparison{guess}; there are {known}"),
            false => format!("nothing is called {head:?} here{guess}; there are {known}"),
        });
    };
    match after(scope).unwrap_or_default() {
        "" => Err(format!("{name} names no quantity; write {name}.{}, for example", example(Some(scope)))),
        quantity if scope.names.is_empty() => Ok((place, quantity_name(quantity)?)),
        quantity => Ok((place, one_of(scope.names, quantity)?)),
    }
}

/// A quantity of memory, for examples.
fn example(scope: Option<&Scope>) -> &str {
    let own = scope.and_then(|scope| scope.names.iter().find_map(|name| name.strip_suffix("_bytes")));
    own.unwrap_or("rss_mean")
}

/// The full one of these names, of which the unit may be left out.
fn one_of(names: &[&str], written: &str) -> Parsed<String> {
    let found = names.iter().find(|name| **name == written || without_unit(name) == written);
    found.map(|name| name.to_string()).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|name| without_unit(name)).collect();
        let guess = closest(written, names.iter().copied());
        let guess = guess.map_or_else(String::new, |guess| format!(" (did you mean {guess}?)"));
        format!("no quantity {written:?}{guess}; there are {}", names.join(", "))
    })
}

impl Condition {
    /// Whether it holds, and the values of both sides.
    fn decide(&self, scopes: &[Scope]) -> Parsed<(bool, String)> {
        let left = scopes[self.scope].value(&self.quantity)?;
        let right = match self.times {
            Some(baseline) => self.number * scopes[baseline].value(&self.quantity)?,
            None => self.number,
        };
        let holds = match self.operator {
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            ">=" => left >= right,
            "==" => left == right,
            _ => left != right,
        };
        let unit = Dimension::of(&self.quantity).0;
        Ok((holds, format!("{} {} {}", unit.show(left), self.operator, unit.show(right))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{quantities, view};
    use snug_base::failure::USAGE;
    use snug_base::terminal::number_in;

    fn scope(file: Option<&str>, label: &str, quantities: &[(&str, f64)]) -> Scope {
        let quantities = quantities.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        Scope { file: file.map(String::from), label: label.into(), quantities, ..Scope::default() }
    }

    fn scopes() -> Vec<Scope> {
        let glibc = [("rss_mean_bytes", 100e6), ("latency_p99_9_s", 0.2), ("requests_per_s", 50.0)];
        let snug = [("rss_mean_bytes", 50e6), ("idle.rss_mean_bytes", 20e6), ("metric:requests_per_s", 51.0)];
        let few_arenas = scope(None, "glibc:MALLOC_ARENA_MAX=2", &[("rss_mean_bytes", 80e6)]);
        let to_first = |scope| Scope { baseline: Some(0), ..scope };
        vec![scope(None, "glibc", &glibc), to_first(few_arenas), to_first(scope(None, "snug", &snug))]
    }

    fn holds(text: &str) -> bool {
        let scopes = scopes();
        parse(text, &scopes).unwrap().decide(&scopes).unwrap().0
    }

    #[test]
    fn quantities_are_compared_with_numbers_and_with_the_baseline() {
        assert!(!holds("snug.rss_mean > 0.8x") && holds("snug.rss_mean_bytes >= 0.5 x"));
        assert!(
            holds("'glibc:MALLOC_ARENA_MAX=2'.rss_mean<=80MB")
                && holds("glibc:MALLOC_ARENA_MAX=2.rss_mean<0.9x")
        );
        assert!(holds("snug.idle.rss_mean != 0") && holds("snug.rss_mean == 50000 kB"));
        assert!(holds("glibc.latency_p99.9 > 150 ms") && holds("snug.requests_per_s > 50 /s"));
        assert!(holds("snug.metric.requests_per_s > 50.5") && holds("snug.metric:requests_per_s < 52"));
    }

    /// The last five are of a language of conditions that earlier versions had.
    const MISTAKES: &[&str] = &[
        "snugg.rss_mean > 1 MB",
        "jemalloc.rss_mean > 1 MB",
        "snug.rss_maen > 1 MB",
        "snug.idle.rss_meen > 1 MB",
        "snug.idle.cgroup_peak > 1 MB",
        "snug.rss_mean",
        "snug.rss_mean = 1 MB",
        "snug.rss_mean > ",
        "snug.rss_mean > 500",
        "snug.rss_mean > 5 parsecs",
        "snug.rss_mean > 1 MB 2",
        "snug > 1",
        "glibc.rss_mean > 2x",
        "snug.metric.p99_ms < 20",
        "snug.metric.widgets < 5 MB",
        "snug.wall < 100 /s",
        "snug.rss_mean > 0.8 * glibc.rss_mean",
        "snug.rss_mean > glibc.rss_mean",
        "0.8 * glibc.rss_mean < snug.rss_mean",
        "snug.rss_mean > 1 MB and snug.wall > 1 s",
        "x",
    ];

    #[test]
    fn mistakes_are_named() {
        let mut told = String::new();
        let mut tell = |texts: &[&str], scopes: &[Scope]| {
            for text in texts {
                let failure = parse_all(&[text.to_string()], scopes).unwrap_err();
                assert_eq!(failure.exit_code, USAGE);
                told += &format!("{}\n  {}\n", failure.message, failure.advice.unwrap_or_default());
            }
        };
        tell(MISTAKES, &scopes());
        let new = Scope { baseline: Some(0), ..scope(Some("new"), "snug", &[("rss_mean_bytes", 50e6)]) };
        let files = [scope(Some("old"), "snug", &[("rss_mean_bytes", 60e6)]), new];
        assert!(!parse("new.snug.rss_mean > 1.05x", &files).unwrap().decide(&files).unwrap().0);
        tell(&["snug.rss_mean > 1 MB", "old.glibc.rss_mean > 1 MB"], &files);
        let names: &[&str] = &["live_bytes", "time_s", "files"];
        let quantities = [("live_bytes", 5e6), ("time_s", 2.0), ("files", 7.0)];
        let boot = [Scope { names, ..scope(None, "boot", &quantities) }];
        for text in ["boot.live > 4 MB", "boot.time_s < 3 s", "boot.files == 7"] {
            assert!(parse(text, &boot).unwrap().decide(&boot).unwrap().0, "{text}");
        }
        tell(&["boot.lives > 4 MB", "boot.rss_mean > 4 MB", "boot > 4 MB", "snug.live > 4 MB"], &boot);
        expect_test::expect_file!["../golden/mistakes-in-conditions.txt"].assert_eq(&told);
    }

    #[test]
    fn metrics_have_the_unit_in_which_they_are_shown() {
        let cases = quantities::REPORTED.iter().flat_map(|row| [12.5, 0.1451].map(|amount| (row, amount)));
        for ((ending, unit, factor, _), amount) in cases {
            let (metric, value) = (format!("metric:work{ending}"), amount / factor);
            let scopes = [scope(None, "snug", &[(metric.as_str(), value)])];
            let decide = |text: String| parse(&text, &scopes).unwrap().decide(&scopes).unwrap();
            let (less, sides) = decide(format!("snug.metric.work{ending} < {} {unit}", 1.01 * amount));
            let (more, _) = decide(format!("snug.metric.work{ending} > {}{unit}", 0.99 * amount));
            assert!(less && more, "{metric}: {sides}");
            // The same digits, of MB or of kB.
            let shown = view::with_unit(&quantities::named(&metric), value);
            let read = |text: Option<&str>| number_in(text.unwrap()).unwrap();
            let ratio = read(sides.split(" < ").next()) / read(shown.split('/').next());
            assert!((ratio - 1.0).abs() < 1e-9, "{metric}: {sides}, {shown}");
        }
    }

    #[test]
    fn both_sides_are_shown_and_what_is_missing_decides_nothing() {
        let scopes = scopes();
        let failure = |text: &str| check(&parse_all(&[text.into()], &scopes).unwrap(), &scopes).unwrap_err();
        let held = failure("snug.rss_mean < 0.8x");
        assert_eq!(held.exit_code, CONDITION);
        assert!(held.message.ends_with("holds: 50.0 MB < 80.0 MB"), "{held}");
        assert!(failure("glibc.latency_p99.9 > 0").message.ends_with("holds: 200 ms > 0.00 ms"));
        assert!(failure("glibc.idle.rss_mean > 1 MB").message.contains("was not measured; there are"));
    }
}
