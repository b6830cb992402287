"""Times PyTorch's optimizers, activations and cross-entropy on a GPU beside narrowgauge's `speed` cases: prints one JSON object.

    python3 suites/peers/torch_optimizer.py [build/suites/narrowgauge]

Bytes are those that the operation must move: AdamW 28 a parameter (p, m, v read and written, g read).
"""
import json
import sys

import peer
from peer import median_s, torch

F = torch.nn.functional
ROWS = COLUMNS = 8192
CLASSES, TOKENS = 128256, 2048


def adamw(shapes, how):
    parameters = [torch.randn(shape, device="cuda").requires_grad_() for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1, **{how: True})
    return optimizer.step


def swiglu(x, u):
    return F.silu(x) * u


def half(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def peers():
    """(name, bytes, the case of ours, function)"""
    count = ROWS * COLUMNS
    for how in ("fused", "foreach"):
        yield f"AdamW {how}, one tensor", 28 * count, "adamw/fp32/cuda/torch/parameters/8192x8192", adamw([(ROWS, COLUMNS)], how)
        yield f"AdamW {how}, 2000 tensors", 28 * 2000 * 33554, "adamw/fp32/cuda/torch/list of 2000/2000x33554", adamw([(33554,)] * 2000, how)
    x, u = half(ROWS, COLUMNS), half(ROWS, COLUMNS)
    for how, wrap in (("eager", lambda f: f), ("compiled", torch.compile)):
        f, gelu, erf = wrap(swiglu), wrap(lambda t: F.gelu(t, approximate="tanh")), wrap(F.gelu)
        yield f"SwiGLU {how}", 6 * count, "swiglu/bf16->bf16/cuda/fused/activations/8192x8192", lambda f=f: f(x, u)
        yield f"GELU tanh {how}", 4 * count, "gelu-tanh/bf16->bf16/cuda/fused/activations/8192x8192", lambda f=gelu: f(x)
        yield f"GELU erf {how}", 4 * count, "gelu-erf/bf16->bf16/cuda/fused/activations/8192x8192", lambda f=erf: f(x)
    logits, labels = half(TOKENS, CLASSES), torch.randint(0, CLASSES, (TOKENS,), device="cuda")
    yield "cross-entropy eager", 2 * TOKENS * CLASSES, "cross-entropy/bf16/cuda/fused/vocabulary/2048x128256", lambda: F.cross_entropy(logits, labels, reduction="none")
    gradient = torch.randn(ROWS, COLUMNS, device="cuda")
    yield "gradient norm", 4 * count, "norm2/fp32/cuda/fp64-sum/parameters/8192x8192", lambda: torch.linalg.vector_norm(gradient)


def ours(program, names):
    """Median seconds and status by the case's id without its data."""
    filters = [a for name in names for a in ("--filter", name + "/*")]
    return {case["id"].rsplit("/", 1)[0]: peer.time_of(case) for case in peer.cases(program, "--level", "nightly", *filters)}


source = torch.randn(1 << 28, device="cuda")
target = torch.empty_like(source)
copy = 8 * source.numel() / median_s(lambda: target.copy_(source))
del source, target
result = peer.report() | {"copy_bytes_s": copy}
for name, moved, case, function in peers():
    seconds = median_s(function)
    result["rows"].append({"what": name, "case": case, "median_s": seconds, "bytes_s": moved / seconds, "of_copy": moved / seconds / copy, "bytes": moved})
torch.cuda.empty_cache()
if len(sys.argv) > 1:
    program = ours(sys.argv[1], sorted({row["case"] for row in result["rows"]}))
    for row in result["rows"]:
        mine, row["narrowgauge_status"] = program.get(row["case"], (None, None))
        if mine:
            row.update({"narrowgauge_s": mine, "narrowgauge_of_copy": row["bytes"] / mine / copy, "times_as_fast": row["median_s"] / mine})
print(json.dumps(result, indent=1))
