#!/usr/bin/env bash
# Whatever is killed, nothing of a job outlives it and nothing is left behind.
# (case C13: Megvii-BaseDetection/YOLOX#1476, open-mpi/ompi#8925)
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh

# begin VIA RANKS [DDP_FAULT]: a job that runs for ever, pid in $launcher.
begin() {
  # shellcheck disable=SC2086
  DDP_FAULT=${3:-} "$ddprun" $endless parallel.ranks=2 launch.via="$1" output="$scratch/run" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  ranks_running "$2"
}

# kill_launcher: SIGKILL, and it is reaped without bash's remark.
kill_launcher() {
  kill -KILL "$launcher"
  wait "$launcher" 2>/dev/null
}

ways=local
command -v mpirun >/dev/null && ways="local mpirun"
for via in $ways; do
  begin $via 2 "rank=1,do=sleep:60@init" # before the ranks have met
  kill_launcher
  nothing_left 5
  begin $via 2 # in the middle
  sleep 0.5
  kill_launcher
  nothing_left 5
done

# A stopped rank goes too.
begin local 2
kill -STOP "$(rank_pid 1)"
kill_launcher
nothing_left 5

if [ "$ways" != local ]; then
  begin mpirun 2
  sleep 0.5
  for pid in $(marked); do
    if [ "$(cat "/proc/$pid/comm")" = mpirun ]; then kill -KILL "$pid"; fi
  done
  wait $launcher
  code=$?
  [ $code = 137 ] || fail "mpirun was killed and ddprun returned $code"
  nothing_left 5
  has "$scratch/err" "mpirun failed: killed by signal 9"
  # What killed launchers left is swept by the next one.
  # shellcheck disable=SC2086
  TMPDIR=$scratch/tmp; mkdir "$TMPDIR"; export TMPDIR
  begin mpirun 2
  kill_launcher
  nothing_left 5
  [ "$(find "$TMPDIR" -maxdepth 1 -name 'ddprun-mpi-*' | wc -l)" = 1 ] || fail "the killed one left no session: the next check is void"
  # shellcheck disable=SC2086
  expect 0 "$ddprun" $job parallel.ranks=2 launch.via=mpirun output="$scratch/after"
  [ -z "$(ls -A "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
fi

# The directory of a killed job can be used again at once; that of a running one cannot.
begin local 2
# shellcheck disable=SC2086
expect 2 "$ddprun" $job output="$scratch/run"
has "$scratch/err" "another job, pid $launcher, is running in"
kill_launcher
# shellcheck disable=SC2086
expect 0 "$ddprun" $job output="$scratch/run"
nothing_left 1
finish
