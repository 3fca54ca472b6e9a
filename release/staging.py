"""Compiles library and tool for an architecture, and installs them into a folder, from which the packages take them.

The bytes depend on the sources, on the compilers and on the date of the last commit, not on where the repository lies.
The tool is linked with its libc, so that it runs where there is another one or none.
"""

import os
import shutil
from pathlib import Path

from release import licences
from release.project import DEBIAN_RUST, ROOT, run, rust_library_package

NO_COMMENT = "--remove-section=.comment"  # by the compiler, about itself


def stage(architecture, native, work, folder, prefix="/usr"):
    """Installs what `make install` installs below `folder`, for programs that will see it below `prefix`.

    `work` has what was compiled for `architecture`; `native` is a tool that runs here, and writes the manual pages.
    """
    shutil.rmtree(folder, ignore_errors=True)
    install(work, folder, prefix, tool=work / "bin/snug", native=native, strip=architecture.program("strip"), variables=compilers(architecture))


def install(build, folder, prefix, tool, native, strip, variables=()):
    """`make install` of what is in `build` and of this tool. Modes and links are the same whoever builds, under whatever umask."""
    run("make", "--no-print-directory", "install", f"BUILD={build.relative_to(ROOT)}", f"TOOL={tool}", f"NATIVE_TOOL={native}",
        f"DESTDIR={folder}", f"PREFIX={prefix}", *variables)
    top = folder / prefix.lstrip("/")
    run(strip, "--strip-unneeded", NO_COMMENT, top / "lib/libsnug.so.0", top / "lib/snug/libjemalloc.so.2", top / "lib/snug/asker.so", top / "bin/snug")
    run(strip, "--strip-debug", NO_COMMENT, "--enable-deterministic-archives", top / "lib/libsnug.a", top / "lib/libsnug-prefixed.a")
    (top / licences.PLACE).parent.mkdir(parents=True)
    (top / licences.PLACE).write_text(licences.text())
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)


def compilers(architecture):
    """make's variables for this architecture. Debug information names files by their place in the repository."""
    names = {"CC": "gcc", "AR": "ar", "OBJCOPY": "objcopy"}
    return [*(f"{variable}={architecture.program(name)}" for variable, name in names.items()),
            f"CFLAGS=-O2 -g -ffile-prefix-map={ROOT}=/usr/src/snug"]


def compile_library(architecture, work):
    """Builds libsnug.so, libsnug.a and jemalloc/libjemalloc.so.2 in `work`, a folder below build/."""
    work.mkdir(parents=True, exist_ok=True)
    run("make", "--no-print-directory", "library", f"BUILD={work.relative_to(ROOT)}", *compilers(architecture))


def compile_tool(architecture, work):
    """Builds bin/snug in `work`."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    places = [f"--remap-path-prefix={registry}=/cargo", f"--remap-path-prefix={ROOT}=/usr/src/snug"]
    if not architecture.native:
        places.append(f"--sysroot={rust_library(architecture, work / 'rust')}")
    upper = architecture.rust_target.upper().replace("-", "_")
    run("/usr/bin/cargo", "build", "--release", "--locked", "--package", "snug", "--target", architecture.rust_target,
        "--target-dir", work / "cargo",
        env=DEBIAN_RUST | {"RUSTFLAGS": "-Ctarget-feature=+crt-static", "RUSTC_WRAPPER": str(ROOT / "release/rustc-from-anywhere"),
                           "SNUG_PLACES": "\n".join(places), f"CARGO_TARGET_{upper}_LINKER": architecture.program("gcc")})
    (work / "bin").mkdir(exist_ok=True)
    shutil.copy2(work / "cargo" / architecture.rust_target / "release/snug", work / "bin/snug")


def rust_library(architecture, folder):
    """The sysroot with Rust's library for another machine: that of Debian's package, of the version of the compiler.

    apt fetches it into `folder` and knows of the other machine only there: the system stays as it is.
    """
    name, version, _ = rust_library_package()
    sysroot = folder / "usr"
    stamp = folder / "installed"
    wanted = f"{name}={version}"
    if stamp.exists() and stamp.read_text() == wanted:
        return sysroot
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "apt.conf").write_text(
        f'APT::Architecture "{architecture.deb}";\nAPT::Architectures {{ "{architecture.deb}"; }};\n'
        f'APT::Sandbox::User "root";\nDir::State "{folder}/state";\nDir::Cache "{folder}/cache";\nDir::State::status "{folder}/status";\n')
    apt = {"APT_CONFIG": str(folder / "apt.conf")}
    run("apt-get", "-qq", "update", env=apt)
    run("apt-get", "-qq", "download", wanted, env=apt, cwd=folder)
    run("dpkg-deb", "--extract", next(folder.glob("*.deb")), folder)
    stamp.write_text(wanted)
    return sysroot
