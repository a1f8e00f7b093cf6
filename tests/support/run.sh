# Sourced by the shell tests: where things are, and how a check fails. BUILD is the build folder.
set -u
cd "$(dirname "$0")/../.."
: "${BUILD:=build}"
ddprun=$BUILD/ddprun
scratch=$(mktemp -d /tmp/ddp-test-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
checks=0

# In sanitizer builds: a crash that is asked for must be a crash.
export ASAN_OPTIONS=detect_leaks=1:handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0
! grep -q mpirun "$0" || . tests/support/leaks.sh
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:handle_segv=0:handle_abort=0
# Open MPI's memory hook is called when a thread gives its stack back, and takes a lock of libfabric; for the thread
# sanitizer that thread is gone by then, and it crashes. Only there the hook is switched off.
if grep -qs '^DDP_SANITIZE:.*=thread' "$BUILD/CMakeCache.txt"; then
  export OMPI_MCA_memory=^patcher
fi

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE COMMAND...: runs it (output in $scratch/out and $scratch/err) and wants that exit code.
expect() {
  local wanted=$1 code
  shift
  timeout "${LIMIT:-60}" "$@" >"$scratch/out" 2>"$scratch/err"
  code=$?
  checks=$((checks + 1))
  if [ "$code" != "$wanted" ]; then
    sed 's/^/  out: /' "$scratch/out" | tail -n 20 >&2
    sed 's/^/  err: /' "$scratch/err" | tail -n 20 >&2
    fail "exit code $code, wanted $wanted: $*"
  fi
}

# has FILE TEXT: the file holds this text.
has() {
  checks=$((checks + 1))
  grep -qF -- "$2" "$1" || {
    tail -n 20 "$1" >&2
    fail "\"$2\" is not in $1"
  }
}

# lacks FILE TEXT
lacks() {
  checks=$((checks + 1))
  ! grep -qF -- "$2" "$1" || fail "\"$2\" is in $1"
}

# field RUN EVENT NAME: that number or text of every such event, a line each.
field() {
  sed -n "/\"event\": \"$2\"/s/.*\"$3\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$1/events.jsonl"
}

# samples RUN: step, rank and ids of every trace, in order of step and rank.
samples() {
  sed -n 's/.*"event": "trace".*"step": \([0-9]*\), "rank": \([0-9]*\), "samples": \[\([^]]*\)\].*/\1 \2 \3/p' \
    "$1/events.jsonl" | sort -n -k1,1 -k2,2
}

finish() {
  echo "$checks checks passed"
}
