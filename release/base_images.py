"""Makes images to build applications on: Debian's Ruby, or Python, with snug active in every process.

The image of snug must be there: `podman load --input build/dist/snug-VERSION-image.tar`. The base is an image, such as
debian:bookworm-slim, or with --debian a root file system that debootstrap makes; that, and the packages, need a network.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from release.project import ROOT, VERSION

HERE = Path(__file__).resolve().parent / "bases"
LANGUAGES = sorted(path.stem for path in HERE.glob("*.Dockerfile"))
MIRROR = "http://deb.debian.org/debian"


def call(*command, **options):
    """Runs a program, which may say what it likes; ends this one if it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, **options)
    if result.returncode != 0:
        sys.exit(f"release/base-images: failed with status {result.returncode}: {' '.join(words)}")


def import_debian(engine, codename):
    """Makes an image of Debian's packages, without an image of somebody else's, and returns its name."""
    name = f"localhost/debian-{codename}:snug"
    # Not in /tmp, which may be without devices.
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        archive = Path(folder) / "root.tar"
        call("debootstrap", "--variant=minbase", codename, archive.with_suffix(""), MIRROR)
        call("tar", "-C", archive.with_suffix(""), "--exclude=./proc/*", "--exclude=./sys/*", "-cf", archive, ".")
        call(*engine, "import", archive, name)
    return name


def build(engine, language, base, snug):
    """Makes the image for a language, and returns its name."""
    name = f"snug-{language}:{VERSION}"
    print(f"{name}, from {base}", flush=True)
    call(*engine, "build", "--isolation", "chroot", "--pull=never" if base.startswith("localhost/") else "--pull=missing",
         "--build-arg", f"BASE={base}", "--build-arg", f"SNUG={snug}", "--tag", name, "--file", HERE / f"{language}.Dockerfile", HERE)
    return name


def main():
    parser = argparse.ArgumentParser(prog="release/base-images", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: release/base-images --debian bookworm ruby")
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help=f"some of {', '.join(LANGUAGES)} [all]")
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--from", dest="base", metavar="IMAGE", default="docker.io/library/debian:bookworm-slim", help="a Debian [%(default)s]")
    base.add_argument("--debian", metavar="CODENAME", help="make the Debian of this name by debootstrap; needs root")
    parser.add_argument("--snug", metavar="IMAGE", default=f"localhost/snug:{VERSION}", help="the image of snug [%(default)s]")
    options = parser.parse_args()
    if unknown := [name for name in options.languages if name not in LANGUAGES]:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(LANGUAGES)}")
    # Options of podman that come before its command, as for a storage of one's own.
    engine = ["podman", *os.environ.get("PODMAN_OPTIONS", "").split()]
    image = import_debian(engine, options.debian) if options.debian else options.base
    for language in options.languages or LANGUAGES:
        build(engine, language, image, options.snug)


if __name__ == "__main__":
    main()
