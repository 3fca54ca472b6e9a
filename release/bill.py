"""The bill of materials: what of others is in the tool, as CycloneDX 1.5 in JSON. The library has no parts of others."""

import datetime
import json
import tomllib
import uuid

from release import parts
from release.project import ROOT, SUMMARY, VERSION, epoch

SPECIFICATION = "1.5"


def component(name, version, licence, purl, **more):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": [{"expression": licence}], **more}


def crates(architecture):
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    for name, version, licence in parts.crates(architecture):
        # Older crates separate alternatives by a slash; SPDX's expressions say OR.
        expression = licence.replace("/", " OR ").replace("  ", " ")
        yield component(name, version, expression, f"pkg:cargo/{name}@{version}", hashes=[{"alg": "SHA-256", "content": checksums[name, version]}])


def runtime(architecture):
    for part in parts.RUNTIME:
        package = part.package(architecture)
        yield component(part.name, package.version, part.licence, package.purl(architecture), description=part.title)


def bill(architecture):
    """The text of the bill for the packages of an architecture."""
    components = [*crates(architecture), *runtime(architecture)]
    own = f"pkg:generic/snug@{VERSION}?arch={architecture.name}"
    content = {
        "bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": own, "name": "snug", "version": VERSION, "description": SUMMARY,
                          "licenses": [{"license": {"id": "MIT"}}]},
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in components]}],
    }
    # The same parts have the same serial number, as reproducible builds need it.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content))
    return json.dumps({"serialNumber": f"urn:uuid:{serial}", **content}, indent=1) + "\n"
