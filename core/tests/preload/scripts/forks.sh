#!/bin/bash
# Many short processes and much shell-internal memory; prints a result that depends on all of it.
# usage: forks.sh ROUNDS
set -euo pipefail
rounds=$1

fibonacci() { # each level is a subshell: a fork without exec, whose child goes on allocating
  if (($1 < 2)); then echo "$1"; else echo $(($(fibonacci $(($1 - 1))) + $(fibonacci $(($1 - 2))))); fi
}
echo "fibonacci $(fibonacci 8)"

total=0
for ((i = 0; i < rounds; i++)); do
  value=$(echo "$i" | tr 0-9 1-90 | cat)
  total=$((total + 10#$value))
done
echo "pipelines $total"

declare -A counts
for ((i = 0; i < rounds * 20; i++)); do
  key="key$((i * 7919 % 997))"
  counts[$key]=$((${counts[$key]:-0} + i))
done
sum=0
for key in "${!counts[@]}"; do sum=$((sum + counts[$key] % 1009)); done
echo "hash ${#counts[@]} $sum"

words=()
for ((i = 0; i < rounds * 10; i++)); do words+=("word$i-${RANDOM:0:0}$((i * i % 1013))"); done
joined="${words[*]}"
replaced="${joined//word/longer-word-}"
echo "array ${#words[@]} ${#joined} ${#replaced}"

coproc DOUBLE { while read -r number; do echo $((number * 2)); done; }
doubled=0
for ((i = 0; i < rounds; i++)); do
  echo "$i" >&"${DOUBLE[1]}"
  read -r answer <&"${DOUBLE[0]}"
  doubled=$((doubled + answer))
done
input=${DOUBLE[1]}
exec {input}>&-
echo "coprocess $doubled"

for ((i = 0; i < rounds; i++)); do
  (exit $((i % 5))) &
  if wait $!; then :; else failures=$((${failures:-0} + $?)); fi
done
echo "background ${failures:-0}"

lines=$(sort <(seq "$rounds") <(seq 5 $((rounds + 5))) | uniq -d | wc -l)
echo "substitution $lines"

big=$(head -c 3000000 /dev/zero | tr '\0' x)
echo "string ${#big} $(cksum <<<"$big")"

trap 'echo trapped' USR1
(kill -USR1 $$)
eval "$(for ((i = 0; i < rounds; i++)); do echo "f$i() { local a=$i; g=\$((\${g:-0} + a)); }; f$i"; done)"
echo "functions $g"
echo done
