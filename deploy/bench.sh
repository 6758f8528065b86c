#!/usr/bin/env bash
# deploy/bench.sh [manager|service|events|kernels|engine|warm_restart|zmq_bridge|huge_pages|tiers|engines] [ARGUMENT...]
# Builds Pagoda's benchmarks and runs them: one JSON object a line, each figure beside a yardstick that was measured in the same run.
#   manager   the core, single thread, in process: what the operations cost, and the memory of a block
#   service   a daemon and its clients as processes of their own, on loopback TCP and on the Unix socket, beside a handler that does nothing
#   events    the log in process; a daemon and its subscribers as processes of their own, beside messages that were built before
#   kernels   the CPU's kernels, in process, on one and on two threads, beside memcpy, reads of memory and the processor's peaks
#   engine    the bundled engine's model on the CPU, a Qwen3-0.6B of random weights (1.2 GB among temporary files), on two threads; beside
#             Hugging Face transformers on the same checkpoint, where PAGODA_PEER_PYTHON (python3) has torch and transformers
#   warm_restart   what stamping the slots costs, and finding the blocks again
#   zmq_bridge   events as vLLM's ZMQ publisher sends them, from the log to a reader in another process
#   huge_pages   reads of random pieces of a pool and its page tables, in each kind of pages that this machine has, beside plain pages
#   tiers     a disk tier: its file beside fio (throughput, CPU, the scan of a start), and what it costs the memory above it;
#             --folder FOLDER names the disk (/var/tmp)
#   engines   what Pagoda brings to a real vLLM and what it costs, and the same beside LMCache (vllm_beside_lmcache: half an hour on two
#             cores); needs the environment that deploy/test.sh --engines makes under build/engines
# What follows goes to the benchmark: the beginning of the ids of the figures that are wanted, for example.
# Figures go to standard output, everything else to standard error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,18s/^# \{0,1\}//p' deploy/bench.sh; }

benchmark=${1:-manager} also=
[ $# -eq 0 ] || shift
case $benchmark in
  manager | service | events | kernels | engine | warm_restart | zmq_bridge | huge_pages) program=${benchmark}_bench ;;
  tiers) program=disk_bench ;;
  engines) program=pagodad also=pagoda_python ;;
  --help | -h) usage; exit 0 ;;
  *) echo "deploy/bench.sh: no benchmark '$benchmark'" >&2; usage >&2; exit 2 ;;
esac

{
  . deploy/setup.sh
  say "Pagoda: building the benchmarks in $build_dir"
  set_up
  build "$program" ${also:+"$also"}
} >&2
if [ "$benchmark" = engine ]; then
  peer=${PAGODA_PEER_PYTHON:-python3}
  if "$peer" -c 'import torch, transformers' 2> /dev/null; then
    set -- --peer "$peer tests/bench/transformers_peer.py" "$@"
  else
    echo "deploy/bench.sh: $peer has no torch and transformers: the engine is not compared with them (PAGODA_PEER_PYTHON names a Python that has)" >&2
  fi
fi
if [ "$benchmark" = tiers ]; then
  command -v fio > /dev/null || echo "deploy/bench.sh: there is no fio: the disk tier is not compared with it" >&2
  exec /usr/bin/python3 -B tests/bench/tiers_bench.py "$build_dir/bin/disk_bench" "$@"
fi
if [ "$benchmark" = engines ]; then
  export PAGODA_ENGINES=${PAGODA_ENGINES:-$PWD/build/engines} PAGODA_BIN=$PWD/$build_dir/bin
  [ -x "$PAGODA_ENGINES/venv/bin/python" ] ||
    die "There is no environment with engines in $PAGODA_ENGINES." "make it: tests/engines/environment.sh build/engines"
  package=$(mktemp -d)
  trap 'rm -rf "$package"' EXIT
  ln -s "$PWD/$build_dir/python/pagoda" "$package/pagoda"
  run() { PYTHONPATH=$package "$PAGODA_ENGINES/venv/bin/python" -B tests/engines/"$1" "${@:2}"; }
  # Two programs share the ids: vllm_beside_lmcache is the second's.
  ids=() beside=$([ $# -gt 0 ] || echo yes)
  for id in "$@"; do
    [[ vllm_beside_lmcache != "$id"* ]] || beside=yes
    [[ $id = vllm_b* ]] || ids+=("$id")
  done
  [ $# -gt 0 ] && [ ${#ids[@]} -eq 0 ] || run bench_vllm.py "${ids[@]}"
  [ -z "$beside" ] || run bench_lmcache.py
  exit
fi
exec "$build_dir/bin/$program" "$@"
