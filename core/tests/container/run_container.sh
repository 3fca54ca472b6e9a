#!/bin/bash
# Runs programs in control groups of their own with memory limits, of version 1 or 2.
#
#   run_container.sh CHURN STEADY LIBRARY
#
# CHURN needs what it freed for blocks of another size. Purging by budget is switched off, so that only the nearness of
# the limit can make the library give memory back, and the kernel must not kill it. STEADY's live memory is 93 % of the
# limit: there it must not cost many more page faults than far from it. The same with swap, in a file and in zram:
# both are made here and are gone afterwards.
set -uo pipefail
churn=$1 steady=$2 library=$3
mib=$((1024 * 1024))
swap_mib=256
passed=0 failed=0 skipped=0

if [ -w /sys/fs/cgroup/memory ]; then
  parent=/sys/fs/cgroup/memory limit_file=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && [ -w /sys/fs/cgroup ]; then
  parent=/sys/fs/cgroup limit_file=memory.max
else
  echo "SKIPPED container: no control group can be made here"
  echo "container: 0 passed, 0 failed, 1 skipped"
  exit 0
fi
work=$(mktemp -d) || exit 1
zram='' swap=''
cleanup() {
  swap_off
  rmdir "$parent"/snug-test-$$-* 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# make_group NAME LIMIT_MIB [SWAP_MIB]: sets group.
make_group() {
  group=$parent/snug-test-$$-$1
  mkdir "$group" 2>/dev/null && echo $(($2 * mib)) >"$group/$limit_file" 2>/dev/null || return
  if [ -e "$group/memory.memsw.limit_in_bytes" ]; then
    echo $((($2 + ${3:-0}) * mib)) >"$group/memory.memsw.limit_in_bytes"
  elif [ -e "$group/memory.swap.max" ]; then
    echo $((${3:-0} * mib)) >"$group/memory.swap.max"
  fi
}

# run_in NAME LIMIT_MIB SWAP_MIB OPTIONS COMMAND...: what it says is in $work/NAME, its status in $work/NAME.status.
run_in() {
  local name=$1 group options=$4
  if ! make_group "$1" "$2" "$3"; then
    echo "no group" >"$work/$name"
    return
  fi
  shift 4
  sh -c 'echo $$ >"$0/cgroup.procs" && options=$1 library=$2 && shift 2 && exec env LD_PRELOAD="$library" SNUG="$options" "$@"' \
    "$group" "$options" "$library" "$@" >"$work/$name" 2>&1
  echo $? >"$work/$name.status"
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    rmdir "$group" 2>/dev/null && break
    sleep 0.1
  done
}

number() { # number NAME FIELD: what a program said
  grep -o "\"$2\":[0-9]*" "$work/$1" | head -n 1 | cut -d: -f2
}

check() { # check NAME OUTPUT CONDITION...: one test
  local name=$1 output=$2
  shift 2
  if "$@"; then
    echo "ok container/$name" && passed=$((passed + 1))
  else
    echo "not ok container/$name: $*"
    { grep -h '"faults"' "$work/${output%-near}"* || head -c 400 "$work/$output" && echo; } | sed 's/^/  /'
    failed=$((failed + 1))
  fi
}

skip() { # skip NAME REASON
  echo "SKIPPED container/$1: $2" && skipped=$((skipped + 1))
}

faults_at_most() { # faults_at_most NAME PERCENT NAME_FAR
  local near far
  near=$(number "$1" faults) far=$(number "$3" faults)
  [ -n "$near" ] && [ -n "$far" ] && [ "$near" -le $((far * $2 / 100 + 1000)) ]
}

faults_below_half() { # faults_below_half NAME OF_NAME
  local few many
  few=$(number "$1" faults) many=$(number "$2" faults)
  [ -n "$few" ] && [ -n "$many" ] && [ "$few" -le $((many / 2)) ]
}

# steady_costs NAME PATTERN LIVE_MIB SWAP_MIB PERCENT: near a limit of 100 MiB and far from one.
steady_costs() {
  run_in "$1-near" 100 "$4" stats_print:1 "$steady" "$2" "$3" 4 &
  run_in "$1-far" 1000 0 stats_print:1 "$steady" "$2" "$3" 4 &
  wait
  check "$1_costs_no_more_near_the_limit" "$1-near" faults_at_most "$1-near" "$5" "$1-far"
}

swap_on() { # swap_on file|zram
  if [ "$1" = zram ]; then
    zram=$(cat /sys/class/zram-control/hot_add 2>/dev/null) || return
    swap=/dev/zram$zram
    echo ${swap_mib}M >"/sys/block/zram$zram/disksize" || return
  else
    swap=$work/swap
    dd if=/dev/zero of="$swap" bs=$mib count=$swap_mib 2>/dev/null && chmod 600 "$swap" || return
  fi
  mkswap "$swap" >/dev/null && swapon "$swap"
}

swap_off() {
  [ -z "$swap" ] || swapoff "$swap"
  [ -z "$zram" ] || echo "$zram" >/sys/class/zram-control/hot_remove
  zram='' swap=''
}

swapped_garbage_goes_unread() {
  local before after read
  before=$(number "$1" swapped_kib) after=$(number "$1" swapped_after_kib) read=$(number "$1" major_faults)
  [ -n "$after" ] && [ "$before" -gt 8000 ] && [ "$after" -lt $((before / 10)) ] && [ "$read" -lt $((before / 4 / 10)) ]
}

if ! make_group first 100; then
  echo "SKIPPED container: $group can't be made or limited"
  echo "container: 0 passed, 0 failed, 1 skipped"
  exit 0
fi
rmdir "$group"

run_in churn 100 0 purge_cpu_percent:0,stats_print:1 "$churn"
check lives_within_the_limit churn test "$(cat "$work/churn.status")" -eq 0
check comes_to_its_end churn grep -q '^done' "$work/churn"
check purges_when_the_limit_is_near churn grep -q '"limit_purges":[1-9]' "$work/churn"

for pattern in requests work bursts buffers mappings; do
  steady_costs $pattern $pattern 90 0 150
done
# There is no room for what it needs by turns: some of it has to go, but far from all.
run_in turns-near 100 0 stats_print:1 "$steady" turns 90 4 &
run_in turns-any-price 1000 0 purge_cpu_percent:100 "$steady" turns 90 4 &
wait
check turns_costs_less_near_the_limit_than_at_any_price turns-near faults_below_half turns-near turns-any-price
check steady_programs_purge_near_the_limit requests-near grep -q '"limit_purges":[1-9]' "$work/requests-near"

for kind in file zram; do
  if ! swap_on $kind 2>/dev/null; then
    swap_off 2>/dev/null
    skip swap_in_$kind "it can't be switched on here"
    continue
  fi
  steady_costs swapping_requests_$kind requests 130 $swap_mib 4000
  steady_costs swapping_work_$kind work 130 $swap_mib 4000
  run_in garbage_$kind 48 $swap_mib stats_print:1 "$steady" garbage 64 6
  check swapped_garbage_goes_unread_$kind garbage_$kind swapped_garbage_goes_unread garbage_$kind
  swap_off
done

echo "container: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
