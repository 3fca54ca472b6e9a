"""Gems: one for each platform, with library and tool, and one with the sources, which it compiles at its installation."""

import shutil

from release import licences
from release.project import ROOT, VERSION, run


def build(architecture, installed, work, out):
    """Writes the gem for an architecture's platform into `out`, of what `make install` put into `installed`. Returns its path."""
    binaries = lay_out(work) / "lib/snug"
    for source, name in (("bin/snug", "snug"), ("lib/snug/asker.so", "asker.so"), ("lib/libsnug.so.0", "libsnug.so")):
        shutil.copy2(installed / source, binaries / name)
    shutil.copy2(installed / licences.PLACE, work)
    shutil.rmtree(work / "ext")
    return pack(work, out, f"{architecture.name}-linux")


def build_source(work, out):
    """Writes the gem that compiles the library, and returns its path."""
    core = lay_out(work) / "ext/snug/core"
    for name in ("src", "shared", "include"):
        shutil.copytree(ROOT / "core" / name, core / name)
    return pack(work, out, "ruby")


def lay_out(work):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "bindings/gem", work)
    for name in ("LICENSE", "VERSION"):
        shutil.copy2(ROOT / name, work)
    return work


def pack(work, out, platform):
    for path in work.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path in (work / "exe/snug", work / "lib/snug/snug") else 0o644)
    path = out / (f"snug-{VERSION}.gem" if platform == "ruby" else f"snug-{VERSION}-{platform}.gem")
    run("gem", "build", "--silent", "--force", "--output", path, "snug.gemspec", cwd=work, env={"PLATFORM": platform, "PATH": "/usr/bin:/bin"})
    return path
