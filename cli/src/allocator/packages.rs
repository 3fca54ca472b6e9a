//! Which package of this system brings an allocator: their names differ between releases of Debian and Ubuntu
//! (libmimalloc2.0 and libmimalloc3; libtcmalloc-minimal4 and libtcmalloc-minimal4t64).

use std::process::{Command, Stdio};

use crate::allocator::kinds::AllocatorRow;

const APT: &str = "apt install ";

/// How to get an allocator here.
pub(crate) fn install(row: &AllocatorRow) -> String {
    package(row).map_or_else(|| row.install.to_string(), |name| format!("{APT}{name}"))
}

/// Its package, of those that apt knows here; the usual one where apt knows none. None: no package has it.
pub(crate) fn package(row: &AllocatorRow) -> Option<String> {
    let usual = row.install.strip_prefix(APT)?;
    Some(choose(usual, &known_to_apt(stem(usual))).to_string())
}

/// A package's name without its version.
fn stem(package: &str) -> &str {
    package.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
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
}
