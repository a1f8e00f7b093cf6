#!/usr/bin/env bash
# Under a person's own mpirun there is no ddprun above the ranks: still one rank fails first, is named once, and its code
# is mpirun's. (case C10: horovod/horovod#642, open-mpi/ompi#3380, deepspeedai/DeepSpeed#618)
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
if ! command -v mpirun >/dev/null || [ "$("$ddprun" check | grep -c 'built without MPI')" = 1 ]; then
  echo "needs Open MPI"
  exit 77
fi
mpirun="mpirun --allow-run-as-root --oversubscribe --bind-to none"
run="$scratch/run"
within=10000 # milliseconds, and that is for a build without sanitizers
! grep -qs '^DDP_SANITIZE:.*=.' "$BUILD/CMakeCache.txt" || within=30000
hurt="$mpirun -np 3 $ddprun $job output=$run"

# told RANK CODE: one verdict, on that rank; one end, with that code; the first line of the report is about it too.
told() {
  checks=$((checks + 1))
  [ "$(field "$run" verdict rank)" = "$1" ] || fail "the verdicts name: $(field "$run" verdict rank | tr '\n' ' ')"
  [ "$(field "$run" end exit)" = "$2" ] || fail "the end events say: $(field "$run" end exit | tr '\n' ' ')"
  [ "$(field "$run" end outcome)" = failed ] || fail "the end event has another outcome"
  [ "$(grep -c 'failed first' "$scratch/err")" = 1 ] || fail "not one report: $(grep 'failed first' "$scratch/err")"
  has "$scratch/err" "ddprun: error: rank $1 failed first"
}

for pair in exit:3=3 raise:SEGV=139 raise:KILL=137 raise:ABRT=134 exit:0=1 loader_error=1 oom=1; do
  rm -rf "$run"
  begin=$(now_ms)
  # shellcheck disable=SC2086
  DDP_FAULT="rank=1,step=3,do=${pair%=*}" expect "${pair#*=}" $hurt
  took_at_most "$begin" $within
  nothing_left 1
  told 1 "${pair#*=}"
  [ "$(field "$run" verdict kind)" = crash ] || fail "the verdict has another kind"
  [ "$(field "$run" verdict step)" = 3 ] || fail "the verdict names another step"
  [ "$(field "$run" verdict host)" = "$(hostname)" ] || fail "the verdict names another host"
  [ "$(field "$run" end steps)" -le 2 ] || fail "the end event counts steps that were not done"
  pid=$(sed -n 's/.*"event": "start".*"rank": 1, "host": "[^"]*", "pid": \([0-9]*\).*/\1/p' "$run/events.jsonl")
  [ "$(field "$run" verdict pid)" = "$pid" ] || fail "the verdict names another process than rank 1's, $pid"
  has "$run/logs/rank-1.log" "DDP_FAULT is set"
done

# Before the ranks have met; with data that only one rank misses; in the last step.
rm -rf "$run"
# shellcheck disable=SC2086
DDP_FAULT="rank=2,step=0,do=exit:4" expect 4 $hurt
told 2 4
# shellcheck disable=SC2086
expect 2 $mpirun -np 2 "$ddprun" configs/digits.yaml output="$run" train.global_batch=12 : -np 1 "$ddprun" configs/digits.yaml output="$run" \
  train.global_batch=12 data.train=/nowhere/at-all
told 2 2
has "$run/logs/rank-2.log" "/nowhere/at-all"
# shellcheck disable=SC2086
DDP_FAULT="rank=0,step=40,do=raise:SEGV" expect 139 $hurt
told 0 139
nothing_left 1

# All at once: still one of them.
# shellcheck disable=SC2086
DDP_FAULT="step=2,do=exit:6" expect 6 $hurt
told "$(field "$run" verdict rank)" 6
nothing_left 1

# A rank that is asked to end asks the others along; that is no failure.
rm -rf "$run"
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=raise:TERM" $hurt >"$scratch/out" 2>"$scratch/err"
code=$?
case $code in 75 | 143) ;; *) fail "ranks that were asked to end returned $code" ;; esac
[ -z "$(field "$run" verdict rank)" ] || fail "a rank that was asked to end is blamed"
[ "$(field "$run" end outcome)" = interrupted ] || fail "the end event has another outcome"
[ "$(field "$run" end exit)" = $code ] || fail "the end event has another code than $code"

# One that stops is blamed, not those who waited for it.
begin=$(now_ms)
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=stop" expect 1 $hurt watchdog.timeout_s=1
took_at_most "$begin" $within
told 1 1
[ "$(field "$run" verdict kind)" = hang ] || fail "the verdict is no hang"
nothing_left 1

# The code survives a pipe whose reader looks at nothing else.
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=exit:3" $hurt 2>&1 | cat >"$scratch/log"
[ "${PIPESTATUS[0]}" = 3 ] || fail "behind a pipe the code was ${PIPESTATUS[0]}"
has "$scratch/log" "rank 1 failed first"

# Whatever is killed from outside, nothing stays: mpirun; what mpirun started for a rank.
for who in mpirun keeper; do
  # shellcheck disable=SC2086
  $mpirun -np 2 "$ddprun" $endless output="$scratch/$who" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  tries=200
  until [ -s "$scratch/$who/events.jsonl" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "the ranks never ran"
    sleep 0.05
  done
  pid=$launcher
  [ $who = mpirun ] || pid=$(cat "/proc/$launcher/task/$launcher/children" | cut -d' ' -f1)
  kill -KILL "$pid"
  wait $launcher 2>/dev/null
  nothing_left 6
done
finish
