#!/usr/bin/env bash
# The loader beside dd, on the same warm file: bytes of a token file a second, for one rank.
#
#   [BUILD=build] tests/bench/loader.sh [MIB]     1024 MiB in $TMPDIR; dd with blocks of 1 MiB, best of five; the loader: batches
#                                                 of 64 windows, the best of five epochs
set -eu
cd "$(dirname "$0")/../.."
bench=${BUILD:-build}/tests/bench_loader mib=${1:-1024}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gigabytes FILE: a second, by dd.
gigabytes() {
  for _ in 1 2 3 4 5; do
    LC_ALL=C dd if="$1" of=/dev/null bs=1M 2>&1 | sed -n 's/^\([0-9]*\) bytes.*, \([0-9.e-]*\) s,.*/\1 \2/p'
  done | awk '{rate = $1 / $2 / 1e9; if (rate > best) best = rate} END {printf "%.2f", best}'
}

echo "| ids | window | order | dd GB/s | 1 thread | of dd | 2 threads | of dd |"
echo "|---|--:|---|--:|--:|--:|--:|--:|"
for width in 2 4; do
  "$bench" make "$work/ids.bin" $width "$mib"
  cat "$work/ids.bin" >/dev/null
  for window in 1024 4096; do
    for order in shuffled file; do
      dd=$(gigabytes "$work/ids.bin")
      one=$("$bench" "$work/ids.bin" $window 64 1 $order)
      two=$("$bench" "$work/ids.bin" $window 64 2 $order)
      echo "$dd $one $two" | awk -v w=$((width * 8)) -v n=$window -v o=$order \
        '{printf "| uint%d | %d | %s | %.1f | %.2f | %.0f %% | %.2f | %.0f %% |\n", w, n, o, $1, $2, 100 * $2 / $1, $3, 100 * $3 / $1}'
    done
  done
done
