"""Parts of others that are linked into the tool: crates, and what every static program of Rust's has. The bill of materials and the
licences both come from here."""

import dataclasses
import platform
import urllib.parse
from pathlib import Path

from release.project import ARCHITECTURES, DEBIAN_RUST, compiler_package, described, run, rust_library_package

DOCUMENTS = Path("/usr/share/doc")
COMMON_LICENSES = Path("/usr/share/common-licenses")


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of the distribution that builds."""

    name: str
    version: str
    source: str

    def purl(self, architecture):
        """What scanners look it up by."""
        system = platform.freedesktop_os_release()
        release = f"&distro={system['ID']}-{system['VERSION_ID']}" if "VERSION_ID" in system else ""
        version = urllib.parse.quote(self.version, safe=":~")
        return f"pkg:deb/{system['ID']}/{self.name}@{version}?arch={architecture.deb}{release}&upstream={self.source}"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A library that the compilers bring. `archive` is the file of it that gcc links with; none: rustc knows it."""

    name: str
    title: str
    licence: str
    archive: str | None = None
    common_licences: tuple[str, ...] = ()

    def package(self, architecture):
        """Which package has the one that is linked into the tool for this architecture."""
        if self.archive is None:
            return Package(*rust_library_package())
        found = Path(run(architecture.program("gcc"), f"-print-file-name={self.archive}").strip()).resolve()
        owner = run("dpkg-query", "--search", found).rpartition(": ")[0]
        return Package(owner.partition(":")[0], *described(owner))

    def texts(self):
        """The files with its licence, by the package for this machine: those of cross compilers tell of themselves."""
        native = next(one for one in ARCHITECTURES.values() if one.native)
        owner = compiler_package() if self.archive is None else self.package(native).name
        return [DOCUMENTS / owner / "copyright", *(COMMON_LICENSES / name for name in self.common_licences)]


RUNTIME = (
    Runtime("glibc", "the GNU C Library", "LGPL-2.1-or-later", "libc.a", ("LGPL-2.1",)),
    Runtime("libgcc", "the runtime library of GCC", "GPL-3.0-or-later WITH GCC-exception-3.1", "libgcc_eh.a"),
    Runtime("rust-std", "Rust's standard library", "MIT OR Apache-2.0"),
)


def crates(architecture):
    """(name, version, licence) of each crate that is linked into the tool."""
    listed = run("cargo", "tree", "--locked", "--package", "snug", "--target", architecture.rust_target,
                 "--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}", env=DEBIAN_RUST, stderr=None)
    found = set()
    for line in listed.splitlines():
        crate, _, licence = line.partition("\t")
        name, version = crate.split()[:2]
        if "(" not in crate:  # a crate of this repository is followed by its path
            found.add((name, version.removeprefix("v"), licence))
    return sorted(found)
