"""Signs what `make dist` built, and lays it out as static files: repositories for apt, dnf and apk.

    release/publish --key 0123ABCD --apk-key snug.rsa    build/dist -> build/repositories; what is checked out must have
                                                         the tag of the version, signed with that key
    release/publish --new-key build/test-key             for tests: with keys without passphrase, made in that folder

The folder has SHA256SUMS with its signature, snug.asc (the public key), apt/, rpm/ and apk/, and snug.rsa.pub, the
public key of apk/, which knows RSA keys alone: `openssl genrsa -out snug.rsa 4096` makes one. Packages in rpm/ and apk/
are signed, too. Any web server can serve it. SHA256SUMS is about the files as `make dist` built them, the same wherever
that was.
"""

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

from release import apk_repository
from release.project import ROOT, VERSION, run

DISTRIBUTION = """Origin: snug
Label: snug
Codename: stable
Architectures: amd64 arm64
Components: main
Description: Packages of snug
SignWith: {key}
"""


def new_key(folder):
    """Makes a key in a folder of its own, unless it is there; returns its fingerprint."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["GNUPGHOME"] = str(folder)
    name = "Packages of snug, for tests"
    if name not in run("gpg", "--list-secret-keys"):
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
    listed = run("gpg", "--list-secret-keys", "--with-colons", name)
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


def verify_tag(tag, key, repository=ROOT):
    """Ends the program unless what is checked out has the tag, signed with the key."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True)
    tagged, here = (git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").stdout for name in (f"refs/tags/{tag}", "HEAD"))
    if not tagged:
        raise SystemExit(f"release: there is no tag {tag}; git tag --sign --local-user {key} {tag} makes it")
    if tagged != here:
        raise SystemExit(f"release: {tag} is another commit than the one that is checked out")
    verified = git("verify-tag", "--raw", tag)
    # The key that signed, and at the end the one that it belongs to.
    signers = re.search(r"^\[GNUPG:\] VALIDSIG (\w+) .* (\w+)$", verified.stderr, re.M)
    if verified.returncode != 0 or not signers:
        raise SystemExit(f"release: {tag} has no good signature:\n{verified.stderr}")
    fingerprints = re.findall(r"^fpr:+(\w+):$", run("gpg", "--list-keys", "--with-colons", key), re.M)
    if not set(signers.groups()) & set(fingerprints):
        raise SystemExit(f"release: {tag} is signed with {signers[2]}, and not with {key}")


def sign(key, path):
    """Writes the signature of a file beside it, with .asc at its end."""
    run("gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", path)


def publish(dist, site, key, apk_key):
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(dist, site)
    sign(key, site / "SHA256SUMS")
    run("gpg", "--batch", "--armor", "--output", site / "snug.asc", "--export", key)
    apt_repository(site, site / "apt", key)
    rpm_repository(site, site / "rpm", key)
    apk_repository.build(sorted(dist.glob("*.apk")), site / "apk", apk_key)


def apt_repository(packages, repository, key):
    work = repository.with_name("apt-work")
    (work / "conf").mkdir(parents=True)
    (work / "conf/distributions").write_text(DISTRIBUTION.format(key=key))
    debs = sorted(packages.glob("*.deb"))
    run("reprepro", "--silent", "--basedir", work, "--outdir", repository, "includedeb", "stable", *debs)
    shutil.rmtree(work)


def rpm_repository(packages, repository, key):
    repository.mkdir()
    signed = [shutil.copy2(path, repository) for path in sorted(packages.glob("*.rpm"))]
    # Its own guess at where gpg is has no folder.
    run("rpmsign", "--define", f"_gpg_name {key}", "--define", f"__gpg {shutil.which('gpg')}", "--addsign", *signed)
    run("createrepo_c", "--quiet", "--no-database", repository)
    sign(key, repository / "repodata/repomd.xml")


def main():
    parser = argparse.ArgumentParser(prog="release/publish", description=__doc__.splitlines()[0])
    keys = parser.add_mutually_exclusive_group(required=True)
    keys.add_argument("--key", help="the key to sign with, of your keyring")
    keys.add_argument("--new-key", type=Path, metavar="FOLDER", help="make one in this folder, for tests")
    parser.add_argument("--dist", type=Path, default=ROOT / "build/dist", help="what make dist built [build/dist]")
    parser.add_argument("--site", type=Path, default=ROOT / "build/repositories", help="folder for the result, emptied first [build/repositories]")
    parser.add_argument("--apk-key", type=Path, metavar="FILE", help="the RSA key to sign apk's repository with, in PEM")
    options = parser.parse_args()
    if options.key and not options.apk_key:
        parser.error("--key needs --apk-key; openssl genrsa -out snug.rsa 4096 makes one")
    if options.apk_key and not options.apk_key.is_file():
        parser.error(f"no key in {options.apk_key}; openssl genrsa -out {options.apk_key} 4096 makes one")
    key, apk_key = options.key, options.apk_key and options.apk_key.resolve()
    if options.new_key:
        key = new_key(options.new_key.resolve())
        apk_key = apk_key or apk_repository.new_key(options.new_key.resolve() / "snug.rsa")
    else:
        verify_tag(f"v{VERSION}", key)
    publish(options.dist, options.site.resolve(), key, apk_key)
    print(f"signed, with repositories for apt, dnf and apk: {options.site}")


if __name__ == "__main__":
    main()
