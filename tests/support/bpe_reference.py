#!/usr/bin/env python3
"""GPT-2's byte-pair encoding by the package `tokenizers` (pip install tokenizers), beside ours.

    bpe_reference.py make FOLDER          writes vocab.json, merges.txt, hostile.txt and hostile.ids: 1,024 entries, trained on
                                          configs/data/bible-train.txt and on the hostile text
    bpe_reference.py compare DDPRUN VOCAB MERGES SCRATCH
                                          ids of ddprun and of tokenizers for the texts of configs/data and for random hostile
                                          text; exit 1 if one differs

Hostile text mixes what the splitting rule is about: letters, numbers and blanks of all of Unicode, contractions and what looks
like them, runs of spaces before words and at ends, long runs. Only characters that Python's Unicode table knows, so that an
older table on either side makes no difference."""
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "<|endoftext|>"
KNOWN = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
BLANKS = [chr(c) for c in [9, 10, 11, 12, 13, *[32] * 12, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x202F, 0x205F,
                           0x3000, 0x1C, 0x1F, 0x200B, 0x180E, 0xFEFF]]
LIKE_CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'l", "'r", "'", "''", "\u2019s", " '", "'rex", "'lll"]
WORDS = ["the", " LORD", "word", " you", " don", "\u00e9t\u00e9", "stra\u00dfe", "\u65e5\u672c\u8a9e", "\u041f\u0440\u0438",
         "\u0928\u092e\u0938\u094d\u0924\u0947", "\U0001f642", "\U0001f469\u200d\U0001f467", "\u2460", "\u2167", "\u00bd", "\u0663"]


def hostile(seed, count):
    r = random.Random(seed)
    makers = [
        lambda: chr(r.choice(KNOWN)),
        lambda: "".join(r.choice(BLANKS) for _ in range(r.randrange(1, 6))),
        lambda: r.choice(LIKE_CONTRACTIONS),
        lambda: "".join(chr(r.randrange(33, 127)) for _ in range(r.randrange(1, 8))),
        lambda: str(r.randrange(10 ** r.randrange(1, 12))),
        lambda: r.choice(WORDS),
        lambda: r.choice([" ", "  ", "\n", "\n\n", "\t", "\r\n"]),
        lambda: chr(r.choice(KNOWN)) * r.randrange(1, 4),
        lambda: r.choice("abcdefghijklmnopqrstuvwxyz") * r.choice([1, 2, 50, 100]),
        lambda: "".join(r.choice("etaoinsh") for _ in range(r.choice([3, 60, 300]))),
    ]
    return "".join(r.choice(makers)() for _ in range(count))


def make(folder):
    folder = pathlib.Path(folder)
    text = hostile(1, 700)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=[MARK], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([(ROOT / "configs/data/bible-train.txt").read_text(), text * 20], trainer)
    tokenizer.model.save(str(folder))
    (folder / "hostile.txt").write_bytes(text.encode())
    ids = tokenizer.encode(text).ids
    lines = (" ".join(map(str, ids[at : at + 24])) for at in range(0, len(ids), 24))
    (folder / "hostile.ids").write_text("\n".join(lines) + "\n")


def ours(ddprun, vocab, merges, scratch, text):
    source, out = scratch / "text.txt", scratch / "ids"
    source.write_bytes(text.encode())
    subprocess.run([ddprun, "data", "tokenize", source, "--out", out, "--vocab", vocab, "--merges", merges], check=True,
                   stdout=subprocess.DEVNULL)
    made = scratch / "ids_train_000000.bin"
    data = made.read_bytes()
    made.unlink()
    return list(struct.unpack(f"<{(len(data) - 1024) // 2}H", data[1024:]))


def compare(ddprun, vocab, merges, scratch):
    tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = {path.name: path.read_text() for path in sorted((ROOT / "configs/data").glob("*.txt"))}
    texts |= {f"hostile text {seed}": hostile(seed, 20000) for seed in range(10, 13)}
    texts["every character"] = "".join(f"a {chr(c)}1{chr(c)}!{chr(c)} " for c in KNOWN)
    texts["every character once"] = "".join(map(chr, KNOWN))
    texts["one long word"] = "ab" * 20000 + "".join(random.Random(1).choice("etaoin") for _ in range(200000))
    texts["blanks at the end"] = "word \n\n  "
    differing = 0
    for name, text in texts.items():
        got, wanted = ours(ddprun, vocab, merges, pathlib.Path(scratch), text), tokenizer.encode(text).ids
        print(f"{'same' if got == wanted else 'DIFFERENT'}  {name}: {len(wanted)} ids")
        if got != wanted:
            at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            print(f"  from id {at}: ours {got[at : at + 8]}, theirs {wanted[at : at + 8]}")
            differing += 1
    return differing


if sys.argv[1:2] == ["make"] and len(sys.argv) == 3:
    make(sys.argv[2])
elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 6:
    sys.exit(1 if compare(*sys.argv[2:]) else 0)
else:
    sys.exit(__doc__)
