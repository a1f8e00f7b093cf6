#!/usr/bin/env bash
# A reader that takes one line a second, of ranks that write 200 kB a step, costs training at most a tenth of its speed.
# (case C34) Both are measured in turn, and the best run of each counts: the machine's own noise is larger.
. "$(dirname "$0")/../support/run.sh"
rounds=6
cat >"$scratch/job.yaml" <<'YAML'
model: {kind: chatty, inputs: 4, outputs: 3}
data: {format: synthetic, samples: 1200}
train: {steps: 600, global_batch: 12, seed: 1}
optimizer: {kind: sgd, lr: 0.1}
metrics: {every: 1}
parallel: {ranks: 2}
launch: {oversubscribe: true, env: {NOISE: "1"}}
YAML
reader() { # takes 1 line a second, and nothing of ours but its input
  exec >/dev/null 2>&1
  echo "$BASHPID" >"$scratch/reader"
  while IFS= read -r _; do sleep 1; done
}

# took NAME: milliseconds from the first step to the last.
took() {
  awk -F'"t": ' '/"event": "step"/ {split($2, at, ","); if (!begin) begin = at[1]; end = at[1]}
    END {printf "%d\n", (end - begin) * 1000}' "$scratch/$1/events.jsonl"
}

best_file=1000000000 best_slow=1000000000
for round in $(seq $rounds); do
  timeout 60 "$BUILD/own_model" "$scratch/job.yaml" output="$scratch/file$round" >"$scratch/out" 2>&1 || fail "exit code $?"
  timeout 60 "$BUILD/own_model" "$scratch/job.yaml" output="$scratch/slow$round" > >(reader) 2>&1 || fail "with a slow reader the exit code was $?"
  kill "$(cat "$scratch/reader")" 2>/dev/null # it has minutes of reading before it
  file=$(took "file$round") slow=$(took "slow$round")
  echo "round $round: $file ms into a file, $slow ms with a slow reader"
  [ "$file" -gt $best_file ] || best_file=$file
  [ "$slow" -gt $best_slow ] || best_slow=$slow
  rm -rf "$scratch/file$round/logs" "$scratch/slow$round/logs"
  checks=$((checks + 1))
  [ "$round" -ge 2 ] && [ $((best_slow * 10)) -le $((best_file * 11)) ] && break
done
[ $((best_slow * 10)) -le $((best_file * 11)) ] || fail "a slow reader made training slower: $best_slow ms instead of $best_file ms"
finish
