"""The wheel: library and tool, for every Python 3 of glibc and musl, since neither needs either."""

import shutil
import subprocess

from release import licences
from release.project import ROOT, SUMMARY, VERSION, run

METADATA = f"""Metadata-Version: 2.1
Name: snug
Version: {VERSION}
Summary: {SUMMARY}
License: MIT
Requires-Python: >=3.8
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

"""
ENTRY_POINTS = "[console_scripts]\nsnug = snug.__main__:main\n"


def build(architecture, installed, work, out, wheel):
    """Writes the wheel for an architecture into `out` and returns its path.

    `installed` is what `make install` put below its prefix, `work` a folder to work in, `wheel` the program of that name.
    """
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "bindings/wheel/snug", work / "snug", ignore=shutil.ignore_patterns("__pycache__"))
    binaries = work / "snug/bin"
    binaries.mkdir()
    for source, name in (("bin/snug", "snug"), ("lib/snug/asker.so", "asker.so"), ("lib/libsnug.so.0", "libsnug.so"), ("lib/snug/libjemalloc.so.2", "libjemalloc.so.2")):
        shutil.copy2(installed / source, binaries / name)
    about = work / f"snug-{VERSION}.dist-info"
    about.mkdir()
    tag = ".".join(architecture.libc_names)
    tags = "".join(f"Tag: py3-none-{one}\n" for one in architecture.libc_names)
    (about / "METADATA").write_text(METADATA + (ROOT / "bindings/wheel/README.md").read_text())
    (about / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: snug {VERSION}\nRoot-Is-Purelib: false\n{tags}")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy2(ROOT / "LICENSE", about)
    shutil.copy2(installed / licences.PLACE, about)
    for path in work.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path == binaries / "snug" else 0o644)
    # `wheel pack` writes the list of files with their hashes.
    run(wheel, "pack", "--dest-dir", out, work, stderr=subprocess.STDOUT)
    return out / f"snug-{VERSION}-py3-none-{tag}.whl"
