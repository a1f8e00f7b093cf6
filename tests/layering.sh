#!/usr/bin/env bash
# The house's one rule: launcher -> runtime -> {models, collectives} -> core. Nothing includes upwards or
# sideways; each foreign library has one home; every include/ddp header stands alone.
# Usage: tests/layering.sh   (prints each breach; exit 1 if there is one)
set -u
cd "$(dirname "$0")/.."
bad=0

# breach FOLDER FORBIDDEN...: no file below FOLDER may include "FORBIDDEN/...".
breach() {
  local folder=$1 found
  shift
  for above in "$@"; do
    found=$(grep -rnE "#include \"$above/" "$folder" --include='*.[ch]' --include='*.cu') || continue
    echo "$found"
    echo "  ^ $folder must not include $above"
    bad=1
  done
}
breach core collectives models runtime launcher
breach collectives models runtime launcher
breach models collectives runtime launcher
breach runtime launcher
breach include core collectives models runtime launcher

# home PATTERN PLACES: an include that matches PATTERN stands only in files whose path matches PLACES.
home() {
  local found
  found=$(grep -rnE "#include <($1)" core collectives models runtime launcher include --include='*.[ch]' \
    --include='*.cu' | grep -vE "^($2)") || return 0
  echo "$found"
  echo "  ^ belongs in $2"
  bad=1
}
home 'yaml\.h' 'core/config/'
home 'mpi\.h' 'collectives/mpi'
home 'hwloc' 'launcher/machine/|runtime/bind\.c'
home 'cblas\.h' 'core/device/cpu/'
home 'cuda|cublas|cudnn' 'core/device/cuda/'
home 'nccl\.h' 'collectives/nccl'

found=$(grep -rnE '\b(exit|abort)\(' core collectives models runtime launcher --include='*.c' |
  grep -vE '^(core/error\.c|core/fault\.c|launcher/spawn\.c)|ddp_[a-z_]*abort\(|->abort\(|ops->|^[^:]*:[0-9]*: *(/?\*|//)')
if [ -n "$found" ]; then
  echo "$found"
  echo "  ^ only mains end the process: return a ddp_error"
  bad=1
fi
for header in include/ddp/*.h; do
  if ! echo "#include <ddp/$(basename "$header")>" | ${CC:-cc} -std=gnu11 -Iinclude -fsyntax-only -x c -; then
    echo "  ^ $header does not stand alone"
    bad=1
  fi
done
[ $bad = 0 ] && echo "layering: every include points down"
exit $bad
