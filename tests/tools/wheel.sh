#!/usr/bin/env bash
# tests/tools/wheel.sh BIN [SUITE]
# Makes the wheels of the programs in BIN, and installs them on a bare Debian: debootstrap's
# smallest system with python3 and python3-venv. It is Debian 12 (bookworm) unless SUITE names
# another one. wheel_tour.sh then runs there, without a network. What this makes lies in
# build/wheel_test; a second run takes over the bare system. Minutes.
# Needs root. Skips (exit 77) without it, without debootstrap or namespaces, and unless PAGODA_LONG
# is set, as deploy/test.sh --all does.
set -euo pipefail
bin=$(realpath "${1:?which programs}") suite=${2:-bookworm}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

skip() { echo "SKIPPED: $1"; exit 77; }

[ -n "${PAGODA_LONG:-}" ] || skip "PAGODA_LONG is not set; deploy/test.sh --all sets it"
[ "$(id -u)" -eq 0 ] || skip "only root can make another system"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
unshare --mount --pid --net --fork true 2>/dev/null || skip "no namespaces can be made here"

folder=$PWD/build/wheel_test
base=$folder/$suite root=$folder/root wheels=$folder/wheels
trap 'rm -rf --one-file-system "$root"' EXIT

make_base() {
  rm -rf --one-file-system "$base.part"
  debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$base.part"
  mv "$base.part" "$base"
}

# What the client needs from PyPI, for the bare system's Python. The client's wheel names it.
fetch_dependencies() {
  local version client platform
  client=$(echo "$wheels"/pagoda-*.whl)
  platform=${client##*-}
  version=$(chroot "$base" python3 -c 'import sys; print("{}.{}".format(*sys.version_info))')
  /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --only-binary :all: \
      --python-version "$version" --platform "${platform%.whl}" \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
      --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
      --dest "$wheels" "$client"
}

mkdir -p "$folder"
rm -rf --one-file-system "$root" "$wheels"
[ -d "$base" ] || make_base
deploy/wheel.sh --bin "$bin" --out "$wheels"
fetch_dependencies

cp -a "$base" "$root"
mkdir "$root/tour"
cp -r "$wheels" tests/tools/wheel_tour.sh clients/python/examples/hashed_pages.py \
      clients/python/src/pagoda/version.py tests/golden/qwen3_tiny "$root/tour/"
# The mounts and the processes that are left end with the namespaces.
unshare --mount --pid --net --fork --kill-child bash -euc '
  mount -t proc proc "$1/proc"
  mount -t tmpfs tmpfs "$1/dev/shm"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tour LANG=C.UTF-8 \
       chroot "$1" bash /tour/wheel_tour.sh' bash "$root"
