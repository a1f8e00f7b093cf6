#!/usr/bin/env bash
# Every user-facing text, exactly: each folder of cases/ has `cmd` (bash, run in a copy of the folder beside base/) and
# what it must give: stdout, stderr, code. What differs from machine to machine is replaced by a word first.
# A refused command (code 2 or 3) must leave nothing behind.
#
#   tests/golden/golden.sh                 checks all; exit 1 and a diff if one differs
#   tests/golden/golden.sh --update [CASE...]  writes down what comes out now: read the diff before you commit it
set -u
here=$(cd "$(dirname "$0")" && pwd)
ddprun=$(cd "${BUILD:-$here/../../build}" && pwd)/ddprun
scratch=$(mktemp -d /tmp/ddp-test-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
update=
[ "${1:-}" = --update ] && update=yes && shift
unset DDP_LOG DDP_FAULT
export TSAN_OPTIONS=report_thread_leaks=0 # the case run_exit leaves at once, on purpose, with its threads
first_cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
# The commands see one core, whatever the machine has.
ddprun() { taskset -c "$first_cpu" "$ddprun" "$@"; }

normalise() {
  sed -E -e "s|$scratch/[a-z_0-9-]*/?|SCRATCH/|g" -e "s/\b$(uname -n)\b/HOST/g" -e 's/pid [0-9]+/pid PID/g' \
    -e 's/^(  rank  host|  +[0-9]+  HOST) +/\1  /' -e "s/\"cores\": \"$first_cpu\"/\"cores\": \"0\"/g" \
    -e 's/^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}/TIME/' -e 's/^(r[0-9]+|ranks [0-9,-]+) \| [0-9:.]{12} /\1 | TIME /' \
    -e 's/[0-9.]+ ([kMG] )?items\/s/RATE items\/s/' -e 's/[0-9.]+ m?s\b/TIME/g' -e 's/, 1 core of .*/, 1 core of CPU/' \
    -e 's/[0-9.]+ [kMG]?i?B of [0-9.]+ [kMG]?i?B available/BYTES of BYTES available/' \
    -e 's/^(ok    cores +)1 of [0-9]+ physical.*/\1CORES/' -e 's/^(ok    mpirun +).*/\1MPIRUN/' -e 's/^(-     mpirun +).*/\1MPIRUN/' \
    -e 's/^(ok|-|FAIL) +cuda +.*/CUDA/' -e 's/ \(no GPU: [^)]*\)//'
}

failed=0 count=0
[ $# -gt 0 ] || set -- "$here"/cases/*/
for case in "$@"; do
  case=$here/cases/$(basename "$case")
  work=$scratch/$(basename "$case")
  mkdir "$work" && cp "$here"/base/* "$work"
  find "$case" -maxdepth 1 -type f ! -name cmd ! -name stdout ! -name stderr ! -name code -exec cp {} "$work" \;
  before=$(ls -A "$work")
  (cd "$work" && . "$case/cmd") </dev/null >"$scratch/stdout.raw" 2>"$scratch/stderr.raw"
  echo $? >"$scratch/code"
  for stream in stdout stderr; do normalise <"$scratch/$stream.raw" >"$scratch/$stream"; done
  case $(cat "$scratch/code") in
  2 | 3)
    [ "$(ls -A "$work")" = "$before" ] || { echo "$(basename "$case"): a refused command left: $(ls -A "$work")"; failed=$((failed + 1)); }
    ;;
  esac
  for part in stdout stderr code; do
    if [ -n "$update" ]; then
      cp "$scratch/$part" "$case/$part"
    elif ! diff -u "$case/$part" "$scratch/$part" >"$scratch/diff"; then
      echo "$(basename "$case"): $part differs"
      cat "$scratch/diff"
      failed=$((failed + 1))
    fi
  done
  count=$((count + 1))
done
echo "$count golden cases, $failed differences"
[ $failed = 0 ]
