"""The licences of what is linked into the tool: crates, and what the compilers bring."""

import json
import re
from pathlib import Path

from release import parts
from release.project import ARCHITECTURES, DEBIAN_RUST, run

# Below the prefix of an installation, and the name of the file wherever a package has it.
PLACE = Path("share/doc/snug/THIRD-PARTY-LICENSES")
NAMES = re.compile(r"(un)?licen[sc]e|copying|copyright|notice", re.IGNORECASE)
HEAD = """The tool `snug` contains the following works of others, each under the licence that is printed below it. snug's own
licence is MIT. The library (libsnug.so, libsnug.a) contains nothing of others.

The GNU C Library is linked statically, under the LGPL 2.1: the tool's sources are published whole, and
`cargo build --release` there links it with another one. The runtime library of GCC has an exception for
programs that a compiler links with it.
"""


def text():
    """What a package that has the tool must say. Texts that several crates share stand there once."""
    of_crates = {}
    for name, version, folder in crates():
        files = sorted(path for path in folder.iterdir() if path.is_file() and NAMES.match(path.name))
        if not files:
            raise SystemExit(f"release: the crate {name} {version} has no text of its licence; add it to release/licences.py")
        for file in files:
            of_crates.setdefault(file.read_text(errors="replace").strip(), []).append(f"{name} {version}")
    printed = [(", ".join(dict.fromkeys(crates)), content) for content, crates in of_crates.items()]
    printed += [(f"{part.name} ({part.title})", file.read_text(errors="replace")) for part in parts.RUNTIME for file in part.texts()]
    line = "=" * 80
    return HEAD + "".join(f"\n{line}\n{works}\n{line}\n\n{content.strip()}\n" for works, content in printed)


def crates():
    """(name, version, folder of its sources) of each crate that is linked into the tool, on any machine."""
    described = run("cargo", "metadata", "--locked", "--format-version", "1", env=DEBIAN_RUST, stderr=None)
    folders = {(one["name"], one["version"]): Path(one["manifest_path"]).parent for one in json.loads(described)["packages"]}
    linked = {crate[:2] for architecture in ARCHITECTURES.values() for crate in parts.crates(architecture)}
    return [(*crate, folders[crate]) for crate in sorted(linked)]
