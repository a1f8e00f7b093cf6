#!/usr/bin/env bash
# Batch arithmetic against the number of ranks (C39), too little data (C36), and jobs that cannot fit: what a person
# asked for is either exactly what runs, or refused before anything starts.
. "$(dirname "$0")/../support/run.sh"
job="configs/digits.yaml launch.oversubscribe=true train.global_batch=48 train.micro_batch=4 train.epochs=1 train.steps=3"
refused() { # TEXT... COMMAND after --
  local texts=()
  while [ "$1" != -- ]; do texts+=("$1") && shift; done
  shift
  expect 2 "$@" output="$scratch/refused"
  for wanted in "${texts[@]}"; do has "$scratch/err" "$wanted"; done
  [ ! -e "$scratch/refused" ] || fail "a refused job left its run directory"
}

for ranks in 1 2 3 4 6 12; do
  # shellcheck disable=SC2086
  expect 0 "$ddprun" $job parallel.ranks=$ranks output="$scratch/r$ranks"
  [ "$(field "$scratch/r$ranks" start accumulation)" = $((12 / ranks)) ] || fail "$ranks ranks: wrong accumulation"
  [ "$(field "$scratch/r$ranks" step lr)" = "$(field "$scratch/r1" step lr)" ] || fail "$ranks ranks: another learning rate"
  [ "$(field "$scratch/r$ranks" start steps_per_epoch)" = 29 ] || fail "$ranks ranks: another epoch"
  [ "$(field "$scratch/r$ranks" end steps)" = 3 ] || fail "$ranks ranks: another number of steps"
  expect 0 "$BUILD/compare_weights" "$scratch/r1/weights.safetensors" "$scratch/r$ranks/weights.safetensors" 1e-6
done
# shellcheck disable=SC2086
refused "48 samples" "5 ranks" "parallel.ranks 4 or 6" -- "$ddprun" $job parallel.ranks=5
# shellcheck disable=SC2086
refused "48 samples" "24 ranks" "parallel.ranks 12" -- "$ddprun" $job parallel.ranks=24

# An impossible batch is refused at once, not searched for.
begin=$(date +%s)
refused "do not divide" -- "$ddprun" configs/smoke.yaml train.global_batch=2147483647 train.micro_batch=7
[ $(($(date +%s) - begin)) -lt 3 ] || fail "the refusal took seconds"

head -c 128 configs/data/bible-train.txt >"$scratch/short.txt" # T bytes: one too few for a window
head -c 129 configs/data/bible-train.txt >"$scratch/one.txt"
: >"$scratch/empty.txt"
text="configs/bible.yaml data.validation=null parallel.ranks=1 train.steps=2 train.global_batch=1"
for file in short empty; do
  # shellcheck disable=SC2086
  refused "$file.txt" -- "$ddprun" $text data.train="$scratch/$file.txt"
done
# shellcheck disable=SC2086
expect 0 "$ddprun" $text data.train="$scratch/one.txt" output="$scratch/one"
# shellcheck disable=SC2086
refused "1 sample" "needs 8" -- "$ddprun" $text data.train="$scratch/one.txt" train.global_batch=8

expect 3 "$ddprun" configs/smoke.yaml model.width=131072 model.layers=1000 output="$scratch/refused"
has "$scratch/err" "of memory, this machine has"
[ ! -e "$scratch/refused" ] || fail "a job that cannot fit left its run directory"
refused "2^63" -- "$ddprun" configs/smoke.yaml train.epochs=1000000000 data.samples=13000000000 train.global_batch=1
finish
