#!/usr/bin/env python3
"""GEMM through cuBLASLt, ours beside PyTorch's in one run: python3 suites/peers/torch_gemm.py path/to/narrowgauge

Needs PyTorch on a GPU. Same shapes and types, buffers rotated past the L2 cache, medians of 30. Columns: TFLOP/s of
torch, of the heuristic's first algorithm, of its best, and the ratios to torch's.
"""
import sys

import peer
from peer import torch

KERNELS = {
    "bf16 @": "gemm/bf16/cublaslt/bf16-out",
    "e4m3 _scaled_mm": "gemm/e4m3/cublaslt/promoted/bf16-out",
    "e4m3 _scaled_mm, fast": "gemm/e4m3/cublaslt/fast-accum/bf16-out",
}


def median_s(run, sets):
    return peer.median_s(run, [(i,) for i in range(sets)], each=sets)


def torch_s(name, n):
    sets = max(1, min(24, (160 << 20) // (4 * n * n)))
    one = torch.ones((), device="cuda")
    a = [torch.randn(n, n, device="cuda").bfloat16() for _ in range(sets)]
    b = [torch.randn(n, n, device="cuda").bfloat16() for _ in range(sets)]
    if name == "bf16 @":
        return median_s(lambda i: a[i] @ b[i].t(), sets)
    a = [x.to(torch.float8_e4m3fn) for x in a]
    b = [x.to(torch.float8_e4m3fn) for x in b]
    fast = name.endswith("fast")
    return median_s(lambda i: torch._scaled_mm(a[i], b[i].t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast), sets)


def ours(program, n):
    arguments = ["--shape", f"{n}x{n}x{n}", "--mode", "prequantized", "--variants", "--goldens", "none"]
    for kernel in KERNELS.values():
        arguments += ["--filter", kernel + "/*"]
    return {case["kernel"]: (case["status"], [v["median_s"] for v in case["variants"]]) for case in peer.cases(program, *arguments)}


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "narrowgauge"
    print(f"{'product':24} {'extent':>6} {'torch':>7} {'first':>7} {'best':>7}  first/torch best/torch  status")
    for n in (1024, 4096, 8192):
        mine = ours(program, n)
        for name, kernel in KERNELS.items():
            status, times = mine.get(kernel, ("absent", []))
            times = [t for t in times if t]
            flop, peer = 2.0 * n**3, torch_s(name, n)
            first, best = (times[0], min(times)) if times else (float("nan"),) * 2
            print(f"{name:24} {n:6} {flop / peer / 1e12:7.0f} {flop / first / 1e12:7.0f} {flop / best / 1e12:7.0f}  {peer / first:11.3f} {peer / best:10.3f}  {status}")


main()
