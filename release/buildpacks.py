"""The buildpack for Heroku: one archive with the scripts, and library and tool for every architecture."""

import shutil

from release import archives, licences
from release.project import ROOT, VERSION

FILES = {"snug": "bin/snug", "libsnug.so": "lib/libsnug.so.0", "asker.so": "lib/snug/asker.so"}


def build(installed, work, out):
    """Writes the archive into `out` and returns its path.

    `installed` has for each Architecture the folder with the bin/, lib/ ... of a `make install`; `work` is a folder to work in.
    """
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "deploy/heroku", work)
    for name in ("LICENSE", "VERSION"):
        shutil.copy2(ROOT / name, work)
    for architecture, folder in installed.items():
        place = work / "lib" / architecture.name
        place.mkdir(parents=True)
        for name, source in FILES.items():
            shutil.copy2(folder / source, place / name)
        shutil.copy2(folder / licences.PLACE, work)
    for path in work.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" or path.name == "snug" else 0o644)
    path = out / f"snug-{VERSION}-heroku.tgz"
    archives.write_tar(path, archives.below(work))
    return path
