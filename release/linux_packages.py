"""deb, rpm and apk, by nfpm: one description of each package in release/linux, for all three formats."""

import dataclasses
import datetime
import gzip
import os
import shutil
import string

from release import licences
from release.project import ROOT, SUMMARY, VERSION, epoch, run

# The project has no address yet (SECURITY.md), and the field must not be empty. Debian's tools know these variables, too.
MAINTAINER = f"{os.environ.get('DEBFULLNAME', 'snug contributors')} <{os.environ.get('DEBEMAIL', 'snug@localhost')}>"
# Each symbol that programs may be linked with, and since which version: a new one is added with the version that has it.
SYMBOLS = ROOT / "release/linux/libsnug0.symbols"
DESCRIPTIONS = ("libsnug0", "snug", "libsnug-dev", "snug-jemalloc")
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: snug
Comment: THIRD-PARTY-LICENSES.gz of the package snug has the licences of what its tool contains.

Files: *
Copyright: {holder}
License: Expat
{text}
"""
# What lintian asks of every package and ours do on purpose.
OVERRIDES = {
    "snug": "# Runs in containers of any libc, or of none.\nsnug: statically-linked-binary [usr/bin/snug]\n"
            "snug: shared-library-lacks-prerequisites [*]\n"
            "# Rust has no such functions, and words of its libraries are theirs.\n"
            "snug: hardening-no-fortify-functions [usr/bin/snug]\nsnug: spelling-error-in-binary * [usr/bin/snug]\n",
    "libsnug0": "# One file for every C library (docs/decisions/0025).\n"
                "libsnug0: shared-library-lacks-prerequisites [*]\n",
    "snug-jemalloc": "# Takes the place of libjemalloc2, with a file that others may name in the folder that it lies in.\n"
                     "snug-jemalloc: ldconfig-escape usr/lib/snug/libjemalloc.so.2 *\n",
}


@dataclasses.dataclass(frozen=True)
class Format:
    """What differs between deb, rpm and apk. Values of `words` may name fields of the architecture."""

    name: str
    words: dict[str, str]


FORMATS = (
    Format("deb", {"libdir": "/usr/lib/{triplet}", "devel": "dev", "zsh": "/usr/share/zsh/vendor-completions",
                   "libsnug0": "libsnug0 (= {version})",
                   "jemalloc_package": "libjemalloc2", "jemalloc_provided": "libjemalloc2 (= 5.3.1)"}),
    Format("rpm", {"libdir": "/usr/lib64", "devel": "devel", "zsh": "/usr/share/zsh/site-functions",
                   "libsnug0": "libsnug0 = {version}",
                   "jemalloc_package": "jemalloc", "jemalloc_provided": "libjemalloc.so.2()(64bit)"}),
    Format("apk", {"libdir": "/usr/lib", "devel": "dev", "zsh": "/usr/share/zsh/site-functions",
                   "libsnug0": "libsnug0={version}",
                   "jemalloc_package": "jemalloc", "jemalloc_provided": "so:libjemalloc.so.2=2"}),
)


def build(architecture, staged, work, out, nfpm):
    """Writes all packages for an architecture into `out`, and returns their paths.

    `staged` is a tree of `make install` with prefix /usr, `work` a folder to work in, `nfpm` the program.
    """
    return [path for format_ in FORMATS for path in build_format(format_, architecture, staged, work / format_.name, out, nfpm)]


def build_format(format_, architecture, staged, work, out, nfpm):
    words = {name: value.format(triplet=architecture.triplet, version=VERSION) for name, value in format_.words.items()}
    tree = work / "tree"
    prepare(tree, staged / "usr", words["libdir"])
    private = "/usr/lib/snug"
    words |= {"to_libdir": os.path.relpath(words["libdir"], private), "to_private": os.path.relpath(private, words["libdir"])}
    words |= {"tree": str(tree), "arch": architecture.deb, "version": VERSION, "maintainer": MAINTAINER, "summary": SUMMARY,
              "date": datetime.datetime.fromtimestamp(epoch(), datetime.UTC).isoformat()}
    for path in tree.rglob("*"):  # nfpm takes some files' own dates, scripts' among them
        if not path.is_symlink():
            os.utime(path, (epoch(), epoch()))
    common = (ROOT / "release/linux/common.yaml").read_text()
    built = []
    for name in DESCRIPTIONS:
        own = (ROOT / f"release/linux/{name}.yaml").read_text()
        name = name.replace("-dev", f"-{words['devel']}")
        documents = "".join(f'  - {{src: "{tree}/share/doc/{file}", dst: /usr/share/doc/{name}/{file}}}\n' for file in documents_of(format_))
        folder = f"  - {{dst: /usr/share/doc/{name}, type: dir, packager: rpm}}\n"  # rpm removes the folders that it was told of
        contents = own.replace("contents:\n", f"contents:\n{folder}{documents}")
        described = work / f"{name}.yaml"
        described.write_text(string.Template(common + contents).substitute(words))
        (tree / "share/doc/changelog.gz").write_bytes(gzipped(debian_changelog(name)))
        run(nfpm, "package", "--config", described, "--packager", format_.name, "--target", work)
        made, = (path for path in work.glob(f"*.{format_.name}"))
        if made.name.startswith("libsnug0_") and format_.name == "deb":
            complete(made, work / "unpacked", architecture)
        shutil.move(made, out / made.name)
        built.append(out / made.name)
    return built


def complete(package, work, architecture):
    """Adds to the package of the library what nfpm can't: which version programs need that are linked with it.

    Ends with dpkg-gensymbols' words if the library has symbols that release/linux/libsnug0.symbols lacks, or lacks some.
    """
    shutil.rmtree(work, ignore_errors=True)
    run("dpkg-deb", "--raw-extract", package, work)
    # It says nothing of symbols that disappear in the version that brings them: this package is a later one for it.
    run("dpkg-gensymbols", "-plibsnug0", f"-v{VERSION}+", f"-P{work}", f"-e{work}/usr/lib/{architecture.triplet}/libsnug.so.0",
        f"-I{SYMBOLS}", "-c4", f"-O{work}/DEBIAN/symbols", cwd=work.parent, env={"DEB_HOST_ARCH": architecture.deb})
    (work / "DEBIAN/shlibs").write_text(f"libsnug 0 libsnug0 (>= {VERSION})\n")
    for name in ("symbols", "shlibs"):
        (work / "DEBIAN" / name).chmod(0o644)
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", work, package)


def documents_of(format_):
    return ("copyright", "changelog.gz") if format_.name == "deb" else ("LICENSE",)


def prepare(tree, installed, libdir):
    """Copies what make installed, and makes of it what distributions want: compressed pages, their folder of libraries."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(installed, tree, symlinks=True)
    for page in sorted((tree / "share/man").rglob("*.[13]")):
        page.with_name(page.name + ".gz").write_bytes(gzipped(page.read_bytes()))
        page.unlink()
    for pc in (tree / "lib/pkgconfig").iterdir():
        pc.write_text(pc.read_text().replace("libdir=${prefix}/lib\n", f"libdir={libdir}\n"))
    documents = tree / "share/doc"
    others = tree / licences.PLACE
    others.with_name(others.name + ".gz").write_bytes(gzipped(others.read_bytes()))
    others.unlink()
    shutil.copytree(ROOT / "release/linux", tree / "scripts", ignore=lambda _, names: [name for name in names if not name.endswith(".sh")])
    licence = (ROOT / "LICENSE").read_text()
    _, holder, text = licence.split("\n\n", 2)
    lines = "\n".join(f" {line}" if line else " ." for line in text.strip().splitlines())
    (documents / "copyright").write_text(COPYRIGHT.format(holder=holder.removeprefix("Copyright (c) "), text=lines))
    (documents / "LICENSE").write_text(licence)
    for name, text in OVERRIDES.items():
        (documents / f"overrides-{name}").write_text(text)
    for path in tree.rglob("*"):
        if not path.is_symlink() and path.is_file():
            path.chmod(0o755 if path.parent.name in ("bin", "scripts") else 0o644)


def debian_changelog(package):
    date = datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return f"{package} ({VERSION}) unstable; urgency=medium\n\n  * Version {VERSION}; CHANGELOG.md of the project says what is new.\n\n -- {MAINTAINER}  {date}\n".encode()


def gzipped(content):
    return gzip.compress(content, 9, mtime=0)

