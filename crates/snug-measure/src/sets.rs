//! Sets of allocators, by the names that stand for them in `--with`.

use std::path::PathBuf;

use snug_inspect::kinds::Kind;
use snug_inspect::library;

/// What people choose among, with the settings that are recommended most.
pub const POPULAR: &str = "popular";
/// Every allocator that is found here.
const ALL: &str = "all";

pub const NAMES: [&str; 2] = [POPULAR, ALL];

const POPULAR_ENTRIES: &[&str] = &[
    "glibc",
    "glibc:MALLOC_ARENA_MAX=2",
    "jemalloc",
    "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0",
    "tcmalloc",
    "mimalloc",
    "snug",
];

/// The entries of a set, each as one would write it after --with; None if there is no such set.
pub fn entries(name: &str) -> Option<Vec<String>> {
    match name {
        POPULAR => Some(POPULAR_ENTRIES.iter().map(ToString::to_string).collect()),
        ALL => Some(all()),
        _ => None,
    }
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
