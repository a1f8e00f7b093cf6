#!/usr/bin/env bash
# mpirun's refusals become one clear line each, before anything starts; what works needs no unsafe flags.
# (case C09: horovod/horovod#1878, open-mpi/ompi#4451, open-mpi/ompi#6020)
. "$(dirname "$0")/../support/run.sh"
if ! command -v mpirun >/dev/null || [ "$("$ddprun" check | grep -c 'built without MPI')" = 1 ]; then
  echo "needs Open MPI"
  exit 77
fi
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
run="$scratch/run"
job="configs/smoke.yaml output=$run launch.via=mpirun train.steps=4"

# one_line CODE TEXT [key=value]: refused with an error of one line and a help line, nothing left.
one_line() {
  local code=$1 text=$2
  shift 2
  # shellcheck disable=SC2086
  expect "$code" "$ddprun" $job "$@"
  has "$scratch/err" "$text"
  [ "$(grep -c 'error:' "$scratch/err")" = 1 ] || fail "not one error: $(cat "$scratch/err")"
  [ "$(grep -vcE 'error:|^ *[0-9]* \||^    help: ' "$scratch/err")" = 0 ] || fail "more than that was said: $(cat "$scratch/err")"
  [ ! -e "$run" ] || fail "a refused job left its run directory"
}

cores=$("$ddprun" topo --json | sed 's/.*"usable_cores": \([0-9]*\).*/\1/')
one_line 2 "launch.oversubscribe=true" parallel.ranks=$((cores + 3)) train.global_batch=$((cores * 2 + 6))
# shellcheck disable=SC2086
expect 0 "$ddprun" $job parallel.ranks=$((cores + 3)) train.global_batch=$((cores * 2 + 6)) launch.oversubscribe=true
! grep -qi 'mpirun\|slots' "$scratch/err" || fail "raw mpirun text: $(cat "$scratch/err")"
rm -rf "$run"
if [ "$(id -u)" = 0 ]; then
  one_line 2 "launch.allow_root" launch.allow_root=false
  # shellcheck disable=SC2086
  expect 0 "$ddprun" $job parallel.ranks=1
  rm -rf "$run"
fi
mkdir "$scratch/bin"
saved=$PATH
for tool in timeout grep cat sed; do ln -s "$(command -v $tool)" "$scratch/bin/$tool"; done
PATH=$scratch/bin
one_line 3 "there is no mpirun in PATH"
printf '#!/bin/sh\necho "HYDRA build details:"\necho "    Version: 4.0.2"\n' >"$scratch/bin/mpirun"
PATH=$saved
chmod +x "$scratch/bin/mpirun"
PATH=$scratch/bin
one_line 3 "is not Open MPI's mpirun; it calls itself \"HYDRA build details:\""
PATH=$saved

# An mpirun that starts nothing: the error points to its words, which are in a file.
printf '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit\necho "a wall of text" >&2\nexit 213\n' >"$scratch/bin/mpirun"
# shellcheck disable=SC2086
PATH=$scratch/bin:$PATH expect 213 "$ddprun" $job
has "$scratch/err" "mpirun failed: exit code 213; its own words are in $run/logs/mpirun.log"
lacks "$scratch/err" "a wall of text"
has "$run/logs/mpirun.log" "a wall of text"
finish
