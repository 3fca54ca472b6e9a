#!/bin/bash
# run_libfuzzer.sh PROGRAM FOLDER SECONDS
# Searches for so long, from the finds of earlier searches in FOLDER/corpus. What fails is left in FOLDER. Two tests:
# no input fails, and the search really tried some, for a fuzzer that starts and does nothing also fails at nothing.
set -uo pipefail
program=$1 folder=$2 seconds=$3
inputs_at_least=$((seconds * 20)) # hundreds a second where nothing else runs
log=$folder/libfuzzer.log
passed=0 failed=0

"$program" -max_total_time="$seconds" -max_len=4096 -len_control=0 -verbosity=0 -timeout=60 -rss_limit_mb=4096 \
  -print_final_stats=1 -artifact_prefix="$folder/" "$folder/corpus" 2>&1 | tee "$log"
if [ "${PIPESTATUS[0]}" -eq 0 ]; then passed=1; else failed=1 && echo "not ok libfuzzer/no_input_fails: see $log"; fi
inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
if [ "${inputs:-0}" -ge "$inputs_at_least" ]; then
  passed=$((passed + 1))
else
  echo "not ok libfuzzer/inputs: ${inputs:-0} in $seconds s, expected $inputs_at_least"
  failed=$((failed + 1))
fi
echo "libfuzzer: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
