//! Dimensions of values, and the units in which people write them: 300 kB, 20 ms. Pure.

use std::fmt;

use crate::quantities;
use snug_base::terminal::{self, signed, three_digits};

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    None,
    Bytes,
    Seconds,
}

const UNITS: &[(&str, f64, Dimension)] = &[
    ("B", 1.0, Dimension::Bytes),
    ("kB", 1e3, Dimension::Bytes),
    ("MB", 1e6, Dimension::Bytes),
    ("GB", 1e9, Dimension::Bytes),
    ("KiB", 1024.0, Dimension::Bytes),
    ("MiB", 1048576.0, Dimension::Bytes),
    ("GiB", 1073741824.0, Dimension::Bytes),
    ("us", 1e-6, Dimension::Seconds),
    ("ms", 1e-3, Dimension::Seconds),
    ("s", 1.0, Dimension::Seconds),
    ("", 1.0, Dimension::None),
    ("/s", 1.0, Dimension::None),
];

impl Dimension {
    /// What a quantity of this name counts, and the factor from its values to bytes or seconds: a metric is in the unit
    /// that its name ends in.
    pub fn of(quantity: &str) -> (Dimension, f64) {
        if quantity.starts_with("metric:") {
            let shown = quantities::named(quantity);
            let (factor, dimension) =
                Dimension::read(shown.factor, shown.unit).unwrap_or((1.0, Dimension::None));
            return (dimension, factor);
        }
        let dimension = match quantity {
            name if name.ends_with("_bytes") => Dimension::Bytes,
            name if name.ends_with("_s") && !name.ends_with("_per_s") => Dimension::Seconds,
            _ => Dimension::None,
        };
        (dimension, 1.0)
    }

    /// A number with such a unit in that of quantities, and what it counts.
    pub fn read(value: f64, unit: &str) -> Result<(f64, Dimension), String> {
        let known = UNITS.iter().find(|(name, _, _)| *name == unit);
        let names = || {
            UNITS
                .iter()
                .map(|(name, _, _)| *name)
                .filter(|name| !name.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (_, factor, dimension) =
            known.ok_or_else(|| format!("unknown unit {unit:?}; known are {}", names()))?;
        Ok((value * factor, *dimension))
    }

    /// A value as people read it.
    pub fn show(self, value: f64) -> String {
        let text = signed(value, |amount| match self {
            Dimension::Bytes => terminal::bytes(amount),
            Dimension::Seconds if amount < 1.0 => format!("{} ms", three_digits(amount * 1e3)),
            Dimension::Seconds => format!("{} s", three_digits(amount)),
            Dimension::None => three_digits(amount),
        });
        text.trim_start_matches('+').into()
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Dimension::None => "a plain number",
            Dimension::Bytes => "bytes",
            Dimension::Seconds => "seconds",
        })
    }
}

/// What to write where a plain number stands and something else is meant.
pub fn unit_hint(meant: Dimension) -> &'static str {
    match meant {
        Dimension::Bytes => ": write a unit, as in 500 MB",
        Dimension::Seconds => ": write a unit, as in 20 ms",
        Dimension::None => "",
    }
}

/// A number and what stands behind it.
pub fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"-.".contains(c)).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

/// Bytes as conditions have them: 300 kB, 1.5MB.
pub fn bytes(text: &str) -> Result<f64, String> {
    let (value, unit) = number(text.trim()).ok_or("write a size as in 500 kB or 2 MB")?;
    match Dimension::read(value, unit) {
        Ok((bytes, Dimension::Bytes)) if bytes >= 0.0 => Ok(bytes),
        _ if value == 0.0 => Ok(0.0),
        _ => Err("write a size with its unit, as in 500 kB or 2 MB".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_sign() {
        assert_eq!(Dimension::Bytes.show(-20e6), "-20.0 MB");
        assert_eq!(Dimension::Seconds.show(-0.02), "-20.0 ms");
        assert_eq!(Dimension::None.show(-1.5), "-1.50");
        assert_eq!([-0.0, -1e-9, 1e-9].map(|value| Dimension::None.show(value)), ["0.00"; 3]);
        assert_eq!([-0.0, -1e-9, 1e-9].map(|value| Dimension::Bytes.show(value)), ["0 B"; 3]);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((bytes("300kB"), bytes("1.5 MB"), bytes("0")), (Ok(300e3), Ok(1.5e6), Ok(0.0)));
        for text in ["300", "3 s", "3/s", "much", "1 MB 2", ""] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
