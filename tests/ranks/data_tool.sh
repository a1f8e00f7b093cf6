#!/usr/bin/env bash
# ddprun data: what it makes can be trained on, splits lose nothing, and what fails or is stopped leaves nothing.
. "$(dirname "$0")/../support/run.sh"
text=configs/data/bible-train.txt bpe=tests/unit/bpe
words="--vocab $bpe/vocab.json --merges $bpe/merges.txt"
body() { for file in "$@"; do tail -c +1025 "$file"; done; }
empty() {
  checks=$((checks + 1))
  [ -z "$(ls -A "$1")" ] || fail "left behind: $(ls -A "$1")"
}

# One file, and the same in shards with a validation set before them.
# shellcheck disable=SC2086
{
  expect 0 "$ddprun" data tokenize $text --out "$scratch/one" $words
  expect 0 "$ddprun" data tokenize $text --out "$scratch/many" $words --shard-tokens 100000 --val-tokens 10001
  has "$scratch/out" "many_train_*.bin  326,186 ids, uint16, 4 files"
  has "$scratch/out" "many_val_*.bin  10,001 ids, uint16, 1 file"
}
body "$scratch"/many_val_*.bin "$scratch"/many_train_*.bin >"$scratch/joined"
cmp "$scratch/joined" <(body "$scratch/one_train_000000.bin") || fail "shards and one file differ"
expect 0 "$ddprun" data tokenize $text --out "$scratch/bytes" --val-fraction 0.1
body "$scratch"/bytes_val_*.bin "$scratch"/bytes_train_*.bin | od -An -v -tu2 -w2 >"$scratch/ids"
cmp <(od -An -v -tu1 -w1 $text | tr -d ' ') <(tr -d ' ' <"$scratch/ids") || fail "bytes and ids differ"
[ "$(stat -c %s "$scratch/bytes_val_000000.bin")" = $((1024 + 2 * 97860)) ] || fail "the tenth of the text is no tenth"
checks=$((checks + 3))

# The lines it prints are a job.
expect 0 "$ddprun" data info "$scratch"/many_*.bin
has "$scratch/out" "many_train_*.bin     tokens, header version 1, 4 files  326,186"
expect 0 "$ddprun" data check "$scratch/many_*.bin" --vocab 1024
cat >"$scratch/job.yaml" <<END
data: {format: tokens, train: "$scratch/many_train_*.bin", validation: "$scratch/many_val_*.bin"}
model: {kind: gpt, vocab: 1024, layers: 1, heads: 2, width: 32, context: 32}
train: {steps: 20, global_batch: 16}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 2}
launch: {oversubscribe: true}
output: $scratch/run
END
expect 0 "$ddprun" "$scratch/job.yaml"
[ "$(field "$scratch/run" step loss | wc -l)" = 20 ] || fail "no 20 steps"
field "$scratch/run" step loss | awk 'NR == 1 {first = $1} END {exit !($1 < first - 0.3)}' || fail "the loss does not fall"
expect 2 "$ddprun" data check "$scratch/many_*.bin" --vocab 1000
has "$scratch/err" "many_train_000000.bin: byte "
has "$scratch/err" "ids below 1000 are expected"

# Beyond 2 GiB, in a file that takes no room.
if truncate -s 2100M "$scratch/large.bin" 2>/dev/null; then
  printf '\377\377' | dd of="$scratch/large.bin" bs=1 seek=$((2096 * 1024 * 1024)) conv=notrunc 2>/dev/null
  expect 2 "$ddprun" data check "$scratch/large.bin" --dtype uint16 --vocab 50257
  has "$scratch/err" "large.bin: byte 2197815296: found token id 65535; ids below 50257 are expected"
  rm "$scratch/large.bin"
fi

# A full disk (a limit on the size of files stands for it), a text that ends in none, a signal: nothing is left, not even
# the shards that were complete.
mkdir "$scratch/empty"
# shellcheck disable=SC2016
expect 1 bash -c 'trap "" XFSZ; ulimit -f 600; exec "$@"' - "$ddprun" data tokenize $text --out "$scratch/empty/x"
has "$scratch/err" "writing $scratch/empty/x_train_000000.bin: File too large"
empty "$scratch/empty"
truncate -s 20M "$scratch/hole.txt"
# shellcheck disable=SC2086
expect 2 "$ddprun" data tokenize $text "$scratch/hole.txt" --out "$scratch/empty/x" $words --shard-tokens 100000
has "$scratch/err" "hole.txt: byte 0: here begins a run of 16 MiB and more without a break"
empty "$scratch/empty"
# shellcheck disable=SC2086,SC2046
"$ddprun" data tokenize $(yes $text | head -n 500) --out "$scratch/empty/x" $words --shard-tokens 100000 2>"$scratch/err" &
pid=$!
for _ in $(seq 200); do [ -e "$scratch/empty/x_train_000000.bin" ] && break || sleep 0.02; done
kill -TERM $pid
wait $pid
code=$?
[ $code = 143 ] || fail "exit code $code after SIGTERM, wanted 143"
has "$scratch/err" "stopped by SIGTERM: nothing is left of it"
empty "$scratch/empty"
finish
