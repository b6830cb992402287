"""Times PyTorch's norms on a GPU beside narrowgauge's `speed` cases: prints one JSON object.

    python3 suites/peers/torch_norm.py [build/suites/narrowgauge]

Forward counts x read and y written, backward x and dy read and dx written (dgamma and dbeta included in the time). PyTorch
runs with bf16 parameters, eager and compiled; narrowgauge, where its program is given, with fp32 ones. Needs PyTorch with CUDA,
which is no dependency of the project: where it is missing, says so and exits 2.
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
    sys.exit("torch_norm.py: PyTorch is not installed")
if not torch.cuda.is_available():
    sys.exit("torch_norm.py: no CUDA device")

SHAPES = ((8192, 4096), (16384, 8192), (32768, 1024))


def median_s(function, sets, samples=30):
    for s in sets[:3]:
        function(*s)
    torch.cuda.synchronize()
    times = []
    for i in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for j in range(4):
            function(*sets[(4 * i + j) % len(sets)])
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / 4)
    return statistics.median(times)


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
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        names = [kind + direction for kind in ("layernorm", "rmsnorm") for direction in ("/bf16->bf16/cuda/fp32-params", "-backward/bf16/cuda/fp32-params")]
        filters = [a for name in names for a in ("--filter", name + "/activations/*")]
        subprocess.run([program, "run", "--level", "nightly", "--backend", "cuda", "--quiet", *filters, "--json", out.name], check=False)
        found = {}
        for case in json.load(open(out.name))["cases"]:
            parts = case["id"].split("/")
            rows, columns = (int(n) for n in parts[-2].split("x"))
            kind, _, direction = parts[0].partition("-")
            found[kind, direction or "forward", rows, columns] = (case["speed"] or {}).get("median_s"), case["status"]
        return found


program = ours(sys.argv[1]) if len(sys.argv) > 1 else {}
result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": []}
for rows, columns in SHAPES:
    count = max(3, (4 * 60 << 20) // (2 * rows * columns) + 1)  # past the L2 cache
    sets = [tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((rows, columns), (columns,), (columns,), (rows, columns))) for _ in range(count)]
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
