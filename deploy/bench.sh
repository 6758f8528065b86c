#!/usr/bin/env bash
# deploy/bench.sh [BENCHMARK] [ARGUMENT...]
# Builds a benchmark of Pagoda and runs it. It prints one JSON object a line. Each figure has a
# yardstick that was measured in the same run. BENCHMARK is one of:
#   manager        the default. The core in process, on a single thread: the cost of operations, and
#                  the memory of a block
#   advise         the hit rates of other capacities that a running cache predicts, beside replays
#                  of generated traces and of the trace in the file that is named
#   service        a daemon and its clients in separate processes, on loopback TCP and on the Unix
#                  socket, beside a handler that does nothing
#   events         the log in process; a daemon and its subscribers in separate processes, beside
#                  messages that were built before
#   kernels        the CPU's kernels in process, on one and on two threads, beside memcpy, reads of
#                  memory and the processor's peaks
#   engine         the bundled engine's model on the CPU, on two threads: a Qwen3-0.6B of random
#                  weights (1.2 GB of temporary files). Beside Hugging Face transformers on the same
#                  checkpoint, if PAGODA_PEER_PYTHON (python3) has torch and transformers
#   crossing       an engine over a daemon's cache beside the same engine in one process: the first
#                  token and a decode step; --model FILE names a model (the tests' tiny one)
#   warm_restart   the cost of stamping slots and of recovering blocks
#   zmq_bridge     events in the format of vLLM's ZMQ publisher, from the log to a reader in another
#                  process
#   huge_pages     random reads of a pool, and its page tables, in each kind of pages that this
#                  machine has, beside plain pages
#   tiers          a disk tier: its file beside fio (throughput, CPU, the scan of a start), and its
#                  cost to the memory above it; --folder FOLDER names the disk (/var/tmp)
#   store          blocks to and from a Redis server on loopback, beside redis-benchmark and
#                  hiredis; a prefix from another process's host memory, beside iperf3; the first
#                  token of a fetched prompt, beside computing it (1.2 GB of temporary files); and
#                  copies between tiers while the store has stopped
#   eviction       the hit rates of the eviction policies beside lru's, and clairvoyance's; on
#                  traces generated from three seeds, and on Mooncake's conversation trace if
#                  ../shared/traces has it or PAGODA_CONVERSATION_TRACE names it, one request after
#                  another and overlapping in time; and the cost of the policy learned beside that
#                  of lru. `eviction --random 60` replays 60 random traces instead
#   router         the router of the Python package for 4 and 100 nodes: memory, updates, look-ups
#                  (1 GB of memory)
#   engines        the gain and the cost of Pagoda in a real vLLM, and the same beside LMCache
#                  (vllm_beside_lmcache: half an hour on two cores). Needs the environment that
#                  deploy/test.sh --engines makes under build/engines
# Further arguments go to the benchmark, for example the beginning of the ids of the wanted figures.
# Figures go to standard output, everything else to standard error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,42s/^# \{0,1\}//p' deploy/bench.sh; }

benchmark=${1:-manager} also=
[ $# -eq 0 ] || shift
case $benchmark in
  manager | advise | service | events | kernels | engine | warm_restart | zmq_bridge | huge_pages) program=${benchmark}_bench ;;
  eviction) program=eviction_bench also=manager_bench ;;
  tiers) program=disk_bench ;;
  router) program=pagoda_python ;;
  store) program=store_bench also="peer_bench pagodad pagodactl pagoda_python" ;;
  crossing) program=pagodad also=pagoda-engine ;;
  engines) program=pagodad also=pagoda_python ;;
  --help | -h) usage; exit 0 ;;
  *) echo "deploy/bench.sh: no benchmark '$benchmark'" >&2; usage >&2; exit 2 ;;
esac

{
  . deploy/setup.sh
  say "Pagoda: building the benchmarks in $build_dir"
  set_up
  # shellcheck disable=SC2086  # Several names.
  build "$program" $also
} >&2
if [ "$benchmark" = engine ]; then
  peer=${PAGODA_PEER_PYTHON:-python3}
  if "$peer" -c 'import torch, transformers' 2> /dev/null; then
    set -- --peer "$peer tests/bench/engine/transformers_peer.py" "$@"
  else
    echo "deploy/bench.sh: $peer has no torch and transformers, so the engine is not compared with them. PAGODA_PEER_PYTHON can name another Python." >&2
  fi
fi
if [ "$benchmark" = tiers ]; then
  command -v fio > /dev/null || echo "deploy/bench.sh: fio is not installed, so the disk tier is not compared with it" >&2
  exec /usr/bin/python3 -B tests/bench/tiers/tiers_bench.py "$build_dir/bin/disk_bench" "$@"
fi
if [ "$benchmark" = store ]; then
  command -v iperf3 > /dev/null || echo "deploy/bench.sh: iperf3 is not installed, so fetches from a peer are not compared with it" >&2
  /usr/bin/python3 -B tests/bench/tiers/store_bench.py "$build_dir/bin/store_bench" "$@"
  /usr/bin/python3 -B tests/bench/tiers/peer_bench.py "$build_dir/bin/peer_bench" "$@"
  exec /usr/bin/python3 -B tests/bench/tiers/fetch_bench.py "$build_dir/bin/pagodad" "$@"
fi
if [ "$benchmark" = router ]; then
  exec /usr/bin/python3 -B tests/bench/tiers/router_bench.py "$build_dir/python" "$@"
fi
if [ "$benchmark" = crossing ]; then
  exec /usr/bin/python3 -B tests/bench/tiers/crossing_bench.py "$build_dir/bin/pagodad" "$@"
fi
if [ "$benchmark" = eviction ]; then
  trace=${PAGODA_CONVERSATION_TRACE:-../shared/traces/mooncake_conversation.jsonl} given=()
  if [ -f "$trace" ]; then
    given=(--trace "$trace")
  else
    echo "deploy/bench.sh: there is no trace at $trace, so the figures of the conversation trace are missing. PAGODA_CONVERSATION_TRACE can name it: FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake." >&2
  fi
  # Two programs share the ids. The second one has the costs, policy_*.
  rates=() costs=()
  for id in "$@"; do
    if [[ $id = policy* ]]; then costs+=("$id"); else rates+=("$id"); fi
  done
  [ $# -eq 0 ] && costs=(policy_)
  [ $# -gt 0 ] && [ ${#rates[@]} -eq 0 ] || "$build_dir/bin/eviction_bench" "${given[@]}" "${rates[@]}"
  for id in "${costs[@]}"; do "$build_dir/bin/manager_bench" "$id"; done
  exit
fi
if [ "$benchmark" = engines ]; then
  export PAGODA_ENGINES=${PAGODA_ENGINES:-$PWD/build/engines} PAGODA_BIN=$PWD/$build_dir/bin
  [ -x "$PAGODA_ENGINES/venv/bin/python" ] ||
    die "$PAGODA_ENGINES has no environment with engines." "run tests/engines/environment.sh build/engines"
  package=$(mktemp -d)
  trap 'rm -rf "$package"' EXIT
  ln -s "$PWD/$build_dir/python/pagoda" "$package/pagoda"
  run() { PYTHONPATH=$package "$PAGODA_ENGINES/venv/bin/python" -B tests/engines/"$1" "${@:2}"; }
  # Two programs share the ids. The second one has vllm_beside_lmcache.
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
