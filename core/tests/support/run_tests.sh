#!/bin/sh
# run_tests.sh SUITE TIMEOUT_S RUN COMMAND...
# Runs each COMMAND (a program with its arguments, one shell word list per argument) under the prefix RUN and counts
# the lines it prints: "ok NAME", "not ok NAME", "skip NAME: REASON". A program that dies, hangs or fails without
# such a line is one failure itself. It prints of those
# that failed or could not run "not ok SUITE/PROGRAM NAME" and "SKIPPED SUITE/PROGRAM NAME: REASON", last "N passed, N failed, N skipped", and status 1 if anything failed.
suite=$1 timeout_s=$2 run=$3
shift 3
passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
for command; do
  name=${command%% *}
  name=${name##*/}
  # shellcheck disable=SC2086  # both hold lists of words on purpose
  timeout -k 5 "$timeout_s" $run $command >"$log" </dev/null
  status=$?
  program_passed=$(grep -c '^ok ' "$log")
  program_failed=$(grep -c '^not ok ' "$log")
  program_skipped=$(grep -c '^skip ' "$log")
  sed -n "s|^not ok |not ok $suite/$name |p; s|^skip |SKIPPED $suite/$name |p" "$log"
  if [ "$status" -ne 0 ] && [ "$program_failed" -eq 0 ]; then
    program_failed=1
    case $status in
      124 | 137) echo "not ok $suite/$name: still running after $timeout_s s, or killed" ;;
      *) echo "not ok $suite/$name: ended with status $status: $command" ;;
    esac
  elif [ "$status" -eq 0 ] && [ $((program_passed + program_failed + program_skipped)) -eq 0 ]; then
    program_failed=1
    echo "not ok $suite/$name: ended with status 0 but reported no test"
  fi
  passed=$((passed + program_passed)) failed=$((failed + program_failed)) skipped=$((skipped + program_skipped))
done
echo "$suite: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
