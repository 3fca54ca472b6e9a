#!/bin/sh
# run_startup.sh TESTS_BUILD LIBRARY RUN LIBC
# Early start-up, linking forms, limits and sandboxes: each case is a command that must exit with 0 within a minute and
# must not make the library complain. TESTS_BUILD holds the programs (tests.mk); LIBRARY is preloaded where a case says
# so; RUN is the prefix of an emulator, under which the cases that need this kernel's own calls are left out; LIBC is
# "system" if the programs use the same C library as this machine's own. The library is the same for all.
tests=$1 library=$2 run=$3 libc=$4
case $library in /* | '') ;; *) library=$PWD/$library ;; esac
passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
probe=$tests/startup/probe
expect=
[ -z "$library" ] || expect=--expect-snug
# Before a program, also deep in a command: preloads the library there and nowhere else.
with="env ${library:+LD_PRELOAD=$library}"

# check NAME COMMAND...: the command must succeed in silence.
check() {
  name=$1
  shift
  timeout -k 5 60 "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ "$status" -eq 0 ] && ! grep -q -e '^snug: ' -e '^ERROR: ld.so' "$log"; then
    passed=$((passed + 1))
  else
    echo "not ok startup/$name: status $status: $*" | cut -c 1-400
    sed 's/^/  /' "$log" | tail -n 12
    failed=$((failed + 1))
  fi
}

# check_output NAME PATTERN COMMAND...: it must succeed, and print a line like the extended regular expression.
check_output() {
  name=$1 pattern=$2
  shift 2
  timeout -k 5 60 "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ "$status" -eq 0 ] && grep -E -q -- "$pattern" "$log"; then
    passed=$((passed + 1))
  else
    echo "not ok startup/$name: status $status, or no line like '$pattern' in the output of: $*" | cut -c 1-400
    sed 's/^/  /' "$log" | tail -n 12
    failed=$((failed + 1))
  fi
}

skip() {
  echo "SKIPPED startup/$1: $2"
  skipped=$((skipped + 1))
}

# shellcheck disable=SC2086  # $with, $expect, $run hold lists of words on purpose
linking_forms() {
  for form in dynamic static_library static_executable; do
    # An emulated process can't exec a native /bin/true.
    check "$form" $run "$tests/startup/probe_$form" $expect ${run:+--no-exec}
  done
  # musl-gcc has no C++ library.
  if [ "$libc" = system ]; then check static_new $run "$tests/startup/static_new"; fi
}

preloading() {
  early=$tests/startup/early_library.so
  check preload $with "$probe" $expect
  # An early library of another libc would stop the programs that the probe starts.
  if [ "$libc" = system ]; then no_exec=; else no_exec=--no-exec; fi
  check early_library_before env "LD_PRELOAD=$early:$library" "$probe" $expect $no_exec
  check early_library_after env "LD_PRELOAD=$library:$early" "$probe" $expect $no_exec
  # musl has no such flag.
  if [ "$libc" = system ]; then check_output deepbind '^deepbind: fine$' $with "$tests/startup/deepbind"; fi
  check no_standard_descriptors sh -c "exec $with $probe $expect >&- 2>&- <&-"
  check empty_environment env -i $with "$probe" $expect
}

preloading_system_programs() {
  check preload_true $with /bin/true
  check no_arguments_at_all "$tests/startup/exec_without_arguments" "$probe" "$library"
  check preload_shell $with sh -c 'x=$(seq 1 1000 | sort -rn | head -1); [ "$x" = 1000 ] && exec true'
  check many_processes $with sh -c 'i=0; while [ $i -lt 200 ]; do /bin/true || exit 1; i=$((i + 1)); done'
  check verbose_opens_nothing sh -c "! SNUG=verbose:1 $with ls -l /proc/self/fd 2>&- | grep -q pidfd"
  check closed_descriptors_verbose sh -c "SNUG=verbose:1,stats_print:1 exec $with /bin/true 2>&- >&- <&-"
}

# The goal is at most half a megabyte and 0.3 ms of CPU time more than without us; the limit of the time leaves room for
# busy machines.
short_programs() {
  for program in /usr/bin/true "/usr/bin/git --version" "/usr/bin/python3 -c pass" "/usr/bin/ruby -e 1"; do
    name=$(basename "${program%% *}")
    if [ -x "${program%% *}" ]; then
      check "footprint_$name" "$tests/startup/footprint" "$library" 512 3 $program
    else
      skip "footprint_$name" "not installed"
    fi
  done
}

limits() {
  for megabytes in 200 300 500 1000 2000 8000; do
    check "ulimit_v_${megabytes}M" sh -c "ulimit -v $((megabytes * 1024)); exec $with $probe $expect"
  done
  # A stack without limit makes the kernel lay out mappings from the bottom upwards.
  check bottom_up_layout sh -c "ulimit -s unlimited; exec $with $probe $expect"
  check bottom_up_layout_limited sh -c "ulimit -s unlimited; ulimit -v 600000; exec $with $probe $expect"
  check limited_exchange sh -c "ulimit -v 1500000; exec $tests/stress/exchange --seconds 2 --threads 4 --seed 1"
  check no_randomisation setarch "$(uname -m)" -R $with "$probe" $expect
  check data_limit sh -c "ulimit -d 300000; exec $with $probe $expect"
  check locked_memory $with "$tests/startup/locked_memory"
}

sandboxes() {
  refuse=$tests/startup/refuse_call
  for refusal in madvise=EPERM madvise=ENOSYS madvise=EINVAL membarrier=EPERM membarrier=ENOSYS mremap=EPERM prctl=EPERM \
    sched_getaffinity=EPERM prlimit64=EPERM sysinfo=EPERM threads=EAGAIN threads=EPERM process_madvise=EPERM rseq=ENOSYS; do
    check "refused_$refusal" "$refuse" "$refusal" -- $with "$probe" $expect
  done
  all="madvise=EPERM membarrier=EPERM mremap=EPERM sched_getaffinity=EPERM sysinfo=EPERM threads=EPERM process_madvise=EPERM"
  check refused_all "$refuse" $all -- $with "$probe" $expect
  for refusal in madvise=EPERM membarrier=EPERM mremap=ENOSYS; do
    for program in exchange idle_threads fork_storm; do
      check "refused_${refusal}_$program" "$refuse" "$refusal" -- \
        "$tests/stress/$program" --seconds 2 --threads 3 --seed 1
    done
  done
  check refused_threads_workload "$refuse" threads=EAGAIN -- "$tests/failure/workload" --pause
}

# Without the system calls, operations and flags that came after a version of the kernel. glibc 2.36 itself needs 3.2.
older_kernels() {
  refuse=$tests/startup/refuse_call
  for version in 3.10 4.4 4.18 5.10; do
    check "linux_$version" "$refuse" --linux $version -- $with "$probe" $expect
    for program in exchange idle_threads fork_storm; do
      check "linux_${version}_$program" "$refuse" --linux $version -- "$tests/stress/$program" --seconds 1 --threads 3 --seed 1
    done
    check "linux_${version}_workload" "$refuse" --linux $version -- "$tests/failure/workload" --pause
  done
}

# No /proc, /sys, /dev: nothing that the library could read its limits from.
empty_root() {
  root=$(mktemp -d)
  cp "$tests/startup/probe_static_executable" "$root/probe"
  if [ "$(id -u)" -eq 0 ]; then
    check empty_root chroot "$root" /probe $expect --no-exec
  else
    skip empty_root "needs root"
  fi
  rm -rf "$root"
}

# placed NAME PREFIX...: $work in a place that the prefix makes, unless this system refuses to make it, or its user may not
# come to where programs were built.
# shellcheck disable=SC2086  # $work holds a list of words on purpose
placed() {
  name=$1_$of
  shift
  if ! "$@" true >"$log" 2>&1; then
    skip "$name" "$(tail -n 1 "$log")"
  elif ! "$@" test -x "$probe"; then
    skip "$name" "its user can't reach $probe"
  else
    check "$name" "$@" $work
  fi
}

# Other name spaces, and a /proc that is not there, is read-only, shows others, or hides them.
name_spaces() {
  if [ "$(id -u)" -ne 0 ]; then
    skip name_spaces "needs root"
    return
  fi
  hides='mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
  seconds="--seconds 1 --threads 3 --seed 1"
  for work in "$with $probe $expect" "$tests/stress/exchange $seconds" "$tests/stress/fork_storm $seconds" \
    "$tests/stress/idle_threads $seconds"; do
    of=$(basename "${work%% --*}")
    placed pid_name_space unshare --pid --fork
    placed pid_and_proc unshare --pid --fork --mount-proc
    placed user_name_space unshare --user --map-root-user --pid --fork --mount-proc
    placed proc_of_others unshare --mount sh -c 'unshare --pid --fork mount -t proc proc /proc && exec "$@"' sh
    placed no_proc_no_sys unshare --mount sh -c 'mount -t tmpfs none /proc && mount -t tmpfs none /sys && exec "$@"' sh
    placed proc_read_only unshare --mount sh -c 'mount -o bind,remount,ro /proc && exec "$@"' sh
    placed proc_of_processes_alone unshare --mount sh -c 'mount -t proc -o subset=pid proc /proc && exec "$@"' sh
    placed proc_hides_others unshare --pid --fork --mount sh -c "$hides" sh
  done
}

options() {
  check_output verbose '^snug: [0-9.]+ active in PID [0-9]+' env SNUG=verbose:1 $with "$probe" $expect
  check verbose_off_is_silent env SNUG=verbose:0 $with "$probe" $expect
  check_output unknown_option \
    '^snug: warning: unknown option "verbos" in SNUG; did you mean "verbose"\? \(ignored\)$' env SNUG=verbos:1 $with "$probe" --no-exec
  check_output bad_value '^snug: warning: .*arenas_max' env SNUG=arenas_max:many $with "$probe" --no-exec
  check_output stats_print '^\{.*' env SNUG=stats_print:1 $with "$probe" --no-exec
  check_output garbage 'warning' env "SNUG=$(head -c 3000 /dev/zero | tr '\0' ':')x" $with "$probe" --no-exec
  check background_off env SNUG=background:0 $with "$probe" $expect
  check one_arena env SNUG=arenas_max:1 "$tests/stress/exchange" --seconds 1 --threads 4 --seed 1
  check many_arenas env SNUG=arenas_max:64 "$tests/stress/exchange" --seconds 1 --threads 8 --seed 1
  check arena_max_of_glibc env MALLOC_ARENA_MAX=2 $with "$probe" $expect
  check no_purge_budget env SNUG=purge_cpu_percent:0 "$tests/stress/exchange" --seconds 1 --seed 1
  check full_purge_budget env SNUG=purge_cpu_percent:100 "$tests/stress/exchange" --seconds 1 --seed 1
  check thp env SNUG=thp:1 $with "$probe" $expect
}

linking_forms
if [ -z "$run" ]; then
  preloading
  preloading_system_programs
  if [ "$libc" = system ]; then
    if [ -n "$library" ]; then short_programs; fi
  fi
  limits
  sandboxes
  older_kernels
  empty_root
  name_spaces
  if [ -n "$library" ]; then options; fi
else
  skip preloading_limits_and_sandboxes "under an emulator they would meet the emulator"
fi
echo "startup: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
