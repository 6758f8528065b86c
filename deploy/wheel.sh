#!/usr/bin/env bash
# deploy/wheel.sh [--bin DIR] [--out DIR]
# Makes two Python wheels from the existing release build. `pagoda` is the client, with its native
# extension. `pagoda-server` has pagodad, pagodactl, pagoda-plan and pagoda-engine with
# every library that they load except glibc: it runs on any x86-64 Linux with glibc 2.36 or newer.
# Needs Debian 12, and installs missing tools.
#   --bin DIR   the folder of the built programs; default: build/release/bin
#   --out DIR   the folder for the wheels; default: build/wheels. Older wheels of both packages are
#               removed from it
# Exit status 0: both wheels are in the folder. deploy/wheel/README.md describes them.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/setup.sh

usage() { sed -n '2,10s/^# \{0,1\}//p' deploy/wheel.sh; }

bin=$PWD/$build_dir/bin out=$PWD/build/wheels
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "deploy/wheel.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
# Relative paths start where the script was called.
for path in bin out; do
  case ${!path} in /*) ;; *) printf -v "$path" '%s' "$called_from/${!path}" ;; esac
done

work=build/wheel

check_programs() {
  local name version said
  version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' clients/python/src/pagoda/version.py)
  for name in pagodad pagodactl pagoda-plan pagoda-engine; do
    [ -s "$bin/$name" ] && [ -x "$bin/$name" ] || die "The program $bin/$name does not exist." \
        "build it first with deploy/run.sh --once, or name the built programs' folder with --bin."
    said=$("$bin/$name" --version) ||
      die "$bin/$name does not run." "build again with deploy/run.sh --once."
    [ "$said" = "$name $version" ] ||
      die "$bin/$name is '$said', and clients/python has version $version." \
          "build again with deploy/run.sh --once."
  done
}

# Copies the sources, so that no file of an earlier build gets into a wheel.
stage() {
  rm -rf "$work"
  mkdir -p "$work/clients" "$work/wire" "$work/wheels"
  cp -r clients/python "$work/clients/python"
  cp -r wire/ring "$work/wire/ring"
  cp -r proto "$work/proto"
  rm -rf "$work/clients/python/build" "$work"/clients/python/src/*.egg-info
  rm -f "$work"/clients/python/src/pagoda/_native*.so
  cp -r deploy/wheel "$work/server"
  cp clients/python/src/pagoda/version.py "$work/server/pagoda_server/version.py"
  cp LICENSE "$work/clients/python/"
  cp LICENSE "$work/server/"
  find "$work" -name __pycache__ -prune -exec rm -r {} +
}

# Prints the packages whose headers and static libraries are compiled in.
compiled_in() {
  printf '%s\n' "${service_packages[@]}" "${core_packages[@]}" "${engine_packages[@]}" |
    grep -e '-dev$'
}

make_wheels() {
  /usr/bin/python3 -m venv "$work/venv"
  # Without its extension, the client's wheel is not made.
  PAGODA_NATIVE=1 "$work/venv/bin/pip" wheel --disable-pip-version-check --no-deps \
                  --wheel-dir "$work/wheels" "./$work/clients/python" "./$work/server"
}

check_programs
say "Pagoda: making wheels of $bin"
all_packages=(g++ python3 python3-dev python3-venv binutils patchelf)
install_packages
mapfile -t licensed < <(compiled_in)
step "sources" "read the log." stage
step "programs" "read the log's last line." \
     /usr/bin/python3 -B deploy/wheel/collect.py "$bin" "$work/server" "${licensed[@]}"
step "wheels" "read the log. pip downloads setuptools, so check the network." make_wheels
mkdir -p "$out"
rm -f "$out"/pagoda-*.whl "$out"/pagoda_server-*.whl
mv "$work"/wheels/*.whl "$out/"
rm -r "$work"
files=("$out"/pagoda-*.whl "$out"/pagoda_server-*.whl)
du -h --apparent-size "${files[@]}" | sed 's/^/  /'
say "To install both, here or on another machine: pip install ${files[*]}"
