#!/usr/bin/env bash
# What the recorders' pages say about runs that ended badly: the rank that did not come, never those who waited.
# (cases C24: horovod/horovod#920, C25: Lightning-AI/pytorch-lightning#19106, NVIDIA/apex#18)
. "$(dirname "$0")/../support/run.sh"
. tests/faults/faults.sh
hurt="$job parallel.ranks=3 watchdog.timeout_s=1 output=$scratch/run"

# run_hurt CODE FAULT: and the postmortem of it in $scratch/out.
run_hurt() {
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  DDP_FAULT=$2 expect "$1" "$ddprun" $hurt
  nothing_left 1
  expect 0 "$ddprun" postmortem "$scratch/run"
}

# rank_line K: its line of the table.
rank_line() { grep -E "^ +$1 " "$scratch/out"; }

# numbers K: issued and done of that line.
numbers() { rank_line "$1" | sed -E 's/.* ([0-9]+) +([0-9]+)  #.*/\1 \2/'; }

# Stopped: it has not come to where the others wait.
run_hurt 1 "rank=1,step=3,do=stop"
has "$scratch/out" "failed after 2 steps, exit code 1"
has "$scratch/out" "verdict  hang: rank 1 (pid "
has "$scratch/out" " is stopped in phase load of step 3"
has "$scratch/out" "hang: rank 1 (pid "
has "$scratch/out" "in phase load of step 3, for "
has "$scratch/out" "    ranks 0,2 wait in collective #"
has "$scratch/out" "    rank 1 has not come to it; its last was #"
read -r issued done <<<"$(numbers 1)"
[ "$issued" = "$done" ] || fail "the stopped rank waits in its page: issued $issued, done $done"
for rank in 0 2; do
  [ "$(numbers $rank | cut -d' ' -f1)" -gt "$issued" ] || fail "rank $rank has not issued more than the stopped one"
  case $(rank_line $rank) in *" comm "*"not done for"*) ;; *) fail "rank $rank does not wait: $(rank_line $rank)" ;; esac
done
[ "$(rank_line 1 | awk '{print $3}')" = "$(field "$scratch/run" verdict pid)" ] || fail "the page has another pid than the verdict"

# Different collectives: both meanings, and who is alone with his.
run_hurt 1 "rank=1,step=3,do=skip_collective"
has "$scratch/out" "mismatch: collective #"
has "$scratch/out" "ranks 0,2 issued all_reduce (sum) of "
has "$scratch/out" "(loss); rank 1 issued all_reduce (sum) of "
has "$scratch/out" "(gradient bucket 0)"
run_hurt 1 "rank=2,step=3,do=swap_collectives"
has "$scratch/out" "mismatch: collective #"
has "$scratch/out" "; rank 2 issued all_reduce (sum) of "

# Dead: exit code and signal as the events have them, place as the page has it.
run_hurt 3 "rank=2,step=4,do=exit:3"
has "$scratch/out" "exit code 3; ages are up to the verdict"
has "$scratch/out" "crash: rank 2 (pid "
has "$scratch/out" "left with exit code 3 in phase load of step 4"
run_hurt 137 "rank=0,step=4,do=raise:KILL"
has "$scratch/out" "crash: rank 0 (pid "
has "$scratch/out" "was killed by signal 9 (Killed) in phase load of step 4"
run_hurt 1 "rank=1,step=3,do=finalize"
has "$scratch/out" "crash: rank 1 (pid "
lacks "$scratch/out" "left with exit code 1"

# Done, and a second run in the same directory: the pages are the last one's.
for ranks in 3 2; do
  # shellcheck disable=SC2086
  expect 0 "$ddprun" $job parallel.ranks=$ranks output="$scratch/run"
  expect 0 "$ddprun" postmortem "$scratch/run"
  has "$scratch/out" "done after 40 steps, exit code 0"
  [ "$(grep -cE '^ +[0-9]+ .* end ' "$scratch/out")" = $ranks ] || fail "not every rank came to its end: $(cat "$scratch/out")"
done
[ "$(ls "$scratch/run/flight" | wc -l)" = 2 ] || fail "pages of an earlier run are still there"

# A job that runs: what its ranks do now, one of them stopped. Then ddprun itself is killed, and says nothing more.
rm -rf "$scratch/run"
# shellcheck disable=SC2086
"$ddprun" $endless parallel.ranks=2 output="$scratch/run" >"$scratch/job" 2>&1 &
launcher=$!
ranks_running 2
sleep 0.5
expect 0 "$ddprun" postmortem "$scratch/run"
has "$scratch/out" "still going; ages are up to now"
has "$scratch/out" "go on with their work"
kill -STOP "$(rank_pid 1)"
sleep 1.5
expect 0 "$ddprun" postmortem "$scratch/run"
has "$scratch/out" "hang: rank 1 (pid "
has "$scratch/out" "is stopped in phase "
has "$scratch/out" "kill -CONT "
{ kill -KILL $launcher; wait $launcher; } 2>/dev/null
nothing_left 5
expect 0 "$ddprun" postmortem "$scratch/run"
has "$scratch/out" "ended without a word: ddprun itself was ended"
has "$scratch/out" "hang: rank 1 (pid "

# Ranks that mpirun started.
if command -v mpirun >/dev/null && ! "$ddprun" check | grep -q 'built without MPI'; then
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  DDP_FAULT="rank=1,step=3,do=exit:3" expect 3 "$ddprun" $job parallel.ranks=3 launch.via=mpirun output="$scratch/run"
  nothing_left 1
  expect 0 "$ddprun" postmortem "$scratch/run"
  has "$scratch/out" "crash: rank 1 (pid "
  has "$scratch/out" "in phase load of step 3"
fi

# A page that is damaged or missing is said to be, and the others are shown.
rm -rf "$scratch/run"
# shellcheck disable=SC2086
expect 0 "$ddprun" $job parallel.ranks=2 output="$scratch/run"
truncate -s 100 "$scratch/run/flight/rank-0.page"
expect 0 "$ddprun" postmortem "$scratch/run"
has "$scratch/out" "   0  no page: $scratch/run/flight/rank-0.page: "
rank_line 1 | grep -q " end " || fail "rank 1 is not shown"

# No room for a page: that rank says so and trains all the same.
mkdir "$scratch/small"
if mount -t tmpfs -o size=120k none "$scratch/small" 2>/dev/null; then
  trap 'umount "$scratch/small" 2>/dev/null; rm -rf "$scratch"' EXIT
  # shellcheck disable=SC2086
  expect 0 "$ddprun" tests/golden/base/job.yaml parallel.ranks=2 launch.oversubscribe=true output="$scratch/small/run"
  [ "$(grep -c "warning: no flight recorder: no room for $scratch/small/run/flight/rank-[01].page: No space left" "$scratch/err")" = 1 ] ||
    fail "no word about the missing page: $(cat "$scratch/err")"
  expect 0 "$ddprun" postmortem "$scratch/small/run"
  has "$scratch/out" "no page: "
  umount "$scratch/small"
fi
finish
