"""What all packages have in common: the version, the moment they are dated to, the architectures, running programs."""

import dataclasses
import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = (ROOT / "VERSION").read_text().strip()
SUMMARY = "malloc(3) that gives memory back to the kernel"


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A machine that packages are for. `name` is what uname -m says."""

    name: str
    triplet: str  # Debian's name of it, also that of its cross compiler
    deb: str
    libc_names: tuple[str, ...]  # platforms of wheels

    @property
    def native(self):
        return self.name == os.uname().machine

    @property
    def rust_target(self):
        return f"{self.name}-unknown-linux-gnu"

    def program(self, name):
        """A compiler or another program of binutils for this machine."""
        return name if self.native else f"{self.triplet}-{name}"


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", "x86_64-linux-gnu", "amd64", ("manylinux2014_x86_64", "musllinux_1_1_x86_64")),
    "aarch64": Architecture("aarch64", "aarch64-linux-gnu", "arm64", ("manylinux2014_aarch64", "musllinux_1_1_aarch64")),
}


@functools.cache
def epoch():
    """Seconds since 1970 that everything is dated to: SOURCE_DATE_EPOCH, or when the last commit was made."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    shown = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    if shown.returncode != 0:
        raise SystemExit("release: set SOURCE_DATE_EPOCH, since this is not a clone of the repository")
    return int(shown.stdout)


def run(*command, **options):
    """Runs a program from the root of the repository; ends this one with what it said if it fails."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch()), "LC_ALL": "C.UTF-8", "TZ": "UTC", **options.pop("env", {})}
    options = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    result = subprocess.run([str(word) for word in command], **options)
    if result.returncode != 0:
        raise SystemExit(f"{result.stdout or ''}\nrelease: {command[0]} failed with status {result.returncode}")
    return result.stdout


# Debian's Rust, which everybody can have, and whose library for other machines apt knows.
DEBIAN_RUST = {"PATH": f"/usr/bin:{os.environ['PATH']}"}


def compiler_package():
    """The package of /usr/bin/rustc: rustc, or rustc-web where a release has a newer one for browsers."""
    return run("dpkg-query", "--search", "/usr/bin/rustc").partition(":")[0]


def described(package):
    """Version and source package of a package that is installed."""
    return run("dpkg-query", "--show", "--showformat", "${Version}\n${source:Package}", package).split("\n")


def rust_library_package():
    """Name, version and source package of what has that compiler's standard library, for any machine."""
    version, source = described(compiler_package())
    return source.replace("rustc", "libstd-rust") + "-dev", version, source
