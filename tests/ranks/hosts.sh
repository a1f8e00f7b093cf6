#!/usr/bin/env bash
# Two hosts (network namespaces), one and two ranks on each, through ddprun's own mpirun: the same samples, weights
# equal to one host's within rounding, launch.env byte for byte on both.
. "$(dirname "$0")/../support/run.sh"
. tests/support/hosts.sh
trap 'remove_hosts; rm -rf "$scratch"' EXIT
two_hosts || {
  echo "skipped: two network namespaces cannot be made here (root and iproute2 are needed)"
  exit 77
}
job="configs/digits.yaml train.epochs=1 train.eval_every=0 launch.oversubscribe=true"
# shellcheck disable=SC2086
expect 0 "$ddprun" $job parallel.ranks=1 output="$scratch/one"
for each in 1 2; do
  # shellcheck disable=SC2086
  expect 0 "$scratch/on_a" "$ddprun" $job parallel.ranks=$((2 * each)) launch.hosts="[$host_a:$each, $host_b:$each]" \
    'launch.env={A: "64(x2)", B: "a b", D: "line1\nline2"}' 'metrics.trace=[checksum]' output="$scratch/two$each"
  [ "$(field "$scratch/two$each" start world)" = $((2 * each)) ] || fail "another number of ranks ran"
  expect 0 "$BUILD/compare_weights" "$scratch/one/weights.safetensors" "$scratch/two$each/weights.safetensors" 1e-5
done
finish
