//! Conditions such as `snug.rss_mean > 0.8 * glibc.rss_mean`, for `--fail-if`. What can be known before the first
//! run is checked before it: the grammar, allocators, quantities, units. Pure, but for the lines that `judge` prints.
//!
//! ```text
//! condition  = comparison { "and" comparison }
//! comparison = sum ("<" | "<=" | ">" | ">=" | "==" | "!=") sum
//! sum        = product { ("+" | "-") product }
//! product    = factor { ("*" | "/") factor }
//! factor     = "-" factor | "(" sum ")" | number [unit] | name
//! name       = part "." part { "." part }, a part being a word or anything in quotes
//! ```

use crate::dimension::{unit_hint, Dimension};
use crate::lexer::{self, Token};
use crate::scope::{self, Scope};
use snug_base::failure::{Failure, Result, CONDITION, USAGE};

/// A condition that was understood.
#[derive(Debug)]
pub struct Condition {
    text: String,
    comparisons: Vec<Relation>,
}

#[derive(Debug)]
struct Relation {
    left: Sum,
    operator: String,
    right: Sum,
}

/// An expression.
#[derive(Debug)]
enum Sum {
    Number { value: f64, counts: Dimension, has_unit: bool },
    Name { scope: usize, quantity: String },
    Negative(Box<Sum>),
    Pair(Box<Sum>, char, Box<Sum>),
}

/// Understands all conditions, or says what is wrong with the first that is wrong.
pub fn parse_all(texts: &[String], scopes: &[Scope]) -> Result<Vec<Condition>> {
    let parse = |text: &String| {
        parse(text, scopes).map_err(|problem| {
            let advice = match scopes.first() {
                Some(scope) if !scope.names.is_empty() => {
                    let name = scope::quoted(&scope.label);
                    format!("write it like \"{name}.{} > 100 MB\"", scope::short_name(scope.names, "_bytes"))
                }
                _ => "write it like \"snug.rss_mean > 0.8 * glibc.rss_mean\"; `snug compare --help` lists the quantities"
                    .into(),
            };
            Failure::new(format!("--fail-if {text:?}: {problem}")).exit_code(USAGE).advise(advice)
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

fn parse(text: &str, scopes: &[Scope]) -> std::result::Result<Condition, String> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, scopes };
    let mut comparisons = vec![parser.comparison()?];
    while parser.take_word("and") {
        comparisons.push(parser.comparison()?);
    }
    match parser.next() {
        None => Ok(Condition { text: text.into(), comparisons }),
        Some(token) => Err(format!("unexpected {token}")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    scopes: &'a [Scope],
}

type Parsed<T> = std::result::Result<T, String>;

impl Parser<'_> {
    fn next(&mut self) -> Option<&Token> {
        self.at += 1;
        self.tokens.get(self.at - 1)
    }

    /// Takes a sign if it is one of those.
    fn take(&mut self, signs: &[&str]) -> Option<String> {
        match self.tokens.get(self.at) {
            Some(Token::Sign(sign)) if signs.contains(&sign.as_str()) => {
                self.at += 1;
                Some(sign.clone())
            }
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Name(parts)) if parts == &[word]);
        self.at += usize::from(found);
        found
    }

    fn comparison(&mut self) -> Parsed<Relation> {
        let left = self.sum()?;
        let Some(operator) = self.take(&["<", "<=", ">", ">=", "==", "!="]) else {
            return Err(match self.next() {
                Some(token) => format!("expected one of < <= > >= == !=, found {token}"),
                None => "nothing is compared: expected one of < <= > >= == !=".into(),
            });
        };
        let right = self.sum()?;
        let units = (left.unit(), right.unit());
        if units.0 != units.1 && !left.is_zero() && !right.is_zero() {
            let hint = hint(&left, &right);
            return Err(format!("{} can't be compared with {}{hint}", units.0, units.1));
        }
        Ok(Relation { left, operator, right })
    }

    fn sum(&mut self) -> Parsed<Sum> {
        let mut left = self.product()?;
        while let Some(sign) = self.take(&["+", "-"]) {
            let right = self.product()?;
            if left.unit() != right.unit() {
                let (units, hint) = ((left.unit(), right.unit()), hint(&left, &right));
                return Err(format!("can't add or subtract {} and {}{hint}", units.0, units.1));
            }
            left = Sum::Pair(Box::new(left), first(&sign), Box::new(right));
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed<Sum> {
        let mut left = self.factor()?;
        while let Some(sign) = self.take(&["*", "/"]) {
            left = Sum::Pair(Box::new(left), first(&sign), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Parsed<Sum> {
        if self.take(&["-"]).is_some() {
            return Ok(Sum::Negative(Box::new(self.factor()?)));
        }
        if self.take(&["("]).is_some() {
            let inner = self.sum()?;
            return self.take(&[")"]).map(|_| inner).ok_or_else(|| "a ) is missing".into());
        }
        let scopes = self.scopes;
        match self.next() {
            Some(Token::Number(value, unit)) if unit.is_empty() => {
                Ok(Sum::Number { value: *value, counts: Dimension::None, has_unit: false })
            }
            Some(Token::Number(value, unit)) => {
                let (value, counts) = Dimension::read(*value, unit)?;
                Ok(Sum::Number { value, counts, has_unit: true })
            }
            Some(Token::Name(parts)) => {
                let (scope, quantity) = scope::resolve(parts, scopes)?;
                Ok(Sum::Name { scope, quantity })
            }
            Some(token) => Err(format!("expected a number or a name, found {token}")),
            None => Err("expected a number or a name at the end".into()),
        }
    }
}

/// What may be wrong with a plain number and something else that it does not fit.
fn hint(left: &Sum, right: &Sum) -> &'static str {
    let (plain, other) = match (left.unit(), right.unit()) {
        (Dimension::None, _) => (left, right),
        (_, Dimension::None) => (right, left),
        _ => return "",
    };
    match (plain.has_name(), other.has_name()) {
        // A rate or a share, which are plain numbers, too.
        (false, _) if plain.has_unit() => "",
        (false, _) => unit_hint(other.unit()),
        (true, false) => ": leave the unit out",
        (true, true) => "",
    }
}

fn first(sign: &str) -> char {
    sign.chars().next().unwrap_or(' ')
}

impl Condition {
    /// Whether it holds, and the values of both sides.
    fn decide(&self, scopes: &[Scope]) -> Parsed<(bool, String)> {
        let mut holds = true;
        let mut sides = Vec::new();
        for Relation { left, operator, right } in &self.comparisons {
            let (left_value, right_value) = (left.value(scopes)?, right.value(scopes)?);
            holds &= match operator.as_str() {
                "<" => left_value < right_value,
                "<=" => left_value <= right_value,
                ">" => left_value > right_value,
                ">=" => left_value >= right_value,
                "==" => left_value == right_value,
                _ => left_value != right_value,
            };
            // Only 0 goes with everything.
            let unit = if left.is_zero() { right.unit() } else { left.unit() };
            sides.push(format!("{} {operator} {}", unit.show(left_value), unit.show(right_value)));
        }
        Ok((holds, sides.join(" and ")))
    }
}

impl Sum {
    fn is_zero(&self) -> bool {
        matches!(self, Sum::Number { value, .. } if *value == 0.0)
    }

    fn has_name(&self) -> bool {
        match self {
            Sum::Number { .. } => false,
            Sum::Name { .. } => true,
            Sum::Negative(inner) => inner.has_name(),
            Sum::Pair(left, _, right) => left.has_name() || right.has_name(),
        }
    }

    /// Whether a unit was written.
    fn has_unit(&self) -> bool {
        match self {
            Sum::Number { has_unit, .. } => *has_unit,
            Sum::Name { .. } => false,
            Sum::Negative(inner) => inner.has_unit(),
            Sum::Pair(left, _, right) => left.has_unit() || right.has_unit(),
        }
    }

    fn unit(&self) -> Dimension {
        match self {
            Sum::Number { counts, .. } => *counts,
            Sum::Name { quantity, .. } => Dimension::of(quantity).0,
            Sum::Negative(inner) => inner.unit(),
            Sum::Pair(left, '+' | '-', _) => left.unit(),
            Sum::Pair(left, sign, right) => match (left.unit(), right.unit()) {
                (unit, Dimension::None) => unit,
                (Dimension::None, unit) if *sign == '*' => unit,
                (left, right) if left == right && *sign == '/' => Dimension::None,
                _ => Dimension::Other,
            },
        }
    }

    fn value(&self, scopes: &[Scope]) -> Parsed<f64> {
        match self {
            Sum::Number { value, .. } => Ok(*value),
            Sum::Name { scope, quantity } => {
                let scope = &scopes[*scope];
                // A throughput may be measured by the load or reported by the program.
                let found = scope.quantities.get(quantity);
                let found = found.or_else(|| scope.quantities.get(&format!("metric:{quantity}")));
                found.map(|value| value * Dimension::of(quantity).1).ok_or_else(|| {
                    let names: Vec<&str> = scope.quantities.keys().map(String::as_str).collect();
                    format!("{quantity} of {} was not measured; there are {}", scope.label, names.join(", "))
                })
            }
            Sum::Negative(inner) => Ok(-inner.value(scopes)?),
            Sum::Pair(left, sign, right) => {
                let (left, right) = (left.value(scopes)?, right.value(scopes)?);
                match sign {
                    '+' => Ok(left + right),
                    '-' => Ok(left - right),
                    '*' => Ok(left * right),
                    _ if right == 0.0 => Err("division by zero".into()),
                    _ => Ok(left / right),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{quantities, view};
    use snug_base::terminal::number_in;

    fn scope(file: Option<&str>, label: &str, quantities: &[(&str, f64)]) -> Scope {
        Scope {
            file: file.map(String::from),
            label: label.into(),
            names: &[],
            quantities: quantities.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
        }
    }

    fn scopes() -> Vec<Scope> {
        vec![
            scope(
                None,
                "glibc",
                &[("rss_mean_bytes", 100e6), ("latency_p99_9_s", 0.2), ("requests_per_s", 50.0)],
            ),
            scope(None, "glibc:MALLOC_ARENA_MAX=2", &[("rss_mean_bytes", 80e6)]),
            scope(
                None,
                "snug",
                &[("rss_mean_bytes", 50e6), ("idle.rss_mean_bytes", 20e6), ("metric:requests_per_s", 51.0)],
            ),
        ]
    }

    fn holds(text: &str) -> bool {
        let scopes = scopes();
        parse(text, &scopes).unwrap().decide(&scopes).unwrap().0
    }

    fn problem(text: &str) -> String {
        parse(text, &scopes()).unwrap_err()
    }

    #[test]
    fn arithmetic_and_comparisons() {
        assert!(!holds("snug.rss_mean > 0.8 * glibc.rss_mean"));
        assert!(holds("snug.rss_mean_bytes >= 50% * glibc.rss_mean"));
        assert!(holds("snug.rss_mean + 10MB == 'glibc:MALLOC_ARENA_MAX=2'.rss_mean - 20 MB"));
        assert!(holds("glibc.rss_mean - snug.rss_mean - snug.rss_mean < 1 B"), "from left to right");
        assert!(holds("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20 and -2 < -1 and 8 / 4 / 2 == 1"));
        assert!(!holds("1 < 2 and 2 < 1"));
        assert!(holds("snug.idle.rss_mean != 0"));
        assert!(holds("glibc.latency_p99.9 > 150 ms and snug.requests_per_s > glibc.requests_per_s"));
        assert!(holds("snug.metric.requests_per_s > 50.5"));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(problem("snugg.rss_mean > 1 MB").contains("did you mean snug?"));
        assert!(
            problem("jemalloc.rss_mean > 1 MB").contains("there are glibc, 'glibc:MALLOC_ARENA_MAX=2', snug")
        );
        assert!(problem("snug.rss_maen > 1 MB").contains("did you mean rss_mean?"));
        assert!(problem("snug.idle.rss_meen > 1 MB").contains("did you mean idle.rss_mean?"));
        assert!(problem("snug.idle.cgroup_peak > 1 MB").contains("of whole runs only"));
        assert!(problem("snug.rss_mean").contains("nothing is compared"));
        assert!(problem("snug.rss_mean > ").contains("expected a number or a name at the end"));
        assert!(problem("snug.rss_mean > 500").contains("write a unit, as in 500 MB"));
        assert!(problem("snug.wall + snug.rss_mean > 1 s").contains("can't add or subtract"));
        assert!(problem("snug.rss_mean > 5 parsecs").contains("unknown unit \"parsecs\""));
        assert!(problem("snug.rss_mean > (1 MB").contains("a ) is missing"));
        assert!(problem("snug.rss_mean > 1 MB 2").contains("unexpected 2"));
        assert!(problem("snug > 1").contains("names no quantity"));
        assert!(problem("snug.rss_mean = 1 MB").contains("=="));
    }

    #[test]
    fn metrics_have_the_unit_in_which_they_are_shown() {
        let cases = quantities::REPORTED.iter().flat_map(|row| [12.5, 0.1451].map(|amount| (row, amount)));
        for ((ending, unit, factor, _), amount) in cases {
            let metric = format!("metric:work{ending}");
            let value = amount / factor;
            let scopes = [scope(None, "snug", &[(metric.as_str(), value)])];
            let name = format!("snug.metric.work{ending}");
            let text = format!("{name} < {} {unit} and {name} > {}{unit}", 1.01 * amount, 0.99 * amount);
            let (holds, sides) = parse(&text, &scopes).unwrap().decide(&scopes).unwrap();
            assert!(holds, "{text}: {sides}");
            // The same digits, of MB or of kB.
            let shown = view::with_unit(&quantities::named(&metric), value);
            let read = |text: Option<&str>| number_in(text.unwrap()).unwrap();
            let ratio = read(sides.split(" < ").next()) / read(shown.split('/').next());
            assert!((ratio - 1.0).abs() < 1e-9, "{text}: {sides}, {shown}");
            let text =
                format!("{name} / 2 < {} {unit} and {name} / 2 > {}{unit}", 0.51 * amount, 0.49 * amount);
            assert!(parse(&text, &scopes).unwrap().decide(&scopes).unwrap().0, "{text}");
        }
        assert!(problem("snug.metric.p99_ms < 20").contains("write a unit, as in 20 ms"));
        assert!(problem("snug.metric.widgets < 5 MB").ends_with("compared with bytes: leave the unit out"));
        for plain in ["100 /s", "50 %", "2 * 50%"] {
            let problem = problem(&format!("snug.wall < {plain}"));
            assert!(problem.ends_with("compared with a plain number"), "a unit was written: {problem}");
        }
        assert!(problem("snug.page_faults < snug.rss_mean").ends_with("compared with bytes"));
        assert!(holds("snug.requests_per_s > 50 /s and snug.metric.requests_per_s < 52/s"));
    }

    #[test]
    fn values_that_are_missing_decide_nothing() {
        let scopes = scopes();
        let decide = |text: &str| parse(text, &scopes).unwrap().decide(&scopes).unwrap_err();
        assert!(decide("glibc.idle.rss_mean > 1 MB").contains("was not measured; there are"));
        assert!(decide("1 / (glibc.requests_per_s - 50) > 1").contains("division by zero"));
    }

    #[test]
    fn both_sides_are_shown() {
        let scopes = scopes();
        let conditions = parse_all(&["snug.rss_mean < 0.8 * glibc.rss_mean".into()], &scopes).unwrap();
        let failure = check(&conditions, &scopes).unwrap_err();
        assert_eq!(failure.exit_code, CONDITION);
        assert!(failure.message.ends_with("holds: 50.0 MB < 80.0 MB"), "{failure}");
        let conditions = parse_all(&["snug.rss_mean - glibc.rss_mean < 0".into()], &scopes).unwrap();
        let failure = check(&conditions, &scopes).unwrap_err();
        assert!(failure.message.ends_with("holds: -50.0 MB < 0 B"), "{failure}");
        let conditions = parse_all(&["0 < glibc.latency_p99.9".into()], &scopes).unwrap();
        let failure = check(&conditions, &scopes).unwrap_err();
        assert!(failure.message.ends_with("holds: 0.00 ms < 200 ms"), "{failure}");
        assert_eq!(parse_all(&["x".into()], &scopes).unwrap_err().exit_code, USAGE);
    }

    #[test]
    fn files_come_first_where_there_are_several() {
        let scopes = vec![
            scope(Some("old"), "snug", &[("rss_mean_bytes", 60e6)]),
            scope(Some("new"), "snug", &[("rss_mean_bytes", 50e6)]),
        ];
        let condition = parse("new.snug.rss_mean > 1.05 * old.snug.rss_mean", &scopes).unwrap();
        assert!(!condition.decide(&scopes).unwrap().0);
        assert!(parse("snug.rss_mean > 1 MB", &scopes).unwrap_err().contains("which file"));
        assert!(parse("old.glibc.rss_mean > 1 MB", &scopes).unwrap_err().contains("old.snug, new.snug"));
    }

    #[test]
    fn quantities_of_something_else() {
        let names: &[&str] = &["live_bytes", "time_s", "files"];
        let quantities = [("live_bytes", 5e6), ("time_s", 2.0), ("files", 7.0)];
        let scopes = [Scope { names, ..scope(None, "boot", &quantities) }];
        let holds = |text: &str| parse(text, &scopes).unwrap().decide(&scopes).unwrap().0;
        assert!(holds("boot.live > 4 MB and boot.time_s < 3 s and boot.files == 7"));
        let problem = |text: &str| parse(text, &scopes).unwrap_err();
        assert!(problem("boot.lives > 4 MB").contains("did you mean live?"));
        assert!(problem("boot.rss_mean > 4 MB").ends_with("there are live, time, files"));
        assert!(problem("boot > 4 MB").contains("write boot.live, for example"));
        assert!(problem("snug.live > 4 MB").contains("nothing is called \"snug\" here; there are boot"));
        let advice = parse_all(&["x".into()], &scopes).unwrap_err().advice.unwrap();
        assert!(advice.contains("boot.live > 100 MB"), "{advice}");
    }
}
