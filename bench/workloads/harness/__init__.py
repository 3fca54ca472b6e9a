"""What the workload drivers share: clean environment, processes that surely end, redis, metrics.

Only Python's standard library is used, so that /usr/bin/python3 of a bare Debian runs the drivers.
"""
