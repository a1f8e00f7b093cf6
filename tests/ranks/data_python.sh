#!/usr/bin/env bash
# Our byte-pair encoding beside the Python package tokenizers: the same ids for real and for hostile text. GPT2_VOCAB and
# GPT2_MERGES name GPT-2's own files, where they are at hand; otherwise the small recorded ones are used.
. "$(dirname "$0")/../support/run.sh"
python=${PYTHON:-python3} bpe=tests/unit/bpe
export PYTHONPATH=$BUILD/python${PYTHONPATH:+:$PYTHONPATH} # from PyPI into the build folder, where it is not installed
"$python" -c 'import tokenizers' 2>/dev/null ||
  "$python" -m pip install --quiet --target "$BUILD/python" tokenizers >/dev/null 2>&1
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
  echo "skipped: $python has no package tokenizers (pip install tokenizers)"
  exit 77
fi
LIMIT=240 expect 0 "$python" tests/support/bpe_reference.py compare "$ddprun" "${GPT2_VOCAB:-$bpe/vocab.json}" \
  "${GPT2_MERGES:-$bpe/merges.txt}" "$scratch"
cat "$scratch/out"
finish
