#!/usr/bin/env bash
# deploy/bench.sh [manager]
# Builds Pagoda's benchmarks and runs them: one JSON object a line, each figure beside a yardstick that was measured in the same run.
#   manager   the core, single thread, in process: what the operations cost, and the memory of a block
# Figures go to standard output, everything else to standard error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,5s/^# \{0,1\}//p' deploy/bench.sh; }

case ${1:-manager} in
  manager) ;;
  --help | -h) usage; exit 0 ;;
  *) echo "deploy/bench.sh: no benchmark '$1'" >&2; usage >&2; exit 2 ;;
esac

{
  . deploy/setup.sh
  say "Pagoda: building the benchmarks in $build_dir"
  set_up
  build manager_bench
} >&2
exec $build_dir/bin/manager_bench
