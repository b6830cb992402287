"""Times torch.compile's quantization on a GPU, for comparison with the `speed` cases: prints one JSON object.

FP8 current scaling (one scale a tensor) counts 5 bytes an element, bf16 read twice and a byte written; MXFP8 3 + 1/32.
"""
import json

import peer
from peer import median_s, torch


def fp8_current(x):
    amax = x.abs().max().float()
    scale = 448.0 / amax
    return (x.float() * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), 1.0 / scale


def mxfp8(x):
    blocks = x.reshape(-1, 32)
    amax = blocks.abs().amax(dim=1).float()
    bits = (amax * (1.0 / 448.0)).view(torch.int32)
    code = ((bits + 0x7FFFFF) >> 23).clamp(0, 254)  # rounded up to a power of two
    inverse = ((254 - code) << 23).view(torch.float32)
    y = (blocks.float() * inverse[:, None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return y.reshape(x.shape), code.to(torch.uint8)


def copy(x):
    return x.clone()


result = peer.report()
for rows, columns in ((16384, 8192), (8192, 4096)):
    inputs = [(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),) for _ in range(peer.sets_past_l2(2 * rows * columns))]
    for name, function, per_element in (("copy", copy, 4), ("fp8-current", torch.compile(fp8_current), 5), ("mxfp8", torch.compile(mxfp8), 3 + 1 / 32)):
        seconds = median_s(function, inputs)
        result["rows"].append({"what": name, "shape": [rows, columns], "median_s": seconds, "bytes_s": rows * columns * per_element / seconds})
print(json.dumps(result, indent=1))
