"""Immortal objects of the wheel's hooks, in every Python from 3.12 on that this machine has: what they save, what ends as
ever, where they are refused, and that an interpreter with all its objects immortal works and ends.

Each test is a script, run with each Python; SNUG_TEST_PYTHONS names others.
"""

import functools
import glob
import os
import shutil
import subprocess
import unittest

from release.project import ROOT
from release.tests.staged import CLEAN, run, temporary

VERSIONS = ("3.12", "3.13", "3.14", "3.15")
# What a boot leaves: data, classes and their instances, functions.
BOOT = """import gc, os, socket, sys, threading, weakref
from snug import hooks, immortal
class Row:
    def __init__(self, number): self.number, self.name, self.tags = number, f"row {number}", [str(number)]
rows = [Row(number + 1000) for number in range(20_000)]
table = {f"key {number}": {"id": number + 1000, "price": number * 1.5, "pair": (number + 5000, f"of {number}")} for number in range(20_000)}
def is_immortal(one): return immortal._Counts()[id(one) >> 3] & 0xFFFF_FFFF >= immortal.COUNTS[sys.version_info[:2]] & 0xFFFF_FFFF
def in_child(function):
    out, into = os.pipe()
    if not os.fork():
        os.write(into, repr(function()).encode()); os._exit(0)
    os.wait(); os.close(into)
    return eval(os.read(out, 65536))
"""


@functools.cache
def pythons():
    """The interpreters, one of each version."""
    named = os.environ.get("SNUG_TEST_PYTHONS")
    if named:
        return named.split(":")
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = []
    for version in VERSIONS:
        # pyenv's own programs of these names only start others.
        there = [shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin"), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python3"))]
        found += [path for path in there if path][:1]
    return found


def old_python():
    """One without immortal objects, or None."""
    return next((path for path in map(shutil.which, ("python3.11", "python3.10", "python3.9")) if path and "shims" not in path), None)


class Scripts(unittest.TestCase):
    def python(self, script, python, boot=BOOT, options=(), **variables):
        """What a script prints, which has to end well."""
        ended = run(python, *options, "-c", boot + script, PYTHONPATH=str(ROOT / "bindings/wheel"), PYTHONDONTWRITEBYTECODE="1", **variables)
        self.assertEqual(ended.returncode, 0, f"{python}: {ended.stdout}{ended.stderr}")
        self.said = ended.stderr
        return ended.stdout.splitlines()

    def everywhere(self, script, expected, **more):
        """Runs a script with each Python, and compares what it prints."""
        for python in pythons():
            with self.subTest(python=python):
                self.assertEqual(self.python(script, python, **more), expected, self.said)


@unittest.skipUnless(pythons(), f"no Python of {', '.join(VERSIONS)} is installed")
class Immortal(Scripts):
    def test_a_child_that_looks_at_everything_copies_next_to_nothing(self):
        script = BOOT + """
def look():
    found = 0
    for row in rows: found += len(row.name) + len(row.tags)
    for key, value in table.items(): found += len(key) + value["id"] + len(value["pair"][1])
    held = list(rows), list(table.values()), [value["pair"] for value in table.values()]
    return found and hooks.state()["copied_bytes"]
hooks.freeze_before_fork()
print(hooks.state()["shared_bytes"], in_child(look))
"""
        for python in pythons():
            with self.subTest(python=python):
                shared, copied = map(int, self.python(script, python, boot="")[0].split())
                self.assertGreater(shared, 12_000_000)
                self.assertLess(copied, shared / 5)
                shared, copied = map(int, self.python(script, python, boot="", SNUG_IMMORTAL="0")[0].split())
                self.assertGreater(copied, shared / 3)

    def test_no_use_of_an_object_changes_its_count(self):
        self.everywhere("""
def use():
    class Other: pass
    for key, value in table.items(): name, price = key, value["price"]
    for value in table.values(): value
    for first, second in zip(table, rows): pair = (first, second); one, other = pair
    held = list(table.values()) + rows
    while held: held.pop()
    for row in rows: other = Other(); other.row = row; other.row; call = lambda *row, tags=None: row; call(row, tags=row.tags)
    for row in [*rows]: one, = row.tags; f"{row.name}"; row.tags == [row.name]; {row.name: row}; (lambda: row)()
hooks.freeze_before_fork()
counts = immortal._Counts()
def now(): return {hex(counts[id(one) >> 3]) for held in (table, table.values(), rows) for one in held}
before = now()
use()
print(now() == before, len(before) < 3)
""", ["True True"])

    def test_what_it_did_is_said_once_and_can_be_asked_for(self):
        script = """
print(hooks.state())
hooks.freeze_before_fork()
state = hooks.state()
print(state["immortal"], state["reason"], state["objects"] > 150_000, state["shared_bytes"] > 12_000_000, 0 < state["seconds"] < 60, state["pid"] == os.getpid(), state["copied_bytes"])
import json
def page():  # as another process reads it
    for line in open(f"/proc/{os.getppid()}/maps"):
        if line.rstrip().endswith("/dev/zero (deleted)"):
            with open(f"/proc/{os.getppid()}/mem", "rb") as memory:
                memory.seek(int(line.split("-")[0], 16))
                text = memory.read(4096)
            if text.startswith(b"snug hooks 1\\n"): return text.split(b"\\n")[1].rstrip(b"\\0").decode()
print(json.loads(in_child(page)) == {name: value for name, value in state.items() if name != "copied_bytes"})
hooks._frozen_at -= 5
hooks.freeze_before_fork()
"""
        self.everywhere(script, ["None", "True None True True True True None", "True"])
        self.assertRegex(self.said, r"^snug: workers share \d+ MB, in it \d{3},\d{3} immortal objects \(\d+\.\d s\)\n$")

    def test_only_what_lives_before_the_first_fork(self):
        self.everywhere("""
hooks.freeze_before_fork()
later = [Row(1)]
hooks._frozen_at -= 5
hooks.freeze_before_fork()
print(is_immortal(rows), is_immortal(later), gc.is_tracked(later), in_child(lambda: is_immortal([Row(2)][0])))
""", ["True False True False"])

    def test_all_kinds_of_objects_are_reached(self):
        self.everywhere("""
import collections, datetime, decimal, enum, re
Point = collections.namedtuple("Point", "x y")
class Colour(enum.Enum): RED = "a colour"
deep = collections.OrderedDict(point=Point(12345, "y of a point"), when=datetime.datetime(2024, 5, 6), price=decimal.Decimal("1.5"),
    pattern=re.compile("a+b"), words=frozenset(["a word of a set"]), wait=collections.deque([f"in a deque"]), colour=Colour.RED)
def function(argument="a default"): return "a constant of it"
hooks.freeze_before_fork()
code = function.__code__
for one in (deep, *deep, *deep.values(), deep["point"].x, deep["point"].y, *deep["words"], *deep["wait"], function, function.__defaults__, code,
            code.co_consts, code.co_consts[-1], code.co_linetable, Row, Row.__init__, Row.__dict__["__init__"].__code__, rows[5], rows[5].tags,
            rows[5].tags[0], *list(table)[:3], table["key 7"], table["key 7"]["price"], sys, sys.modules, sys.modules["snug.hooks"].__dict__, str.__dict__["join"], BaseException):
    if not is_immortal(one): print("not", type(one), repr(one)[:60])
""", [])

    def test_what_owns_something_ends_when_it_is_dropped(self):
        self.everywhere("""
ended = []
class Ends:
    def __del__(self): ended.append("__del__")
class Plain: pass
class Holder: pass
class Session:
    def close(self): pass
holder = Holder()
# As a pool of connections: the socket lies behind objects that own nothing themselves.
holder.session = Session(); holder.session.pool = [Plain()]; holder.session.pool[0].socket = socket.socket()
holder.ends, holder.file, holder.socket, holder.awaited = Ends(), open("/dev/null"), socket.socket(), Plain()
numbers = [holder.file.fileno(), holder.socket.fileno(), holder.session.pool[0].socket.fileno()]
weakref.finalize(holder.awaited, ended.append, "finalize")
kept = weakref.WeakValueDictionary(one=Plain()); kept_alive = holder.in_a_dictionary = Plain(); kept["two"] = kept_alive; del kept_alive
hooks.freeze_before_fork()
def drop():
    del holder.session, holder.ends, holder.file, holder.socket, holder.awaited, holder.in_a_dictionary
    return ended, [os.path.exists(f"/proc/self/fd/{number}") for number in numbers], len(kept)
print(in_child(drop), is_immortal(holder), is_immortal(Ends))
""", ["(['__del__', 'finalize'], [False, False, False], 0) True True"], options=("-W", "ignore"))

    def test_arrays_that_ask_for_their_count_keep_it(self):
        self.everywhere("""
import types
sys.modules["numpy"] = numpy = types.ModuleType("numpy")
exec("class ndarray: pass", numpy.__dict__)
class Derived(numpy.ndarray): pass
arrays = [numpy.ndarray(), Derived(), Row(1)]
hooks.freeze_before_fork()
print(is_immortal(arrays), *map(is_immortal, arrays))
""", ["True False False True"])

    def test_callbacks_of_weak_references_are_called_after_unfreezing_too(self):
        self.everywhere("""
ended = []
class Node: pass
def node(): one = Node(); one.self = one; return one
held = [node() for _ in range(4)]
refs = [weakref.ref(held[0], ended.append), weakref.proxy(held[1], lambda _: 0), weakref.WeakKeyDictionary({held[2]: 1}), weakref.WeakValueDictionary({"key": held[3]})]
hooks.freeze_before_fork()
held.clear(); gc.unfreeze(); gc.collect()
print(len(ended), len(refs[2]), len(refs[3]))
rows.clear(); del Row; gc.collect()
""", ["1 0 0"])

    def test_files_are_flushed_at_the_end_whoever_holds_them(self):
        for python in pythons():
            with self.subTest(python=python):
                path = temporary(self) / "file"
                self.python(f"""
class Holder: pass
holder = Holder(); holder.own = holder; holder.text = open({str(path)!r}, "w"); holder.bytes = open({str(path) + "b"!r}, "wb")
def goes_on():
    holder.text.write("a last line"); holder.bytes.write(b"and bytes")
import atexit; atexit.register(goes_on)
hooks.freeze_before_fork()
child = os.fork()
if child: os.waitpid(child, 0); os._exit(0)
""", python, options=("-W", "ignore"))
                self.assertEqual((path.read_text(), path.with_name("fileb").read_text()), ("a last line", "and bytes"))

    def test_what_only_running_code_holds_is_left_to_it(self):
        self.everywhere("""
class Plain: pass
def function():
    local = Plain(); local.list = []
    hooks.freeze_before_fork()
    return weakref.ref(local)
print(function()())
def generator():
    local = Plain()
    yield weakref.ref(local)
    hooks._frozen_at = hooks._shared = None
    hooks.freeze_before_fork()
    yield 1
    yield 2
running = generator(); ref = next(running); next(running); del running
print(ref())
""", ["None", "None"])

    def test_a_tuple_under_construction_can_be_resized(self):
        # tuple() of an iterator asks that nobody else refers to what it fills.
        self.everywhere("""
def forks():
    for number in range(40):
        if number == 3: hooks.freeze_before_fork()
        yield in_child(lambda: number)
print(sum(tuple(forks())), sum([*map(len, zip(range(3), (hooks.freeze_before_fork() for _ in range(3))))]))
""", [f"{sum(range(40))} 6"])

    def test_no_object_is_asked_anything(self):
        # Proxies load what they stand for when somebody looks at them, their class included.
        self.everywhere("""
def fail(*_): raise RuntimeError("was called")
class Lazy:
    __class__ = property(fail)
    __getattr__ = __hash__ = __eq__ = __len__ = __iter__ = __bool__ = __repr__ = __call__ = fail
class LazyDict(dict):
    __class__ = property(fail)
    keys = values = items = __iter__ = __getitem__ = __len__ = fail
class Meta(type):
    __getattr__ = __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = fail
class Called(weakref.ref):
    __call__ = fail
rows.append(Lazy()); rows.append([LazyDict(key=Lazy())]); called = Called(rows[0], fail)
Meta.__hash__ = type.__hash__  # dictionaries of types, Python's own, too, need it
Odd = Meta("Odd", (), {}); rows.append(Odd())
hooks.freeze_before_fork()
print(hooks.state()["reason"], is_immortal(rows[-3]), is_immortal(rows[-2][0]), is_immortal(rows[0]))
""", ["None True True False"])

    def test_a_program_goes_on_and_ends_under_whatever_watches_it(self):
        script = """
import atexit, asyncio, concurrent.futures, faulthandler, json, logging, multiprocessing, subprocess, tracemalloc
atexit.register(print, "atexit")
logging.basicConfig(); faulthandler.enable()
stop = threading.Event()
before = threading.Thread(target=stop.wait); before.start()
threading.Thread(target=stop.wait, args=(99,), daemon=True).start()
suspended = (one for one in rows); next(suspended)
traced = []
sys.settrace(lambda *event: traced.append(1))
watch = sys.monitoring  # as coverage does
watch.use_tool_id(watch.COVERAGE_ID, "coverage"); watch.register_callback(watch.COVERAGE_ID, watch.events.LINE, lambda *place: traced.append(2) or watch.DISABLE)
watch.set_events(watch.COVERAGE_ID, watch.events.LINE)
hooks.freeze_before_fork()
sys.settrace(None)
print(in_child(lambda: json.dumps(rows[0].tags)), {1, 2} <= set(traced))
watch.set_events(watch.COVERAGE_ID, 0); watch.free_tool_id(watch.COVERAGE_ID)
class Node: pass
def cycle():
    node = Node(); node.self = node; node.rows = rows; return weakref.ref(node)
ref = cycle(); gc.collect(); print(ref())
gc.unfreeze(); gc.collect(); gc.freeze()
async def work(): await asyncio.sleep(0.01); return len(rows)
print(asyncio.run(work()), subprocess.run(["true"]).returncode, len(list(suspended)))
with concurrent.futures.ThreadPoolExecutor() as pool: print(sum(pool.map(len, ["abc"] * 5)))
with multiprocessing.get_context("fork").Pool(2) as pool: print(sum(pool.map(len, ["abc"] * 5)))
with multiprocessing.get_context("forkserver").Pool(1) as pool: print(sum(pool.map(len, ["abc"] * 5)))
rows.clear(); table.clear()
for number in range(1000): setattr(Row, f"attribute_{number}", number); sys.intern(f"row {number}")
del Row, BOOT if False else Row
stop.set(); before.join()
""".replace("del Row, BOOT if False else Row\n", "del Row\n")
        expected = ['["1000"] True', "None", "20000 0 19999", "15", "15", "15", "atexit"]
        for name, more in (("plain", {}), ("development", {"PYTHONDEVMODE": "1"}), ("debug", {"PYTHONMALLOC": "malloc_debug"}),
                           ("traced", {"PYTHONTRACEMALLOC": "5"}), ("unbuffered", {"options": ("-u", "-O")})):
            with self.subTest(name):
                self.everywhere(script, expected, **more)
                self.assertNotRegex(self.said, "Fatal|Traceback|Exception ignored")

    def test_other_interpreters_come_and_go(self):
        self.everywhere("""
try: import _interpreters as others
except ImportError: import _xxsubinterpreters as others
number = others.create()
run = lambda script: others.run_string(number, script)
refused = "from snug import hooks; hooks.freeze_before_fork(); print(hooks.state()['immortal'], hooks.state()['reason'])"
run("import sys; sys.path[:0] = %r; %s" % (sys.path, "import json, decimal; held = [{'a': str(n)} for n in range(1000)]"))
hooks.freeze_before_fork()
run("print(len(held), json.dumps(held[5]))"); others.destroy(number)
number = others.create(); run("import json, re; print(re.sub('a', 'b', json.dumps(['a'])))"); others.destroy(number)
sys.stdout.flush()
""", ['1000 {"a": "5"}', '["b"]'], options=("-u", "-W", "ignore"))


@unittest.skipUnless(pythons(), f"no Python of {', '.join(VERSIONS)} is installed")
class CPythonsOwnTests(Scripts):
    """The interpreter's own tests pass with everything immortal as without. SNUG_TEST_MODULES names other modules than these, or
    "all"; each runs in a process of its own, since their collections are the slower the more is loaded."""

    MODULES = ("test_class test_code test_contextlib test_copy test_coroutines test_dataclasses test_deque test_dict test_finalization test_frame "
               "test_functools test_gc test_generators test_iter test_list test_property test_slice test_super test_thread test_threading_local "
               "test_tuple test_types test_unpack test_weakset")

    # After gc.unfreeze(), which a test of gc's calls, 3.14 and later stop to track what is immortal. The others expect that an
    # object more raises the count of its type, by sys.getrefcount.
    DIFFERENT = ("fails test.test_gc.GCTests.test_get_referents_on_capsule", "fails test.test_gc.GCTests.test_is_tracked",
                 "fails test.test_capi.test_misc.CAPITest.test_c_subclass_of_heap_ctype_with_tpdealloc_decrefs_once",
                 "fails test.test_capi.test_misc.CAPITest.test_c_subclass_of_heap_ctype_with_del_modifying_dunder_class_only_decrefs_once")

    def outcome(self, python, kind, module):
        folder = temporary(self)
        try:
            ended = subprocess.run([python, ROOT / "bindings/tests/run_modules_of_tests.py", kind, f"test.{module}"], capture_output=True, text=True,
                                   cwd=folder, timeout=1800, env={**CLEAN, "HOME": str(folder), "PYTHONPATH": str(ROOT / "bindings/wheel"), "PYTHONDONTWRITEBYTECODE": "1"})
        except subprocess.TimeoutExpired:
            return ["it does not end", "0 ran"]
        return ended.stdout.splitlines() if ended.returncode == 0 else [f"exit {ended.returncode}: {ended.stderr[-500:]}", "0 ran"]

    def test_pass_as_without(self):
        for python in pythons():
            there = run(python, "-c", "import glob, os, test; print(*[os.path.basename(p).partition('.')[0] for p in glob.glob(os.path.dirname(test.__file__) + '/test_*')])").stdout.split()
            asked = os.environ.get("SNUG_TEST_MODULES", self.MODULES)
            modules = sorted(there if asked == "all" else set(asked.split()) & set(there))
            with self.subTest(python=python):
                if not modules:
                    self.skipTest(f"{python} has no tests of its own")
                ran = 0
                for module in modules:
                    *bad, count = self.outcome(python, "immortal", module)
                    ran += int(count.split()[0])
                    bad = set(bad) - set(self.DIFFERENT)
                    # Unless all passed, as they do without; and some fail now and then.
                    for _ in range(3):
                        bad -= set(self.outcome(python, "mortal", module)[:-1]) if bad else set()
                    with self.subTest(python=python, module=module):
                        self.assertEqual(bad, set())
                self.assertGreater(ran, 20 * len(modules))


class Refusals(Scripts):
    """Where counts cannot be relied on nothing is made immortal; the rest goes on."""

    FROZEN = "\nhooks.freeze_before_fork()\nprint(hooks.state()['immortal'], gc.get_freeze_count() > 20_000, hooks.state()['reason'])"

    def refused(self, before, reason, python=None, **more):
        self.everywhere(before + self.FROZEN, [f"False True {reason}"], **more)
        if pythons():
            self.assertIn(f"no immortal objects, {reason}", self.said)

    @unittest.skipUnless(old_python(), "no Python before 3.12 is installed")
    def test_python_3_11_and_older(self):
        printed = self.python(self.FROZEN, old_python())
        self.assertRegex(printed[0], r"False True Python 3\.\d+ has no immortal objects; 3\.12 and later have")

    def test_versions_that_are_not_known(self):
        self.refused("sys.version_info = (3, 99, 0)", "immortal objects of Python 3.99 are not known to this version of snug")

    def test_free_threaded_builds(self):
        self.refused("sys.abiflags += 't'", "this is a free-threaded build of Python")

    def test_builds_that_check_counts(self):
        self.refused("sys.gettotalrefcount = len", "this build of Python checks reference counts")

    def test_other_interpreters_than_cpython(self):
        self.refused("sys.implementation.name = 'pypy'", "pypy does not count references as CPython does")

    def test_machines_of_another_form(self):
        self.refused("sys.maxsize = 2**31 - 1", "this machine's reference counts are of another form")

    def test_builds_that_count_otherwise(self):
        self.refused("immortal.COUNTS = dict.fromkeys(immortal.COUNTS, 0x4000_0000)", "this build of Python counts references in a way of its own")

    def test_the_switch_and_the_argument(self):
        self.refused("", "they are switched off", SNUG_IMMORTAL="0")
        self.everywhere(self.FROZEN.replace("fork()", "fork(immortal=False)"), ["False True they are switched off"])

    def test_an_error_leaves_the_rest_alone(self):
        self.refused("hooks.make_immortal = None", "an error came up")
        if pythons():
            self.assertIn("a hook failed, and the server goes on: _share", self.said)


if __name__ == "__main__":
    unittest.main()
