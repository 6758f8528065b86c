#!/usr/bin/env bash
# tests/gpu/pack.sh FILE.tar.xz
# Packs everything that tests/gpu/run.sh needs on a machine with a GPU and without this project: the
# programs of `cmake --preset gpu-tests`, those of a release build with their libraries (from the
# wheel that deploy/wheel.sh made), the Python package, the tests and the golden models.
#   there: tar xf FILE.tar.xz && pagoda/tests/gpu/run.sh --bin pagoda/bin --out results
set -euo pipefail
target=$(realpath -m "${1:?name the file to make}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/pagoda/bin/server"
cp build/gpu-tests/bin/{commit,gpu_*} "$work/pagoda/bin/"
/usr/bin/python3 -m zipfile -e build/wheels/pagoda_server-*.whl "$work/wheel"
mv "$work"/wheel/pagoda_server/{bin,lib} "$work/pagoda/bin/server/"
# A C++ client, with the libraries of the other programs.
cp build/release/bin/gpu_pool_client "$work/pagoda/bin/server/bin/"
# shellcheck disable=SC2016  # $ORIGIN is the loader's.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$work/pagoda/bin/server/bin/gpu_pool_client"
cp build/release/python/pagoda/contract.binpb "$work/pagoda/bin/server/"
strip "$work"/pagoda/bin/gpu_* "$work"/pagoda/bin/server/bin/* 2> /dev/null || true
chmod +x "$work"/pagoda/bin/server/bin/*
mkdir -p "$work/pagoda/tests/e2e" "$work/pagoda/clients/python"
cp -r tests/gpu tests/golden "$work/pagoda/tests/"
cp tests/e2e/toy_engine.py "$work/pagoda/tests/e2e/"
cp -r clients/python/src "$work/pagoda/clients/python/"
# One dictionary for all programs, because they hold the same kernels.
tar -C "$work" -c pagoda | xz --lzma2=preset=3,dict=256MiB > "$target"
du -h "$target"
