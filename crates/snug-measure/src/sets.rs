//! Lists of allocators that have a name: those we bring, and those the user saved in `sets.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use snug_base::failure::{Context, Failure, Result, USAGE};
use snug_base::file;
use snug_inspect::kinds::Kind;
use snug_inspect::library;

/// What people choose among, with the settings that are recommended most.
pub const POPULAR: &str = "popular";
/// Every allocator that is found here.
pub const ALL: &str = "all";

const POPULAR_ENTRIES: &[&str] = &[
    "glibc",
    "glibc:MALLOC_ARENA_MAX=2",
    "jemalloc",
    "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0",
    "tcmalloc",
    "mimalloc",
    "snug",
];

/// All sets that can be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// The file of saved sets; None if there is no home for it.
    path: Option<PathBuf>,
    saved: BTreeMap<String, Vec<String>>,
}

impl Sets {
    /// Reads the saved sets: `$XDG_CONFIG_HOME/snug/sets.toml`, or the same in `~/.config`.
    pub fn load() -> Result<Sets> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
        let path = directory.map(|directory| directory.join("snug/sets.toml"));
        let saved = path.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Sets { path, saved })
    }

    /// The entries of a set, each as one would write it after --with; None if there is no such set.
    pub fn entries(&self, name: &str) -> Option<Vec<String>> {
        match name {
            POPULAR => Some(POPULAR_ENTRIES.iter().map(ToString::to_string).collect()),
            ALL => Some(all()),
            _ => self.saved.get(name).cloned(),
        }
    }

    /// Names of all sets, ours first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [POPULAR, ALL].into_iter().chain(self.saved.keys().map(String::as_str))
    }

    /// Saves a set under a name, in place of what had that name. Returns the file.
    pub fn save(&mut self, name: &str, entries: Vec<String>) -> Result<&Path> {
        check_name(name)?;
        let Some(path) = self.path.as_deref() else {
            return Err(Failure::new("there is no place to save a set")
                .advise("set HOME or XDG_CONFIG_HOME")
                .exit_code(USAGE));
        };
        self.saved.insert(name.to_string(), entries);
        let text = toml::to_string(&self.saved).cannot(|| format!("write the set {name}"))?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).cannot(|| format!("make {}", directory.display()))?;
        }
        file::write(path, text)?;
        Ok(path)
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other.cannot(|| format!("read {}", path.display()))?,
    };
    parse(&text).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()))
            .advise("each line is a set: mine = [\"glibc\", \"jemalloc:MALLOC_CONF=narenas:2\", \"snug\"]")
            .exit_code(USAGE)
    })
}

fn parse(text: &str) -> std::result::Result<BTreeMap<String, Vec<String>>, String> {
    let sets: BTreeMap<String, Vec<String>> = toml::from_str(text).map_err(|error| error.to_string())?;
    for name in sets.keys() {
        check_name(name).map_err(|failure| failure.message)?;
    }
    Ok(sets)
}

/// A name must not be mistaken for an allocator, a path or a setting.
fn check_name(name: &str) -> Result<()> {
    let failed = |message: String| {
        let advice = "a set's name is made of letters, digits, - and _";
        Err(Failure::usage(message, advice))
    };
    if [POPULAR, ALL].contains(&name) || Kind::from_name(name).is_some() {
        return failed(format!("{name} is the name of an allocator or of a built-in set"));
    }
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return failed(format!("{name:?} can't be the name of a set"));
    }
    Ok(())
}

/// The popular ones, and whatever else lies where libraries lie.
fn all() -> Vec<String> {
    let mut entries: Vec<String> = POPULAR_ENTRIES.iter().map(ToString::to_string).collect();
    let by_name: Vec<PathBuf> = [Kind::Jemalloc, Kind::Tcmalloc, Kind::Mimalloc, Kind::Snug]
        .into_iter()
        .filter_map(|kind| Some(library::find_by_kind(kind).ok()?.path))
        .collect();
    let others = library::find_all().into_iter().filter(|library| !by_name.contains(&library.path));
    entries.extend(others.map(|library| library.path.display().to_string()));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_kept_in_a_file() {
        let directory = std::env::temp_dir().join(format!("snug-sets-{}", std::process::id()));
        let path = directory.join("snug/sets.toml");
        let mut sets = Sets { path: Some(path.clone()), saved: BTreeMap::new() };
        sets.save("mine", vec!["glibc".into(), "jemalloc:MALLOC_CONF=narenas:2".into()]).unwrap();
        sets.save("other-1", vec!["snug".into()]).unwrap();
        assert_eq!(read(&path).unwrap(), sets.saved);
        assert_eq!(sets.entries("mine").unwrap().len(), 2);
        assert_eq!(sets.names().collect::<Vec<_>>(), ["popular", "all", "mine", "other-1"]);
        fs::remove_dir_all(directory).unwrap();
        assert!(read(&path).unwrap().is_empty());
    }

    #[test]
    fn names_are_not_ambiguous() {
        let mut sets = Sets::default();
        for name in ["glibc", "popular", "a/b", "a:b", ""] {
            assert_eq!(sets.save(name, Vec::new()).unwrap_err().exit_code, USAGE, "{name}");
        }
        assert!(sets.save("mine", Vec::new()).unwrap_err().advice.unwrap().contains("HOME"));
        assert!(parse("snug = [\"glibc\"]").is_err());
        assert!(parse("mine = 3").is_err());
    }
}
