#!/usr/bin/env bash
# Three ways to start the same job give the same numbers: ddprun itself, ddprun through mpirun, and
# `mpirun -np N ddprun JOB`. And every rank gets launch.env byte for byte, in every way.
. "$(dirname "$0")/../support/run.sh"
job="configs/smoke.yaml train.steps=8 parallel.ranks=2 launch.oversubscribe=true"
same() { expect 0 "$BUILD/compare_weights" "$scratch/own/weights.safetensors" "$scratch/$1/weights.safetensors" 0; }

# shellcheck disable=SC2086
expect 0 "$ddprun" $job output="$scratch/own"
if ! command -v mpirun >/dev/null; then
  echo "mpirun is not here: only ddprun's own launch was tested"
  finish
  exit 0
fi
# shellcheck disable=SC2086
expect 0 "$ddprun" $job launch.via=mpirun output="$scratch/through"
same through
mpirun="mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2"
# shellcheck disable=SC2086
expect 0 $mpirun "$ddprun" $job output="$scratch/under"
same under
for run in own through under; do
  [ "$(field "$scratch/$run" step loss)" = "$(field "$scratch/own" step loss)" ] || fail "$run has other losses"
  [ "$(field "$scratch/$run" start world)" = 2 ] || fail "$run has another number of ranks"
done
# shellcheck disable=SC2086
expect 2 $mpirun "$ddprun" configs/smoke.yaml parallel.ranks=3 launch.oversubscribe=true output="$scratch/wrong"
has "$scratch/err" "parallel.ranks"
[ ! -e "$scratch/wrong" ] || fail "a refused job left its run directory"

# A GPU asked for where none can be used: not in this build (2), or not in this machine (3), and what to do.
if [ ! -e /dev/nvidia0 ]; then
  "$ddprun" plan configs/smoke.yaml parallel.device=cuda >"$scratch/out" 2>"$scratch/err"
  case $? in 2 | 3) ;; *) fail "a job without its GPU was planned" ;; esac
  has "$scratch/err" "parallel.device: "
fi
finish
