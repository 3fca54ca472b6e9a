#!/usr/bin/env python3
"""`snug canary` of 40 real processes: what it says of 20 under snug beside 20 under glibc, and of 40 that are the same.

  deploy/monitoring/tests/fleet/test_real_fleet.py               both, in about 8 minutes; `make test-fleet` does the same
  deploy/monitoring/tests/fleet/test_real_fleet.py -k same       one of them
  SEED=5 deploy/monitoring/tests/fleet/test_real_fleet.py        with another load and other halves

Needs build/snug and build/libsnug.so (or SNUG_PROGRAM and SNUG_LIBRARY), Ruby, and Debian's package prometheus. As root each
process has the control groups of a pod; otherwise the exporter tells them apart by their command lines. Everything it starts
it ends, and its files are in a directory that it removes.
"""

import datetime
import json
import os
import random
import statistics
import sys
import time
import unittest
from collections import Counter

from real_fleet import SCRAPE_EVERY_S, RealFleet, ask

PODS = 40
SEED = int(os.environ.get("SEED", "16"))
# Until then memory grows: so many requests of each pod, which a busy machine may not get done.
WARM_UP_REQUESTS = 1000
WARM_UP_S, WARM_UP_MOST_S = 90, 240
# The shortest that snug canary looks at.
WINDOW_S = 120
QUESTION = ["--window", f"{WINDOW_S}s", "--step", f"{SCRAPE_EVERY_S}s", "--warm-up", f"{WARM_UP_S}s"]
# How many halves of the same pods are compared, and how many of those may be called different.
HALVES = 200
FALSE_ALARMS_MOST = HALVES * 0.05


def unix_time_s(text):
    return datetime.datetime.fromisoformat(text).timestamp()


class RealPods(unittest.TestCase):
    def started(self, pods):
        fleet = RealFleet(pods, SEED)
        self.addCleanup(fleet.stop)
        fleet.start().run_for(WARM_UP_S)
        deadline = time.monotonic() + WARM_UP_MOST_S - WARM_UP_S
        while min(fleet.answered.values()) < WARM_UP_REQUESTS and time.monotonic() < deadline:
            fleet.run_for(1)
        fleet.run_for(WINDOW_S)
        print(f"\n  {sum(fleet.answered.values())} requests answered, {min(fleet.answered.values())} or more by each pod", file=sys.stderr)
        self.assertGreater(min(fleet.answered.values()), WINDOW_S, "there was hardly any load")
        return fleet

    def asked(self, fleet, canary, *more):
        done = ask(fleet, "--canary", canary, "--json", *QUESTION, *more)
        self.assertTrue(done.stdout, done)
        return json.loads(done.stdout)

    def memory(self, fleet, answer, canaries):
        """The row about memory. Its interval must contain what /proc says of the same pods in the same time."""
        memory = answer["quantities"][0]
        self.assertEqual((memory["name"], memory["canary_pods"], memory["baseline_pods"]), ("memory_bytes", len(canaries), PODS - len(canaries)))
        times = unix_time_s(answer["from"]), unix_time_s(answer["to"])
        others = [name for name in fleet.pods if name not in canaries]
        (canary, canary_cpu), (baseline, baseline_cpu) = fleet.from_proc(canaries, *times), fleet.from_proc(others, *times)
        canary, baseline = statistics.geometric_mean(canary), statistics.geometric_mean(baseline)
        low, high = memory["interval"]
        print(f"  memory: /proc says {canary / 1e6:.1f} and {baseline / 1e6:.1f} MB, {canary / baseline:.3f}x; "
              f"snug canary {memory['ratio']:.3f}x ({low:.3f} to {high:.3f}), {memory['answer']}\n"
              f"  CPU: /proc says {sum(canary_cpu) / sum(baseline_cpu):.3f}x", file=sys.stderr)
        self.assertTrue(low <= canary / baseline <= high, (memory, canary / baseline))
        return memory

    def test_20_under_snug_beside_20_under_glibc(self):
        fleet = self.started({f"web-{'canary-' if number < PODS / 2 else ''}{number:02}": number < PODS / 2 for number in range(PODS)})
        canaries = [name for name, under_snug in fleet.pods.items() if under_snug]
        # By the label of the exporter, which sees which of them run under snug.
        canary = 'group="canary"'
        answer = self.asked(fleet, canary)
        print(ask(fleet, "--canary", canary, *QUESTION).stdout, file=sys.stderr)
        self.assertEqual(self.memory(fleet, answer, canaries)["answer"], "better")
        # The one word about all: small servers that wait most of the time may pay for it in CPU time.
        worse = any(row["answer"] == "worse" for row in answer["quantities"])
        self.assertEqual(answer["answer"], "worse" if worse else "better")

    def test_40_that_are_the_same(self):
        fleet = self.started({f"web-{number:02}": False for number in range(PODS)})
        chance = random.Random(SEED)
        halves = [sorted(chance.sample(sorted(fleet.pods), PODS // 2)) for _ in range(HALVES)]
        # At the same moment, so that only the halves differ.
        first = self.asked(fleet, fleet.some(halves[0]))
        words = [self.memory(fleet, first, halves[0])["answer"]]
        words += [self.asked(fleet, fleet.some(half), "--end", first["to"])["quantities"][0]["answer"] for half in halves[1:]]
        print(f"  of {HALVES} halves: {dict(Counter(words))}", file=sys.stderr)
        self.assertIn(words[0], ("no_difference", "not_enough_data"))
        self.assertLessEqual(words.count("better") + words.count("worse"), FALSE_ALARMS_MOST)


if __name__ == "__main__":
    unittest.main()
