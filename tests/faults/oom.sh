#!/usr/bin/env bash
# Memory runs out and the kernel ends a rank: the verdict says that, not "killed by signal 9". Needs the right to make
# a memory cgroup.
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh

# The directory of our memory cgroup, version 1 or 2, and the name of its limit.
own=$(sed -n 's/^[0-9]*:[a-z,_]*memory[a-z,_]*://p' /proc/self/cgroup)
if [ -n "$own" ]; then
  parent=/sys/fs/cgroup/memory$own limit=memory.limit_in_bytes
  [ -d "$parent" ] || parent=/sys/fs/cgroup/memory
else
  parent=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup) limit=memory.max
fi
group=$parent/ddp-test-$$
if ! mkdir "$group" 2>/dev/null || ! echo $((200 << 20)) 2>/dev/null >"$group/$limit"; then
  rmdir "$group" 2>/dev/null
  echo "not allowed to limit memory: nothing was tried"
  exit 77
fi
[ ! -w "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
[ ! -w "$group/memory.memsw.limit_in_bytes" ] || echo $((200 << 20)) >"$group/memory.memsw.limit_in_bytes"
trap 'rm -rf "$scratch"; rmdir "$group" 2>/dev/null' EXIT

cat >"$scratch/job.yaml" <<'END'
model: {kind: mlp, inputs: 2000, hidden: [20000], outputs: 10}
data: {format: synthetic, samples: 64}
train: {steps: 3, global_batch: 8}
optimizer: {kind: adamw, lr: 1e-3}
parallel: {ranks: 2}
launch: {oversubscribe: true}
END
limited() { (echo $BASHPID >"$group/cgroup.procs" && exec "$@"); }
limited "$ddprun" "$scratch/job.yaml" output="$scratch/run" >"$scratch/out" 2>"$scratch/err"
code=$?
[ $code = 137 ] || { cat "$scratch/err"; fail "exit code $code, wanted 137"; }
nothing_left 1
[ "$(field "$scratch/run" verdict kind)" = oom ] || fail "the verdict is another: $(grep verdict "$scratch/run/events.jsonl")"
has "$scratch/err" "memory had run out"
has "$scratch/run/events.jsonl" "a smaller train.micro_batch"
expect 0 "$ddprun" postmortem "$scratch/run"
has "$scratch/out" "oom: rank "

# The same group, with room: SIGKILL is SIGKILL again.
# shellcheck disable=SC2086
DDP_FAULT="rank=1,step=3,do=raise:KILL" limited "$ddprun" $job parallel.ranks=2 output="$scratch/other" >"$scratch/out" 2>"$scratch/err"
[ "$(field "$scratch/other" verdict kind)" = crash ] || fail "a kill is taken for memory: $(grep verdict "$scratch/other/events.jsonl")"
finish
