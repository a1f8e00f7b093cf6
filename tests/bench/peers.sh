#!/usr/bin/env bash
# ddprun beside PyTorch DistributedDataParallel over gloo: the same models, batches and threads, in turn, in one
# run; prints a table of medians and ratios.
#
#   tests/bench/peers.sh [ROUNDS]      3 rounds; needs build/ddprun and a python3 with torch
#
# The peers' scripts (torch_cpu_ddp.py, run2.sh) are looked for in $DDPRUN_PEERS, or ../shared/peers.
set -eu
cd "$(dirname "$0")/../.."
peers=${DDPRUN_PEERS:-../shared/peers}
python=${PYTHON:-/usr/bin/python3}
rounds=${1:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1
"$python" -c 'import torch' 2>/dev/null || {
  echo "peers.sh: $python has no torch (Debian: apt-get install python3-torch)" >&2
  exit 77
}

# Median of the numbers on stdin.
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# ours MODEL RANKS: items a second, from the median step without the first five.
ours() {
  local run=$out/run batch micro
  rm -rf "$run"
  micro=$(sed -n 's/.*micro_batch: \([0-9]*\).*/\1/p' tests/bench/"$1".yaml)
  batch=$((micro * $2))
  build/ddprun tests/bench/"$1".yaml output="$run" parallel.ranks="$2" parallel.threads=1 train.global_batch=$batch >"$out/log" 2>&1 || {
    cat "$out/log" >&2
    exit 1
  }
  local items ms
  items=$(sed -n 's/.*"event": "step".*"items": \([0-9]*\),.*/\1/p' "$run/events.jsonl" | tail -n 1)
  ms=$(sed -n 's/.*"event": "step".*"step_ms": \([0-9.]*\),.*/\1/p' "$run/events.jsonl" | tail -n +6 | median)
  awk -v i="$items" -v m="$ms" 'BEGIN {printf "%.0f\n", i / m * 1000}'
}

# theirs MODEL RANKS
theirs() {
  local steps=60
  [ "$1" = mlp ] && steps=300
  if [ "$2" = 2 ]; then
    PYTHON=$python sh "$peers/run2.sh" --model "$1" --steps $steps 2>/dev/null
  else
    "$python" "$peers/torch_cpu_ddp.py" --model "$1" --steps $steps 2>/dev/null
  fi | sed -n 's/.*"per_s": \([0-9]*\).*/\1/p'
}

for round in $(seq "$rounds"); do
  for model in gpt mlp; do
    for ranks in 1 2; do
      ours $model $ranks >>"$out/ours-$model-$ranks"
      theirs $model $ranks >>"$out/theirs-$model-$ranks"
    done
  done
done

printf '| job | ranks | ddprun items/s | PyTorch DDP items/s | ratio |\n|---|---|---|---|---|\n'
for model in gpt mlp; do
  for ranks in 1 2; do
    a=$(median <"$out/ours-$model-$ranks") b=$(median <"$out/theirs-$model-$ranks")
    awk -v m=$model -v r=$ranks -v a="$a" -v b="$b" 'BEGIN {printf "| %s | %d | %d | %d | %.2f |\n", m, r, a, b, a / b}'
  done
  a=$(median <"$out/ours-$model-2") b=$(median <"$out/ours-$model-1")
  awk -v m=$model -v a="$a" -v b="$b" 'BEGIN {printf "\n%s: 2 ranks are %.2f x 1 rank\n\n", m, a / b}'
done
