"""A repository for apk: for each architecture a folder of its packages and an index, all signed with an RSA key.

That is version 2 of the format, which apk-tools 2.7 and newer read, 3 included. An archive is a row of gzip streams: in
a package the signature, what describes it, and the files; in an index the signature and the list. The signature is of
the stream that follows it. Its file names the key, which systems look up in /etc/apk/keys.
"""

import base64
import gzip
import hashlib
import io
import subprocess
import tarfile
import zlib

from release.images import tar
from release.project import ARCHITECTURES, SUMMARY, run

# Fields of an index, by those of .PKGINFO. Of the last there may be several.
FIELDS = {"pkgname": "P", "pkgver": "V", "arch": "A", "size": "I", "pkgdesc": "T", "url": "U", "license": "L", "origin": "o",
          "maintainer": "m", "builddate": "t", "commit": "c", "provider_priority": "k"}
LISTS = {"depend": "D", "provides": "p", "install_if": "i"}
BLOCK = 512  # of tar


def new_key(path):
    """Makes an RSA key at `path`, unless it is there, and returns `path`."""
    if not path.exists():
        run("openssl", "genrsa", "-out", path, "4096")
    return path


def build(packages, repository, key):
    """Writes ARCHITECTURE/APKINDEX.tar.gz and the signed packages below `repository`, and beside it the public key.

    `packages` are the paths of unsigned .apk files; `key` is an RSA key in PEM, whose name with .pub is that of the
    public one, here and in /etc/apk/keys.
    """
    public = repository.with_name(f"{key.name}.pub")
    repository.mkdir(parents=True)
    run("openssl", "rsa", "-in", key, "-pubout", "-out", public)
    for architecture in ARCHITECTURES:
        folder = repository / architecture
        folder.mkdir()
        entries = [add(package, folder, key) for package in packages if package.stem.endswith(f"_{architecture}")]
        listed = tar({"DESCRIPTION": (SUMMARY.encode(), 0o644), "APKINDEX": ("\n".join(entries).encode(), 0o644)})
        (folder / "APKINDEX.tar.gz").write_bytes(signed(compressed(listed), key))


def add(package, folder, key):
    """Writes a package, signed, by the name that apk asks for, and returns its lines of the index."""
    content = package.read_bytes()
    control, _ = streams(content)
    described = described_by(control)
    whole = signed(content, key, of=control)
    (folder / f"{described['pkgname'][0]}-{described['pkgver'][0]}.apk").write_bytes(whole)
    lines = [f"C:Q1{base64.b64encode(hashlib.sha1(control).digest()).decode()}", f"S:{len(whole)}"]
    lines += [f"{short}:{described[name][0]}" for name, short in FIELDS.items() if name in described]
    lines += [f"{short}:{' '.join(described[name])}" for name, short in LISTS.items() if name in described]
    return "".join(f"{line}\n" for line in lines)


def streams(content):
    """The gzip streams that `content` is a row of, as they are."""
    found = []
    while content:
        decoder = zlib.decompressobj(wbits=31)
        decoder.decompress(content)
        length = len(content) - len(decoder.unused_data)
        found.append(content[:length])
        content = content[length:]
    return found


def described_by(control):
    """The values of each field of the .PKGINFO in that stream."""
    with tarfile.open(fileobj=io.BytesIO(control)) as archive:
        text = archive.extractfile(".PKGINFO").read().decode()
    fields = {}
    for name, separator, value in (line.partition(" = ") for line in text.splitlines()):
        if separator and not name.startswith((" ", "#")):
            fields.setdefault(name, []).append(value)
    return fields


def signed(content, key, of=None):
    """`content` behind the signature of the stream `of`, by default of all of it."""
    made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=of or content, stdout=subprocess.PIPE)
    if made.returncode != 0:
        raise SystemExit(f"release: openssl could not sign with {key}")
    # Without the blocks that end an archive, since it goes on in the next stream.
    blocks = BLOCK + -(-len(made.stdout) // BLOCK) * BLOCK
    return compressed(tar({f".SIGN.RSA256.{key.name}.pub": (made.stdout, 0o644)})[:blocks]) + content


def compressed(content):
    return gzip.compress(content, 9, mtime=0)
