#!/bin/bash
# Runs the program in a control group of its own with a memory limit, with purging by budget switched off, so that
# only the nearness of the limit can make the library give memory back. The kernel must not kill it.
#
#   run_container.sh CHURN LIBRARY
set -uo pipefail
churn=$1 library=$2
limit_bytes=$((100 * 1024 * 1024))
name=snug-test-$$

if [ -w /sys/fs/cgroup/memory ]; then
  group=/sys/fs/cgroup/memory/$name limit_file=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && [ -w /sys/fs/cgroup ]; then
  group=/sys/fs/cgroup/$name limit_file=memory.max
else
  echo "skip container: no control group can be made here (needs root and the memory controller)"
  echo "container: 0 passed, 0 failed, 1 skipped"
  exit 0
fi
if ! mkdir "$group" 2>/dev/null || ! echo "$limit_bytes" >"$group/$limit_file" 2>/dev/null; then
  rmdir "$group" 2>/dev/null
  echo "skip container: $group can't be made or limited"
  echo "container: 0 passed, 0 failed, 1 skipped"
  exit 0
fi
output=$(sh -c 'echo $$ >"$0/cgroup.procs" && exec env LD_PRELOAD="$1" SNUG=purge_cpu_percent:0,stats_print:1 "$2"' \
  "$group" "$library" "$churn" 2>&1)
status=$?
sleep 0.2
rmdir "$group"
if [ $status -eq 0 ] && grep -q '^done' <<<"$output" && ! grep -q '"limit_purges":0,' <<<"$output"; then
  echo "container: 1 passed, 0 failed"
else
  echo "not ok container: status $status under a limit of $limit_bytes bytes: ${output:0:300}"
  echo "container: 0 passed, 1 failed"
  exit 1
fi
