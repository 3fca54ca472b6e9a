"""Builds everything that is released into build/dist: what `make dist` runs.

The same commit gives the same bytes wherever it is built, with the same compilers. SHA256SUMS names them all; signing
them, and making repositories of them, is for release/publish.
"""

import argparse
import hashlib
import shutil
from pathlib import Path

from release import archives, bill, buildpacks, crates, gems, images, linux_packages, staging, wheels
from release.project import ARCHITECTURES, ROOT, VERSION

PROGRAMS = ROOT / "build/dist-tools/bin"
FORMATS = ("tar", "linux", "wheel", "gem", "crate", "image", "heroku")


def build_for(architecture, native, work, out, formats):
    """Writes what there is for one architecture. `native` is a tool that runs here."""
    staged = work / "usr-tree"
    staging.stage(architecture, native, work, staged)
    if "tar" in formats:
        local = work / "local-tree"
        staging.stage(architecture, native, work, local, prefix="/usr/local")
        archives.write_tar(out / f"snug-{VERSION}-{architecture.name}.tar.gz", archives.below(local))
        (out / f"snug-{VERSION}-{architecture.name}.cdx.json").write_text(bill.bill(architecture))
    if "linux" in formats:
        linux_packages.build(architecture, staged, work / "linux", out, PROGRAMS / "nfpm")
    if "wheel" in formats:
        wheels.build(architecture, staged / "usr", work / "wheel", out, PROGRAMS / "wheel")
    if "gem" in formats:
        gems.build(architecture, staged / "usr", work / "gem", out)


def build_libraries(chosen, work):
    """Seconds for each machine, and first: a compiler that lacks something says so before the minutes of the tool."""
    for name in chosen:
        staging.compile_library(ARCHITECTURES[name], work / name)


def build_binaries(chosen, work, out, formats):
    """Writes all that holds compiled code, for the architectures of these names, and the gem of sources."""
    build_libraries(chosen, work)
    # The tool of this machine is needed for the others, too: it writes the manual pages.
    for architecture in sorted((ARCHITECTURES[name] for name in chosen), key=lambda one: not one.native):
        staging.compile_tool(architecture, work / architecture.name)
    native = next(work / one.name / "bin/snug" for one in ARCHITECTURES.values() if one.native)
    for name in chosen:
        build_for(ARCHITECTURES[name], native, work / name, out, formats)
    installed = {ARCHITECTURES[name]: work / name / "usr-tree/usr" for name in chosen}
    if "image" in formats:
        images.build(installed, out)
    if "heroku" in formats:
        buildpacks.build(installed, work / "heroku", out)
    if "gem" in formats:
        gems.build_source(work / "gem", out)


def write_checksums(out):
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir()) if path.is_file()]
    (out / "SHA256SUMS").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(prog="release/dist", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/dist", help="folder for the results, emptied first [build/dist]")
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES), help="x86_64, aarch64 or both, with a comma")
    parser.add_argument("--formats", default=",".join(FORMATS), help=f"some of {', '.join(FORMATS)}, with commas")
    options = parser.parse_args()
    out, formats = options.out.resolve(), options.formats.split(",")
    chosen = options.architectures.split(",")
    if unknown := [name for name in chosen if name not in ARCHITECTURES] + [name for name in formats if name not in FORMATS]:
        parser.error(f"there is no {', '.join(unknown)}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    work = ROOT / "build/dist-work"
    if set(formats) != {"crate"}:
        build_binaries(chosen, work, out, formats)
    if "crate" in formats:
        crates.build(work / "crate", out)
    write_checksums(out)
    print(f"{len(list(out.iterdir()))} files in {out}")


if __name__ == "__main__":
    main()
