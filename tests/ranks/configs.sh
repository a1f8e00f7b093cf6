#!/usr/bin/env bash
# Every job in configs/ does what it says: digits above 95 % within 10 s, bible below 2.2 nats a byte within 2 minutes
# (both on two cores), smoke in 2 s, and one step of GPT-2 124M. Also: memory does not grow from step to step.
. "$(dirname "$0")/../support/run.sh"
ranks=$(($(nproc) < 2 ? 1 : 2))
above() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a > b)}'; }

LIMIT=60 expect 0 "$ddprun" configs/digits.yaml parallel.ranks=$ranks output="$scratch/digits"
above "$(field "$scratch/digits" end accuracy)" 0.95 || fail "digits: accuracy $(field "$scratch/digits" end accuracy)"
echo "digits: accuracy $(field "$scratch/digits" end accuracy) in $(field "$scratch/digits" end seconds) s"
LIMIT=60 expect 0 "$ddprun" configs/smoke.yaml parallel.ranks=$ranks output="$scratch/smoke"
LIMIT=300 expect 0 "$ddprun" configs/gpt2-124m.yaml parallel.ranks=1 train.steps=1 train.global_batch=1 train.micro_batch=1 \
  data.validation_samples=1 output="$scratch/gpt2"
above 11.5 "$(field "$scratch/gpt2" step loss)" || fail "gpt2-124m: the first loss is far above ln 50257"
LIMIT=900 expect 0 "$ddprun" configs/bible.yaml parallel.ranks=$ranks output="$scratch/bible"
above 2.2 "$(field "$scratch/bible" end eval_loss)" || fail "bible: validation loss $(field "$scratch/bible" end eval_loss)"
echo "bible: validation loss $(field "$scratch/bible" end eval_loss) in $(field "$scratch/bible" end seconds) s"

# Resident memory of a rank between step 500 and step 3000.
"$ddprun" configs/smoke.yaml parallel.ranks=1 train.steps=1000000 output="$scratch/long" >/dev/null 2>&1 &
launcher=$!
resident_at() { # STEP: kB of rank 0 once it has got there
  local tries=600 step
  while [ $tries -gt 0 ]; do
    step=$(tail -n 1 "$scratch/long/events.jsonl" 2>/dev/null | sed -n 's/.*"event": "step".*"step": \([0-9]*\),.*/\1/p')
    if [ "${step:-0}" -ge "$1" ]; then
      awk '/^VmRSS:/ {print $2}' "/proc/$(field "$scratch/long" start pid | head -n 1)/status"
      return
    fi
    tries=$((tries - 1))
    sleep 0.1
  done
}
early=$(resident_at 500)
late=$(resident_at 3000)
kill -TERM $launcher
wait $launcher
[ -n "$early" ] && [ -n "$late" ] || fail "the long run never got to step 3000"
above $((early * 105 / 100 + 1)) "$late" || fail "resident memory grew from $early kB to $late kB"
echo "resident memory: $early kB at step 500, $late kB at step 3000"
finish
