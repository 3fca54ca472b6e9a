//! The allocators to run, and in which order: the list of them as the user wrote it, each made into an environment, and
//! the order of the runs. Pure, except for finding libraries.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::sets;
use snug_base::failure::{Failure, Result};
use snug_base::file::file_name;
use snug_inspect::asker::{self, Asker};
use snug_inspect::kinds::{closest, known_names, AllocatorRow, Kind, ROWS};
use snug_inspect::library::{self, prepend_preload, Library};
use snug_inspect::program::Variables;

/// The variable that holds snug's options.
const SNUG_VARIABLE: &str = "SNUG";

/// One entry of `--with` as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What to load.
    pub source: Source,
    /// Variables to set, in the order written.
    pub variables: Vec<(String, String)>,
    /// It comes from a set: left out if it is not installed.
    pub from_set: bool,
}

/// What an entry asks to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Named(Kind),
    File(PathBuf),
}

/// An allocator that can be run: library found, environment known.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The entry as written: what tables and plots show.
    pub label: String,
    pub kind: Kind,
    /// None: nothing is preloaded, the program uses what it has.
    pub library: Option<Library>,
    pub variables: Vec<(String, String)>,
}

impl Candidate {
    /// glibc as it is.
    pub fn is_plain_glibc(&self) -> bool {
        self.kind == Kind::Glibc && self.library.is_none() && self.variables.is_empty()
    }
}

impl Entry {
    /// The entry as the user would write it again.
    pub fn label(&self) -> String {
        let mut label = match &self.source {
            Source::Named(kind) => kind.name().to_string(),
            Source::File(path) => path.display().to_string(),
        };
        for (name, value) in &self.variables {
            label.push_str(&format!(":{name}={value}"));
        }
        label
    }
}

/// Reads the values of all `--with` options.
///
/// A list is separated by commas; an entry is NAME or a path, then any number of `:VARIABLE=VALUE`. A comma
/// belongs to the value when what follows it can't start an entry: `jemalloc:MALLOC_CONF=narenas:2,tcache:false`
/// is one entry, because `tcache:false` names no allocator. The name of a set stands for its entries.
pub fn parse_list(lists: &[String]) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for list in lists {
        let mut open: Option<Entry> = None;
        for piece in list.split(',') {
            if let Some(set) = sets::entries(piece) {
                entries.extend(open.take());
                entries.extend(parse_set(piece, &set)?);
                continue;
            }
            match parse_entry(piece)? {
                Some(entry) => entries.extend(open.replace(entry)),
                None => extend_value(&mut open, piece)?,
            }
        }
        entries.extend(open);
    }
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        match kept.iter_mut().find(|other| other.label() == entry.label()) {
            None => kept.push(entry),
            // Sets may overlap; an entry that is named by itself must be there.
            Some(other) if other.from_set || entry.from_set => other.from_set &= entry.from_set,
            Some(_) => {
                let message = format!("--with names {} twice", entry.label());
                return Err(Failure::usage(
                    message,
                    "give each allocator and setting once; --runs repeats them",
                ));
            }
        }
    }
    Ok(kept)
}

/// Reads the entries of a set, each by itself.
fn parse_set(name: &str, texts: &[String]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for text in texts {
        let parsed = parse_list(std::slice::from_ref(text));
        let parsed = parsed.map_err(|failure| Failure {
            message: format!("in the set {name}: {}", failure.message),
            ..failure
        })?;
        entries.extend(parsed.into_iter().map(|entry| Entry { from_set: true, ..entry }));
    }
    Ok(entries)
}

/// Reads one piece between commas as the start of an entry; None if it can't be one.
fn parse_entry(piece: &str) -> Result<Option<Entry>> {
    let (head, settings) = match piece.find(':') {
        Some(colon) => (&piece[..colon], Some(&piece[colon + 1..])),
        None => (piece, None),
    };
    let is_path = head.starts_with('/') || head.starts_with("./") || head.starts_with("../");
    let source = match Kind::from_name(head) {
        Some(kind) => Source::Named(kind),
        None if is_path => Source::File(PathBuf::from(head)),
        None => return Ok(None),
    };
    let variables = settings.map(|text| parse_variables(head, text)).transpose()?.unwrap_or_default();
    Ok(Some(Entry { source, variables, from_set: false }))
}

/// Reads `VARIABLE=VALUE[:VARIABLE=VALUE]...`. A colon belongs to the value unless a variable follows it. snug's
/// options may come without their variable: `snug:purge_cpu_percent:2`.
fn parse_variables(head: &str, text: &str) -> Result<Vec<(String, String)>> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for part in text.split(':') {
        match part.split_once('=') {
            Some((name, value)) if is_variable_name(name) => {
                variables.push((name.to_string(), value.to_string()));
            }
            _ => match variables.last_mut() {
                Some((_, value)) => value.push_str(&format!(":{part}")),
                None if head == Kind::Snug.name() && !part.is_empty() => {
                    variables.push((SNUG_VARIABLE.into(), part.to_string()));
                }
                None => {
                    return Err(Failure::usage(
                        format!("'{part}' after {head}: is not a setting"),
                        format!("write {head}:VARIABLE=VALUE, for example glibc:MALLOC_ARENA_MAX=2"),
                    ))
                }
            },
        }
    }
    Ok(variables)
}

fn is_variable_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && text.chars().all(allowed)
}

/// Takes a piece that starts no entry as the rest of the value before it.
fn extend_value(open: &mut Option<Entry>, piece: &str) -> Result<()> {
    let name = piece.split(':').next().unwrap_or(piece);
    let value = open.as_mut().and_then(|entry| entry.variables.last_mut());
    // A value goes on with `key:value`, never with a bare word or with NAME:VARIABLE=...: those are misspelt.
    let continues = piece.split_once(':').is_some_and(|(_, rest)| {
        !rest.split_once('=').is_some_and(|(variable, _)| is_variable_name(variable))
    });
    match value {
        Some((_, value)) if continues => {
            value.push(',');
            value.push_str(piece);
            Ok(())
        }
        _ if name.is_empty() => Err(Failure::usage("--with has an empty entry", "remove the extra comma")),
        _ => {
            let names = ROWS.iter().map(|row| row.name).chain(sets::NAMES);
            let hint = closest(name, names).map(|name| format!("did you mean {name}? ")).unwrap_or_default();
            Err(Failure::usage(
                format!("--with: unknown allocator '{name}'"),
                format!(
                    "{hint}known are {}, the path of a library (it must contain a /), and the sets {}",
                    known_names(),
                    sets::NAMES.join(", ")
                ),
            ))
        }
    }
}

/// Finds what an entry asks for.
pub fn resolve(entry: &Entry) -> Result<Candidate> {
    let label = entry.label();
    let library = match &entry.source {
        Source::Named(kind) if kind.is_c_library() => None,
        Source::Named(kind) => Some(library::find_by_kind(*kind)?),
        Source::File(path) => Some(library::open(path)?),
    };
    let kind = match (&entry.source, &library) {
        (Source::Named(kind), _) => *kind,
        (_, Some(library)) => library.kind,
        _ => Kind::Other,
    };
    Ok(Candidate { label, kind, library, variables: entry.variables.clone() })
}

/// Finds what all entries ask for. Returns with them why entries of sets had to be left out.
pub fn resolve_all(entries: &[Entry]) -> Result<(Vec<Candidate>, Vec<Failure>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for entry in entries {
        match resolve(entry) {
            Ok(candidate) => found.push(candidate),
            Err(failure) if entry.from_set => missing.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    missing.dedup();
    Ok((found, missing))
}

/// The variables to set for a candidate, given the preload that is set already; with the asker, if it is of use.
pub fn environment(
    candidate: &Candidate,
    asker: Option<&Asker>,
    existing_preload: Option<&OsStr>,
) -> Variables {
    let variables = candidate.variables.iter().cloned();
    let mut environment: Variables = variables.map(|(name, value)| (name, value.into())).collect();
    let mut preload =
        candidate.library.as_ref().map(|library| prepend_preload(&library.path, existing_preload));
    if let Some(asker) = asker.filter(|_| asker::no_use(candidate.kind).is_none()) {
        preload = Some(asker.prepend_to(preload.as_deref().or(existing_preload)));
    }
    environment.extend(preload.map(|preload| ("LD_PRELOAD".into(), preload)));
    environment
}

/// What to note of variables that the allocator is not known to read: they are set, and may do nothing.
pub fn unread_variables(candidate: &Candidate) -> Vec<String> {
    let Some(row) = candidate.kind.row().filter(|_| !candidate.variables.is_empty()) else {
        return Vec::new();
    };
    let file = candidate.library.as_ref().and_then(|library| std::fs::read(&library.path).ok());
    let is_read = |name: &str| {
        candidate.kind.reads_variable(name)
            && file.as_ref().is_none_or(|file| holds_name(file, candidate.kind, name))
    };
    let unread = candidate.variables.iter().filter(|(name, _)| !is_read(name));
    unread.map(|(name, _)| note_of_unread(row, name)).collect()
}

/// A guess is one of the exact names: the others are prefixes.
fn note_of_unread(row: &AllocatorRow, variable: &str) -> String {
    let names = row.variables.iter().copied().filter(|name| !name.ends_with('*'));
    let guess = closest(variable, names).map(|guess| format!(" (did you mean {guess}?)")).unwrap_or_default();
    format!("{variable} is not a known setting of {}{guess}", row.name)
}

/// Whether an allocator's file holds the name of a variable that it would read, as a text of its own or the end of one.
/// True of those whose names are not written so. mimalloc's are in lower case there, without the prefix; it ignores those
/// that begin with `deprecated_`.
fn holds_name(file: &[u8], kind: Kind, variable: &str) -> bool {
    let name = match kind {
        Kind::Tcmalloc => variable.to_string(),
        Kind::Mimalloc => variable.strip_prefix("MIMALLOC_").unwrap_or(variable).to_lowercase(),
        _ => return true,
    };
    let end = [name.as_bytes(), b"\0"].concat();
    let mut texts = file.split_inclusive(|&byte| byte == 0);
    texts.any(|text| text.ends_with(&end) && !text.starts_with(b"deprecated_"))
}

/// The order of the runs: rounds in which each candidate runs once, each round starting one further, so that
/// neither a warm cache nor a slow drift favours one of them. Pairs of (round, candidate index), from round 1.
pub fn order(candidates: usize, rounds: u32) -> Vec<(u32, usize)> {
    let round = |round: u32| {
        (0..candidates).map(move |position| (round, (position + round as usize - 1) % candidates))
    };
    (1..=rounds).flat_map(round).collect()
}

/// A file name made of a label.
pub fn file_stem(label: &str) -> String {
    let name = if label.starts_with(['/', '.']) { file_name(label) } else { label };
    let safe = name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-=".contains(c) { c } else { '_' });
    let text: String = safe.collect();
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::failure::USAGE;

    fn labels(lists: &[&str]) -> Vec<String> {
        let lists: Vec<String> = lists.iter().map(|list| list.to_string()).collect();
        parse_list(&lists).unwrap().iter().map(Entry::label).collect()
    }

    fn error(list: &str) -> Failure {
        parse_list(&[list.to_string()]).unwrap_err()
    }

    #[test]
    fn plain_lists() {
        assert_eq!(labels(&["glibc,jemalloc", "snug"]), ["glibc", "jemalloc", "snug"]);
        assert_eq!(labels(&["/x/liba.so,./b.so:SNUG=verbose:1"]), ["/x/liba.so", "./b.so:SNUG=verbose:1"]);
    }

    #[test]
    fn commas_inside_values() {
        let list = "glibc:MALLOC_ARENA_MAX=2,jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0,snug";
        let expected = [
            "glibc:MALLOC_ARENA_MAX=2",
            "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0",
            "snug",
        ];
        assert_eq!(labels(&[list]), expected);
    }

    #[test]
    fn several_variables_and_colons_inside_values() {
        let list =
            "glibc:MALLOC_ARENA_MAX=2:GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";
        let entries = parse_list(&[list.to_string()]).unwrap();
        assert_eq!(entries[0].variables.len(), 2);
        assert_eq!(entries[0].variables[1].1, "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1");
        assert_eq!(entries[0].label(), list);
    }

    #[test]
    fn mistakes_are_named() {
        let misspelt = error("glibc:MALLOC_ARENA_MAX=2,jemaloc");
        assert!(misspelt.message.contains("'jemaloc'"), "{misspelt}");
        assert!(misspelt.advice.unwrap().contains("did you mean jemalloc?"));
        assert!(error("jemalloc:MALLOC_CONF=a:1,tcmaloc:TCMALLOC_X=1").message.contains("'tcmaloc'"));
        assert!(error("glibc,,snug").message.contains("empty entry"));
        assert!(error("glibc:2").message.contains("is not a setting"));
        assert!(error("snug,glibc,snug").message.contains("snug twice"));
        assert_eq!(error("nonsense").exit_code, USAGE);
    }

    #[test]
    fn options_of_snug_need_no_variable() {
        let expected = ["snug:SNUG=purge_cpu_percent:2,thp:1", "snug:SNUG=background:0", "glibc"];
        assert_eq!(labels(&["snug:purge_cpu_percent:2,thp:1,snug:SNUG=background:0,glibc"]), expected);
    }

    #[test]
    fn variables_that_nobody_reads_are_noted() {
        let notes = |text: &str| {
            let entries = parse_list(&[text.to_string()]).unwrap();
            unread_variables(&resolve(&entries[0]).unwrap())
        };
        assert_eq!(notes("glibc:MALLOC_ARENA_MAX=2:GLIBC_TUNABLES=a=1"), [""; 0]);
        let found = notes("glibc:MALLOC_ARENAS_MAX=2");
        assert!(found.len() == 1 && found[0].ends_with("(did you mean MALLOC_ARENA_MAX?)"), "{found:?}");
    }

    #[test]
    fn no_pattern_is_guessed() {
        for (kind, variable) in [(Kind::Tcmalloc, "TCMALLOC_RATE"), (Kind::Mimalloc, "MIMALLOC_DELY")] {
            let row = kind.row().unwrap();
            let expected = format!("{variable} is not a known setting of {}", row.name);
            assert_eq!(note_of_unread(row, variable), expected);
        }
    }

    #[test]
    fn names_stand_in_the_file_of_who_reads_them() {
        let tcmalloc = b"x\0TCMALLOC_RELEASE_RATE\0y";
        assert!(holds_name(tcmalloc, Kind::Tcmalloc, "TCMALLOC_RELEASE_RATE"));
        assert!(!holds_name(tcmalloc, Kind::Tcmalloc, "TCMALLOC_RELEASE_RAT"));
        let mimalloc = b"x\0purge_delay\0y";
        assert!(holds_name(mimalloc, Kind::Mimalloc, "MIMALLOC_PURGE_DELAY"));
        assert!(!holds_name(mimalloc, Kind::Mimalloc, "MIMALLOC_PURGE_DELY"));
        let ignored = b"x\0deprecated_segment_cache\0y";
        assert!(!holds_name(ignored, Kind::Mimalloc, "MIMALLOC_SEGMENT_CACHE"));
        let both = [ignored.as_slice(), b"\0allow_segment_cache\0"].concat();
        assert!(holds_name(&both, Kind::Mimalloc, "MIMALLOC_SEGMENT_CACHE"));
        assert!(holds_name(b"", Kind::Jemalloc, "MALLOC_CONF"));
    }

    #[test]
    fn sets_stand_for_their_entries() {
        let popular = labels(&["popular"]);
        assert_eq!(popular.len(), 7);
        assert!(
            popular.contains(&"jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0".into())
        );
        let entries = |list: &str| parse_list(&[list.to_string()]).unwrap();
        let overlapping = entries("snug,popular,glibc:MALLOC_ARENA_MAX=4");
        assert_eq!(overlapping.len(), 8);
        assert!(!overlapping[0].from_set && overlapping[1].from_set && !overlapping[7].from_set);
        assert!(error("popula").advice.unwrap().contains("did you mean popular?"));
    }

    #[test]
    fn what_a_set_lacks_is_left_out_and_what_is_named_is_not() {
        let missing =
            |from_set| Entry { source: Source::File("/nonexistent.so".into()), variables: vec![], from_set };
        let glibc = Entry { source: Source::Named(Kind::Glibc), variables: vec![], from_set: true };
        let (found, left_out) = resolve_all(&[glibc, missing(true)]).unwrap();
        assert_eq!((found.len(), left_out.len()), (1, 1));
        assert!(resolve_all(&[missing(false)]).is_err());
    }

    #[test]
    fn rounds_are_interleaved_and_rotate() {
        assert_eq!(order(3, 2), [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 0)]);
        assert_eq!(order(1, 3), [(1, 0), (2, 0), (3, 0)]);
    }

    #[test]
    fn file_names_are_safe() {
        assert_eq!(file_stem("jemalloc:MALLOC_CONF=narenas:2"), "jemalloc_MALLOC_CONF=narenas_2");
        assert_eq!(file_stem("/x/y/liba.so"), "liba.so");
    }
}
