#!/usr/bin/env bash
# tests/engines/run.sh BUILD TEST
# Runs one file of this folder in the engines' environment, with the package and the programs of the
# build. Skips (exit 77) unless PAGODA_ENGINES names that environment, as deploy/test.sh --engines
# does.
set -euo pipefail
build=$(cd "${1:?which build}" && pwd) test=${2:?which test}
cd "$(dirname "${BASH_SOURCE[0]}")"
[ -x "${PAGODA_ENGINES:-/nowhere}/venv/bin/python" ] ||
  { echo "SKIPPED: PAGODA_ENGINES names no environment; deploy/test.sh --engines makes one"; exit 77; }
# The package alone: beside it in the build lie generated messages for Debian's protobuf.
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
ln -s "$build/python/pagoda" "$package/pagoda"
PAGODA_BIN=$build/bin PYTHONPATH=$package "$PAGODA_ENGINES/venv/bin/python" -B -m pytest -q -rs -p no:cacheprovider "$test" "${@:3}"
