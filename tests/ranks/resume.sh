#!/usr/bin/env bash
# Stop anywhere, go on: with the same ranks the resumed run is the unbroken one bit for bit (loss, learning rate,
# gradient norm, sample ids, weights after every step, optimizer state at the end); with other ranks it has the same
# batches in the same order and weights within 1e-6.
. "$(dirname "$0")/../support/run.sh"
. tests/support/history.sh
[ ! -w /dev/shm ] || { rm -rf "$scratch" && scratch=$(mktemp -d /dev/shm/ddp-test-XXXXXX); }

# 50 samples in batches of 24: an epoch is 2 steps and a shorter one; 12 steps are 4 epochs.
cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 12, hidden: [16], outputs: 4, activation: gelu}
data: {format: synthetic, samples: 50, validation_samples: 10, tail: pad-weighted}
train: {steps: 12, global_batch: 24, micro_batch: 1, eval_every: 5, seed: 3, clip_norm: 0.5}
optimizer: {kind: adamw, lr: 3e-3}
schedule: {kind: cosine, warmup_steps: 3}
checkpoint: {every: 1, keep: 2}
metrics: {trace: [samples, checksum]}
launch: {oversubscribe: true}
watchdog: {timeout_s: 20}
END

train() { # CODE NAME key=value...
  local code=$1 name=$2
  shift 2
  expect "$code" "$ddprun" "$scratch/job.yaml" output="$scratch/$name" "$@"
}

go_same() { # A B
  same 12 "$scratch/$1" "$scratch/$2"
}

for ranks in 1 2 3 4; do
  train 0 "whole$ranks" parallel.ranks=$ranks
  [ "$ranks" = 1 ] || stop_rank=$((ranks - 1))
  for step in 2 3 4 5 6 7 8 9 10 11 12; do
    rm -rf "$scratch/broken"
    DDP_FAULT="rank=${stop_rank:-0},step=$step,do=exit:9" train 9 broken parallel.ranks=$ranks
    train 0 broken parallel.ranks=$ranks
    go_same "whole$ranks" broken
  done
done

# Twice, in the middle of saving too; and through mpirun, resumed by ddprun itself.
rm -rf "$scratch/broken"
DDP_FAULT="rank=1,step=5,do=exit:9" train 9 broken parallel.ranks=2
DDP_FAULT="rank=0,step=9,do=slow_save:2;rank=0,step=10,do=exit:9" train 9 broken parallel.ranks=2
train 0 broken parallel.ranks=2
go_same whole2 broken
if command -v mpirun >/dev/null; then
  rm -rf "$scratch/broken"
  DDP_FAULT="rank=1,step=7,do=exit:9" train 9 broken parallel.ranks=2 launch.via=mpirun
  train 0 broken parallel.ranks=2
  go_same whole2 broken
fi

# Accumulation and micro-batches may change as well: they change no batch.
rm -rf "$scratch/broken"
DDP_FAULT="rank=0,step=8,do=exit:9" train 9 broken parallel.ranks=4
cp -r "$scratch/broken" "$scratch/start"
batches() { # RUN FIRST: the ids of each step's global batch, from step FIRST on
  samples "$1" | awk -v first="$2" '{step = $1; $1 = $2 = ""; gsub(/[ ]+/, ""); line[step] = line[step] "," $0}
    END {for (i = first; i in line; i++) print i, line[i]}'
}
for ranks in 1 2 3 8; do
  rm -rf "$scratch/other"
  cp -r "$scratch/start" "$scratch/other"
  before=$(stat -c %s "$scratch/other/events.jsonl")
  train 0 other parallel.ranks=$ranks train.micro_batch=auto
  has "$scratch/err" "parallel.ranks: 4 -> $ranks"
  from=$(field "$scratch/other" start resumed_step | tail -n 1)
  mkdir -p "$scratch/since"
  tail -c +$((before + 1)) "$scratch/other/events.jsonl" >"$scratch/since/events.jsonl"
  batches "$scratch/whole4" $((from + 1)) >"$scratch/wanted"
  [ "$(wc -l <"$scratch/wanted")" = $((12 - from)) ] || fail "not every batch was traced"
  diff "$scratch/wanted" <(batches "$scratch/since" $((from + 1))) >&2 || fail "$ranks ranks took other batches than 4"
  expect 0 "$BUILD/compare_weights" "$scratch/whole4/weights.safetensors" "$scratch/other/weights.safetensors" 1e-6
done
rm -rf "$scratch/other"
cp -r "$scratch/start" "$scratch/other"
train 2 other parallel.ranks=5 train.micro_batch=auto
has "$scratch/err" "24 samples do not divide over 5 ranks"

# Finished: nothing to do. More steps: goes on from there. Fewer than were done: nothing to do, either.
train 0 whole2 parallel.ranks=2
has "$scratch/out" "nothing to do"
train 0 whole2 parallel.ranks=2 train.steps=11
has "$scratch/out" "nothing to do"
train 0 whole2 parallel.ranks=2 train.steps=14
has "$scratch/err" "changed since: train.steps: 12 -> 14"
has "$scratch/out" "resumed $scratch/whole2/checkpoints/step-00000012, 12 steps done"

# Dangerous changes are refused unless forced; nothing is touched.
for change in train.seed=4 train.global_batch=48 data.shuffle=false data.tail=drop model.inputs=13 "model.hidden=[8]" \
  optimizer.kind=sgd; do
  train 2 whole3 parallel.ranks=3 train.steps=20 train.micro_batch=auto "$change"
  has "$scratch/err" "${change%=*}: "
  has "$scratch/err" "checkpoint.force=true"
done
train 2 whole3 parallel.ranks=3 train.steps=20 data.samples=51
has "$scratch/err" "another training set"
train 0 whole3 parallel.ranks=3 train.steps=13 train.seed=4 checkpoint.force=true
has "$scratch/err" "changed since: train.seed: 3 -> 4"
train 0 whole3 parallel.ranks=3 train.steps=14 train.seed=4 "model.hidden=[8]" checkpoint.force=true
has "$scratch/err" "start anew"

# none: from the start, the earlier run is kept aside. A path: from there, in a new directory.
train 0 whole4 parallel.ranks=4 checkpoint.resume=none train.steps=3
[ -e "$scratch/whole4/earlier/1/checkpoints/step-00000012" ] || fail "the earlier run's checkpoints are gone"
[ "$(cd "$scratch/whole4/checkpoints" && echo step*)" = "step-00000002 step-00000003" ] || fail "checkpoints were mixed"
train 0 new parallel.ranks=4 checkpoint.resume="$scratch/whole4/earlier/1" train.steps=14
has "$scratch/out" "earlier/1/checkpoints/step-00000012, 12 steps done"
train 0 new2 parallel.ranks=4 checkpoint.resume="$scratch/whole4/earlier/1/checkpoints/step-00000011"
train 2 new3 parallel.ranks=4 checkpoint.resume="$scratch/nowhere"
has "$scratch/err" "No such file or directory"
train 2 new3 parallel.ranks=4 checkpoint.resume="$scratch"
has "$scratch/err" "holds no complete checkpoint"
[ ! -e "$scratch/new3" ] || fail "a run directory was left by a wrong request"
finish
