#!/usr/bin/python3
"""GPT-2 in PyTorch, float64, beside ours: the same weights and batch, made by the rule of trial.c.

    make_gpt_reference.py                   writes gpt_reference.h, which test_gpt_reference.c compares with
    make_gpt_reference.py --check PROGRAM   runs that test so that it leaves its gradients in a file, and compares
                                            every element, and the header with what would be written now

Exit code 77: PyTorch is not installed here.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB, SAMPLES, SCALE = 2, 3, 33, 13, 57, 4, 0.125
PICKS = 4
HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt_reference.h")


def bits(name, count):
    x = 2166136261
    for byte in name.encode():
        x = (x ^ byte) * 16777619 % 2**32
    x = (x + numpy.arange(count, dtype=numpy.uint64) * 2654435761) % 2**32
    x = (x ^ x >> numpy.uint64(16)) * 0x85EBCA6B % 2**32
    x = (x ^ x >> numpy.uint64(13)) * 0xC2B2AE35 % 2**32
    return (x ^ x >> numpy.uint64(16)) >> numpy.uint64(8)


def value(name, count):
    return (bits(name, count).astype(numpy.int64) - 2**23) / 2**23


def ids(name, count, masked):
    result = (bits(name, count) % VOCAB).astype(numpy.int64)
    if masked:
        result[numpy.arange(count) % 11 == 5] = -1
    return torch.from_numpy(result).reshape(SAMPLES, CONTEXT)


def parameters():
    """Name -> tensor, in our forward order and our shapes: matrices (out, in)."""
    shapes = {"wte.weight": (VOCAB, WIDTH), "wpe.weight": (CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        for name, out, inner in [("ln_1", WIDTH, 0), ("attn.c_attn", 3 * WIDTH, WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                 ("ln_2", WIDTH, 0), ("mlp.c_fc", 4 * WIDTH, WIDTH), ("mlp.c_proj", WIDTH, 4 * WIDTH)]:
            shapes[f"h.{layer}.{name}.weight"] = (out, inner) if inner else (out,)
            shapes[f"h.{layer}.{name}.bias"] = (out,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (WIDTH,)
    made = {}
    for name, shape in shapes.items():
        start = 1.0 if "ln_" in name and name.endswith(".weight") else 0.0
        x = (0.25 * value(name, int(numpy.prod(shape))) + start).astype(numpy.float32)
        made[name] = torch.from_numpy(x.astype(numpy.float64)).reshape(shape).requires_grad_()
    return made


def forward(p, tokens, targets):
    """Sum of the token losses."""
    def linear(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    x = F.embedding(tokens, p["wte.weight"]) + p["wpe.weight"]
    hidden = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        h = f"h.{layer}."
        parts = linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(WIDTH, dim=2)
        q, k, v = (part.reshape(SAMPLES, CONTEXT, HEADS, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).masked_fill(hidden, -float("inf"))
        attention = (scores.softmax(-1) @ v).transpose(1, 2).reshape(SAMPLES, CONTEXT, WIDTH)
        x = x + linear(h + "attn.c_proj", attention)
        inner = F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh")
        x = x + linear(h + "mlp.c_proj", inner)
    scores = norm("ln_f", x) @ p["wte.weight"].T
    return F.cross_entropy(scores.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-1, reduction="sum")


def gradients():
    p = parameters()
    loss = forward(p, ids("input", SAMPLES * CONTEXT, False), ids("target", SAMPLES * CONTEXT, True))
    (SCALE * loss).backward()
    return loss.item(), {name: tensor.grad.flatten() for name, tensor in p.items()}


def header(loss, grads):
    lines = [f"/* Written by make_gpt_reference.py with PyTorch, in float64: loss and gradients of the same GPT-2. */",
             "#ifndef DDP_TESTS_MODELS_GPT_REFERENCE_H", "#define DDP_TESTS_MODELS_GPT_REFERENCE_H", "",
             f"enum {{ GPT_LAYERS = {LAYERS}, GPT_HEADS = {HEADS}, GPT_WIDTH = {WIDTH}, GPT_CONTEXT = {CONTEXT} }};",
             f"enum {{ GPT_VOCAB = {VOCAB}, GPT_SAMPLES = {SAMPLES}, GPT_PICKS = {PICKS} }};",
             f"#define GPT_SCALE {SCALE}f", f"#define GPT_LOSS {loss:.10g}", "",
             "/* Sum and Euclidean norm of one gradient, and elements spread over it: pick i is at i (n - 1) / (picks - 1). */",
             "typedef struct gpt_gradient {", "    const char *name;", "    double sum, norm, picks[GPT_PICKS];",
             "} gpt_gradient;", "", "static const gpt_gradient gpt_gradients[] = {"]
    for name, grad in grads.items():
        picks = [grad[i * (len(grad) - 1) // (PICKS - 1)].item() for i in range(PICKS)]
        numbers = ", ".join(f"{x:.8g}" for x in picks)
        lines.append(f'    {{"{name}", {grad.sum().item():.8g}, {grad.norm().item():.8g},\n     {{{numbers}}}}},')
    return "\n".join(lines + ["};", "", "#endif", ""])


def check(program):
    loss, grads = gradients()
    usual = torch.cat(list(grads.values())).square().mean().sqrt().item()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "gradients")
        run = subprocess.run([program], env={**os.environ, "DDP_TEST_GRADIENTS": path}, timeout=60)
        if run.returncode != 0:
            return f"{program} failed"
        ours = numpy.fromfile(path, dtype=numpy.float32).astype(numpy.float64)
    if len(ours) != sum(len(grad) for grad in grads.values()):
        return f"{len(ours)} elements from {program}"
    at, worst = 0, 0.0
    for name, grad in grads.items():
        difference = numpy.abs(ours[at:at + len(grad)] - grad.numpy()).max()
        size = max(grad.square().mean().sqrt().item(), 0.01 * usual)
        worst = max(worst, difference / size)
        if not difference <= 1e-4 * size:
            return f"{name}: differs by {difference:g}, its usual size is {size:g}"
        at += len(grad)
    print(f"{at} elements of {len(grads)} gradients, largest relative difference {worst:.1e}")
    with open(HEADER, encoding="utf-8") as file:
        old = numbers_of(file.read())
    new = numbers_of(header(loss, grads))
    if len(old) != len(new) or any(abs(a - b) > 1e-6 * max(abs(b), usual) for a, b in zip(old, new)):
        return "gpt_reference.h is not what would be written now; run make_gpt_reference.py"
    return None


def numbers_of(text):
    """The numbers of a header, from the loss on; the last digits may differ between versions of PyTorch."""
    words = text[text.index("GPT_LOSS"):].replace("{", " ").replace("}", " ").replace(",", " ").split()
    numbers = []
    for word in words:
        try:
            numbers.append(float(word))
        except ValueError:
            pass
    return numbers


if len(sys.argv) == 3 and sys.argv[1] == "--check":
    problem = check(sys.argv[2])
    if problem:
        sys.exit(problem)
elif len(sys.argv) == 1:
    with open(HEADER, "w", encoding="utf-8") as file:
        file.write(header(*gradients()))
else:
    sys.exit(__doc__)
