import os
import pathlib
import re
import xml.etree.ElementTree

from catalog import program
from worker import Failure

PYTHON = "/usr/bin/python3"
# Of the system's Python: 3.11 in Debian 12, 3.13 in Debian 13.
SUITE = pathlib.Path("/usr/lib", os.path.basename(os.path.realpath(PYTHON)), "test")
NEEDS = {PYTHON: "python3", str(SUITE / "test_dict.py"): f"lib{SUITE.parent.name}-testsuite"}

# Those that wait long come first, so that no process is left with them at the end.
THREADS_AND_PROCESSES = """test_multiprocessing_spawn test_multiprocessing_forkserver test_multiprocessing_fork
    test_concurrent_futures test_asyncio test_subprocess test_threading test_thread test_threading_local
    test_threadsignals test_queue test_fork1 test_mmap test_ctypes test_gc test_weakref test_interpreters""".split()
MEMORY = """test_json test_re test_pickle test_list test_dict test_bytes test_tuple test_set test_deque
    test_ordered_dict test_array test_buffer test_memoryview test_struct test_unicode test_str test_long test_float test_decimal test_sort
    test_itertools test_functools test_collections test_copy test_marshal test_zlib test_bz2 test_lzma test_hashlib
    test_memoryio test_sqlite3 test_xml_etree test_pyexpat test_csv test_datetime test_generators test_coroutines
    test_compile test_ast test_tracemalloc test_descr test_types test_call test_exceptions test_traceback
    test_codecs test_random test_statistics test_heapq test_bisect test_enum test_dataclasses""".split()
# Whole groups that only sleep: they cost the quick run a minute and allocate nothing.
SLEEPERS = ["*WaitTest*", "*.TestWait.*", "*Barrier*", "*ProcessesTestCondition*", "*ManagerTestCondition*",
            "*AsCompleted*", "*SubprocessFast*", "*SubprocessSafe*", "*SubprocessThreaded*", "*NoPoll*", "*TaskGroup*", "*TestSSL*",
            "*StartTLS*", "*ResourceTracker*", "*Finalize*", "*TestPoll*", "*test_many_processes*", "*EINTR*", "*Eintr*",
            "*test_communicate_timeout_large*", "*DeadlockTest*", "*test_hang_*", "*WithManagerTest*"]
# Depend on the virtual machine: without a host behind its vsock device the stream test waits forever.
HOST_BOUND = ["*VSOCK*"]
# Need a display, the network, or a package index.
LEFT_OUT = """test_idle test_tcl test_tk test_tix test_ttk_guionly test_ttk_textonly test_turtle test_ensurepip
    test_venv test_urllib2net test_urllibnet test_smtpnet test_xmlrpc_net test_cppext test_gdb test_distutils""".split()


@program("python", needs=NEEDS, light=True, proves=[f"{PYTHON} --version"], watches=["python3*"], quick_limit_s=420,
         full_limit_s=2400)
def python(test):
    """CPython's own test suite: all of it that a machine without display and network can run"""
    if test.quick:
        check_suite(test, THREADS_AND_PROCESSES + MEMORY, ignored=SLEEPERS)
    else:
        check_suite(test, THREADS_AND_PROCESSES + others(THREADS_AND_PROCESSES), ignored=HOST_BOUND)


@program("python-malloc", needs=NEEDS, light=True, watches=["python3*"], quick_limit_s=240, full_limit_s=2400)
def python_malloc(test):
    """the same with PYTHONMALLOC=malloc: each Python object, however small, is a malloc"""
    chosen = MEMORY if test.quick else THREADS_AND_PROCESSES + MEMORY
    check_suite(test, chosen, ignored=SLEEPERS, env={"PYTHONMALLOC": "malloc"})


def others(chosen):
    names = os.listdir(SUITE)
    found = [name.removesuffix(".py") for name in names if re.fullmatch(r"test_\w+(\.py)?", name)]
    return sorted(set(found) - set(chosen) - set(LEFT_OUT))


class Outcome:
    """What one run of the suite says: a verdict per module, and the cases that failed."""

    LINE = re.compile(r"^\S+ (?:load avg: \S+ )?\[ *\d+/\d+(?:/\d+)?\] (test_\w+) "
                      r"(passed|skipped|failed|crashed|timed out|run no tests|interrupted)(.*)$", re.M)

    def __init__(self, output, junit):
        self.verdicts = {name: (verdict, detail) for name, verdict, detail in self.LINE.findall(output)}
        self.failed_cases, self.case_count = set(), 0
        if junit.exists():
            for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
                self.case_count += 1
                if case.find("failure") is not None or case.find("error") is not None:
                    self.failed_cases.add(case.get("name"))

    def bad_modules(self, expected):
        fine = ("passed", "skipped", "run no tests")
        return [name for name in expected if self.verdicts.get(name, ("missing", ""))[0] not in fine and
                not self.only_environment_changed(name)]

    def only_environment_changed(self, name):
        """Such as a thread that was still ending: depends on the machine's load, says nothing about memory."""
        return "env changed" in self.verdicts.get(name, ("", ""))[1]

    def died(self, name):
        """The module's process was killed by a signal."""
        verdict, detail = self.verdicts.get(name, ("missing", ""))
        return verdict == "crashed" and "Exit code -" in detail


def run_suite(test, modules, *, ignored, env, preload, name, cases=()):
    """Runs the modules, or, if cases are given, only those of them."""
    junit = test.folder / f"{name}.xml"
    (test.folder / "ignored").write_text("\n".join(ignored) + "\n")
    limit_s = 200 if test.quick else 300
    argv = [PYTHON, "-m", "test", "-j4", "--timeout", limit_s, "--junit-xml", junit]
    argv += ["--ignorefile", test.folder / "ignored"] if ignored else []
    if cases:
        (test.folder / "cases").write_text("".join(f"{case.split(' ')[0]}\n" for case in sorted(cases)))
        argv += ["--matchfile", test.folder / "cases"]
    result = test.run(argv + modules, env=env, preload=preload, statuses=None)
    if result.status < 0:
        raise Failure(f"the runner of the test suite {result.ending()}")
    return Outcome(result.stdout, junit)


def check_suite(test, modules, *, ignored, env=None):
    """A test counts against the library if it fails with it, fails again with it, and passes without it. A module's
    process that dies of a signal counts at once, unless it dies without the library too."""
    modules = [name for name in modules if test_exists(name)]
    first = run_suite(test, modules, ignored=ignored, env=env, preload=True, name="first")
    test.note(f"{first.case_count} cases in {len(modules)} modules")
    suspects = first.bad_modules(modules)
    if not suspects:
        return
    test.log(f"suspects: {', '.join(suspects)}; cases: {', '.join(sorted(first.failed_cases)) or 'none'}")
    all_known = all(first.verdicts.get(name, ("missing", ""))[0] == "failed" for name in suspects)
    options = {"ignored": ignored, "env": env, "cases": first.failed_cases if all_known else ()}
    plain = run_suite(test, suspects, preload=False, name="plain", **options)
    again = run_suite(test, suspects, preload=True, name="again", **options)
    died = [name for name in suspects if (first.died(name) or again.died(name)) and not plain.died(name)]
    repeated = sorted(first.failed_cases & again.failed_cases - plain.failed_cases)
    broken = list(set(suspects) & set(again.bad_modules(suspects)) - set(plain.bad_modules(suspects)))
    known = sorted(set(plain.bad_modules(suspects)))
    unstable = sorted(set(suspects) - set(known) - set(broken) - set(died))
    if known:
        test.note(f"fail without the library too: {', '.join(known)}")
    if unstable:
        test.note(f"failed once, passed when repeated: {', '.join(unstable)}")
    test.expect(not died, f"died of a signal: {', '.join(died)}")
    test.expect(not repeated, f"{len(repeated)} cases fail only under the library: {', '.join(repeated[:3])}")
    test.expect(not broken, f"modules fail only under the library: {', '.join(sorted(broken))}")


def test_exists(name):
    return (SUITE / f"{name}.py").exists() or (SUITE / name).exists()
