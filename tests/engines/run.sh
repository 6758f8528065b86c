#!/usr/bin/env bash
# tests/engines/run.sh BUILD TEST [PYTEST_ARGUMENT...]
# Runs one file of this folder with the package and the programs of the build, in the environment
# with engines that PAGODA_ENGINES names, as deploy/test.sh --engines does. Where it names none:
#   * what uses classes of vLLM alone runs in the environment beside the build, if there is one;
#   * pages under keys need no engine, and run in Debian's Python;
#   * the others start engines, for minutes, and skip (exit 77).
set -euo pipefail
build=$(cd "${1:?which build}" && pwd) test=${2:?which test}
cd "$(dirname "${BASH_SOURCE[0]}")"
skip() { echo "SKIPPED: $1; deploy/test.sh --engines makes one"; exit 77; }
if [ -n "${PAGODA_ENGINES:-}" ]; then
  python=$PAGODA_ENGINES/venv/bin/python
  [ -x "$python" ] || skip "PAGODA_ENGINES names no environment"
else
  case $(basename "$test" .py) in
    test_keyed_pages) python=/usr/bin/python3 ;;
    test_vllm_parts | test_vllm_offloading)
      export PAGODA_ENGINES=${build%/*}/engines
      python=$PAGODA_ENGINES/venv/bin/python
      # environment.sh writes `made` when all is installed.
      [ -e "$PAGODA_ENGINES/made" ] ||
        skip "PAGODA_ENGINES is not set, and $PAGODA_ENGINES has no environment"
      ;;
    *) skip "PAGODA_ENGINES names no environment" ;;
  esac
fi
# The package alone: beside it in the build lie generated messages for Debian's protobuf.
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
ln -s "$build/python/pagoda" "$package/pagoda"
PAGODA_BIN=$build/bin PYTHONPATH=$package:$PWD/../e2e "$python" -B -m pytest -q -rs -p no:cacheprovider "$test" "${@:3}"
