#!/bin/sh
# Cross-builds narrowgauge for aarch64 and runs it under qemu-user: the same cases must give the same bits as here.
#   suites/cross/aarch64.sh FOLDER [run ARGUMENT...]
# Debian packages needed: gcc-aarch64-linux-gnu qemu-user. The libraries for arm64 are downloaded (not installed) into
# FOLDER, so `dpkg --add-architecture arm64 && apt-get update` must have been run once.
# Prints `N of M digests equal`; exit 0 only if all are.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,6p' "$0"; exit 2; }
folder=$1; shift
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
root=$folder/sysroot
lib=$root/usr/lib/aarch64-linux-gnu
packages="libmpfr-dev libmpfr6 libgmp-dev libgmp10 libcjson-dev libcjson1 libopenblas-dev libopenblas-pthread-dev
  libopenblas0-pthread libxxhash-dev libxxhash0 libsqlite3-dev libsqlite3-0 libgfortran5 libgomp1"

if [ ! -d "$root" ]; then
    mkdir -p "$folder/debs"
    # shellcheck disable=SC2086
    (cd "$folder/debs" && apt-get download $(printf '%s:arm64 ' $packages) >/dev/null)
    for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$root"; done
    cp -r /usr/include/Random123 "$root/usr/include/"
    find "$root" -name '*.pc' -exec sed -i '/^Requires.private/d' {} +
fi

cat >"$folder/aarch64.ini" <<INI
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu', '-E', 'LD_LIBRARY_PATH=$lib:$lib/openblas-pthread']
[built-in options]
c_args = ['-I$root/usr/include', '-I$root/usr/include/aarch64-linux-gnu']
c_link_args = ['-L$lib', '-L$lib/openblas-pthread', '-Wl,-rpath-link,$lib:$lib/openblas-pthread']
[properties]
sys_root = '$root'
pkg_config_libdir = ['$lib/pkgconfig', '$lib/openblas-pthread/pkgconfig']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
INI

[ -e "$folder/build/build.ninja" ] ||
    meson setup "$folder/build" "$here" --cross-file "$folder/aarch64.ini" -Dcuda=disabled >"$folder/setup.log"
ninja -C "$folder/build" suites/narrowgauge >"$folder/build.log"

[ $# -gt 0 ] || set -- run --level smoke
word=$1; shift
"$here/narrowgauge" "$word" "$@" --no-speed --quiet --json "$folder/native.json" || [ $? = 1 ]
qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$lib:$lib/openblas-pthread" \
    "$folder/build/suites/narrowgauge" "$word" "$@" --no-speed --quiet --json "$folder/aarch64.json" || [ $? = 1 ]
python3 - "$folder/native.json" "$folder/aarch64.json" <<'PYTHON'
import json, sys
native, other = ({c["id"]: c["digest"] for c in json.load(open(path))["cases"]} for path in sys.argv[1:])
differing = sorted(i for i in native.keys() | other.keys() if native.get(i) != other.get(i))
for i in differing[:20]:
    print("differs:", i, native.get(i), other.get(i))
print(f"{len(native) - len(differing)} of {len(native)} digests equal")
sys.exit(1 if differing or not native else 0)
PYTHON
