//! Packages of this system that bring an allocator: their names differ between releases of Debian and Ubuntu
//! (libmimalloc2.0 and libmimalloc3; libtcmalloc-minimal4 and libtcmalloc-minimal4t64).

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::kinds::AllocatorRow;

const APT: &str = "apt install ";

/// A package of Debian or Ubuntu that brings the library of an allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// What others call the library in it. The file's own name is longer and differs between releases.
    pub soname: String,
}

impl Package {
    pub fn new(name: &str) -> Package {
        Package { name: name.into(), soname: soname(name) }
    }

    /// Where its library lies once it is installed on this machine.
    pub fn path(&self) -> PathBuf {
        Path::new("/usr/lib").join(format!("{ARCH}-linux-gnu")).join(&self.soname)
    }
}

/// How to get an allocator here.
pub fn install(row: &AllocatorRow) -> String {
    package(row).map_or_else(|| row.install.to_string(), |package| format!("{APT}{}", package.name))
}

/// Its package, of those that apt knows here; the usual one where apt knows none. None: no package has it.
pub fn package(row: &AllocatorRow) -> Option<Package> {
    let usual = row.install.strip_prefix(APT)?;
    Some(Package::new(choose(usual, &known_to_apt(stem(usual)))))
}

/// A package's name without its version.
fn stem(package: &str) -> &str {
    package.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// The SONAME of the library in a package. Packages are called after it, some with more of the version: libmimalloc2.0.
fn soname(package: &str) -> String {
    let name = package.strip_suffix("t64").unwrap_or(package);
    let version = name[stem(name).len()..].split('.').next().unwrap_or_default();
    format!("{}.so.{version}", stem(name).replace('-', "_"))
}

/// Names of packages that begin like this; empty on a system without apt.
fn known_to_apt(beginning: &str) -> Vec<String> {
    let mut apt = Command::new("apt-cache");
    let output = apt.args(["pkgnames", beginning]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().map(String::from).collect()
}

/// The newest of the known packages that are the usual one but for their version; one for 64-bit times (t64) is newer
/// than its namesake.
fn choose<'a>(usual: &'a str, known: &'a [String]) -> &'a str {
    let version = |name: &str| -> Option<(Vec<u32>, bool)> {
        let rest = name.strip_prefix(stem(usual))?;
        let (digits, is_t64) = rest.strip_suffix("t64").map_or((rest, false), |digits| (digits, true));
        let numbers: Result<Vec<u32>, _> = digits.split('.').map(str::parse).collect();
        Some((numbers.ok()?, is_t64))
    };
    let newest = known.iter().filter_map(|name| Some((version(name)?, name))).max();
    newest.map_or(usual, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::{self, Deployment};
    use crate::kinds::ROWS;
    use crate::library;

    #[test]
    fn each_release_has_its_names() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let bookworm = names(&["libmimalloc2.0", "libmimalloc-dev", "libmimalloc2.0-dbgsym"]);
        assert_eq!(choose("libmimalloc2.0", &bookworm), "libmimalloc2.0");
        assert_eq!(choose("libmimalloc2.0", &names(&["libmimalloc-dev", "libmimalloc3"])), "libmimalloc3");
        let trixie =
            names(&["libtcmalloc-minimal4t64", "libtcmalloc-minimal4", "libtcmalloc-minimal4t64-dbgsym"]);
        assert_eq!(choose("libtcmalloc-minimal4", &trixie), "libtcmalloc-minimal4t64");
        assert_eq!(choose("libjemalloc2", &names(&["libjemalloc2", "libjemalloc-dev"])), "libjemalloc2");
        assert_eq!(choose("libjemalloc2", &[]), "libjemalloc2", "without apt");
    }

    /// Packages of allocators, and the SONAMEs of the libraries in them.
    const BOOKWORM: &[(&str, &[&str])] = &[
        ("libjemalloc2", &["libjemalloc.so.2"]),
        ("libtcmalloc-minimal4", &["libtcmalloc_minimal.so.4", "libtcmalloc_minimal_debug.so.4"]),
        ("libmimalloc2.0", &["libmimalloc.so.2"]),
    ];
    const TRIXIE: &[(&str, &[&str])] = &[
        ("libjemalloc2", &["libjemalloc.so.2"]),
        ("libtcmalloc-minimal4t64", &["libtcmalloc_minimal.so.4", "libtcmalloc_minimal_debug.so.4"]),
        ("libmimalloc3", &["libmimalloc.so.3"]),
    ];
    const JAMMY: &[(&str, &[&str])] = BOOKWORM;
    const NOBLE: &[(&str, &[&str])] = &[TRIXIE[0], TRIXIE[1], BOOKWORM[2]];

    #[test]
    fn the_lines_name_a_library_that_the_package_has() {
        for release in [BOOKWORM, TRIXIE, JAMMY, NOBLE] {
            let known: Vec<String> = release.iter().map(|(name, _)| name.to_string()).collect();
            for row in ROWS {
                let Some(usual) = row.install.strip_prefix(APT) else { continue };
                let package = Package::new(choose(usual, &known));
                let (_, sonames) = release.iter().find(|(name, _)| *name == package.name).unwrap();
                assert!(sonames.contains(&package.soname.as_str()), "{package:?}");
                assert!(row.file_names.contains(&package.soname.as_str()), "it is looked for: {package:?}");
                let path = format!("/usr/lib/any/{}.5.10", package.soname);
                let deployment = Deployment {
                    kind: row.kind,
                    library: Some(Path::new(&path)),
                    package: Some(&package),
                    variables: &[],
                    program: &[],
                };
                let lines: String =
                    deploy::lines(&deployment).into_iter().map(|snippet| snippet.text).collect();
                let link =
                    format!("ln -s /usr/lib/$(uname -m)-linux-gnu/{0} /usr/local/lib/{0}\n", package.soname);
                assert!(lines.contains(&link), "{lines}");
                assert!(lines.contains(&format!("--no-install-recommends {} ", package.name)), "{lines}");
                let loaded = format!("LD_PRELOAD=\"/usr/local/lib/{}\"\n", package.soname);
                assert!(lines.contains(&loaded), "{lines}");
            }
        }
    }

    /// What is installed here is what is said of it.
    #[test]
    fn libraries_of_packages_have_these_names() {
        for library in library::find_all().iter().filter(|library| library.path.starts_with("/usr/lib")) {
            let Some(package) = library.package() else { continue };
            let owner = Command::new("dpkg").arg("-S").arg(&library.path).output();
            let Some(owner) = owner.ok().filter(|owner| owner.status.success()) else { continue };
            let owner = String::from_utf8_lossy(&owner.stdout).into_owned();
            assert!(owner.starts_with(&package.name), "{package:?}: {owner}");
        }
    }
}
