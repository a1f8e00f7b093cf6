#!/usr/bin/env bash
# From Enter to the end of the first step, 2 CPU ranks: ddprun itself, through mpirun, and PyTorch over gloo.
#
#   tests/bench/startup.sh [ROUNDS]      5 rounds; medians in ms. The peers' script is looked for in $DDPRUN_PEERS, or
#                                        ../shared/peers; without it or without torch that row is left out
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-5}
peers=${DDPRUN_PEERS:-../shared/peers}
python=${PYTHON:-/usr/bin/python3}
build=${BUILD:-build}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
job="configs/smoke.yaml train.steps=1 train.global_batch=16 data.validation_samples=2 parallel.ranks=2 launch.oversubscribe=true"

median() { sort -g | awk '{v[NR] = $1} END {printf "%.0f\n", v[int((NR + 1) / 2)]}'; }

# first_step VIA: ms from before the command to the time stamp of the first step event.
first_step() {
  local begun
  rm -rf "$out/run"
  begun=$(date +%s.%N)
  # shellcheck disable=SC2086
  "$build/ddprun" $job launch.via="$1" output="$out/run" >/dev/null 2>"$out/err" || { cat "$out/err" >&2; exit 1; }
  sed -n 's/.*"event": "step", "t": \([0-9.]*\),.*/\1/p' "$out/run/events.jsonl" | head -n 1 |
    awk -v b="$begun" '{printf "%.1f\n", ($1 - b) * 1000}'
}

for round in $(seq "$rounds"); do
  first_step local >>"$out/local"
  first_step mpirun >>"$out/mpirun"
  if [ -e "$peers/run2.sh" ] && "$python" -c 'import torch' 2>/dev/null; then
    begun=$(date +%s.%N)
    PYTHON=$python sh "$peers/run2.sh" --model gpt --steps 6 2>/dev/null | sed -n 's/.*"first_step_s": \([0-9.]*\).*/\1/p' |
      awk '{print $1 * 1000}' >>"$out/gloo"
  fi
done
printf '| 2 ranks, start to first step | ms |\n|---|---|\n'
printf '| ddprun | %s |\n| ddprun through mpirun | %s |\n' "$(median <"$out/local")" "$(median <"$out/mpirun")"
[ ! -e "$out/gloo" ] || printf '| PyTorch DDP over gloo, without torchrun | %s |\n' "$(median <"$out/gloo")"
