import os

from catalog import program


@program("go", needs={"go": "golang-go", "gcc": "gcc"}, watches=["cgo"], quick_limit_s=240, full_limit_s=400)
def go(test):
    """Go with cgo: goroutines in C and back, C's memory freed elsewhere, setuid on all threads, children"""
    module = test.folder / "module"
    module.mkdir()
    (module / "go.mod").write_text("module cgo\n\ngo 1.19\n")
    (module / "main.go").write_bytes((test.scripts / "cgo.go").read_bytes())
    environment = {"GOCACHE": str(test.folder / "cache"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "1",
                   "GOPATH": str(test.folder / "path")}
    # The linker and the compilers of cgo are C programs, and work under the library, too; Go's own are static.
    test.run(["go", "build", "-o", test.folder / "cgo", "."], env=environment, folder=module, limit_s=200)
    if test.library:
        test.prove_binding([str(test.folder / "cgo"), "1"])
    rounds = "2" if test.quick else "20"
    result = test.same_as_plain([test.folder / "cgo", rounds])
    test.expect(result.stdout.endswith("done\n"), "the program did not reach its end")
    if os.geteuid() == 0:
        result = test.same_as_plain([test.folder / "cgo", rounds, "65534"])
        test.expect("all threads are 65534" in result.stdout, "setuid did not reach all threads")
