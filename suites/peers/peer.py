"""What the scripts here that time PyTorch share. PyTorch is no dependency of the project: where it or a GPU is missing, they say so and exit 2."""
import json
import os
import statistics
import subprocess
import sys
import tempfile


def need(what):
    print(f"{os.path.basename(sys.argv[0])}: {what}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
except ImportError:
    need("PyTorch is not installed")
if not torch.cuda.is_available():
    need("no CUDA device")


def median_s(function, sets=((),), samples=30, each=4):
    """Of `samples` times of `each` calls in a row; the arguments rotate through `sets`, so that enough of them outrun the L2 cache."""
    for arguments in sets[:3]:
        function(*arguments)
    torch.cuda.synchronize()
    times = []
    for i in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for j in range(each):
            function(*sets[(each * i + j) % len(sets)])
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / each)
    return statistics.median(times)


def sets_past_l2(element_bytes):
    """How many sets of so many bytes a rotation needs: four times the 60 MiB of the largest L2."""
    return max(3, (4 * 60 << 20) // element_bytes + 1)


def cases(program, *arguments):
    """Cases of a run of narrowgauge on the GPU."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([program, "run", "--backend", "cuda", "--quiet", *arguments, "--json", out.name], check=False, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))["cases"]


def time_of(case):
    return (case["speed"] or {}).get("median_s"), case["status"]


def report():
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": []}
