"""The bill of materials: which crates are in the tool, as CycloneDX 1.5 in JSON. The library has no parts of others."""

import datetime
import json
import tomllib
import uuid

from packages.project import DEBIAN_RUST, ROOT, SUMMARY, VERSION, epoch, run

SPECIFICATION = "1.5"


def crates(architecture):
    """(name, version, licence) of each crate that is linked into the tool."""
    listed = run("cargo", "tree", "--locked", "--manifest-path", "cli/Cargo.toml", "--target", architecture.rust_target,
                 "--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}", env=DEBIAN_RUST)
    found = set()
    for line in listed.splitlines():
        crate, _, licence = line.partition("\t")
        name, version = crate.split()[:2]
        if name != "snug-cli":
            found.add((name, version.removeprefix("v"), licence))
    return sorted(found)


def component(name, version, licence, checksum):
    # Older crates separate alternatives by a slash; SPDX's expressions say OR.
    expression = licence.replace("/", " OR ").replace("  ", " ")
    return {
        "type": "library", "bom-ref": f"pkg:cargo/{name}@{version}", "name": name, "version": version,
        "purl": f"pkg:cargo/{name}@{version}", "licenses": [{"expression": expression}],
        "hashes": [{"alg": "SHA-256", "content": checksum}],
    }


def bill(architecture):
    """The text of the bill for the packages of an architecture."""
    locked = tomllib.loads((ROOT / "cli/Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    parts = [component(*crate, checksums[crate[:2]]) for crate in crates(architecture)]
    own = f"pkg:generic/snug@{VERSION}?arch={architecture.name}"
    content = {
        "bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": own, "name": "snug", "version": VERSION, "description": SUMMARY,
                          "licenses": [{"license": {"id": "MIT"}}]},
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    # The same parts have the same serial number, as reproducible builds need it.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content))
    return json.dumps({"serialNumber": f"urn:uuid:{serial}", **content}, indent=1) + "\n"
