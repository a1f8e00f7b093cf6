#!/usr/bin/env bash
# Saving that is killed or runs out of disk: the run goes on from the newest complete checkpoint and ends in the same
# bits; nothing half written is ever taken for a checkpoint, nothing is left behind. KILLS=N: how many kills.
. "$(dirname "$0")/../support/run.sh"
. tests/support/history.sh
[ ! -w /dev/shm ] || { rm -rf "$scratch" && scratch=$(mktemp -d /dev/shm/ddp-test-XXXXXX); }
: "${KILLS:=100}"
trap 'umount "$scratch/small/checkpoints" 2>/dev/null; rm -rf "$scratch"' EXIT

cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 64, hidden: [32], outputs: 10}
data: {format: synthetic, samples: 50}
train: {steps: 12, global_batch: 24, seed: 3}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 2}
checkpoint: {every: 1, keep: 2}
metrics: {trace: [samples, checksum]}
launch: {oversubscribe: true, grace_s: 2}
watchdog: {timeout_s: 20}
END

run_job() { # CODE NAME key=value...
  local code=$1 name=$2
  shift 2
  expect "$code" "$ddprun" "$scratch/job.yaml" output="$scratch/$name" "$@"
}

run_job 0 whole

# -- killed at random moments of saving: one rank, or everything --
RANDOM=${SEED:=$$}
echo "seed $SEED"
during=0
for kill in $(seq "$KILLS"); do
  rm -rf "$scratch/killed"
  DDP_FAULT="do=slow_save:0.02" "$ddprun" "$scratch/job.yaml" output="$scratch/killed" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  for wait in $(seq 200); do
    ls -A "$scratch/killed/checkpoints" 2>/dev/null | grep -q . && break
    sleep 0.01
  done
  sleep "0.$(printf %03d $((RANDOM % 300)))"
  victims=$(pgrep -P $launcher | tr '\n' ' ')
  case $((RANDOM % 3)) in
    0) kill -KILL $launcher 2>/dev/null ;;                  # all: the ranks go with it
    1) kill -KILL ${victims%% *} 2>/dev/null ;;             # the first rank, which commits
    2) kill -KILL $(echo $victims | cut -d' ' -f2) 2>/dev/null ;; # the other one
  esac
  wait $launcher 2>/dev/null
  for process in $victims; do
    while kill -0 "$process" 2>/dev/null; do sleep 0.01; done
  done
  ! ls -A "$scratch/killed/checkpoints" | grep -q '^\.step.*part$' || during=$((during + 1))
  told=$(field "$scratch/killed" checkpoint step 2>/dev/null | tail -n 1)
  if [ -n "$told" ]; then
    expect 0 "$ddprun" ckpt ls "$scratch/killed"
    newest=$(awk '/newest/ {print $1}' "$scratch/out")
    [ "$newest" -ge "$told" ] || fail "kill $kill: step $told was committed, and step $newest is the newest there"
    expect 0 "$ddprun" ckpt verify "$scratch/killed"
  fi
  run_job 0 killed
  same 12 "$scratch/whole" "$scratch/killed"
  ! ls -A "$scratch/killed/checkpoints" | grep -q '^\.' || fail "kill $kill: leftovers: $(ls -A "$scratch/killed/checkpoints")"
done
echo "$KILLS kills, $during of them left a half-written checkpoint"

# -- the disk is full at any moment: tmpfs of every size --
mkdir -p "$scratch/probe"
if ! mount -t tmpfs -o size=64k none "$scratch/probe" 2>/dev/null; then
  echo "not allowed to mount a tmpfs: a full disk was not tried"
  finish
  exit 0
fi
umount "$scratch/probe"
run_job 0 begun train.steps=2
run_job 0 whole4 train.steps=6
failed=0 saved=0
for size in $(seq 48 4 132); do
  rm -rf "$scratch/small"
  cp -r "$scratch/begun" "$scratch/small"
  rm -rf "$scratch/small/checkpoints" && mkdir "$scratch/small/checkpoints"
  mount -t tmpfs -o size=${size}k none "$scratch/small/checkpoints"
  cp -r "$scratch/begun/checkpoints/step-00000002" "$scratch/small/checkpoints/"
  run_job 0 small train.steps=4
  if grep -q "No space left" "$scratch/err"; then
    failed=$((failed + 1))
    has "$scratch/err" "training goes on; earlier checkpoints are as they were"
  else
    saved=$((saved + 1))
  fi
  expect 0 "$ddprun" ckpt verify "$scratch/small"
  [ "$(grep -c ^ok "$scratch/out")" -ge 1 ] || fail "$size kB: no checkpoint is left"
  ! ls -A "$scratch/small/checkpoints" | grep -q '^\.step' || fail "$size kB: leftovers"
  mount -o remount,size=1m "$scratch/small/checkpoints"
  run_job 0 small train.steps=6
  for file in model.safetensors optimizer.safetensors; do
    cmp "$scratch/whole4/checkpoints/latest/$file" "$scratch/small/checkpoints/latest/$file" || fail "$size kB: ended elsewhere"
  done
  umount "$scratch/small/checkpoints"
done
echo "$failed sizes were too small, $saved were not"
[ $failed -ge 5 ] && [ $saved -ge 3 ] || fail "the sizes tried are not those that matter"

# With on_error: fail the job ends, and says so; keep 1 never leaves none.
rm -rf "$scratch/small"
cp -r "$scratch/begun" "$scratch/small"
rm -rf "$scratch/small/checkpoints" && mkdir "$scratch/small/checkpoints"
mount -t tmpfs -o size=52k none "$scratch/small/checkpoints"
cp -r "$scratch/begun/checkpoints/step-00000002" "$scratch/small/checkpoints/"
run_job 1 small train.steps=4 checkpoint.on_error=fail checkpoint.keep=1
has "$scratch/err" "No space left"
expect 0 "$ddprun" ckpt verify "$scratch/small"
has "$scratch/out" "ok "
umount "$scratch/small/checkpoints"
finish
