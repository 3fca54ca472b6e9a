"""What a run of queued jobs needs on the driver's side: wait for them, gather what they recorded.

Each job, when it ends, appends "MILLISECONDS ok" or "MILLISECONDS problem" to the list DONE_LIST of redis.
"""

import contextlib
import sys
import time

DONE_LIST = "bench:done"
ERRORS_SHOWN = 5
NO_PROGRESS_SECONDS = 120
NO_PROGRESS_SECONDS_AFTER_LOSS = 10


def run_bursts(session, redis, arguments, queue_jobs, watch=None):
    """Queues the jobs of each burst with queue_jobs(burst) and waits for them and the quiet time after. A watch
    of the memory lasts as long as there is work.

    Returns (jobs per second while there was work, milliseconds of each job, number of errors).
    """
    durations_ms, errors, busy_seconds = [], 0, 0.0
    for burst in range(arguments.bursts):
        started = time.monotonic()
        with watch or contextlib.nullcontext():
            queue_jobs(burst)
            missing, ended = _wait(session, redis, arguments.count)
        busy_seconds += ended - started
        errors += missing + _gather(redis, durations_ms)
        time.sleep(arguments.idle_seconds)
        session.check_running()
    return len(durations_ms) / busy_seconds, durations_ms, errors


def _wait(session, redis, expected):
    """Waits until `expected` jobs have recorded their end. Returns (how many never did, when the last one did)."""
    done, moved_at = 0, time.monotonic()
    while done < expected:
        session.check_running()
        count = redis.command("LLEN", DONE_LIST)
        if count != done:
            done, moved_at = count, time.monotonic()
        elif time.monotonic() - moved_at > _patience(session):
            print(f"{expected - done} jobs did not end", file=sys.stderr)
            break
        time.sleep(0.02)
    return expected - done, moved_at


def _patience(session):
    """How long nothing may move. A process that died took its jobs with it."""
    return NO_PROGRESS_SECONDS_AFTER_LOSS if session.lost_processes() else NO_PROGRESS_SECONDS


def _gather(redis, durations_ms):
    """Adds what the jobs recorded to durations_ms. Returns how many of them failed."""
    errors = 0
    for entry in redis.command("LRANGE", DONE_LIST, 0, -1):
        duration, _, outcome = entry.decode(errors="replace").partition(" ")
        durations_ms.append(float(duration))
        if outcome != "ok":
            errors += 1
            if errors <= ERRORS_SHOWN:
                print(f"a job failed: {outcome}", file=sys.stderr)
    redis.command("DEL", DONE_LIST)
    return errors
