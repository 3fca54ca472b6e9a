"""Builds the allocators of bench/peers from crates.io as libraries for LD_PRELOAD, into build/peers.

Each is one file that carries its version: libmimalloc.so.3.3.2. A library under which a program with threads and
forks does not run is left out, and said so. Prints the paths of those that are good.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "build/peers"
# What upstream's own builds define and these crates do not: no assertions, and ends of threads told by glibc
# without the C++ runtime, which the library then does not have to load; rpmalloc's malloc under that name.
ENVIRONMENT = {"CFLAGS": "-DENABLE_OVERRIDE=1",
               "CXXFLAGS": "-DNDEBUG -DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT"}
FUNCTIONS = ("malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign",
             "malloc_usable_size")
OPTIONAL_FUNCTIONS = ("valloc", "pvalloc", "reallocarray")
TRIAL = """
import ctypes, os, sys, threading, zlib
sys.setswitchinterval(1e-5)
def work(seed):
    for size in range(1, 4000, 7):
        data = bytes([seed % 256]) * (size * 37)
        assert zlib.decompress(zlib.compress(data)) == data
def all_work():
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    for number in range(4):
        child = os.fork()
        if child == 0:
            work(number)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "the forked child failed"
    [thread.join() for thread in threads]
all_work()
assert sys.argv[1] in open("/proc/self/maps").read(), "it was not loaded"
print(getattr(ctypes.CDLL(sys.argv[1]), "mi_version", lambda: 0)())
"""


class Unusable(Exception):
    """The library can't be built, or programs don't run under it. Says why."""


@dataclass(frozen=True)
class Peer:
    name: str
    crate: str
    prefix: str = ""  # of its functions, where they don't go by the names of malloc(3)

    def aliases(self):
        """Arguments of the linker that give its functions the names of malloc(3)."""
        return [f"-Wl,--defsym={name}={self.prefix}{name}" for name in FUNCTIONS + OPTIONAL_FUNCTIONS] if self.prefix else []


PEERS = (Peer("mimalloc", "libmimalloc-sys"), Peer("snmalloc", "snmalloc-sys", "sn_"),
         Peer("jemalloc", "tikv-jemalloc-sys"), Peer("rpmalloc", "rpmalloc-sys"))


def crate_versions(lock_text):
    """Version of each crate in a Cargo.lock, by name."""
    return {package["name"]: package["version"] for package in tomllib.loads(lock_text)["package"]}


def allocator_version(crate_version, mi_version=0):
    """The allocator's version. mimalloc says it (30302: 3.3.2); others keep it, or the commit, behind the crate's."""
    if mi_version:
        return f"{mi_version // 10000}.{mi_version // 100 % 100}.{mi_version % 100}"
    crate, _, upstream = crate_version.partition("+")
    return upstream.split("-")[0] if upstream else crate


def link(peer, archive, library):
    """Makes the library of those objects of the archive that malloc needs."""
    wanted = [f"-Wl,-u,{peer.prefix}{name}" for name in FUNCTIONS]
    command = ["gcc", "-shared", "-o", library, *wanted, archive, *peer.aliases(), "-Wl,--gc-sections", "-Wl,-z,defs",
               "-Wl,-z,now,-z,nodelete", f"-Wl,-soname,lib{peer.name}.so", "-lpthread", "-ldl", "-lm"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise Unusable(result.stderr.strip().splitlines()[-1])


def missing_functions(names_defined):
    """Functions of malloc(3) that a library lacks and programs would take from the C library, to their ruin."""
    return [name for name in FUNCTIONS if name not in names_defined]


def check_functions(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    missing = missing_functions({line.split()[-1] for line in listing.splitlines()})
    if missing:
        raise Unusable(f"it does not define {', '.join(missing)}")


def try_out(library):
    """Runs a program under the library. Returns what mi_version says, or 0."""
    try:
        result = subprocess.run([sys.executable, "-c", TRIAL, library], capture_output=True, text=True, timeout=300,
                                env={**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"})
    except subprocess.TimeoutExpired:
        raise Unusable("a program under it hangs") from None
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unusable(f"a program under it ends with status {result.returncode}: {last}")
    return int(result.stdout)


def make(peer, versions):
    """Builds one library. Returns its path."""
    target = OUT / "cargo"
    command = [os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "--quiet", "--target-dir", target,
               "--package", f"peer-{peer.name}"]
    print(f"bench/peers: building {peer.name}", file=sys.stderr, flush=True)
    if subprocess.run(command, cwd=HERE, env={**os.environ, **ENVIRONMENT}).returncode:
        raise Unusable("it does not compile; see above")
    trial = OUT / f"lib{peer.name}.so"
    link(peer, target / f"release/libpeer_{peer.name}.a", trial)
    try:
        check_functions(trial)
        version = allocator_version(versions[peer.crate], try_out(trial))
    except Unusable:
        trial.unlink()
        raise
    return trial.rename(f"{trial}.{version}")


def main():
    parser = argparse.ArgumentParser(prog="bench/peers/build", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/peers/build mimalloc snmalloc")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(peer.name for peer in PEERS)}")
    names = parser.parse_args().names or [peer.name for peer in PEERS]
    unknown = [name for name in names if name not in {peer.name for peer in PEERS}]
    if unknown:
        parser.error(f"no peer {unknown[0]!r}; there are: {', '.join(peer.name for peer in PEERS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    versions = crate_versions((HERE / "Cargo.lock").read_text())
    good = 0
    for peer in (peer for peer in PEERS if peer.name in names):
        for old in OUT.glob(f"lib{peer.name}.so*"):
            old.unlink()
        try:
            print(os.path.relpath(make(peer, versions)), flush=True)
            good += 1
        except Unusable as error:
            print(f"bench/peers: left out {peer.name}: {error}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
