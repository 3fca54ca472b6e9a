"""bench/worst reads what its library notes. Run: tools/run_unittests.py bench/tests"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from bench import worst

PROGRAM = """import os, time
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
blocks = [bytearray(5000) for _ in range(1000)]
"""


class Worst(unittest.TestCase):
    def test_each_time_is_between_the_ends_of_its_bucket(self):
        edges = [worst.least_ns(number) for number in range(worst.BUCKETS)]
        self.assertEqual(edges, sorted(set(edges)))
        self.assertEqual(edges[:10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        self.assertEqual(worst.least_ns(16), 16)
        self.assertEqual(worst.least_ns(17), 18)

    def test_percentiles(self):
        buckets = [0] * worst.BUCKETS
        self.assertIsNone(worst.percentile(buckets, 50))
        buckets[5], buckets[40] = 999, 1
        self.assertEqual(worst.percentile(buckets, 50), worst.least_ns(6))
        self.assertEqual(worst.percentile(buckets, 99.9), worst.least_ns(6))
        self.assertEqual(worst.percentile(buckets, 99.99), worst.least_ns(41))

    def test_the_library_notes_calls_of_all_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            library, path = Path(folder, "lib.so"), Path(folder, "times")
            subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, worst.SOURCE, "-ldl"], check=True)
            for preload in (library, f"{library} {worst.ALLOCATORS['snug']}"):
                path.unlink(missing_ok=True)
                environment = {**os.environ, "LD_PRELOAD": str(preload), "MALLOC_CALL_TIMES_FILE": str(path), "PYTHONMALLOC": "malloc"}
                subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
                found = worst.summary(worst.read(path.read_bytes()))
                self.assertEqual(found["fork"]["calls"], 20)
                self.assertGreater(found["malloc"]["calls"], 1000)
                for name in worst.SHOWN:
                    times = [found[name][key] for key in (*map(str, worst.PERCENTILES), "longest")]
                    self.assertEqual(times[:-1], sorted(times[:-1]))
                    self.assertGreaterEqual(times[-1] * 9 / 8 + 1, times[-2])

    def test_the_longest_is_that_of_all_runs(self):
        one, two = ({name: {"calls": 1, "longest": longest} for name in worst.SHOWN} for longest in (5, 9))
        self.assertEqual(worst.combined([one, two, one])["free"], {"calls": 1, "longest": 9})


if __name__ == "__main__":
    unittest.main()
