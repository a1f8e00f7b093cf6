#!/usr/bin/env bash
# The watchdog: names who does not come within timeout_s + 2 s, warns at half of it, and never shoots a healthy job:
# not one that is slow for its kind, or that was suspended as a whole.
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh

cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 64, hidden: [32], outputs: 10}
data: {format: synthetic, samples: 500, validation_samples: 48}
train: {steps: 12, global_batch: 24, micro_batch: 12}
optimizer: {kind: sgd, lr: 3e-3}
parallel: {ranks: 2}
launch: {oversubscribe: true, grace_s: 2}
watchdog: {timeout_s: 2}
END
run_job() { # CODE FAULT key=value...
  local code=$1 fault=$2
  shift 2
  rm -rf "$scratch/run"
  DDP_FAULT=$fault expect "$code" "$ddprun" "$scratch/job.yaml" output="$scratch/run" "$@"
  nothing_left 1
}
begin() { # FAULT key=value...: in the background, until two steps are done
  local fault=$1
  shift
  rm -rf "$scratch/run"
  DDP_FAULT=$fault "$ddprun" "$scratch/job.yaml" output="$scratch/run" "$@" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  for wait in $(seq 500); do
    [ "$(field "$scratch/run" step step 2>/dev/null | wc -l)" -lt 2 ] || return
    sleep 0.02
  done
  fail "no steps were taken: $(cat "$scratch/err")"
}
verdict() { # KIND RANK
  [ "$(field "$scratch/run" verdict kind)" = "$1" ] || fail "the verdict is no $1: $(cat "$scratch/err")"
  [ "$(field "$scratch/run" verdict rank)" = "$2" ] || fail "the verdict names another than rank $2: $(cat "$scratch/err")"
}

# Stopped from outside: named in time, the one who waits is not to blame. 12 s of steps, were it let alone.
begin "do=sleep:0.2@forward" train.steps=60
kill -STOP "$(rank_pid 1)"
stopped=$(now_ms)
wait $launcher
[ $? = 1 ] || fail "a hang gave another code"
verdict hang 1
told=$(sed -n 's/.*"event": "verdict", "t": \([0-9.]*\).*/\1/p' "$scratch/run/events.jsonl")
checks=$((checks + 1))
awk -v told="$told" -v stopped="$stopped" 'BEGIN {exit !(told - stopped / 1000 < 4.5)}' || fail "named after $told - $stopped ms"
has "$scratch/err" "ddprun: warning: nothing moves: rank 1 (pid "
has "$scratch/run/events.jsonl" '"waiting": [0]'
nothing_left 1

# Let go on before the limit: the warning was all.
begin "do=sleep:0.1@forward"
kill -STOP "$(rank_pid 0)"
sleep 1.6
for pid in $(marked); do kill -CONT "$pid"; done
wait $launcher || fail "a job that was held for a moment was ended: $(cat "$scratch/err")"
has "$scratch/err" "ddprun: warning: nothing moves: rank 0 (pid "

# The whole job is suspended, longer than any limit: when it goes on, it is no hang.
begin "do=sleep:0.1@forward"
for pid in $(marked); do kill -STOP "$pid"; done
sleep 4
for pid in $(marked); do kill -CONT "$pid"; done
wait $launcher || fail "a job that was suspended as a whole was ended: $(cat "$scratch/err")"
lacks "$scratch/run/events.jsonl" '"verdict"'

# Slow for good reasons: steps of 0.7 s allow one of 3 s; evaluation and start-up have limits of their own.
run_job 0 "do=sleep:0.7@forward;step=6,rank=1,do=sleep:2.3@backward" train.steps=8
lacks "$scratch/run/events.jsonl" '"verdict"'
run_job 0 "rank=1,do=sleep:4@eval;rank=0,do=sleep:4@init"
lacks "$scratch/run/events.jsonl" '"verdict"'

# Their limits count, too.
run_job 1 "rank=1,do=sleep:30@eval" watchdog.eval_s=1
verdict hang 1
has "$scratch/run/events.jsonl" '"phase": "eval"'
run_job 1 "rank=1,do=sleep:30@init" watchdog.startup_s=2
verdict hang 1

# One rank alone that does not move; and ranks that do different things.
run_job 1 "step=4,do=sleep:30@load" parallel.ranks=1
verdict hang 0
has "$scratch/run/events.jsonl" '"phase": "load"'
for fault in skip_collective swap_collectives; do
  run_job 1 "rank=1,step=4,do=$fault"
  [ "$(field "$scratch/run" verdict kind)" = mismatch ] || fail "$fault is no mismatch: $(cat "$scratch/err")"
done
command -v mpirun >/dev/null && {
  run_job 1 "rank=1,step=4,do=stop" launch.via=mpirun
  verdict hang 1
  has "$scratch/err" "is stopped in phase"
}
finish
