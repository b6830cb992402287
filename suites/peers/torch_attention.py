"""Times PyTorch's causal attention on a GPU beside narrowgauge's `training` cases: prints one JSON object.

    python3 suites/peers/torch_attention.py [build/suites/narrowgauge]

Queries, keys and values come out of one projection, [tokens][3][heads][d]. PyTorch's is scaled_dot_product_attention, in bf16 and in fp32 (no TF32);
its backward begins from what its forward kept, narrowgauge's recomputes. Needs PyTorch with CUDA, which is no dependency of the project: where it is
missing, says so and exits 2.
"""
import json
import statistics
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_attention.py: PyTorch is not installed")
if not torch.cuda.is_available():
    sys.exit("torch_attention.py: no CUDA device")

SHAPES = ((16, 256, 8, 64), (32, 512, 8, 64))  # batch, sequence, heads, d
KERNELS = {"bf16": ("bf16/cuda/causal-mma", "bf16/cuda/causal"), "fp32": ("fp32/cuda/causal",)}


def median_s(function, samples=30):
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(4):
            function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / 4)
    return statistics.median(times)


def attention(qkv):
    q, k, v = qkv.transpose(1, 3).unbind(2)  # each [batch][heads][sequence][d]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ours(program):
    """Median seconds by (direction, kernel, tokens, width)."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([program, "run", "--level", "nightly", "--backend", "cuda", "--quiet", "--filter", "attention*/training/*", "--json", out.name], check=False)
        found = {}
        for case in json.load(open(out.name))["cases"]:
            operation, *kernel, _, extents, _ = case["id"].split("/")
            tokens, width = (int(n) for n in extents.split("x"))
            found[operation.partition("-")[2], "/".join(kernel), tokens, width] = (case["speed"] or {}).get("median_s"), case["status"]
        return found


program = ours(sys.argv[1]) if len(sys.argv) > 1 else {}
result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": []}
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
