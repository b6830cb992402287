"""Times PyTorch's causal attention on a GPU beside narrowgauge's `training` cases: prints one JSON object.

    python3 suites/peers/torch_attention.py [build/suites/narrowgauge]

Queries, keys and values come out of one projection, [tokens][3][heads][d]. PyTorch's is scaled_dot_product_attention, in bf16 and in fp32 (no TF32);
its backward begins from what its forward kept, narrowgauge's recomputes.
"""
import json
import sys

import peer
from peer import median_s, torch

F = torch.nn.functional
SHAPES = ((16, 256, 8, 64), (32, 512, 8, 64))  # batch, sequence, heads, d
KERNELS = {"bf16": ("bf16/cuda/causal-mma", "bf16/cuda/causal"), "fp32": ("fp32/cuda/causal",)}


def attention(qkv):
    q, k, v = qkv.transpose(1, 3).unbind(2)  # each [batch][heads][sequence][d]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ours(program):
    """Median seconds by (direction, kernel, tokens, width)."""
    found = {}
    for case in peer.cases(program, "--level", "nightly", "--filter", "attention*/training/*"):
        operation, *kernel, _, extents, _ = case["id"].split("/")
        tokens, width = (int(n) for n in extents.split("x"))
        found[operation.partition("-")[2], "/".join(kernel), tokens, width] = peer.time_of(case)
    return found


program = ours(sys.argv[1]) if len(sys.argv) > 1 else {}
result = peer.report()
for batch, sequence, heads, d in SHAPES:
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        qkv = torch.randn((batch, sequence, 3, heads, d), device="cuda", dtype=dtype, requires_grad=True)
        dy = torch.randn((batch, sequence, heads, d), device="cuda", dtype=dtype)
        y = attention(qkv)
        seconds = {"forward": median_s(lambda: attention(qkv.detach())), "backward": median_s(lambda: torch.autograd.grad(y, qkv, dy, retain_graph=True))}
        for direction in ("forward", "backward"):
            row = {"what": f"attention {direction}", "format": name, "batch": batch, "sequence": sequence, "heads": heads, "d": d, "torch_s": seconds[direction]}
            for kernel in KERNELS[name]:
                mine, status = program.get((direction, kernel, batch * sequence, heads * d), (None, None))
                if mine:
                    row[kernel] = {"median_s": mine, "status": status, "times_as_fast": seconds[direction] / mine}
            result["rows"].append(row)
print(json.dumps(result, indent=1))
