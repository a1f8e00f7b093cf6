#!/bin/sh
# Our all-reduce beside Open MPI's, in one run, and gloo's where PyTorch is installed.
# Usage: [BUILD=build] [RANKS=2] tests/bench/allreduce.sh
set -eu
here=$(dirname "$0")
build=${BUILD:-$here/../../build}
ranks=${RANKS:-2}
mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" "$build/tests/allreduce"
python=${PYTHON:-/usr/bin/python3}
if "$python" -c 'import torch' 2>/dev/null; then
    "$python" "$here/allreduce_gloo.py" "$ranks"
else
    echo "(no PyTorch for $python: gloo left out)"
fi
