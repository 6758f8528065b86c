#!/bin/sh
# sanitized.sh build FOLDER COMPILER TARGET...   builds the targets with the preset asan, no CUDA
# sanitized.sh run BINARY                        runs one of them
# The build takes minutes, so both run only if PAGODA_LONG is set (deploy/test.sh --all). Otherwise
# the exit status is 77.
set -eu
if [ -z "${PAGODA_LONG:-}" ]; then
  echo "skipped: deploy/test.sh --all runs the kernels under sanitizers"
  exit 77
fi
command=$1
shift
if [ "$command" = run ]; then exec "$1"; fi
folder=$1 compiler=$2
shift 2
cmake --preset asan -B "$folder" -DPAGODA_CUDA=OFF -DCMAKE_CXX_COMPILER="$compiler"
cmake --build "$folder" -j 2 --target "$@"
