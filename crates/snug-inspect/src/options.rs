//! The options of libsnug.so, as the variable SNUG and `snug set` take them: which there are, what they may be, and what
//! the library makes of an environment. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kinds::closest;
use crate::malloc_conf::{self, KeyFate, Pair};

/// One option.
pub struct OptionRow {
    pub name: &'static str,
    pub default: u32,
    pub low: u32,
    pub high: u32,
}

const fn row(name: &'static str, default: u32, low: u32, high: u32) -> OptionRow {
    OptionRow { name, default, low, high }
}

/// Written by tools/update-options from core/src/options.c.
pub const ROWS: &[OptionRow] = &[
    // options:begin
    row("verbose", 0, 0, 1),
    row("stats_print", 0, 0, 1),
    row("arenas_max", 0, 0, 64),
    row("background", 1, 0, 1),
    row("purge_cpu_percent", 1, 0, 100),
    row("thp", 2, 0, 2),
    row("guard", 0, 0, 1),
    row("profile", 0, 0, 1073741824),
    row("guard_samples", 0, 0, 4096),
    // options:end
];

/// glibc's variable for the number of arenas, which snug understands.
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";
/// SNUG=help only prints the options.
const HELP: &str = "help";

/// Where the value of an option comes from; of those that say one, the later wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OptionSource {
    #[serde(rename = "default")]
    Default,
    #[serde(rename = "MALLOC_ARENA_MAX")]
    ArenaMax,
    /// The text of that symbolic link.
    #[serde(rename = "/etc/malloc.conf")]
    MallocConfLink,
    #[serde(rename = "MALLOC_CONF")]
    MallocConf,
    #[serde(rename = "SNUG")]
    Snug,
    /// Neither the default nor what the environment says: changed while the program ran.
    #[serde(rename = "snug set")]
    Set,
}

impl OptionSource {
    /// For people; None for a default.
    pub fn text(self) -> Option<&'static str> {
        match self {
            OptionSource::Default => None,
            OptionSource::Snug => Some("from SNUG"),
            OptionSource::ArenaMax => Some("from MALLOC_ARENA_MAX"),
            OptionSource::MallocConfLink => Some("from /etc/malloc.conf"),
            OptionSource::MallocConf => Some("from MALLOC_CONF"),
            OptionSource::Set => Some("by snug set"),
        }
    }
}

/// A part of SNUG that the library ignores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The part as it was written.
    pub text: String,
    /// Why.
    pub why: String,
    /// What to write instead.
    pub fix: String,
}

/// What a key of MALLOC_CONF does in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfKey {
    pub source: OptionSource,
    /// As it is written.
    pub key: String,
    pub value: String,
    pub outcome: ConfOutcome,
    /// What it does, why nothing, or what to write instead.
    pub text: String,
}

/// What became of a key of MALLOC_CONF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfOutcome {
    InEffect,
    /// It asks for what is so anyway.
    AlreadySo,
    /// It is about something that there is no need for.
    NotNeeded,
    /// It asks for what is not there.
    NotThere,
    /// Another source wins, or a later key.
    Overruled,
    /// It is written wrong.
    Ignored,
}

impl ConfOutcome {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            ConfOutcome::InEffect => "in effect",
            ConfOutcome::AlreadySo => "already so",
            ConfOutcome::NotNeeded => "not needed",
            ConfOutcome::NotThere => "not there",
            ConfOutcome::Overruled => "overruled",
            ConfOutcome::Ignored => "ignored",
        }
    }
}

/// What the library makes of an environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Understood {
    /// Options that the environment sets, with their values.
    pub values: BTreeMap<&'static str, (u32, OptionSource)>,
    pub ignored: Vec<Ignored>,
    /// Keys of MALLOC_CONF, in the order in which they are read.
    pub conf_keys: Vec<ConfKey>,
}

/// The row of that name.
pub fn find(name: &str) -> Option<&'static OptionRow> {
    ROWS.iter().find(|row| row.name == name)
}

/// The option that a misspelt name may mean.
pub fn nearest(name: &str) -> Option<&'static str> {
    let part = || ROWS.iter().map(|row| row.name).find(|other| other.contains(name) || name.contains(other));
    closest(name, ROWS.iter().map(|row| row.name)).or_else(part)
}

impl OptionRow {
    /// A value as it is written, or None if it is none: a number of the range, or a word where it is a switch.
    pub fn parse(&self, value: &str) -> Option<u32> {
        let number = match value {
            "on" | "true" | "yes" if self.high <= 2 => 1,
            "off" | "false" | "no" if self.high <= 2 => 0,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
            _ => return None,
        };
        (self.low..=self.high).contains(&number).then_some(number)
    }

    /// What a value may be, as the end of "use ...".
    pub fn range(&self) -> String {
        range(self.low.into(), self.high.into())
    }
}

/// The same for an option of another version of the library, which says what it takes.
pub fn range(low: u64, high: u64) -> String {
    match (low, high) {
        (0, 1) => "on or off (1 or 0)".into(),
        (low, high) => format!("a number from {low} to {high}"),
    }
}

/// Reads an environment as the library does at its start; `conf_link` is the text of the link /etc/malloc.conf.
pub fn understand(environment: &[(String, String)], conf_link: Option<&str>) -> Understood {
    let variable =
        |name: &str| environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let mut understood = Understood::default();
    let arenas = find("arenas_max");
    if let Some((row, value)) = arenas.and_then(|row| Some((row, row.parse(variable(ARENA_MAX)?)?))) {
        understood.values.insert(row.name, (value, OptionSource::ArenaMax));
    }
    let lists =
        [(OptionSource::MallocConfLink, conf_link), (OptionSource::MallocConf, variable("MALLOC_CONF"))];
    let read = |(source, list): (OptionSource, Option<&str>)| {
        malloc_conf::read(list.unwrap_or_default()).into_iter().map(move |pair| (source, pair))
    };
    let mut pairs: Vec<(OptionSource, Pair)> = lists.into_iter().flat_map(read).collect();
    malloc_conf::settle_profiles(pairs.iter_mut().map(|(_, pair)| pair));
    for (source, pair) in &pairs {
        understood.values.extend(pair.sets.iter().map(|(name, value)| (*name, (*value, *source))));
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
    understood.conf_keys =
        pairs.into_iter().map(|(source, pair)| understood.conf_key(source, pair)).collect();
    understood
}

impl Understood {
    /// What became of a pair of MALLOC_CONF, now that all sources are read.
    fn conf_key(&self, source: OptionSource, pair: Pair) -> ConfKey {
        let winner = |(name, value): &(&'static str, u32)| {
            self.values.get(name).filter(|winner| **winner != (*value, source)).map(|winner| (*name, *winner))
        };
        let winners: Vec<_> = pair.sets.iter().filter_map(winner).collect();
        let is_default =
            |(name, value): &(&'static str, u32)| find(name).is_some_and(|row| row.default == *value);
        let (outcome, text) = match (pair.fate, winners.as_slice()) {
            (KeyFate::Taken, [(name, (value, by)), ..]) if winners.len() == pair.sets.len() => {
                let from = by.text().unwrap_or_default();
                (ConfOutcome::Overruled, format!("{name}:{value} {from} wins; {}", pair.text))
            }
            (KeyFate::Taken, _) if !pair.sets.is_empty() && pair.sets.iter().all(is_default) => {
                (ConfOutcome::AlreadySo, pair.text)
            }
            (KeyFate::Taken, _) => (ConfOutcome::InEffect, pair.text),
            (KeyFate::AlreadySo, _) => (ConfOutcome::AlreadySo, pair.text),
            (KeyFate::NotNeeded, _) => (ConfOutcome::NotNeeded, pair.text),
            (KeyFate::NotThere, _) => (ConfOutcome::NotThere, pair.text),
            (KeyFate::Ignored, _) => (ConfOutcome::Ignored, pair.text),
        };
        ConfKey { source, key: pair.key, value: pair.value, outcome, text }
    }
}

/// Where each setting comes from, for the settings in effect in a process whose environment was understood so.
pub fn origins(
    settings: &BTreeMap<String, String>,
    understood: &Understood,
) -> BTreeMap<String, OptionSource> {
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
        let understood = understand(
            &environment(&[("SNUG", "purge_cpu:5, thp:on,verbose:7,help,quux,,background:0")]),
            None,
        );
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
            ("thp", "2"),
            ("background", "0"),
            ("purge_cpu_percent", "9"),
            ("of_a_later_version", "1"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into();
        let found = origins(
            &settings,
            &understand(&environment(&[("MALLOC_ARENA_MAX", "2"), ("SNUG", "background:off")]), None),
        );
        let of = |name: &str| found.get(name).copied();
        assert_eq!(of("arenas_max"), Some(OptionSource::ArenaMax));
        assert_eq!((of("thp"), of("background")), (Some(OptionSource::Default), Some(OptionSource::Snug)));
        assert_eq!((of("purge_cpu_percent"), of("of_a_later_version")), (Some(OptionSource::Set), None));
    }

    #[test]
    fn snug_wins_over_malloc_conf_and_that_over_arena_max() {
        let conf = "narenas:2,background_thread:true,dirty_decay_ms:-1,thp:always,narena:3,zero:true";
        let pairs = [("MALLOC_ARENA_MAX", "8"), ("MALLOC_CONF", conf), ("SNUG", "thp:0,purge_cpu_percent:2")];
        let understood = understand(&environment(&pairs), Some("narenas:4,xmalloc:true"));
        assert_eq!(understood.values["arenas_max"], (2, OptionSource::MallocConf));
        assert_eq!(understood.values["background"], (0, OptionSource::MallocConf));
        assert_eq!(understood.values["purge_cpu_percent"], (2, OptionSource::Snug));
        let outcomes: Vec<(&str, ConfOutcome)> =
            understood.conf_keys.iter().map(|key| (key.key.as_str(), key.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                ("narenas", ConfOutcome::Overruled),
                ("xmalloc", ConfOutcome::InEffect),
                ("narenas", ConfOutcome::InEffect),
                ("background_thread", ConfOutcome::Overruled),
                ("dirty_decay_ms", ConfOutcome::InEffect),
                ("thp", ConfOutcome::Overruled),
                ("narena", ConfOutcome::Ignored),
                ("zero", ConfOutcome::InEffect),
            ]
        );
        let texts: Vec<&str> = understood.conf_keys.iter().map(|key| key.text.as_str()).collect();
        assert!(texts[0].starts_with("arenas_max:2 from MALLOC_CONF wins; "), "{}", texts[0]);
        assert!(texts[5].starts_with("thp:0 from SNUG wins; "), "{}", texts[5]);
        let ruby = understand(&environment(&[("MALLOC_CONF", "background_thread:true")]), None);
        assert_eq!(ruby.conf_keys[0].outcome, ConfOutcome::AlreadySo);
        let arena_max =
            understand(&environment(&[("MALLOC_ARENA_MAX", "8"), ("MALLOC_CONF", "narenas:2")]), None);
        assert_eq!(arena_max.values["arenas_max"], (2, OptionSource::MallocConf));
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
