"""Writes a header with a digest of object files: digest_objects.py HEADER OBJECT... The order given does not matter."""
import hashlib
import sys

parts = sorted(hashlib.sha256(open(path, "rb").read()).digest() for path in sys.argv[2:])
digest = hashlib.sha256(b"".join(parts)).hexdigest()[:32]
with open(sys.argv[1], "w", encoding="ascii") as header:
    header.write(f'#define NG_BUILD_KERNELS_DIGEST "{digest}"\n')
