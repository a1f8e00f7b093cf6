#!/usr/bin/env bash
# ddprun ckpt: list, verify, export, import; and readers of others open what we write, and we what they write.
# Python's safetensors comes from PyPI into the build folder where it is not installed; transformers is used where it
# is there. PYTHON=... names another interpreter.
. "$(dirname "$0")/../support/run.sh"
: "${PYTHON:=python3}"

cat >"$scratch/job.yaml" <<'END'
model: {kind: gpt, layers: 2, heads: 4, width: 32, context: 32, vocab: 256}
data: {train: configs/data/bible-train.txt, validation: configs/data/bible-validation.txt, format: text}
train: {steps: 6, global_batch: 8, eval_batch: 64}
optimizer: {kind: adamw, lr: 3e-3}
parallel: {ranks: 2}
checkpoint: {every: 3}
launch: {oversubscribe: true}
END
expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/run"
loss=$(field "$scratch/run" eval loss)

expect 0 "$ddprun" ckpt ls "$scratch/run"
has "$scratch/out" "$scratch/run/checkpoints/step-00000006  (newest)  (best)"
has "$scratch/out" "$scratch/run/checkpoints/step-00000003"
expect 0 "$ddprun" ckpt ls "$scratch/run/checkpoints/step-00000003"
lacks "$scratch/out" "step-00000006"
expect 0 "$ddprun" ckpt verify "$scratch/run/checkpoints"
[ "$(grep -c ^ok "$scratch/out")" = 2 ] || fail "not both were verified"

# Damage: a flipped byte, a cut file, a missing one; named, never chosen.
cp -r "$scratch/run" "$scratch/hurt"
printf '\377' | dd of="$scratch/hurt/checkpoints/step-00000006/optimizer.safetensors" bs=1 seek=20000 conv=notrunc 2>/dev/null
expect 1 "$ddprun" ckpt verify "$scratch/hurt"
has "$scratch/err" "step-00000006/optimizer.safetensors is damaged in bytes "
has "$scratch/out" "ok       $scratch/hurt/checkpoints/step-00000003"
expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/hurt" train.steps=7
has "$scratch/err" "optimizer.safetensors is damaged in bytes "
has "$scratch/err" "step-00000006.damaged"
has "$scratch/out" "resumed $scratch/hurt/checkpoints/step-00000003, 3 steps done"
truncate -s 5000 "$scratch/hurt/checkpoints/step-00000007/model.safetensors"
rm "$scratch/hurt/checkpoints/step-00000006/optimizer.safetensors"
expect 0 "$ddprun" ckpt ls "$scratch/hurt"
has "$scratch/err" "model.safetensors has 5000 bytes; it was saved with"
has "$scratch/err" "step-00000006/optimizer.safetensors: No such file or directory"
expect 2 "$ddprun" ckpt ls "$scratch"
has "$scratch/err" "holds no complete checkpoint"

# All of them damaged: refused, never started from scratch without a word.
cp -r "$scratch/run" "$scratch/all"
for file in "$scratch"/all/checkpoints/step-*/model.safetensors; do
  printf '\377' | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null
done
expect 2 "$ddprun" "$scratch/job.yaml" output="$scratch/all" train.steps=7
has "$scratch/err" "no checkpoint could be loaded to resume from"

# To a Hugging Face folder and back: the same weights to the last bit, and the run goes on from them.
expect 0 "$ddprun" ckpt export "$scratch/run" --out "$scratch/hub"
has "$scratch/hub/config.json" '"model_type": "gpt2"'
expect 0 "$ddprun" ckpt import "$scratch/hub" --out "$scratch/back"
expect 0 "$BUILD/compare_weights" "$scratch/run/checkpoints/latest/model.safetensors" "$scratch/back/model.safetensors" 0
expect 0 "$ddprun" "$scratch/job.yaml" output="$scratch/tuned" checkpoint.resume="$scratch/back" optimizer.lr=0 train.steps=1 \
  train.global_batch=16
has "$scratch/out" "resumed $scratch/back, 0 steps done"
[ "$(field "$scratch/tuned" eval loss)" = "$loss" ] || fail "imported weights give another loss"
expect 2 "$ddprun" "$scratch/job.yaml" output="$scratch/other" checkpoint.resume="$scratch/back" model.layers=3
has "$scratch/err" "model.layers: 2 -> 3"

# keep_best: each save is evaluated first, and the best of all stays beside the newest. The rate rises until it diverges.
expect 0 "$ddprun" configs/digits.yaml output="$scratch/best" train.steps=40 schedule.kind=constant \
  optimizer.lr=2.5 train.eval_every=0 checkpoint.every=4 checkpoint.keep=1 checkpoint.keep_best=true launch.oversubscribe=true
expect 0 "$ddprun" ckpt ls "$scratch/best"
[ "$(grep -c step- "$scratch/out")" -le 2 ] || fail "more than the newest and the best stayed"
lowest=$(sed -n 's/.*"event": "eval".*"step": \([0-9]*\), "loss": \([^,]*\),.*/\2 \1/p' "$scratch/best/events.jsonl" | sort -g | head -n 1)
[ "$(awk '/\(best\)/ {print $1}' "$scratch/out")" = "${lowest#* }" ] || fail "the best is another: $lowest, $(cat "$scratch/out")"
[ "$(field "$scratch/best" eval step | wc -l)" = 10 ] || fail "not every save was evaluated"

# Wrong requests.
expect 2 "$ddprun" ckpt export "$scratch/run" --out "$scratch/run"
has "$scratch/err" "holds other files"
expect 2 "$ddprun" ckpt ls "$scratch/job.yaml"
has "$scratch/err" "is no directory"
expect 2 "$ddprun" "$scratch/job.yaml" output="$scratch/other" checkpoint.resume="$scratch/job.yaml"
has "$scratch/err" "is no directory"
expect 2 "$ddprun" ckpt import "$scratch/hub" --out "$scratch/back"
has "$scratch/err" "exists"
expect 2 "$ddprun" ckpt export "$scratch/run"
has "$scratch/err" "needs --out DIRECTORY"
expect 2 "$ddprun" ckpt import "$scratch/run" --out "$scratch/x"
has "$scratch/err" "config.json: No such file or directory"
sed -i 's/"n_layer": 2/"n_layer": 3/' "$scratch/hub/config.json"
expect 2 "$ddprun" ckpt import "$scratch/hub" --out "$scratch/x"
has "$scratch/err" "has no tensor h.2.ln_1.weight"
sed -i 's/"n_layer": 3/"n_layer": 2/; s/gelu_new/relu/' "$scratch/hub/config.json"
expect 2 "$ddprun" ckpt import "$scratch/hub" --out "$scratch/x"
has "$scratch/err" "activation_function is \"relu\""
[ ! -e "$scratch/x" ] || fail "a refused import left something"
sed -i 's/relu/gelu_new/' "$scratch/hub/config.json"

export PYTHONPATH=$BUILD/python${PYTHONPATH:+:$PYTHONPATH}
if ! "$PYTHON" -c "import numpy, safetensors" 2>/dev/null; then
  "$PYTHON" -m pip install --quiet --target "$BUILD/python" numpy safetensors >/dev/null 2>&1
fi
if ! "$PYTHON" -c "import numpy, safetensors" 2>/dev/null; then
  echo "not tried: Python's safetensors is not here and could not be had from PyPI"
  finish
  exit 0
fi
expect 0 "$PYTHON" - "$scratch" <<'END'
import sys
import numpy as np
from safetensors.numpy import load_file, save_file
scratch = sys.argv[1]
latest = scratch + "/run/checkpoints/latest/"
model = load_file(latest + "model.safetensors")
state = load_file(latest + "optimizer.safetensors")
final = load_file(scratch + "/run/weights.safetensors")
hub = load_file(scratch + "/hub/model.safetensors")
assert len(model) == 2 + 2 * 12 + 2 and list(final) == list(model) == list(hub)
turned = 0
for name, weight in model.items():
    assert weight.dtype == np.float32 and np.array_equal(weight, final[name])
    for slot in ("exp_avg.", "exp_avg_sq."):
        assert state[slot + name].shape == weight.shape
    if name.split(".")[-2] in ("c_attn", "c_proj", "c_fc") and weight.ndim == 2:
        assert np.array_equal(weight.T, hub[name]); turned += 1
    else:
        assert np.array_equal(weight, hub[name])
assert turned == 8
# As older versions of transformers wrote them: a prefix, masks besides, half precision.
theirs = {"transformer." + n: np.ascontiguousarray(w.astype(np.float16)) for n, w in hub.items()}
theirs["transformer.h.0.attn.bias"] = np.ones((1, 1, 32, 32), dtype=np.bool_)
save_file(theirs, scratch + "/theirs.safetensors", metadata={"format": "pt"})
END
mkdir "$scratch/theirs"
mv "$scratch/theirs.safetensors" "$scratch/theirs/model.safetensors"
cp "$scratch/hub/config.json" "$scratch/theirs/"
expect 0 "$ddprun" ckpt import "$scratch/theirs" --out "$scratch/half"
expect 0 "$BUILD/compare_weights" "$scratch/back/model.safetensors" "$scratch/half/model.safetensors" 1e-3

if ! "$PYTHON" -c "import torch, transformers" 2>/dev/null; then
  echo "not tried: torch and transformers are not here"
  finish
  exit 0
fi
expect 0 "$PYTHON" - "$scratch/hub" "$loss" <<'END'
import sys
import torch
from transformers import GPT2LMHeadModel
model, info = GPT2LMHeadModel.from_pretrained(sys.argv[1], output_loading_info=True)
assert not info["unexpected_keys"] and not info["mismatched_keys"], info
assert all("lm_head" in k or "attn.bias" in k or "masked_bias" in k for k in info["missing_keys"]), info
text = open("configs/data/bible-validation.txt", "rb").read()
count = (len(text) - 1) // 32
ids = torch.tensor(list(text[:count * 32 + 1]))
total = 0.0
with torch.no_grad():
    for first in range(0, count, 512):
        last = min(first + 512, count)
        x = ids[first * 32:last * 32].view(-1, 32)
        y = ids[first * 32 + 1:last * 32 + 1].view(-1, 32)
        total += torch.nn.functional.cross_entropy(model(x).logits.reshape(-1, 256), y.reshape(-1), reduction="sum").item()
loss = total / (count * 32)
print(loss, sys.argv[2])
assert abs(loss - float(sys.argv[2])) < 1e-4
END
cat "$scratch/out"
finish
