#!/usr/bin/env bash
# Who drives the communication stream: nobody until the end (overlap off), backward itself by polling between layers, or
# a thread of its own. gpt and mlp of this folder, 2 ranks; medians of the step in ms, settings in turn.
#
#   tests/bench/overlap.sh [ROUNDS]      3 rounds
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3}
build=${BUILD:-build}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
settings=("parallel.overlap=false" "parallel.comm_thread=false" "parallel.comm_thread=true")

median() { sort -g | awk '{v[NR] = $1} END {printf "%.3f\n", v[int((NR + 1) / 2)]}'; }

for round in $(seq "$rounds"); do
  for model in gpt mlp; do
    for i in 0 1 2; do
      rm -rf "$out/run"
      "$build/ddprun" tests/bench/$model.yaml parallel.ranks=2 "${settings[$i]}" output="$out/run" >"$out/log" 2>&1 || {
        cat "$out/log" >&2
        exit 1
      }
      sed -n 's/.*"event": "step".*"step_ms": \([0-9.]*\),.*/\1/p' "$out/run/events.jsonl" | tail -n +6 | median \
        >>"$out/$model-$i"
    done
  done
done
printf '| 2 ranks, ms a step | overlap off | polled between layers | own thread |\n|---|---|---|---|\n'
for model in gpt mlp; do
  printf '| %s | %s | %s | %s |\n' $model "$(median <"$out/$model-0")" "$(median <"$out/$model-1")" "$(median <"$out/$model-2")"
done
