#!/usr/bin/env bash
# Under a person's own mpirun: what a rank prints reaches mpirun as it comes, and its log file; the last words of a rank
# that dies too; and nothing waits for a process that a rank leaves behind.
. "$(dirname "$0")/../support/run.sh"
if ! command -v mpirun >/dev/null || [ "$("$ddprun" check | grep -c 'built without MPI')" = 1 ]; then
  echo "needs Open MPI"
  exit 77
fi
mpirun="mpirun --allow-run-as-root --oversubscribe --bind-to none"
cat >"$scratch/job.yaml" <<'YAML'
model: {kind: chatty, inputs: 4, outputs: 3}
data: {format: synthetic, samples: 120}
train: {steps: 8, global_batch: 12, seed: 1}
optimizer: {kind: sgd, lr: 0.1}
metrics: {every: 1}
launch: {env: {NOISE: "1"}}
YAML

# got RANK: all that mpirun got from this rank, as it wrote it down.
got() { cat "$scratch"/got/*/rank."$1"/stdout "$scratch"/got/*/rank."$1"/stderr; }

# same_lines RUN RANK: its log has the same lines (but for the report of its end, which it did not write).
same_lines() {
  checks=$((checks + 1))
  sort "$1/logs/rank-$2.log" >"$scratch/logged"
  got "$2" | sed '/^ddprun: error: rank . failed first/,$d' | sort >"$scratch/shown"
  cmp -s "$scratch/logged" "$scratch/shown" ||
    fail "rank $2's log and mpirun's output differ: $(diff "$scratch/logged" "$scratch/shown" | cut -c1-200 | head -n 5)"
}

# shellcheck disable=SC2086
expect 0 $mpirun -np 3 --output-filename "$scratch/got" "$BUILD/own_model" "$scratch/job.yaml" output="$scratch/run"
for rank in 0 1 2; do
  same_lines "$scratch/run" $rank
  counts=$(grep -E "^$rank+\$" "$scratch/run/logs/rank-$rank.log" | awk '{print length($0)}' | sort -n | uniq -c | awk '{printf "%s x %s;", $1, $2}')
  each=${counts%% *}
  [ "${each:-0}" -ge 8 ] || fail "rank $rank logged $each lines of a length"
  [ "$counts" = "$each x 9;$each x 4999;$each x 99999;" ] || fail "rank $rank logged $counts"
done
has "$scratch/run/logs/rank-0.log" "done    8 steps"
[ "$(cd "$scratch/run/logs" && echo *)" = "rank-0.log rank-1.log rank-2.log" ] || fail "left in logs: $(ls "$scratch/run/logs")"
lacks "$scratch/run/events.jsonl" '"verdict"'

# A rank that is killed: the lines that it wrote just before are there.
rm -rf "$scratch/got"
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=4,do=raise:KILL" expect 137 $mpirun -np 3 --output-filename "$scratch/got" \
  "$BUILD/own_model" "$scratch/job.yaml" output="$scratch/killed"
same_lines "$scratch/killed" 1
for length in 9 4999 99999; do
  count=$(awk -v n=$length '/^1+$/ && length($0) == n' "$scratch/killed/logs/rank-1.log" | wc -l)
  [ "$count" = 6 ] || fail "of 3 steps on 2 streams, $count lines of $length bytes are in the log"
done

# A process that a rank leaves behind, with its streams, holds nothing up.
begin=$(date +%s%3N)
# shellcheck disable=SC2086
expect 0 $mpirun -np 2 "$BUILD/own_model" "$scratch/job.yaml" launch.env='{HELPER: "1"}' output="$scratch/helper"
took=$(($(date +%s%3N) - begin))
[ $took -lt 20000 ] || fail "a process left behind cost $took ms"

# Live: a line is there while its rank runs. And a reader that is gone hurts nothing.
# shellcheck disable=SC2086
$mpirun -np 2 "$ddprun" configs/smoke.yaml parallel.ranks=2 train.steps=100000000 output="$scratch/live" >"$scratch/out" 2>&1 &
pid=$!
tries=200
until grep -q '^step  *[1-9]' "$scratch/out" && grep -q '^step  *[1-9]' "$scratch/live/logs/rank-0.log"; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || fail "no line came while the job ran"
  sleep 0.05
done
kill -TERM $pid
wait $pid
[ "$(field "$scratch/live" end outcome)" = interrupted ] || fail "the end event of a job that was stopped is another"
lacks "$scratch/live/events.jsonl" '"verdict"'
finish
