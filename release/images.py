"""The image: library and tool and nothing else, for all architectures in one OCI archive.

An image from scratch is a layer and some JSON, so it is written here: engines of containers need rights that a build
should not need, and date what they write.
"""

import datetime
import gzip
import hashlib
import io
import json
import tarfile

from release import licences
from release.archives import anonymous
from release.project import ROOT, SUMMARY, VERSION, epoch

# In the image to where `make install` put it, with its mode. At the top, so that DIR/libsnug.so is the library where
# the image is mounted at DIR, or copied to it.
FILES = {
    "snug": ("bin/snug", 0o755),
    "libsnug.so": ("lib/libsnug.so.0", 0o644),
    "libjemalloc.so.2": ("lib/snug/libjemalloc.so.2", 0o644),
    "asker.so": ("lib/snug/asker.so", 0o644),
    licences.PLACE.name: (licences.PLACE, 0o644),
}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def build(installed, out):
    """Writes the archive into `out` and returns its path.

    `installed` has for each Architecture the folder with the bin/, lib/ ... of a `make install`.
    """
    blobs = Blobs()
    manifests = [image(architecture, folder, blobs) for architecture, folder in installed.items()]
    index = blobs.add(INDEX, as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    named = index | {"annotations": {"org.opencontainers.image.ref.name": f"snug:{VERSION}"}}
    files = {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.contents.items()},
    }
    path = out / f"snug-{VERSION}-image.tar"
    path.write_bytes(tar({name: (content, 0o644) for name, content in files.items()}))
    return path


class Blobs:
    """Contents by their digest."""

    def __init__(self):
        self.contents = {}

    def add(self, media_type, content):
        """Keeps a content and returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def image(architecture, installed, blobs):
    """Adds the image for one architecture, and returns the descriptor of its manifest."""
    files = {name: ((installed / source).read_bytes(), mode) for name, (source, mode) in FILES.items()}
    files["LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    layer = tar(files)
    created = datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"architecture": architecture.deb, "os": "linux"}  # Debian and Go have the same names
    config = platform | {
        "created": created,
        "config": {"Entrypoint": ["/snug"], "Cmd": ["--help"], "WorkingDir": "/", "Labels": labels(created)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make dist"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add(CONFIG, as_json(config)),
        "layers": [blobs.add(LAYER, gzip.compress(layer, 9, mtime=0))],
    }
    return blobs.add(MANIFEST, as_json(manifest)) | {"platform": platform}


def labels(created):
    values = {"title": "snug", "description": SUMMARY, "version": VERSION, "licenses": "MIT", "created": created}
    return {f"org.opencontainers.image.{name}": value for name, value in values.items()}


def tar(files):
    """The bytes of an archive of {name: (content, mode)}."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(anonymous(entry), io.BytesIO(content))
    return written.getvalue()


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
