#!/usr/bin/env bash
# restart.max: a job that crashes, hangs or loses a rank goes on by itself from its newest checkpoint, and ends in the
# bits of an unbroken run; one that comes no further, or whose request is wrong, does not try for ever.
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
. tests/support/history.sh

cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 64, hidden: [32], outputs: 10}
data: {format: synthetic, samples: 500}
train: {steps: 20, global_batch: 24, micro_batch: 3, seed: 3}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 2}
checkpoint: {every: 5}
restart: {max: 2}
metrics: {trace: [samples, checksum]}
launch: {oversubscribe: true, grace_s: 2}
watchdog: {timeout_s: 2}
END
run_job() { # CODE FAULT key=value...
  local code=$1 fault=$2
  shift 2
  rm -rf "$scratch/run"
  DDP_FAULT="${fault:+$fault;}do=sleep:0.006@forward" expect "$code" "$ddprun" "$scratch/job.yaml" output="$scratch/run" "$@"
  nothing_left 1
}
run_job 0 ""
mv "$scratch/run" "$scratch/whole"

ways=local
command -v mpirun >/dev/null && ways="local mpirun"
for via in $ways; do
  for fault in exit:7 raise:SEGV raise:KILL; do
    run_job 0 "attempt=1,rank=1,step=13,do=$fault" launch.via=$via
    same 20 "$scratch/whole" "$scratch/run"
    has "$scratch/err" "rank 1 failed first"
    has "$scratch/err" "ddprun: restarting from step 10 with 2 ranks: attempt 2 of 3"
    [ "$(field "$scratch/run" restart from_step)" = 10 ] || fail "the restart event is another"
    [ "$(field "$scratch/run" verdict rank)" = 1 ] || fail "the verdict is another"
    [ "$(field "$scratch/run" end outcome)" = "done" ] || fail "there is another end than done"
  done
done

# A hang; and a failure in each attempt, each time further on.
run_job 0 "attempt=1,rank=1,step=8,do=stop"
same 20 "$scratch/whole" "$scratch/run"
[ "$(field "$scratch/run" verdict kind)" = hang ] || fail "the verdict is no hang"
run_job 0 "attempt=1,rank=1,step=8,do=exit:7;attempt=2,rank=0,step=13,do=exit:7"
same 20 "$scratch/whole" "$scratch/run"
[ "$(field "$scratch/run" restart attempt | tr '\n' ' ')" = "2 3 " ] || fail "there were other attempts"

# Before the first checkpoint: from the start.
run_job 0 "attempt=1,rank=1,step=2,do=exit:7"
same 20 "$scratch/whole" "$scratch/run"
has "$scratch/err" "restarting from step 0"

# No progress, too often, not its fault to mend: the code is the first failing rank's.
run_job 7 "rank=1,step=8,do=exit:7"
has "$scratch/err" "no other attempt: it failed twice after step 7 and came no further"
[ "$(field "$scratch/run" restart attempt | wc -l)" = 1 ] || fail "it was tried more than once more"
[ "$(field "$scratch/run" end outcome)" = failed ] || fail "the end is another"
run_job 7 "attempt=1,rank=1,step=3,do=exit:7;attempt=2,rank=1,step=8,do=exit:7;attempt=3,rank=1,step=13,do=exit:7"
has "$scratch/err" "no other attempt: restart.max is 2"
run_job 2 "rank=1,step=3,do=exit:2"
has "$scratch/err" "no other attempt: another attempt would fail alike"
run_job 2 "" checkpoint.every=0
has "$scratch/err" "restart.max: a restart goes on from a checkpoint, and there are none"

# Twice before a step is done: with fewer ranks, as far as it is allowed.
run_job 0 "attempt=1,rank=3,do=exit:7,step=0;attempt=2,rank=3,do=exit:7,step=0" parallel.ranks=4
has "$scratch/err" "restarting from step 0 with 4 ranks: attempt 2 of 3"
has "$scratch/err" "restarting from step 0 with 2 ranks: attempt 3 of 3"
run_job 7 "rank=3,do=exit:7,step=0" parallel.ranks=4 restart.min_ranks=4
has "$scratch/err" "allow no fewer than 4 ranks"

# Stopped by a person in the second attempt: no third.
rm -rf "$scratch/run"
DDP_FAULT="attempt=1,rank=1,step=8,do=exit:7;do=sleep:0.05@forward" "$ddprun" "$scratch/job.yaml" output="$scratch/run" >"$scratch/out" 2>"$scratch/err" &
launcher=$!
for wait in $(seq 500); do
  ! grep -qs '"event": "restart"' "$scratch/run/events.jsonl" || break
  sleep 0.02
done
sleep 0.5
kill -TERM $launcher
wait $launcher
[ $? = 75 ] || fail "stopping the second attempt gave another code: $(cat "$scratch/err")"
DDP_FAULT="" expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/run"
same 20 "$scratch/whole" "$scratch/run"
finish
