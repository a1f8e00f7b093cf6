#!/usr/bin/env bash
# launch.env reaches every rank byte for byte, however it is started, and paths may hold anything.
# (case C14: deepspeedai/DeepSpeed#5878, #4523; TACC/launcher#43)
. "$(dirname "$0")/../support/run.sh"
folder="$scratch/sp ace/ünï (1)"
mkdir -p "$folder"
cat >"$folder/jöb \$(id).yaml" <<'YAML'
model: {kind: chatty, inputs: 4, outputs: 3}
data: {format: synthetic, samples: 64}
train: {steps: 2, global_batch: 8}
optimizer: {kind: sgd, lr: 0.1}
launch:
  oversubscribe: true
  env:
    A: "64(x2)"
    B: "01 02 03"
    C: "a'b\"c"
    D: "line1\nline2"
    E: "$HOME;id"
    F: "back\\"
    G: ""
    H: "k=v"
YAML
cat >"$scratch/wanted" <<'TEXT'
variable A is: 36 34 28 78 32 29
variable B is: 30 31 20 30 32 20 30 33
variable C is: 61 27 62 22 63
variable D is: 6c 69 6e 65 31 0a 6c 69 6e 65 32
variable E is: 24 48 4f 4d 45 3b 69 64
variable F is: 62 61 63 6b 5c
variable G is:
variable H is: 6b 3d 76
TEXT
export A=outer

# check_run NAME: both ranks of it told exactly that.
check_run() {
  local rank
  for rank in 0 1; do
    grep '^variable' "$folder/$1/logs/rank-$rank.log" | cmp - "$scratch/wanted" || fail "rank $rank of $1 has other variables"
    checks=$((checks + 1))
  done
  [ "$(field "$folder/$1" end outcome)" = done ] || fail "$1 did not end well"
}

own="$BUILD/own_model"
job="$folder/jöb \$(id).yaml"
expect 0 "$own" "$job" parallel.ranks=2 output="$folder/own"
check_run own
has "$scratch/err" "ranks 0,1 | variable E is: 24 48 4f 4d 45 3b 69 64"
cmp "$job" "$folder/own/job.yaml" || fail "job.yaml is not the job as given"
if command -v mpirun >/dev/null; then
  expect 0 "$own" "$job" parallel.ranks=2 launch.via=mpirun output="$folder/through (mpirun)"
  check_run "through (mpirun)"
  # A file a rank: mpirun's forwarding may put lines of two ranks into one.
  expect 0 mpirun --allow-run-as-root --oversubscribe --bind-to none --output-filename "$scratch/ranks" -np 2 \
    "$own" "$job" output="$folder/under"
  [ "$(grep -rlxF 'variable E is: 24 48 4f 4d 45 3b 69 64' "$scratch/ranks" | wc -l)" = 2 ] ||
    fail "under mpirun a rank has another E"
fi

# On two hosts.
. tests/support/hosts.sh
trap 'remove_hosts; rm -rf "$scratch"' EXIT
if two_hosts; then
  expect 0 "$scratch/on_a" "$own" "$job" parallel.ranks=2 launch.hosts="[$host_a:1, $host_b:1]" output="$folder/two hosts"
  check_run "two hosts"
fi

# The resolved job is the same job.
expect 0 "$own" "$folder/own/resolved.yaml" parallel.ranks=2 output="$folder/again"
check_run again

# No names that are not names.
for name in '1A' 'A B' 'A-B' 'A=B' ''; do
  expect 2 "$own" "$job" "launch.env={'$name': x}" output="$folder/none"
  [ ! -e "$folder/none" ] || fail "a refused job left its run directory"
done
finish
