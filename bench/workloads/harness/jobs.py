"""What a run of queued jobs needs on the driver's side: wait for them, gather what they recorded.

Each job, when it ends, appends "MILLISECONDS ok" or "MILLISECONDS problem" to the list DONE_LIST of redis.
"""

import sys
import time

DONE_LIST = "bench:done"
ERRORS_SHOWN = 5
NO_PROGRESS_SECONDS = 120


class Finished:
    """What finished jobs recorded, over all bursts."""

    def __init__(self):
        self.durations_ms = []
        self.errors = 0
        self.busy_seconds = 0.0

    def add(self, entries):
        for entry in entries:
            duration, _, outcome = entry.decode(errors="replace").partition(" ")
            self.durations_ms.append(float(duration))
            if outcome != "ok":
                self.errors += 1
                if self.errors <= ERRORS_SHOWN:
                    print(f"a job failed: {outcome}", file=sys.stderr)

    def per_second(self):
        return len(self.durations_ms) / self.busy_seconds


def wait_for_burst(session, redis, expected, finished, started):
    """Waits until `expected` jobs have recorded their end since `started`, and adds them to `finished`.

    Jobs that never end, because their process died, count as errors once nothing moves any more.
    """
    done, moved_at = 0, time.monotonic()
    while done < expected:
        session.check_running()
        count = redis.command("LLEN", DONE_LIST)
        if count != done:
            done, moved_at = count, time.monotonic()
        elif time.monotonic() - moved_at > NO_PROGRESS_SECONDS:
            print(f"{expected - done} jobs did not end", file=sys.stderr)
            finished.errors += expected - done
            break
        time.sleep(0.05)
    finished.busy_seconds += moved_at - started
    finished.add(redis.command("LRANGE", DONE_LIST, 0, -1))
    redis.command("DEL", DONE_LIST)
