#!/usr/bin/env bash
# Asked to stop: the step is finished, a checkpoint saved, exit 75; run again, it goes on and ends in the same bits.
# Whoever is asked: ddprun, started by itself or through mpirun, any one rank, or a person's own mpirun.
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
. tests/support/history.sh

cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 64, hidden: [32], outputs: 10}
data: {format: synthetic, samples: 500}
train: {steps: 60, global_batch: 24, micro_batch: 12, seed: 3}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 2}
checkpoint: {every: 1000}
metrics: {trace: [samples, checksum]}
launch: {oversubscribe: true}
watchdog: {timeout_s: 20}
END
expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/whole"

begin() { # COMMAND...: in the background, every forward a little slow, until its third step is told
  rm -rf "$scratch/run"
  DDP_FAULT="do=sleep:0.03@forward" "$@" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  for wait in $(seq 500); do
    [ "$(field "$scratch/run" step step 2>/dev/null | wc -l)" -lt 3 ] || return
    sleep 0.02
  done
  fail "no steps were taken: $(cat "$scratch/err")"
}

stopped() { # what was asked ended with 75 and a checkpoint of its last step; going on gives the unbroken run
  local code from
  wait $launcher
  code=$?
  [ $code = 75 ] || fail "exit code $code, wanted 75: $(cat "$scratch/out" "$scratch/err")"
  nothing_left 1
  from=$(field "$scratch/run" step step | tail -n 1)
  [ "$from" -lt 60 ] || fail "it was not stopped at all"
  [ "$(field "$scratch/run" checkpoint step)" = "$from" ] || fail "step $from is not the one that was saved"
  [ "$(field "$scratch/run" end outcome)" = interrupted ] || fail "the end event is another"
  [ "$(sed -n 's/.*"event": "end".*"exit": \([0-9]*\).*/\1/p' "$scratch/run/events.jsonl")" = 75 ] || fail "the end event has another code"
  expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/run"
  has "$scratch/out" "step-000000$(printf %02d "$from"), $from steps done"
  same 60 "$scratch/whole" "$scratch/run"
}

ways=local
command -v mpirun >/dev/null && ways="local mpirun"
for via in $ways; do
  for signal in INT TERM USR1 USR2; do
    set -m # a background job of a shell is deaf to SIGINT otherwise
    begin "$ddprun" "$scratch/job.yaml" output="$scratch/run" launch.via=$via
    kill -$signal $launcher
    stopped
    has "$scratch/run/events.jsonl" '"outcome": "interrupted"'
  done
done

# Any one rank.
for rank in 0 1; do
  begin "$ddprun" "$scratch/job.yaml" output="$scratch/run"
  kill -TERM "$(rank_pid $rank)"
  stopped
done

# A checkpoint is due just then; and a save that is still going on.
begin "$ddprun" "$scratch/job.yaml" output="$scratch/run" checkpoint.every=1
kill -TERM $launcher
wait $launcher
[ $? = 75 ] || fail "with a checkpoint every step the code is another"
begin env DDP_FAULT="do=sleep:0.03@forward;do=slow_save:1" "$ddprun" "$scratch/job.yaml" output="$scratch/run" checkpoint.every=2
kill -TERM $launcher
wait $launcher
[ $? = 75 ] || fail "while saving the code is another"
expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/run"
same 60 "$scratch/whole" "$scratch/run"

# Nothing to save: the step is finished all the same, and the code says which signal it was.
for pair in INT=130 TERM=143; do
  begin "$ddprun" "$scratch/job.yaml" output="$scratch/run" checkpoint.every=0
  kill -"${pair%=*}" $launcher
  wait $launcher
  code=$?
  [ $code = "${pair#*=}" ] || fail "exit code $code, wanted ${pair#*=}"
  has "$scratch/err" "ddprun: interrupted by SIG${pair%=*} after"
done

# The second one does not wait: not for a step of five seconds, and not for a save.
begin env DDP_FAULT="do=sleep:0.03@forward;step=6,do=sleep:5@backward" "$ddprun" "$scratch/job.yaml" output="$scratch/run"
sleep 0.3
begun=$(now_ms)
kill -TERM $launcher
sleep 0.1
kill -TERM $launcher
wait $launcher
[ $? = 143 ] || fail "two signals gave another code"
took_at_most "$begun" 2000
nothing_left 1

# launch.grace_s is how long they have.
begin env DDP_FAULT="do=sleep:0.03@forward;step=6,do=sleep:30@backward" "$ddprun" "$scratch/job.yaml" output="$scratch/run" launch.grace_s=1
sleep 0.3
begun=$(now_ms)
kill -TERM $launcher
wait $launcher
[ $? = 143 ] || fail "a stop that could not be kept gave another code"
took_at_most "$begun" 4000
nothing_left 1

# A person's own mpirun passes SIGUSR1 on to every rank.
if command -v mpirun >/dev/null; then
  begin mpirun --allow-run-as-root --oversubscribe -np 2 "$ddprun" "$scratch/job.yaml" output="$scratch/run"
  kill -USR1 $launcher
  stopped
fi
finish
