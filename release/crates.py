"""The Rust crate snug-alloc: snug's sources and a GlobalAlloc, compiled where it is used."""

import os
import re
import shutil

from release.project import ROOT, VERSION, run


def lay_out(work):
    """Copies all that the crate holds into `work`, and returns it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "bindings/crate", work, ignore=shutil.ignore_patterns("target"))
    for name in ("src", "include", "archive"):
        shutil.copytree(ROOT / "core" / name, work / "core" / name)
    shutil.copy2(ROOT / "LICENSE", work)
    found = re.search(r'^version = "(.*?)"', (work / "Cargo.toml").read_text(), re.M)[1]
    if found != VERSION:
        raise SystemExit(f"bindings/crate/Cargo.toml has version {found}, VERSION has {VERSION}")
    return work


def build(work, out):
    """Writes the crate as crates.io would have it into `out`, and returns its path."""
    lay_out(work)
    run(os.environ.get("CARGO", "cargo"), "package", "--quiet", "--no-verify", "--allow-dirty", "--locked", "--manifest-path", work / "Cargo.toml", "--target-dir", work / "target")
    name = f"snug-alloc-{VERSION}.crate"
    shutil.copyfile(work / "target/package" / name, out / name)
    return out / name
