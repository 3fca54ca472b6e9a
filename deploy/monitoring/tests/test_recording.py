#!/usr/bin/env python3
"""How often the interval of live memory's growth in deploy/monitoring/recording.yml is right, on a real Prometheus server with
simulated processes.

Needs Debian's package prometheus. Everything it starts it ends, and its files are in a directory that it removes.
"""

import json
import math
import random
import re
import time
import unittest
import urllib.parse

import recorded_prometheus
from test_monitoring import MONITORING, get

HOURS = 9
STEP_S = 120
EACH = 150
LEAK_BYTES_PER_H = 1e7
LEVEL_BYTES = 2e8


def expression(name):
    """What a recording rule asks, in terms of what the exporter serves."""
    rules = re.findall(r"- record: (process:\S+)\n\s+expr: (\|\n(?:          .*\n)+|.*\n)", (MONITORING / "recording.yml").read_text())
    found = {rule: expr.removeprefix("|").strip() for rule, expr in rules}

    def whole(text):
        return re.sub(r"process:\w+:\w+", lambda rule: f"({whole(found[rule[0]])})", text)
    return whole(found[name])


class Growth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.end_s = int(time.time()) // 3600 * 3600 - 7
        cls.url = recorded_prometheus.start(cls, cls.record)

    @classmethod
    def record(cls, out):
        """Processes that hold their level and such that leak, half of each with a collector that runs now and then, all with
        noise that lasts for some minutes."""
        chance = random.Random(20261125)
        live, starts = [], []
        times = range(cls.end_s - HOURS * 3600, cls.end_s, STEP_S)
        for number in range(2 * EACH):
            leaks, collects = number % 2, number // 2 % 2
            labels = {"role": "leaks" if leaks else "stays", "worker": number}
            noise, garbage, limit, points = 0.0, 0.0, 1800.0, []
            for time_s in times:
                noise = 0.9 * noise + chance.gauss(0, 0.02 * math.sqrt(1 - 0.9 ** 2))
                garbage += STEP_S * collects
                if garbage > limit:
                    garbage, limit = 0.0, 1800 * math.exp(chance.gauss(0, 0.3))
                level = LEVEL_BYTES + leaks * LEAK_BYTES_PER_H * (time_s - times[0]) / 3600
                points.append((time_s, int(level * (1 + noise) + 1e7 * garbage / 1800)))
            live.append((labels, points))
            starts.append((labels, [(time_s, times[0] - 36000) for time_s in times]))
        recorded_prometheus.write_families(out, {"snug_heap_live_bytes": ("gauge", live), "snug_process_start_time_seconds": ("gauge", starts)})

    def values(self, name, role):
        query = urllib.parse.urlencode({"query": expression(name), "time": self.end_s})
        found = json.loads(get(f"{self.url}/api/v1/query?{query}"))["data"]["result"]
        return {one["metric"]["worker"]: 3600 * float(one["value"][1]) for one in found if one["metric"]["role"] == role}

    def test_the_interval_holds_the_truth(self):
        found = {}
        for role, truth in (("stays", 0), ("leaks", LEAK_BYTES_PER_H)):
            low, high = self.values("process:snug_live_growth:low6h", role), self.values("process:snug_live_growth:high6h", role)
            self.assertEqual((len(low), len(high)), (EACH, EACH))
            found[role] = {"above zero": sum(value > 0 for value in low.values()) / EACH,
                           "holds": sum(low[worker] <= truth <= high[worker] for worker in low) / EACH}
        print(f"\n  growth: {found}")
        self.assertLessEqual(found["stays"]["above zero"], 0.05)
        for role in found:
            self.assertGreaterEqual(found[role]["holds"], 0.92)
        self.assertGreater(found["leaks"]["above zero"], 0.3)


if __name__ == "__main__":
    unittest.main()
