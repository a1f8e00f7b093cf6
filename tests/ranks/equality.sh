#!/usr/bin/env bash
# digits.yaml with 1, 2, 3 and 4 ranks and one global batch: the same samples in the same order, weights equal
# within 1e-5; and the same bits for every bucket size, overlap setting and way to start the ranks.
. "$(dirname "$0")/../support/run.sh"
common="train.epochs=3 train.eval_every=0 launch.oversubscribe=true"

train() { # NAME key=value...
  local name=$1
  shift
  # shellcheck disable=SC2086
  expect 0 "$ddprun" configs/digits.yaml output="$scratch/$name" $common "$@"
}

close_to() { # A B LIMIT
  expect 0 "$BUILD/compare_weights" "$scratch/$1/weights.safetensors" "$scratch/$2/weights.safetensors" "$3"
}

for ranks in 1 2 3 4; do
  train "r$ranks" parallel.ranks=$ranks 'metrics.trace=[samples, checksum]'
  # One line a step: the global batch, whatever ranks it was split over.
  samples "$scratch/r$ranks" | awk '{step = $1; $1 = $2 = ""; gsub(/[ ]+/, ""); line[step] = line[step] "," $0}
    END {for (i = 1; i in line; i++) print line[i]}' >"$scratch/order$ranks"
  [ -s "$scratch/order$ranks" ] || fail "no samples were traced with $ranks ranks"
  cmp "$scratch/order1" "$scratch/order$ranks" || fail "$ranks ranks saw other samples than 1 rank"
  close_to r1 "r$ranks" 1e-5
done
[ "$(field "$scratch/r3" trace checksum | wc -l)" = "$(($(wc -l <"$scratch/order3") * 3))" ] || fail "a checksum is missing"
[ "$(sed -n 's/.*"step": \([0-9]*\),.*"checksum": \(.*\)}/\1 \2/p' "$scratch/r3/events.jsonl" | sort -u | wc -l)" = \
  "$(wc -l <"$scratch/order3")" ] || fail "replicas differ at some step"

train again parallel.ranks=2
close_to r2 again 0
for setting in parallel.overlap=false parallel.bucket_mb=0.01 parallel.bucket_mb=64 parallel.first_bucket_mb=0.001 \
  parallel.comm_thread=true parallel.comm_thread=false; do
  train "set" parallel.ranks=2 $setting
  close_to r2 "set" 0
done
train micro parallel.ranks=2 train.micro_batch=6
close_to r2 micro 1e-5
finish
