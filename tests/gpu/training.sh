#!/usr/bin/env bash
# Whole jobs on the GPU: the same numbers as on the CPU within rounding, the same bits every time, and what is said
# when a GPU cannot be had.
. "$(dirname "$0")/../support/run.sh"
"$BUILD/tests/gpu_probe" >"$scratch/probe" || { cat "$scratch/probe"; exit 77; }
LIMIT=180

train() { # NAME DEVICE JOB key=value...
  local name=$1 device=$2 job=$3
  shift 3
  expect 0 "$ddprun" "$job" output="$scratch/$name" parallel.device="$device" parallel.ranks=1 launch.oversubscribe=true "$@"
}

# near RUN RUN EVENT FIELD LIMIT: that number of the last such event differs by at most LIMIT, relative.
near() {
  local a b
  a=$(field "$scratch/$1" "$3" "$4" | tail -n 1) b=$(field "$scratch/$2" "$3" "$4" | tail -n 1)
  checks=$((checks + 1))
  awk -v a="$a" -v b="$b" -v limit="$5" 'BEGIN {d = a > b ? a - b : b - a; exit !(a != "" && d <= limit * (b > 0 ? b : -b))}' ||
    fail "$3 $4: $a on $1, $b on $2"
  echo "$3 $4: $a on $1, $b on $2"
}

train digits-cuda cuda configs/digits.yaml
has "$scratch/out" NVIDIA
train digits-cpu cpu configs/digits.yaml
near digits-cuda digits-cpu eval loss 1e-3
near digits-cuda digits-cpu eval accuracy 2e-3
[ "$(field "$scratch/digits-cuda" start device)" = cuda ] || fail "the start event does not say cuda"
grep -q '"gpu": 0' "$scratch/digits-cuda/events.jsonl" || fail "the start event does not say which GPU"

train again cuda configs/digits.yaml
expect 0 cmp "$scratch/digits-cuda/weights.safetensors" "$scratch/again/weights.safetensors"
train pieces cuda configs/digits.yaml train.micro_batch=6 data.prefetch=1 # buffers are used again at once
expect 0 "$BUILD/compare_weights" "$scratch/digits-cuda/weights.safetensors" "$scratch/pieces/weights.safetensors" 1e-3

train smoke-cuda cuda configs/smoke.yaml
train smoke-cpu cpu configs/smoke.yaml
near smoke-cuda smoke-cpu step loss 1e-4
near smoke-cuda smoke-cpu step grad_norm 1e-2

train bible-cuda cuda configs/bible.yaml train.steps=60
train bible-again cuda configs/bible.yaml train.steps=60
train bible-cpu cpu configs/bible.yaml train.steps=60
near bible-cuda bible-cpu step loss 1e-3
near bible-cuda bible-cpu eval loss 1e-3
expect 0 cmp "$scratch/bible-cuda/weights.safetensors" "$scratch/bible-again/weights.safetensors"

train auto auto configs/smoke.yaml
has "$scratch/out" NVIDIA
expect 0 env CUDA_VISIBLE_DEVICES=-1 "$ddprun" configs/smoke.yaml output="$scratch/hidden" train.steps=2
has "$scratch/out" 'no GPU: CUDA_VISIBLE_DEVICES="-1" leaves none'
expect 3 env CUDA_VISIBLE_DEVICES=-1 "$ddprun" configs/smoke.yaml output="$scratch/none" parallel.device=cuda
has "$scratch/err" 'no GPU can be used: CUDA_VISIBLE_DEVICES="-1" leaves none'
expect 2 "$ddprun" configs/smoke.yaml output="$scratch/none" parallel.device=cuda parallel.ranks=65
has "$scratch/err" 'may be used here'
expect 3 "$ddprun" configs/smoke.yaml output="$scratch/none" parallel.device=cuda model.width=16384 model.layers=900
has "$scratch/err" 'of GPU memory, the GPU has'
expect 0 "$ddprun" plan configs/smoke.yaml --json
has "$scratch/out" '"gpu": 0, "bus_id": "0'
has "$scratch/out" '"uuid": "GPU-'
for i in 1 2 3 4 5 6 7 8; do # a thread of the driver must not take the launcher's signals: it would wait for ever
  LIMIT=20 train "end$i" cuda configs/smoke.yaml train.steps=2
done
expect 0 "$ddprun" check
has "$scratch/out" NVIDIA
finish
