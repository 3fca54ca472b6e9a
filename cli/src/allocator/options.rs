//! The options of libsnug.so, as the variable SNUG and `snug set` take them: which there are, what they may be, and what
//! the library makes of an environment. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::allocator::kinds::closest;

/// One option.
pub(super) struct OptionRow {
    pub name: &'static str,
    pub default: u32,
    pub low: u32,
    pub high: u32,
}

const fn row(name: &'static str, default: u32, low: u32, high: u32) -> OptionRow {
    OptionRow { name, default, low, high }
}

/// Written by tools/update-options from core/src/options.c.
pub(super) const ROWS: &[OptionRow] = &[
    // options:begin
    row("verbose", 0, 0, 1),
    row("stats_print", 0, 0, 1),
    row("arenas_max", 0, 0, 64),
    row("background", 1, 0, 1),
    row("purge_cpu_percent", 1, 0, 100),
    row("thp", 0, 0, 1),
    row("guard", 0, 0, 1),
    // options:end
];

/// glibc's variable for the number of arenas, which snug understands.
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";
/// SNUG=help only prints the options.
const HELP: &str = "help";

/// Where the value of an option comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum OptionSource {
    #[serde(rename = "default")]
    Default,
    #[serde(rename = "SNUG")]
    Snug,
    #[serde(rename = "MALLOC_ARENA_MAX")]
    ArenaMax,
    /// Neither the default nor what the environment says: changed while the program ran.
    #[serde(rename = "snug set")]
    Set,
}

impl OptionSource {
    /// For people; None for a default.
    pub(crate) fn text(self) -> Option<&'static str> {
        match self {
            OptionSource::Default => None,
            OptionSource::Snug => Some("from SNUG"),
            OptionSource::ArenaMax => Some("from MALLOC_ARENA_MAX"),
            OptionSource::Set => Some("by snug set"),
        }
    }
}

/// A part of SNUG that the library ignores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ignored {
    /// The part as it was written.
    pub text: String,
    /// Why.
    pub why: String,
    /// What to write instead.
    pub fix: String,
}

/// What the library makes of an environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Understood {
    /// Options that the environment sets, with their values.
    pub values: BTreeMap<&'static str, (u32, OptionSource)>,
    pub ignored: Vec<Ignored>,
}

/// The row of that name.
pub(super) fn find(name: &str) -> Option<&'static OptionRow> {
    ROWS.iter().find(|row| row.name == name)
}

/// The option that a misspelt name may mean.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let part = || ROWS.iter().map(|row| row.name).find(|other| other.contains(name) || name.contains(other));
    closest(name, ROWS.iter().map(|row| row.name)).or_else(part)
}

impl OptionRow {
    /// A value as it is written, or None if it is none: a number of the range, or a word where it is a switch.
    pub(super) fn parse(&self, value: &str) -> Option<u32> {
        let number = match value {
            "on" | "true" | "yes" if self.high == 1 => 1,
            "off" | "false" | "no" if self.high == 1 => 0,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
            _ => return None,
        };
        (self.low..=self.high).contains(&number).then_some(number)
    }

    /// What a value may be, as the end of "use ...".
    pub(super) fn range(&self) -> String {
        match (self.low, self.high) {
            (0, 1) => "on or off (1 or 0)".into(),
            (low, high) => format!("a number from {low} to {high}"),
        }
    }
}

/// Reads an environment as the library does at its start.
pub(super) fn understand(environment: &[(String, String)]) -> Understood {
    let variable =
        |name: &str| environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let mut understood = Understood::default();
    let arenas = find("arenas_max");
    if let Some((row, value)) = arenas.and_then(|row| Some((row, row.parse(variable(ARENA_MAX)?)?))) {
        understood.values.insert(row.name, (value, OptionSource::ArenaMax));
    }
    for part in variable("SNUG").unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty())
    {
        let (name, value) =
            part.split_once(':').map_or((part, ""), |(name, value)| (name.trim(), value.trim()));
        match find(name) {
            _ if name == HELP => {}
            Some(row) => match row.parse(value) {
                Some(value) => {
                    understood.values.insert(row.name, (value, OptionSource::Snug));
                }
                None => understood.ignored.push(Ignored {
                    text: part.into(),
                    why: format!("'{value}' is not a valid value for {name}"),
                    fix: format!("use {}", row.range()),
                }),
            },
            None => understood.ignored.push(Ignored {
                text: part.into(),
                why: format!("unknown option '{name}'"),
                fix: match nearest(name) {
                    Some(nearest) => format!("did you mean {nearest}? SNUG=help lists all"),
                    None => "SNUG=help lists all options".into(),
                },
            }),
        }
    }
    understood
}

/// Where each setting comes from, for the settings in effect in a process that was started with this environment.
pub(super) fn origins(
    settings: &BTreeMap<String, String>,
    environment: &[(String, String)],
) -> BTreeMap<String, OptionSource> {
    let understood = understand(environment);
    let origin = |name: &str, value: &str| {
        let row = find(name)?;
        let (expected, origin) =
            understood.values.get(name).copied().unwrap_or((row.default, OptionSource::Default));
        Some(if value == expected.to_string() { origin } else { OptionSource::Set })
    };
    settings.iter().filter_map(|(name, value)| Some((name.clone(), origin(name, value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn what_the_library_ignores_is_found() {
        let understood =
            understand(&environment(&[("SNUG", "purge_cpu:5, thp:on,verbose:7,help,quux,,background:0")]));
        let ignored: Vec<(&str, &str)> =
            understood.ignored.iter().map(|one| (one.text.as_str(), one.fix.as_str())).collect();
        assert_eq!(
            ignored,
            [
                ("purge_cpu:5", "did you mean purge_cpu_percent? SNUG=help lists all"),
                ("verbose:7", "use on or off (1 or 0)"),
                ("quux", "SNUG=help lists all options")
            ]
        );
        assert_eq!(understood.values["thp"], (1, OptionSource::Snug));
        assert_eq!(understood.values["background"], (0, OptionSource::Snug));
    }

    #[test]
    fn every_beginning_of_an_option_suggests_it() {
        for row in ROWS {
            for length in 4..row.name.len() {
                let beginning = &row.name[..length];
                assert!(nearest(beginning).is_some_and(|name| name.starts_with(beginning)), "{beginning}");
            }
        }
    }

    #[test]
    fn settings_come_from_somewhere() {
        let settings: BTreeMap<String, String> = [
            ("arenas_max", "2"),
            ("thp", "0"),
            ("background", "0"),
            ("purge_cpu_percent", "9"),
            ("of_a_later_version", "1"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into();
        let found =
            origins(&settings, &environment(&[("MALLOC_ARENA_MAX", "2"), ("SNUG", "background:off")]));
        let of = |name: &str| found.get(name).copied();
        assert_eq!(of("arenas_max"), Some(OptionSource::ArenaMax));
        assert_eq!((of("thp"), of("background")), (Some(OptionSource::Default), Some(OptionSource::Snug)));
        assert_eq!((of("purge_cpu_percent"), of("of_a_later_version")), (Some(OptionSource::Set), None));
    }

    #[test]
    fn values_are_those_of_the_library() {
        let (percent, switch) = (find("purge_cpu_percent").unwrap(), find("background").unwrap());
        assert_eq!(
            (percent.parse("100"), percent.parse("101"), percent.parse("on")),
            (Some(100), None, None)
        );
        assert_eq!(
            (switch.parse("yes"), switch.parse("2"), switch.parse("-1"), switch.parse("")),
            (Some(1), None, None, None)
        );
    }
}
