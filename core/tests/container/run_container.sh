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
passed=0 failed=0
check() { # check NAME CONDITION...: one test
  local name=$1
  shift
  if "$@"; then
    echo "ok container/$name" && passed=$((passed + 1))
  else
    echo "not ok container/$name: status $status under a limit of $limit_bytes bytes: ${output:0:300}"
    failed=$((failed + 1))
  fi
}
check lives_within_the_limit test $status -eq 0
check comes_to_its_end grep -q '^done' <<<"$output"
check purges_when_the_limit_is_near grep -q '"limit_purges":[1-9]' <<<"$output"
echo "container: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
