#!/usr/bin/env bash
# Output of many ranks stays readable, and whoever reads it cannot hurt the run.
# (case C34: allenai/OLMo#453, NVIDIA/dllogger#9, tqdm/tqdm#750)
. "$(dirname "$0")/../support/run.sh"
cat >"$scratch/job.yaml" <<'YAML'
model: {kind: chatty, inputs: 4, outputs: 3}
data: {format: synthetic, samples: 120}
train: {steps: 40, global_batch: 12, seed: 1}
optimizer: {kind: sgd, lr: 0.1}
metrics: {every: 1}
parallel: {ranks: 6}
launch: {oversubscribe: true, env: {NOISE: "1"}}
YAML
own="$BUILD/own_model $scratch/job.yaml"
run() { # NAME [key=value]: with output where the caller sends it
  local name=$1
  shift
  # shellcheck disable=SC2086
  timeout 60 $own output="$scratch/$name" "$@"
}

run file >"$scratch/out" 2>"$scratch/err" || fail "exit code $?"
! grep -qP '[\r\x1b\x1e]' "$scratch/out" "$scratch/err" || fail "control characters in a file"
[ "$(grep -c '^step ' "$scratch/out")" = 40 ] || fail "not one metrics line a step"
# Every line is whole: a tag and one rank's digit all along, shown up to 8 KiB.
awk '/\| [0-9]{9}/ {
  rank = substr($1, 2); text = $3; tail = $0; sub(/^[^ ]+ \| [0-9]+/, "", tail)
  digits = text; gsub(rank, "", digits)
  whole = (length(text) == 9 || length(text) == 4999) && tail == ""
  cut = length(text) == 8192 && tail == " [... 91,807 bytes more in logs/rank-" rank ".log]"
  if (digits != "" || !(whole || cut)) print
}' "$scratch/err" >"$scratch/torn"
[ "$(grep -c '| [0-5][0-5][0-5]' "$scratch/err")" -gt 1000 ] || fail "most lines are missing"
[ ! -s "$scratch/torn" ] || fail "torn lines: $(cut -c1-200 "$scratch/torn" | head -n 3)"
# The log files have all of it: both streams, 40 steps and evaluation, 3 lengths.
for rank in 0 1 2 3 4 5; do
  counts=$(grep -E "^$rank+\$" "$scratch/file/logs/rank-$rank.log" | awk '{print length($0)}' | sort -n | uniq -c | awk '{printf "%s x %s;", $1, $2}')
  each=${counts%% *}
  [ "${each:-0}" -ge 40 ] || fail "rank $rank logged $each lines of a length"
  [ "$counts" = "$each x 9;$each x 4999;$each x 99999;" ] || fail "rank $rank logged $counts"
  checks=$((checks + 1))
done

# Readers that are slow, full, gone: the same exit code and weights; a loss is said where it can be.
reader() { # takes 1 line a second, for a minute at most, and nothing of ours but its input
  exec >/dev/null 2>&1
  local left=60
  while [ $left -gt 0 ] && IFS= read -r _; do left=$((left - 1)) && sleep 1; done
}
begin=$(date +%s%3N)
run slow > >(reader) 2>&1 || fail "with a slow reader the exit code was $?"
took=$(($(date +%s%3N) - begin))
[ $took -lt 8000 ] || fail "a slow reader cost $took ms"
run many train.steps=3000 launch.env={} > >(reader) 2>"$scratch/err" || fail "with many lines the exit code was $?"
has "$scratch/err" "could not be written to standard output (its reader did not keep up)"
[ "$(field "$scratch/many" step step | tail -n 1)" = 3000 ] || fail "a slow reader kept steps from the event file"
run full launch.env={} 2>"$scratch/err" >/dev/full || fail "with a full disk the exit code was $?"
has "$scratch/err" "could not be written to standard output (No space left on device)"
run gone launch.env={} 2>"$scratch/err" > >(:) || fail "with a closed pipe the exit code was $?"
has "$scratch/err" "could not be written to standard output (Broken pipe)"
run both >/dev/full 2>&1 || fail "with nowhere to write the exit code was $?"
begin=$(date +%s%3N)
run stuck > >(exec sleep 8 >/dev/null 2>&1) 2>&1 || fail "with a stuck reader the exit code was $?"
took=$(($(date +%s%3N) - begin))
[ $took -lt 7500 ] || fail "a stuck reader cost $took ms"
for way in slow full gone both stuck; do
  expect 0 "$BUILD/compare_weights" "$scratch/file/weights.safetensors" "$scratch/$way/weights.safetensors" 0
done

# Standard streams that are closed are not given to the next file that is opened.
run closed launch.env={} <&- >&- 2>&- || fail "with closed streams the exit code was $?"
grep -qxE '[0-9]+' "$scratch/closed/lock" || fail "output went into the lock file"
[ "$(wc -l <"$scratch/closed/lock")" = 1 ] || fail "output went into the lock file"

# On a terminal progress is one line, redrawn; nothing else carries escapes.
if script -qec true /dev/null >/dev/null 2>&1; then # where a pseudo-terminal can be had
  # shellcheck disable=SC2086
  expect 0 script -qec "$own output=$scratch/terminal launch.env={}" "$scratch/typescript"
  grep -q $'\r\x1b\[Kstep ' "$scratch/typescript" || fail "no live line on a terminal"
  ! grep -qP '[\r\x1b\x1e]' "$scratch/terminal/logs/rank-0.log" || fail "the live line is in the log"
fi
finish
