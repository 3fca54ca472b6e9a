"""Archives whose bytes depend on names, modes and contents alone."""

import gzip
import tarfile

from release.project import epoch


def write_tar(path, entries):
    """Writes a tar.gz of (name in the archive, file, link or folder), all of root's and of the same date."""
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed, \
         tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, source in sorted(entries):
            archive.add(source, name, recursive=False, filter=anonymous)


def anonymous(entry):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = epoch()
    return entry


def below(folder):
    """What lies below a folder, as entries of an archive with names from there."""
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*"))]
