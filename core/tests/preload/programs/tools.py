"""Tools that themselves stand between a program and the system: each by LD_PRELOAD and by `snug run`."""

import os
import pathlib
import re
import shutil
import subprocess

from catalog import newest, program

SNUG = pathlib.Path(__file__).resolve().parents[4] / "build/snug"
FAKETIME = newest("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
THREADS = """
import random, threading, time, zlib
sums, idle = [], threading.Event()
def work(n):
    numbers, kept = random.Random(n), []
    for i in range(2000):
        kept.append(bytes(numbers.randrange(1, 20000)))
        if len(kept) > 100:
            kept.pop(numbers.randrange(100))
    sums.append(sum(map(len, kept)) + zlib.crc32(b"".join(kept)))
    idle.wait()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
time.sleep(WAIT)
idle.set()
for thread in threads: thread.join()
print("sums", sorted(sums))
"""


def ways(test):
    """How a program gets under the library: (name, words in front of it, Test.run's preload)."""
    yield "LD_PRELOAD", [], True
    if test.library and SNUG.exists():
        tool = shutil.copy(SNUG, test.folder / "snug")  # where every user may execute it
        if test.run([tool, "--version"], preload=False, statuses=None).status != 0:
            test.note("`snug run` left out: the tool was built for a newer C library")
            return
        yield "snug run", ["env", f"SNUG_LIBRARY={test.library}", tool, "run", "--"], False


def script(test, wait_s=0.8):
    """A program whose threads allocate, and which then idles for so long that the library's helper has been there."""
    path = test.folder / "threads.py"
    path.write_text(THREADS.replace("WAIT", str(wait_s)))
    return ["/usr/bin/python3", path]


def same_by_each_way(test, tool, command, **options):
    """The tool around the program, and the other way round for `snug run`: the same output as without the library."""
    plain = test.run([*tool, *command], preload=False, **options).stdout
    test.expect(plain, f"{tool[0]} prints nothing of the program's")
    for name, words, preload in ways(test):
        for order in ([*words, *tool], [*tool, *words]) if words else (tool,):
            got = test.run([*order, *command], preload=preload, **options).stdout
            test.expect(got == plain, f"{name}, {tool[0]}: {got[:80]!r}, and {plain[:80]!r} without the library")
    return plain


PYTHON = {"/usr/bin/python3": "python3"}


@program("libfaketime", needs={FAKETIME: "libfaketime", "faketime": "faketime", **PYTHON}, watches=["python3*"], light=True)
def libfaketime(test):
    """libfaketime before and behind the library: a made-up date, threads, idle moments, timed waits"""
    told = same_by_each_way(test, ["faketime", "-f", "@2001-02-03 04:05:06"], ["date", "+%F"])
    test.expect(told == "2001-02-03\n", f"faketime's date is {told!r}")
    same_by_each_way(test, ["faketime", "-f", "-10d"], script(test))
    if not test.library:
        return
    for order in (f"{FAKETIME} {test.library}", f"{test.library} {FAKETIME}"):
        result = test.run(script(test), preload=False, env={"LD_PRELOAD": order, "FAKETIME": "-3d x2"})
        test.expect("sums" in result.stdout, f"LD_PRELOAD={order}: no output")


@program("fakeroot", needs={"fakeroot": "fakeroot", "tar": "tar", **PYTHON}, watches=["faked*", "python3*"], light=True)
def fakeroot(test):
    """fakeroot: owners, modes and devices that are not there, packed and listed; as an ordinary user"""
    user = "nobody"
    shutil.copytree(test.scripts, test.folder / "tree")
    for path in [test.folder / "tree", *(test.folder / "tree").iterdir()]:
        shutil.chown(path, user) if os.geteuid() == 0 else None
    work = ("chown -R 12:34 tree; mknod tree/device c 5 1 2>/dev/null || true; chmod 4711 tree/page.html; id -u; "
            "stat -c '%n %u %g %a %t' tree/*; tar --sort=name -cf - tree | tar -tv | awk '{print $1, $2, $NF}'; rm -f tree/device")
    told = same_by_each_way(test, ["fakeroot"], ["sh", "-c", work], user=user)
    test.expect(told.startswith("0\n") and "tree/page.html 12 34 4711" in told, f"fakeroot's shell says {told[:80]!r}")
    same_by_each_way(test, ["fakeroot"], script(test), user=user)


@program("strace", needs={"strace": "strace", **PYTHON}, watches=["strace", "python3*"], light=True)
def strace(test):
    """strace follows threads and children of a program, counts its calls, and lets go of it while it runs"""
    log = test.folder / "calls"
    same_by_each_way(test, ["strace", "-f", "-o", log], script(test))
    text = log.read_text(errors="replace")
    test.expect(len(re.findall(r"clone3?\(", text)) >= 4, "strace saw fewer than four threads start")
    test.expect("+++ exited with 0 +++" in text
                and not re.search("--- SIGSEGV|killed by", text),
                "strace did not see a good end")
    check_attached(test, lambda pid: ["timeout", "--preserve-status", "-s", "INT", "1", "strace", "-f", "-c", "-o", log, "-p", pid],
                   (0, 130))


@program("gdb", needs={"gdb": "gdb", "gcc": "gcc", **PYTHON}, watches=["gdb", "python3*"], light=True,
         quick_limit_s=150)
def gdb(test):
    """gdb under the library, on programs under it: breakpoints, threads, malloc called from its prompt, attach, a core"""
    (test.folder / "program.c").write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n"
        "int deep(int n) { char *p = malloc(n * 100); memset(p, 1, n * 100); int r = n ? deep(n - 1) : 42; free(p); return r; }\n"
        "int main(void) { int r = deep(20); printf(\"result %d\\n\", r); return 0; }\n")
    test.run(["gcc", "-g", "-O0", "-o", "program", "program.c"], preload=False)
    asks = ["-ex", "break deep if n == 5", "-ex", "run", "-ex", "backtrace", "-ex", "print (int)strlen((char *)strdup(\"sixteen\"))",
            "-ex", "finish", "-ex", "delete", "-ex", "continue"]
    for name, words, preload in ways(test):
        setting = ["-ex", f"set environment LD_PRELOAD {test.library}"] if preload and test.library else []
        got = test.run([*words, "gdb", "-nx", "-batch", "-ex", "set startup-with-shell off", *setting, *asks,
                        test.folder / "program"], preload=preload).stdout
        for wanted in ("#15 ", "= 7", "Value returned is $2 = 42", "result 42", "exited normally"):
            test.expect(wanted in got, f"{name}: gdb does not say {wanted!r}")
    attach = ["gdb", "-nx", "-batch", "-ex", "thread apply all backtrace 5", "-ex", "print (long)getpid()", "-ex", "detach"]
    check_attached(test, lambda pid: [*attach, "-p", pid], (0,))


@program("valgrind", needs={"valgrind": "valgrind", "gcc": "gcc"}, quick_limit_s=150)
def valgrind(test):
    """valgrind on a program under the library: it takes malloc's place, or leaves it; in both it finds what is wrong"""
    (test.folder / "program.c").write_text(
        "#include <stdlib.h>\n#include <stdio.h>\n"
        "int main(int argc, char **argv) { (void)argv; char *kept[500]; long sum = 0;\n"
        "  for (int i = 0; i < 500; i++) { kept[i] = malloc(i * 97 + 1); kept[i][i * 97] = (char)i; }\n"
        "  for (int i = 0; i < 500; i++) { sum += kept[i][i * 97]; if (argc < 2 || i % 2) free(kept[i]); }\n"
        "  if (argc > 1) { volatile char *p = malloc(10); p[10] = 1; }\n"
        "  printf(\"sum %ld\\n\", sum); return 0; }\n")
    test.run(["gcc", "-g", "-O1", "-w", "-o", "program", "program.c"], preload=False)
    for name, words, preload in ways(test):
        for options, want in (([], "All heap blocks were freed"), (["--run-libc-freeres=no", "--soname-synonyms=somalloc=nouserintercepts"],
                                                                  "ERROR SUMMARY: 0 errors")):
            got = test.run(["valgrind", *options, *words, test.folder / "program"] if not words else
                           [*words, "valgrind", *options, test.folder / "program"], preload=preload)
            test.expect(got.stdout == "sum 0\n" or re.fullmatch(r"sum -?\d+\n", got.stdout), f"{name}: printed {got.stdout!r}")
            test.expect(want in got.stderr, f"{name}: valgrind {' '.join(options)} does not say {want!r}")
        bad = test.run([*words, "valgrind", "--leak-check=full", test.folder / "program", "wrong"], preload=preload).stderr
        test.expect("Invalid write of size 1" in bad and "definitely lost" in bad, f"{name}: valgrind does not find the mistakes")


@program("perf", needs={"perf": "linux-perf", **PYTHON}, watches=["python3*"], quick_limit_s=150)
def perf(test):
    """perf counts and records a program under the library, and finds the library's functions by name"""
    probe = test.run(["perf", "stat", "-e", "task-clock", "true"], preload=False, statuses=None)
    if probe.status:
        test.skip("perf may not count here: see /proc/sys/kernel/perf_event_paranoid")
    same_by_each_way(test, ["perf", "stat", "-o", "/dev/null", "-e", "task-clock,page-faults"], script(test))
    for name, words, preload in ways(test):
        test.run([*words, "perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-g", "-o", "perf.data", *script(test)],
                 preload=preload, env={"PYTHONMALLOC": "malloc"})
        told = test.run(["perf", "report", "-i", "perf.data", "--stdio", "--no-children", "--sort", "dso"], preload=False).stdout
        test.expect("python3" in told or "libpython" in told, f"{name}: perf saw nothing of the program")
        test.expect(not test.library or "preload-" in told, f"{name}: perf saw nothing of the library")


def check_attached(test, command, statuses):
    """Attaches a tool to a program in the middle of its work; it must go on, and come to the same end."""
    plain = test.run(script(test, 0), preload=False).stdout
    for name, words, preload in ways(test):
        output = test.folder / f"attached-{name.replace(' ', '-')}"
        with open(output, "w", encoding="utf-8") as sink:
            running = subprocess.Popen([str(word) for word in [*words, *script(test, 3)]], stdout=sink, cwd=test.folder,
                                       env=test.environment(preload))
        test.wait_for(lambda tasks=f"/proc/{running.pid}/task": len(os.listdir(tasks)) > 3, "the program starts no threads")
        test.run(command(running.pid), statuses=statuses, preload=preload)
        test.expect(running.wait(60) == 0, f"{name}: the program ended with {running.returncode} after it was looked at")
        test.expect(output.read_text(encoding="utf-8") == plain, f"{name}: the program printed something else")
