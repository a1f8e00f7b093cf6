# Sourced by the tests of this folder, after run.sh: a job to hurt, and whether anything of it is left.
export DDP_TEST_MARK="mark-$$-$RANDOM" # in the environment of every process of the job
job="configs/smoke.yaml launch.oversubscribe=true train.global_batch=12"
endless="$job train.steps=100000000 metrics.every=1000000"

# marked: pids of live processes that carry the mark, but for this shell's own.
marked() {
  local file pid
  for file in /proc/[0-9]*/environ; do
    pid=${file#/proc/} pid=${pid%/environ}
    [ "$pid" != $$ ] && [ "$pid" != "$BASHPID" ] || continue
    grep -qsF "DDP_TEST_MARK=$DDP_TEST_MARK" "$file" || continue
    case $(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null) in Z | X | '') continue ;; esac
    case $(cat "/proc/$pid/comm" 2>/dev/null) in ddprun | mpirun | exe | orted | own_model) echo "$pid" ;; esac
  done
}

# nothing_left SECONDS: within them.
nothing_left() {
  local tries=$(($1 * 20))
  checks=$((checks + 1))
  while [ -n "$(marked)" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "still alive: $(for pid in $(marked); do tr '\0' ' ' <"/proc/$pid/cmdline"; echo "($pid)"; done)"
    sleep 0.05
  done
}

# ranks_running COUNT: waits until so many ranks of the job run.
ranks_running() {
  local tries=200 pid count
  while [ $tries -gt 0 ]; do
    count=0
    for pid in $(marked); do
      case $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) in *"rank $scratch"*) count=$((count + 1)) ;; esac
    done
    [ $count -ge "$1" ] && return
    tries=$((tries - 1))
    sleep 0.05
  done
  fail "$1 ranks never ran"
}

# rank_pid K: of a running job in $scratch/run, started by ddprun itself.
rank_pid() {
  local pid
  for pid in $(marked); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "DDP_RANK=$1" && echo "$pid" && return
  done
}

now_ms() { date +%s%3N; }

# took_at_most BEGIN_MS LIMIT_MS
took_at_most() {
  local took=$(($(now_ms) - $1))
  checks=$((checks + 1))
  [ $took -le "$2" ] || fail "it took $took ms, at most $2 are allowed"
}
