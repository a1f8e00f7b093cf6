#!/usr/bin/env bash
# A rank that has less data than the others, or ends early without notice: an error that names it, and no hang.
# (case C19 d: pytorch/pytorch#33148 and #38174, Lightning-AI/pytorch-lightning#20404)
. "$(dirname "$0")/../support/run.sh"
job="configs/smoke.yaml parallel.ranks=4 launch.oversubscribe=true train.global_batch=12 watchdog.timeout_s=2 output=$scratch/run"

# quick COMMAND...: fails with 1 and says that it was rank 2.
quick() {
  expect 1 "$@"
  grep -qE "^ddprun: error: (rank 2 failed first|hang: rank 2 )" "$scratch/err" || fail "rank 2 is not named: $(cat "$scratch/err")"
  [ "$(field "$scratch/run" verdict rank)" = 2 ] || fail "the verdict names rank $(field "$scratch/run" verdict rank)"
}

# Its data ends; it leaves as if it were done; it waits for data that does not come.
begin=$(date +%s)
for fault in short_read loader_error exit:0 sleep:60@load; do
  # shellcheck disable=SC2086
  DDP_FAULT="rank=2,step=3,do=$fault" quick "$ddprun" $job
  rm -rf "$scratch/run"
done
[ $(($(date +%s) - begin)) -lt 40 ] || fail "four failures took more than 40 s"

# Rank 2 is on another disk, with a shorter file of the same name: refused before the first step.
if command -v mpirun >/dev/null && [ "$("$ddprun" check | grep -c 'built without MPI')" = 0 ]; then
  mkdir "$scratch/long" "$scratch/short"
  head -c 5000 configs/data/bible-train.txt >"$scratch/long/text.txt"
  head -c 4000 configs/data/bible-train.txt >"$scratch/short/text.txt"
  text="$PWD/configs/bible.yaml data.train=text.txt data.validation=null train.global_batch=4 train.steps=4 output=$scratch/run"
  program=$(cd "$BUILD" && pwd)/ddprun
  # shellcheck disable=SC2086
  expect 1 mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 -wdir "$scratch/long" "$program" $text : \
    -np 1 -wdir "$scratch/short" "$program" $text : -np 1 -wdir "$scratch/long" "$program" $text
  has "$scratch/err" "the ranks differ in the number of training samples"
  [ "$(field "$scratch/run" verdict kind)" = mismatch ] || fail "the verdict is a $(field "$scratch/run" verdict kind)"
  [ "$(field "$scratch/run" end outcome)" = failed ] || fail "the end event has another outcome: $(tail -n 3 "$scratch/run/events.jsonl")"
  [ -z "$(field "$scratch/run" step step)" ] || fail "steps were done"
fi
finish
