"""Times PyTorch's norms on a GPU beside narrowgauge's `speed` cases: prints one JSON object.

    python3 suites/peers/torch_norm.py [build/suites/narrowgauge]

Forward counts x read and y written, backward x and dy read and dx written (dgamma and dbeta included in the time). PyTorch
runs with bf16 parameters, eager and compiled; narrowgauge, where its program is given, with fp32 ones.
"""
import json
import sys

import peer
from peer import median_s, torch

F = torch.nn.functional
SHAPES = ((8192, 4096), (16384, 8192), (32768, 1024))


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def rms_norm(x, w, b):
    return F.rms_norm(x, x.shape[-1:], w, 1e-5)


def backward_sets(norm, kind, sets):
    graphs = []
    for x, w, b, dy in sets:
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        inputs = (x, w, b) if kind == "layernorm" else (x, w)
        graphs.append((norm(x, w, b), inputs, dy))
    return graphs


def backward(y, inputs, dy):
    return torch.autograd.grad(y, inputs, dy, retain_graph=True)


def ours(program):
    """Median seconds by (kind, direction, rows, columns)."""
    names = [kind + direction for kind in ("layernorm", "rmsnorm") for direction in ("/bf16->bf16/cuda/fp32-params", "-backward/bf16/cuda/fp32-params")]
    found = {}
    for case in peer.cases(program, "--level", "nightly", *(a for name in names for a in ("--filter", name + "/activations/*"))):
        parts = case["id"].split("/")
        rows, columns = (int(n) for n in parts[-2].split("x"))
        kind, _, direction = parts[0].partition("-")
        found[kind, direction or "forward", rows, columns] = peer.time_of(case)
    return found


program = ours(sys.argv[1]) if len(sys.argv) > 1 else {}
result = peer.report()
for rows, columns in SHAPES:
    sets = [tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((rows, columns), (columns,), (columns,), (rows, columns))) for _ in range(peer.sets_past_l2(2 * rows * columns))]
    copy = 4 * rows * columns / median_s(lambda x, w, b, dy: x.clone(), sets)
    for kind, norm in (("layernorm", layer_norm), ("rmsnorm", rms_norm)):
        for direction in ("forward", "backward"):
            bytes_moved = rows * columns * (4 if direction == "forward" else 6)
            for how, function in (("eager", norm), ("compiled", torch.compile(norm, dynamic=False))):
                if direction == "forward":
                    seconds = median_s(lambda x, w, b, dy: function(x, w, b), sets)
                else:
                    seconds = median_s(backward, backward_sets(function, kind, sets))
                row = {"what": f"{kind} {direction}", "how": how, "shape": [rows, columns], "median_s": seconds, "bytes_s": bytes_moved / seconds, "of_copy": bytes_moved / seconds / copy}
                mine, status = program.get((kind, direction, rows, columns), (None, None))
                if mine:
                    row.update({"narrowgauge_s": mine, "narrowgauge_status": status, "narrowgauge_of_copy": bytes_moved / mine / copy, "times_as_fast": seconds / mine})
                result["rows"].append(row)
print(json.dumps(result, indent=1))
