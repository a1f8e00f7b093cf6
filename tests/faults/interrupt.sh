#!/usr/bin/env bash
# Ctrl-C and its kin: the job ends, quickly, with the signal's code, and says so; twice means now.
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
set -m # without job control a shell starts background jobs deaf to SIGINT, and ddprun keeps to that

# begin VIA RANKS
begin() {
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  "$ddprun" $endless parallel.ranks="$2" launch.via="$1" output="$scratch/run" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  ranks_running "$2"
  sleep 0.3
}

# ends_with CODE: the launcher, within six seconds, leaving nothing.
ends_with() {
  local begin code
  begin=$(now_ms)
  wait $launcher
  code=$?
  [ $code = "$1" ] || fail "the launcher returned $code, wanted $1"
  took_at_most "$begin" 6000
  nothing_left 1
}

ways=local
command -v mpirun >/dev/null && ways="local mpirun"
for via in $ways; do
  for pair in INT=130 TERM=143 HUP=129; do
    begin $via 2
    kill -"${pair%=*}" $launcher
    ends_with "${pair#*=}"
    has "$scratch/err" "ddprun: interrupted by SIG${pair%=*} after"
    [ "$(field "$scratch/run" end outcome | tail -n 1)" = interrupted ] || fail "the end event is another"
    has "$scratch/err" "ddprun: stopping, at most 20 s; once more ends it at once"
    [ "$(grep -c . "$scratch/err")" = 2 ] || fail "more was said than needed: $(cat "$scratch/err")"
  done
done

begin local 1
kill -INT $launcher
ends_with 130

# A rank that cannot answer: the second signal does not wait for it.
begin local 2
kill -STOP "$(rank_pid 0)" "$(rank_pid 1)"
kill -INT $launcher
sleep 0.2
kill -INT $launcher
ends_with 130

# Whoever starts ddprun deaf to a signal wants that: nohup, and shells for background jobs.
(
  trap '' HUP
  # shellcheck disable=SC2086
  exec "$ddprun" $endless parallel.ranks=2 output="$scratch/deaf" >"$scratch/out" 2>"$scratch/err"
) &
launcher=$!
ranks_running 2
kill -HUP $launcher
sleep 0.5
kill -0 $launcher || fail "SIGHUP ended a job that was told to ignore it"
kill -TERM $launcher
ends_with 143

# On a terminal: three fast Ctrl-C reach ddprun only; and closing the terminal ends the job.
if python3 -c 'import pty; pty.openpty()' 2>/dev/null; then
  for how in ctrl-c close; do
    # shellcheck disable=SC2086
    expect 0 python3 tests/faults/terminal.py $how "$ddprun" $endless parallel.ranks=2 output="$scratch/run"
    nothing_left 5
  done
fi
finish
