#!/usr/bin/env bash
# Two hosts (network namespaces) through mpirun: asked to stop, both save and leave; a rank that is stopped on the other
# host is named with its host; a link that goes down ends the job, with a verdict.
. "$(dirname "$0")/../support/run.sh"
. tests/support/hosts.sh
. tests/faults/faults.sh
. tests/support/history.sh
trap 'remove_hosts; rm -rf "$scratch"' EXIT
two_hosts || {
  echo "skipped: two network namespaces cannot be made here (root and iproute2 are needed)"
  exit 77
}
# In a namespace of its own the leak checker's tracer crashes now and then; the other mpirun tests look for leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS/detect_leaks=1/detect_leaks=0}
cat >"$scratch/job.yaml" <<END
model: {kind: mlp, inputs: 64, hidden: [32], outputs: 10}
data: {format: synthetic, samples: 500}
train: {steps: 40, global_batch: 24, micro_batch: 6, seed: 3}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 4}
checkpoint: {every: 1000}
metrics: {trace: [samples, checksum]}
launch: {oversubscribe: true, hosts: ["$host_a:2", "$host_b:2"], grace_s: 5}
watchdog: {timeout_s: 3}
END
expect 0 "$scratch/on_a" "$ddprun" "$scratch/job.yaml" output="$scratch/whole"

begin() { # FAULT: in the background, until three steps are done
  rm -rf "$scratch/run"
  DDP_FAULT=$1 "$scratch/on_a" env DDP_FAULT="$1" "$ddprun" "$scratch/job.yaml" output="$scratch/run" 'launch.env={DDP_X: "1"}' \
    >"$scratch/out" 2>"$scratch/err" &
  launcher=
  for wait in $(seq 500); do
    [ "$(field "$scratch/run" step step 2>/dev/null | wc -l)" -lt 3 ] || break
    sleep 0.02
  done
  [ "$(field "$scratch/run" step step | wc -l)" -ge 3 ] || fail "no steps were taken: $(cat "$scratch/err")"
  launcher=$(for pid in $(marked); do case $(tr '\0' ' ' <"/proc/$pid/cmdline") in *"job.yaml output=$scratch/run"*) echo "$pid" ;; esac; done | head -n 1)
}
on_b() { # the pid of a rank on the second host
  ip netns pids ${net}b | while read -r pid; do
    case $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) in *"ddprun rank "*) echo "$pid" ;; esac
  done | tail -n 1
}

begin "do=sleep:0.03@forward"
kill -TERM "$launcher"
wait
[ "$(field "$scratch/run" end outcome)" = interrupted ] || fail "it was not stopped: $(cat "$scratch/err")"
has "$scratch/err" "all of it saved"
nothing_left 3
expect 0 "$scratch/on_a" "$ddprun" "$scratch/job.yaml" output="$scratch/run"
same 40 "$scratch/whole" "$scratch/run"

begin "do=sleep:0.03@forward"
pid=$(on_b)
kill -STOP "$pid"
wait
has "$scratch/err" "ddprun: error: hang: rank "
has "$scratch/err" "ddp-b"
[ "$(field "$scratch/run" verdict kind)" = hang ] || fail "the verdict is no hang"
nothing_left 6

begin "do=sleep:0.03@forward"
ip -n ${net}a link set ${net}va down
wait
grep -q '"event": "verdict"' "$scratch/run/events.jsonl" || fail "a lost link gave no verdict: $(cat "$scratch/err")"
# Of our own processes nothing is left, on either host; Open MPI's daemon on the host that is cut off waits for ever.
for wait in $(seq 300); do
  [ -n "$(on_b)" ] || break
  sleep 0.05
done
[ -z "$(on_b)" ] || fail "a rank lives on the host that is cut off"
for pid in $(ip netns pids ${net}b); do kill -KILL "$pid" 2>/dev/null; done
echo "link down: $(field "$scratch/run" verdict kind), $(field "$scratch/run" verdict cause)"
grep '^ddprun' "$scratch/err"
nothing_left 10
finish
