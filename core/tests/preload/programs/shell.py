from catalog import program


@program("bash", needs={"bash": "bash"}, light=True, proves=["bash --version"], watches=["bash"])
def bash(test):
    """bash scripts: thousands of forks, pipelines, coprocesses, arrays, here-documents"""
    result = test.same_as_plain(["bash", test.scripts / "forks.sh", "150" if test.quick else "1500"])
    test.expect(result.stdout.endswith("done\n"), "the script did not reach its end")


@program("apt", needs={"apt-cache": "apt", "dpkg-deb": "dpkg"}, light=True, proves=["apt-cache --version", "dpkg-deb --version"],
         watches=["apt-cache"])
def apt(test):
    """apt-cache and dpkg over the package lists of this machine; a package built and unpacked"""
    for argv in (["apt-cache", "stats"], ["apt-cache", "search", "allocator"], ["apt-cache", "dumpavail"],
                 ["apt-cache", "depends", "--recurse", "--installed", "coreutils"], ["dpkg", "-l"],
                 ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Depends}\\n"]):
        test.same_as_plain(argv)
    package = test.folder / "package"
    (package / "DEBIAN").mkdir(parents=True, mode=0o755)
    (package / "DEBIAN/control").write_text("Package: sample\nVersion: 1\nArchitecture: all\nDescription: sample\n"
                                            "Maintainer: nobody <nobody@example.org>\n")
    for number in range(50):
        (package / f"file{number}").write_text(f"content {number}\n" * (100 * number))
    test.run(["dpkg-deb", "--build", "package", "sample.deb"])
    test.run(["dpkg-deb", "--extract", "sample.deb", "unpacked"])
    test.run(["diff", "-r", "--exclude=DEBIAN", "package", "unpacked"])


@program("limits", needs={"/usr/bin/python3": "python3", "bash": "bash", "sort": "coreutils"}, light=True, watches=["python3*"])
def limits(test):
    """programs under an address-space limit: they start, get ENOMEM where they ask for too much, and go on"""
    script = test.scripts / "out_of_memory.py"
    for limit_kib in (400_000, 1_000_000):
        test.run(["bash", "-c", f"ulimit -v {limit_kib} && exec /usr/bin/python3 {script}"])
        test.same_as_plain(["bash", "-c", f"ulimit -v {limit_kib}; seq 400000 | sort -r -S 40M | sha256sum"])
    test.run(["bash", "-c", f"ulimit -d 400000 && exec /usr/bin/python3 {script}"])
