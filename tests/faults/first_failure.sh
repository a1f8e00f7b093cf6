#!/usr/bin/env bash
# One rank fails: its code is ddprun's, the report names it first, the others are gone within ten seconds.
# (case C10: horovod/horovod#642, open-mpi/ompi#3380, deepspeedai/DeepSpeed#618)
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
hurt="$job parallel.ranks=3 output=$scratch/run"

# check_report RANK: the launcher's first line names it; the others are named as followers.
check_report() {
  local first
  first=$(grep '^ddprun: error: rank' "$scratch/err" | head -n 1)
  case $first in "ddprun: error: rank $1 failed first"*"rank-$1.log"*) ;; *) fail "the report begins: $first" ;; esac
  checks=$((checks + 1))
}

for pair in exit:3=3 raise:SEGV=139 raise:KILL=137 raise:ABRT=134; do
  for via in local mpirun; do
    [ $via = local ] || command -v mpirun >/dev/null || continue
    rm -rf "$scratch/run"
    begin=$(now_ms)
    # shellcheck disable=SC2086
    DDP_FAULT="rank=1,step=3,do=${pair%=*}" expect "${pair#*=}" "$ddprun" $hurt launch.via=$via
    took_at_most "$begin" 10000
    nothing_left 1
    check_report 1
    has "$scratch/run/events.jsonl" '"event": "verdict"'
    [ "$(field "$scratch/run" verdict rank)" = 1 ] || fail "the verdict names another rank"
    [ "$(field "$scratch/run" end exit)" = "${pair#*=}" ] || fail "the end event has another code"
    [ "$(field "$scratch/run" end outcome)" = failed ] || fail "the end event has another outcome"
    if [ $via = local ]; then
      has "$scratch/err" "of step 3"
      has "$scratch/err" "because of that, ranks 0,2 ended too"
      [ "$(field "$scratch/run" verdict step)" = 3 ] || fail "the verdict names another step"
      case $(field "$scratch/run" end steps) in 1 | 2) ;; *) fail "the end event counts other steps" ;; esac
    fi
  done
done

# Before the ranks have met, in the first step, and in the last one.
# shellcheck disable=SC2086
DDP_FAULT="rank=2,step=0,do=exit:4" expect 4 "$ddprun" $hurt
check_report 2
# shellcheck disable=SC2086
DDP_FAULT="rank=2,do=exit:4" expect 4 "$ddprun" $hurt train.steps=1
check_report 2
# shellcheck disable=SC2086
DDP_FAULT="rank=0,step=40,do=raise:SEGV" expect 139 "$ddprun" $hurt
check_report 0
nothing_left 1

# A rank that leaves with 0 in the middle is a failure, and not the others'; one that fails with 1, as they do, too.
for fault in step=0,do=exit:0 step=2,do=exit:0 step=3,do=short_read step=3,do=loader_error step=2,do=oom; do
  begin=$(now_ms)
  # shellcheck disable=SC2086
  DDP_FAULT="rank=1,$fault" expect 1 "$ddprun" $hurt
  took_at_most "$begin" 10000
  check_report 1
  nothing_left 1
done

# All at once: still one of them, and its code.
# shellcheck disable=SC2086
DDP_FAULT="step=2,do=exit:6" expect 6 "$ddprun" $hurt
nothing_left 1

# The code survives a pipe whose reader looks at nothing else.
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=exit:3" "$ddprun" $hurt 2>&1 | cat >"$scratch/log"
[ "${PIPESTATUS[0]}" = 3 ] || fail "behind a pipe the code was ${PIPESTATUS[0]}"
has "$scratch/log" "rank 1 failed first"

# One that stops is blamed, not those who waited for it.
begin=$(now_ms)
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=stop" expect 1 "$ddprun" $hurt watchdog.timeout_s=1
took_at_most "$begin" 8000
has "$scratch/err" "ddprun: error: hang: rank 1 (pid "
has "$scratch/err" "is stopped in phase"
has "$scratch/err" "ranks 0,2 wait in collective #"
[ "$(field "$scratch/run" verdict kind | tail -n 1)" = hang ] || fail "the verdict is no hang"
nothing_left 1
finish
