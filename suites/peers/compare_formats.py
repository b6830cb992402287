#!/usr/bin/env python3
"""Holds narrowgauge's rounding against ml_dtypes, NumPy and gfloat: every bf16 value into every format that they know.

    compare_formats.py BUILD/suites/dump_round

Needs numpy, ml_dtypes and gfloat; the project itself needs none of them. Prints, per library and format, how many of the
65,536 results agree and the named differences. Exit 1: a difference that no row of DIFFERENCES explains, or a row that
explains nothing any more; 2: a library or the program is missing.
"""
import collections
import subprocess
import sys

try:
    import gfloat
    import gfloat.formats as gf
    import ml_dtypes
    import numpy as np
except ImportError as error:
    sys.exit(print(f"compare_formats.py: {error.name} is not installed", file=sys.stderr) or 2)

ML_DTYPES = {
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e3m2": "float6_e3m2fn", "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn", "e8m0": "float8_e8m0fnu",
}
GFLOAT = {
    "fp16": gf.format_info_binary16, "e4m3": gf.format_info_ocp_e4m3, "e5m2": gf.format_info_ocp_e5m2,
    "e3m2": gf.format_info_ocp_e3m2, "e2m3": gf.format_info_ocp_e2m3, "e2m1": gf.format_info_ocp_e2m1,
    "e8m0": gf.format_info_ocp_e8m0,
}
GFLOAT_MODES = {"nearest": "TiesToEven", "nearest-away": "TiesToAway", "zero": "TowardZero", "up": "TowardPositive"}
FINITE_ONLY = ("e3m2", "e2m3", "e2m1")

# library, formats, name, which (x, theirs, ours) it explains. Each must still be seen, or it is reported as stale.
Difference = collections.namedtuple("Difference", "library formats name explains")
DIFFERENCES = [
    Difference("ml_dtypes", ("e5m2",), "NaN is 0x7E, ours 0x7F", lambda x, t, o: np.isnan(x) & (t & 0x7F == 0x7E)),
    Difference("ml_dtypes", FINITE_ONLY, "NaN becomes a zero of the other sign, ours the largest (PTX)",
               lambda x, t, o: np.isnan(x) & ((t == 0) | (t == 0x20) | (t == 0x8))),
    Difference("ml_dtypes", ("e8m0",), "zero is NaN, ours 2^-127 (CUDA)", lambda x, t, o: (x == 0) & (t == 0xFF) & (o == 0)),
    Difference("ml_dtypes", ("e8m0",), "negatives are NaN, ours |x| (CUDA)", lambda x, t, o: (x < 0) & (t == 0xFF)),
    Difference("ml_dtypes", ("e8m0",), "(1, 1.5) 2^-127 rounds away from the nearest, 2^-127",
               lambda x, t, o: (x > 2.0**-127) & (x < 1.5 * 2.0**-127) & (t == 1) & (o == 0)),
    Difference("numpy", ("fp16",), "NaN keeps its payload", lambda x, t, o: np.isnan(x)),
    Difference("gfloat", ("fp16", "e4m3", "e5m2"), "NaN has one code, the negative one",
               lambda x, t, o: (np.isnan(x) | (o == 0x7F)) & ((t == 0xFF) | (t == 0xFFFF))),
    Difference("gfloat", ("e8m0",), "negatives get no code of the format, ours |x| (CUDA)", lambda x, t, o: (x < 0) & (t < 0)),
    Difference("gfloat", ("e8m0",), "below 2^-127 gets no code of the format", lambda x, t, o: (x > 0) & (x < 2.0**-127) & (t < 0)),
    Difference("gfloat", ("e8m0",), "ties go to the even code, ours up (IEEE 754-2019 4.3.1)",
               lambda x, t, o: (np.frexp(x)[0] == 0.75) & (t % 2 == 0) & (o == t + 1)),
]


def ours(program, arguments):
    """The codes that narrowgauge gives, NaN with the input's sign."""
    done = subprocess.run([program, "--nan", "keep-sign", *arguments], capture_output=True, text=True, check=True)
    return np.array([int(line, 16) for line in done.stdout.split()], dtype=np.int64)


def gfloat_codes(info, mode, saturate, x):
    rounded = gfloat.round_ndarray(info, x, getattr(gfloat.RoundMode, mode), saturate)
    return gfloat.encode_ndarray(info, rounded).astype(np.int64)


def results(x):
    """(library, format, arguments of dump_round, inputs compared, their codes) of everything that the libraries offer."""
    everything = np.ones(len(x), dtype=bool)
    for name, theirs in ML_DTYPES.items():
        codes = x.astype(np.float32).astype(getattr(ml_dtypes, theirs)).view(np.uint8).astype(np.int64)
        yield "ml_dtypes", name, [name, "nearest"], everything, codes
    yield "numpy", "fp16", ["fp16", "nearest"], everything, x.astype(np.float32).astype(np.float16).view(np.uint16).astype(np.int64)
    for name, info in GFLOAT.items():
        for ours_mode, mode in GFLOAT_MODES.items():
            for saturate in (False, True):
                if name in FINITE_ONLY and not saturate:
                    continue  # gfloat refuses it; ours always saturates these
                use = ~np.isnan(x) if name in FINITE_ONLY else everything  # gfloat refuses NaN there
                codes = np.zeros(len(x), dtype=np.int64)
                codes[use] = gfloat_codes(info, mode, saturate, x[use])
                yield "gfloat", name, ["--saturate"] * saturate + [name, ours_mode], use, codes


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    np.seterr(all="ignore")
    x = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
    stale, unexplained = {d.name for d in DIFFERENCES}, 0
    for library, name, arguments, use, theirs in results(x):
        try:
            own = ours(sys.argv[1], arguments)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"compare_formats.py: {error}", file=sys.stderr)
            return 2
        left = (theirs != own) & use
        print(f"{library:9} {' '.join(arguments):26} {int((use & ~left).sum()):6} of {int(use.sum())} agree")
        for d in DIFFERENCES:
            explained = left & d.explains(x, theirs, own) if d.library == library and name in d.formats else np.zeros_like(left)
            if explained.any():
                stale.discard(d.name)
                left &= ~explained
                print(f"{'':37}{int(explained.sum()):6} {d.name}")
        for i in np.flatnonzero(left)[:4]:
            print(f"{'':37}UNEXPLAINED input {i:#06x} ({x[i]:g}): {theirs[i]:#x}, ours {own[i]:#x}")
        unexplained += int(left.sum())
    for name in sorted(stale):
        print(f"no longer seen: {name}")
    print(f"unexplained: {unexplained}")
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    sys.exit(main())
