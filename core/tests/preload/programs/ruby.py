from catalog import newest, program
from worker import Failure

GEMS = newest("/usr/lib/ruby/gems/*/gems", "/usr/lib/ruby/gems/3.1.0/gems")
SCRIPTS = ("gc_compact", "threads", "forks", "ractors", "strings", "extensions")


@program("ruby", needs={"ruby": "ruby"}, light=True, proves=["ruby --version"], watches=["ruby*"], quick_limit_s=150,
         full_limit_s=600)
def ruby(test):
    """ruby: GC.compact, threads, fork, Ractor, big strings, C extensions; tests of its bundled gems"""
    for name in SCRIPTS:
        result = test.run(["ruby", "-W0", test.scripts / f"{name}.rb", "1" if test.quick else "8"])
        test.expect(result.stdout.endswith(f"{name} ok\n"), f"{name}.rb did not reach its end")
    ran = [name for name, library in (("rss", "test/unit"), ("minitest", "minitest/autorun"))
           if run_gem_tests(test, name, library)]
    test.note(f"{len(SCRIPTS)} scripts; gems' own tests: {', '.join(ran) or 'none packaged here'}")


def run_gem_tests(test, name, library):
    """Runs the tests that Debian ships with a bundled gem; cases count that fail only under the library."""
    found = test.run(["bash", "-c", f"ls -d {GEMS}/{name}-*/test"], statuses=None, preload=False).stdout.split()
    if not found:
        return False
    folder = found[0].removesuffix("/test")
    compaction = "GC.auto_compact = true; " if not test.quick else ""
    # One file of Debian 13's minitest tests a task by hoe, which the package does without.
    load = "begin; require File.expand_path(file); rescue LoadError => error; raise unless error.path == 'hoe'; end"
    code = f"{compaction}Dir['test/**/test_*.rb'].sort.each {{ |file| {load} }}"
    argv = ["ruby", "-W0", "-Itest", "-Ilib", f"-r{library}", "-e", code]
    ours = test.run(argv, folder=folder, statuses=None)
    if ours.status == 0:
        return True
    plain = test.run(argv, folder=folder, statuses=None, preload=False)
    if ours.status < 0 or failed_cases(ours) - failed_cases(plain):
        cases = ", ".join(sorted(failed_cases(ours) - failed_cases(plain))[:3])
        raise Failure(f"tests of {name}: {ours.ending()}; fail only under the library: {cases or 'see the log'}")
    test.expect(failed_cases(plain), f"tests of {name} fail in a way that names no case, see the log")
    return True


def failed_cases(result):
    """Names such as TestX#test_y from minitest's and test-unit's reports."""
    words = result.stdout.replace("test_", " test_").split()
    return {word.strip(":()[],") for word in words if word.startswith("test_") and not word.endswith(".rb")}
