# Sourced by tests of resuming: what happened in a run, and whether two runs are the same to the last bit.

# history RUN: what happened in each step; a step done twice with the same outcome is one line.
history() {
  sed -n 's/.*"event": "step".*"step": \([0-9]*\), "epoch": \([0-9]*\), "loss": \([^,]*\), "lr": \([^,]*\), "grad_norm": \([^,]*\), "items": \([0-9]*\).*/step \1 \2 \3 \4 \5 \6/p
    s/.*"event": "eval".*"step": \([0-9]*\), "loss": \([^,]*\), .*/eval \1 \2/p
    s/.*"event": "trace".*"step": \([0-9]*\), "rank": \([0-9]*\), "samples": \(.*\), "checksum": \(.*\)}/trace \1 \2 \3 \4/p' \
    "$1/events.jsonl" | sort -u
}

# same STEPS A B: run directories A and B went through the same STEPS steps and ended in the same state.
same() {
  checks=$((checks + 1))
  [ "$(history "$2" | grep -c ^step)" = "$1" ] || fail "$2 has not $1 different steps"
  diff <(history "$2") <(history "$3") >&2 || fail "$3 went another way than $2"
  for file in model.safetensors optimizer.safetensors; do
    cmp "$2/checkpoints/latest/$file" "$3/checkpoints/latest/$file" || fail "$3 ended elsewhere than $2"
  done
}
