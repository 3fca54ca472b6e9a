//! The allocators we know: their names, the files they come in, the variables they read, the symbols that give
//! them away. One row each; nothing here looks at a machine or a process.

use serde::{Deserialize, Serialize};

use snug_base::file::file_name;
use snug_heap::answers;

/// A memory allocator, as a kind. `Other` is a library that defines malloc and that we don't know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Snug,
    Jemalloc,
    Tcmalloc,
    Mimalloc,
    Snmalloc,
    Rpmalloc,
    Glibc,
    Musl,
    Other,
}

/// One row of the table of allocators.
pub struct AllocatorRow {
    pub kind: Kind,
    pub name: &'static str,
    /// How its library's file name starts, without directories.
    pub file_stems: &'static [&'static str],
    /// File names to look for when it is asked for by name, best first.
    pub file_names: &'static [&'static str],
    /// Environment variables it reads: exact names, or prefixes when they end in `*`.
    pub variables: &'static [&'static str],
    /// Symbols that only it defines.
    pub symbols: &'static [&'static str],
    /// How to get it on Debian and Ubuntu.
    pub install: &'static str,
}

/// All allocators that can be asked for by name, in the order in which they are shown.
pub const ROWS: &[AllocatorRow] = &[
    AllocatorRow {
        kind: Kind::Glibc,
        name: "glibc",
        file_stems: &["libc.so", "libc-2."],
        file_names: &[],
        variables: &[
            "MALLOC_ARENA_MAX",
            "MALLOC_ARENA_TEST",
            "MALLOC_TRIM_THRESHOLD_",
            "MALLOC_TOP_PAD_",
            "MALLOC_MMAP_THRESHOLD_",
            "MALLOC_MMAP_MAX_",
            "MALLOC_PERTURB_",
            "MALLOC_CHECK_",
            "GLIBC_TUNABLES",
        ],
        symbols: &["_int_malloc", "gnu_get_libc_version"],
        install: "it is the system's own",
    },
    AllocatorRow {
        kind: Kind::Musl,
        name: "musl",
        file_stems: &["ld-musl-", "libc.musl-"],
        file_names: &[],
        variables: &[],
        symbols: &["__dls2b", "__libc_malloc_impl", "__malloc_allzerop", "__malloc_donate", "__bin_chunk"],
        install: "it is the C library of musl systems",
    },
    AllocatorRow {
        kind: Kind::Jemalloc,
        name: "jemalloc",
        file_stems: &["libjemalloc"],
        file_names: &["libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"],
        variables: &["MALLOC_CONF", "JE_MALLOC_CONF", "_RJEM_MALLOC_CONF", "JEMALLOC_SYS_WITH_MALLOC_CONF"],
        symbols: &[
            "mallctl",
            "je_mallctl",
            "_rjem_mallctl",
            "_rjem_malloc",
            "je_malloc",
            "malloc_stats_print",
            "je_malloc_stats_print",
            "je_arena_init",
        ],
        install: "apt install libjemalloc2",
    },
    AllocatorRow {
        kind: Kind::Tcmalloc,
        name: "tcmalloc",
        file_stems: &["libtcmalloc"],
        file_names: &[
            "libtcmalloc_minimal.so.4",
            "libtcmalloc.so.4",
            "libtcmalloc_minimal.so",
            "libtcmalloc.so",
        ],
        variables: &["TCMALLOC_*", "HEAPPROFILE", "HEAPCHECK"],
        symbols: &["tc_malloc", "tc_version", "TCMallocInternalMalloc", "MallocExtension_Internal_GetStats"],
        install: "apt install libtcmalloc-minimal4",
    },
    AllocatorRow {
        kind: Kind::Mimalloc,
        name: "mimalloc",
        file_stems: &["libmimalloc"],
        file_names: &[
            "libmimalloc.so.3",
            "libmimalloc.so.2",
            "libmimalloc.so.2.0",
            "libmimalloc.so.1",
            "libmimalloc.so",
        ],
        variables: &["MIMALLOC_*"],
        symbols: &["mi_malloc", "mi_version", "mi_heap_malloc"],
        install: "apt install libmimalloc2.0",
    },
    AllocatorRow {
        kind: Kind::Snmalloc,
        name: "snmalloc",
        file_stems: &["libsnmalloc", "libsnmallocshim"],
        file_names: &["libsnmallocshim.so", "libsnmallocshim-checks-memcpy-only.so"],
        variables: &["SNMALLOC_*"],
        symbols: &["sn_malloc", "sn_rust_alloc", "snmalloc_message"],
        install:
            "build it from https://github.com/microsoft/snmalloc and give the path of libsnmallocshim.so",
    },
    AllocatorRow {
        kind: Kind::Rpmalloc,
        name: "rpmalloc",
        file_stems: &["librpmalloc"],
        file_names: &["librpmallocwrap.so", "librpmalloc.so"],
        variables: &["RPMALLOC_*"],
        symbols: &["rpmalloc", "rpmalloc_initialize"],
        install: "build it from https://github.com/mjansson/rpmalloc and give the path of librpmallocwrap.so",
    },
    AllocatorRow {
        kind: Kind::Snug,
        name: "snug",
        file_stems: &["libsnug"],
        file_names: &["libsnug.so.0", "libsnug.so"],
        variables: &["SNUG", "SNUG_THIS_ONLY"],
        symbols: &["snug_counters", "snug_version"],
        install: "run `make` in snug's source, or set SNUG_LIBRARY to the path of libsnug.so",
    },
];

impl Kind {
    /// The row of the table; None for `Other`.
    pub fn row(self) -> Option<&'static AllocatorRow> {
        ROWS.iter().find(|row| row.kind == self)
    }

    /// The name to show.
    pub fn name(self) -> &'static str {
        self.row().map_or("another allocator", |row| row.name)
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Kind> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Part of the C library, so never in a library of its own.
    pub fn is_c_library(self) -> bool {
        matches!(self, Kind::Glibc | Kind::Musl)
    }

    /// The kind of library that a file of this name (directories are ignored) usually is.
    pub fn from_file_name(path: &str) -> Option<Kind> {
        let name = file_name(path);
        let fits = |row: &&AllocatorRow| row.file_stems.iter().any(|stem| name.starts_with(stem));
        ROWS.iter().find(fits).map(|row| row.kind)
    }

    /// The kind that defines a symbol which only it defines, whatever the order of the symbols.
    pub fn from_symbols<'a>(symbols: impl Iterator<Item = &'a str>) -> Option<Kind> {
        let kinds = symbols.filter_map(|symbol| {
            let owner = ROWS.iter().find(|row| row.symbols.contains(&symbol));
            owner.map(|row| row.kind).or(symbol.contains("8snmalloc").then_some(Kind::Snmalloc))
        });
        kinds.min_by_key(|kind| match kind {
            // snug answers jemalloc's calls, so it has jemalloc's symbols beside its own.
            Kind::Snug => 0,
            // A static program holds the C library's symbols beside those of the allocator it really uses.
            kind if kind.is_c_library() => ROWS.len(),
            kind => 1 + *kind as usize,
        })
    }

    /// Whether the asker, preloaded with it, gets its live bytes.
    pub fn can_be_asked(self) -> bool {
        matches!(self, Kind::Jemalloc | Kind::Tcmalloc)
    }

    /// Whether the allocator reads the environment variable.
    pub fn reads_variable(self, variable: &str) -> bool {
        let reads = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(prefix) => variable.starts_with(prefix),
            None => variable == *pattern,
        };
        let own = self.row().is_some_and(|row| row.variables.iter().any(reads));
        // snug understands MALLOC_ARENA_MAX as glibc does, and MALLOC_CONF as jemalloc does.
        own || (self == Kind::Snug && matches!(variable, "MALLOC_ARENA_MAX" | "MALLOC_CONF"))
    }
}

/// Symbols worth keeping when a file is read to find out what it is.
pub fn is_telling_symbol(name: &str) -> bool {
    name == "malloc"
        || name == answers::SYMBOL
        || ROWS.iter().any(|row| row.symbols.contains(&name))
        || name.contains("8snmalloc")
}

/// Names of all allocators that can be loaded, for messages.
pub fn known_names() -> String {
    let names: Vec<_> = ROWS.iter().filter(|row| row.kind != Kind::Musl).map(|row| row.name).collect();
    names.join(", ")
}

/// Characters that make a beginning worth suggesting its word.
const LEAST_BEGINNING: usize = 3;

/// The candidate closest to a misspelt word, if one is close enough to suggest: one that the word begins, else the one
/// with the fewest slips.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.collect();
    if let Some(begun) =
        candidates.iter().find(|name| word.len() >= LEAST_BEGINNING && name.starts_with(word))
    {
        return Some(begun);
    }
    let scored = candidates.into_iter().map(|candidate| (strsim::levenshtein(word, candidate), candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + word.len() / 4).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_give_kinds_away() {
        assert_eq!(Kind::from_file_name("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"), Some(Kind::Jemalloc));
        assert_eq!(Kind::from_file_name("libtcmalloc_minimal.so.4.5.10"), Some(Kind::Tcmalloc));
        assert_eq!(Kind::from_file_name("/usr/lib/x86_64-linux-gnu/libc.so.6"), Some(Kind::Glibc));
        assert_eq!(Kind::from_file_name("/lib/ld-musl-x86_64.so.1"), Some(Kind::Musl));
        assert_eq!(Kind::from_file_name("/x/libsnug.so.0"), Some(Kind::Snug));
        assert_eq!(Kind::from_file_name("/x/libruby-3.1.so.3.1"), None);
    }

    #[test]
    fn symbols_give_kinds_away_even_beside_a_static_libc() {
        let static_with_jemalloc = ["_int_malloc", "malloc", "je_malloc"];
        assert_eq!(Kind::from_symbols(static_with_jemalloc.into_iter()), Some(Kind::Jemalloc));
        assert_eq!(Kind::from_symbols(["malloc", "_int_malloc"].into_iter()), Some(Kind::Glibc));
        assert_eq!(Kind::from_symbols(["malloc", "__dls2b"].into_iter()), Some(Kind::Musl));
        assert_eq!(Kind::from_symbols(["rpmalloc", "malloc"].into_iter()), Some(Kind::Rpmalloc));
        assert_eq!(Kind::from_symbols(["malloc"].into_iter()), None);
        let answers_jemalloc = ["mallctl", "snug_counters", "malloc_stats_print", "snug_version"];
        assert_eq!(Kind::from_symbols(answers_jemalloc.into_iter()), Some(Kind::Snug));
        assert_eq!(Kind::from_symbols(answers_jemalloc.into_iter().rev()), Some(Kind::Snug));
    }

    #[test]
    fn variables_belong_to_allocators() {
        assert!(Kind::Tcmalloc.reads_variable("TCMALLOC_RELEASE_RATE"));
        assert!(Kind::Jemalloc.reads_variable("MALLOC_CONF"));
        assert!(!Kind::Jemalloc.reads_variable("MALLOC_ARENA_MAX"));
        assert!(Kind::Snug.reads_variable("MALLOC_ARENA_MAX") && Kind::Snug.reads_variable("MALLOC_CONF"));
    }

    #[test]
    fn misspelt_names_are_recognised() {
        let names = || ROWS.iter().map(|row| row.name);
        assert_eq!(closest("jemaloc", names()), Some("jemalloc"));
        assert_eq!(closest("gilbc", names()), Some("glibc"));
        assert_eq!(closest("postgres", names()), None);
    }
}
