//! The asker: a small library that is preloaded with another allocator and asks it, from within, for its live bytes
//! (docs/decisions/0027).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::kinds::{is_telling_symbol, Kind};
use crate::library::prepend_preload;
use crate::program::{self, Program};
use snug_base::elf::{self, ElfFacts};
use snug_base::failure::{Failure, Result, NOT_STARTED};

/// The asker's file.
#[derive(Debug, Clone)]
pub struct Asker {
    path: PathBuf,
    elf: ElfFacts,
}

pub const FILE: &str = "asker.so";

/// Where it may lie, best first: beside libsnug.so if SNUG_LIBRARY says where that is, else where it is installed with
/// the tool, or built.
fn candidates(executable: &Path, variable: Option<&OsStr>) -> Vec<PathBuf> {
    let beside = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let library = variable.filter(|path| !path.is_empty()).map(|path| beside(Path::new(path)));
    let near_library = library.iter().flat_map(|directory| [directory.clone(), directory.join("snug")]);
    let near_tool = [beside(executable), beside(executable).join("../lib/snug")];
    near_library.chain(near_tool).map(|directory| directory.join(FILE)).collect()
}

impl Asker {
    /// Finds it.
    pub fn find() -> Result<Asker> {
        let executable = crate::library::own_path();
        let variable = std::env::var_os("SNUG_LIBRARY");
        let candidates = candidates(&executable, variable.as_deref());
        for path in candidates.iter().filter_map(|path| path.canonicalize().ok()) {
            if let Ok(Some(elf)) = elf::read(&path, &is_telling_symbol) {
                return Ok(Asker { path, elf });
            }
        }
        let looked: Vec<_> =
            candidates.iter().map(|candidate| format!("  {}", candidate.display())).collect();
        Err(Failure::new(format!(
            "{FILE} not found, which --ask-allocator needs; looked for\n{}",
            looked.join("\n")
        ))
        .advise("`make` builds it, and `make install` puts it into lib/snug; snug looks in both places")
        .exit_code(NOT_STARTED))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why it can't be preloaded into a program; None if nothing stands in the way.
    pub fn obstacle(&self, program: &Program) -> Option<Failure> {
        program::preload_obstacle(program, &self.path, &self.elf)
    }

    /// LD_PRELOAD with it first, as it must begin when the allocator has begun.
    pub fn prepend_to(&self, preload: Option<&OsStr>) -> OsString {
        prepend_preload(&self.path, preload)
    }
}

/// Why the asker is no help with an allocator of this kind. None where it helps, or may: as glibc counts whatever the program
/// uses anyway, and that may be an allocator that can be asked.
pub fn no_use(kind: Kind) -> Option<String> {
    match kind {
        Kind::Snug => Some("snug counts live bytes by itself: --ask-allocator adds nothing".into()),
        Kind::Mimalloc | Kind::Snmalloc | Kind::Rpmalloc => {
            Some(format!("{} tells nobody how much is live: --ask-allocator adds nothing", kind.name()))
        }
        Kind::Jemalloc | Kind::Tcmalloc | Kind::Glibc | Kind::Musl | Kind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_beside_libsnug_and_then_beside_the_tool() {
        let found = candidates(Path::new("/usr/bin/snug"), Some("/opt/lib/libsnug.so".as_ref()));
        let expected = ["/opt/lib/asker.so", "/opt/lib/snug/asker.so", "/usr/bin/asker.so"];
        assert_eq!(found[..3], expected.map(PathBuf::from));
        assert_eq!(
            candidates(Path::new("/usr/bin/snug"), None)[1],
            Path::new("/usr/bin/../lib/snug/asker.so")
        );
    }

    #[test]
    fn it_is_of_use_with_those_that_can_be_asked() {
        assert_eq!(
            [Kind::Jemalloc, Kind::Tcmalloc, Kind::Glibc, Kind::Other].map(no_use),
            [const { None }; 4]
        );
        assert!([Kind::Snug, Kind::Mimalloc].into_iter().all(|kind| no_use(kind).is_some()));
    }
}
