#!/bin/sh
# run_misuse.sh RUN PROGRAM...
# Runs each misuse program under the prefix RUN. It passes if it died by SIGABRT, or one that is called fault_* by SIGSEGV,
# and wrote to stderr exactly the line that it announced on stdout.
run=$1
shift
passed=0 failed=0 skipped=0
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for program; do
  name=${program##*/} signal=134
  case $name in fault_*) signal=139 ;; esac
  # shellcheck disable=SC2086  # RUN is a list of words on purpose
  timeout -k 5 60 $run "$program" >"$folder/expected" 2>"$folder/all" </dev/null
  status=$?
  # The emulator, the shell and timeout add words of their own about the signal.
  grep -v -e '^qemu: ' -e '^Aborted' -e '^timeout: ' -e '^Segmentation fault' "$folder/all" >"$folder/actual"
  if grep -q '^skip ' "$folder/expected"; then
    sed "s|^skip |SKIPPED misuse/$name: |" "$folder/expected"
    skipped=$((skipped + 1))
  elif [ "$status" -eq $signal ] && [ -s "$folder/expected" ] && cmp -s "$folder/expected" "$folder/actual"; then
    passed=$((passed + 1))
  else
    echo "not ok misuse/$name: status $status, not $signal (134 is SIGABRT, 139 SIGSEGV)"
    sed 's/^/  expected: /' "$folder/expected"
    sed 's/^/  stderr:   /' "$folder/actual"
    failed=$((failed + 1))
  fi
done
echo "misuse: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
