#!/usr/bin/env bash
# tests/gpu/run.sh [--bin FOLDER] [--out FOLDER] [--steps "NAME..."] [--budget SECONDS]
# Runs the tests on this machine's GPU, then the benchmarks, in less than nine minutes together.
# Writes OUT/results.json and a log of each step.
#   --bin FOLDER      the folder of the programs of `cmake --preset gpu-tests`; default
#                     build/gpu-tests/bin. If FOLDER/server has the programs of `pagoda-server`
#                     (pack.sh puts them there), they are tested too
#   --out FOLDER      default: this folder
#   --steps "NAME..." only these, of: kernels pools engine daemon connector; kernels_bench
#                     hopper_bench transfers_bench graphs products engine_bench connector_bench;
#                     random memcheck racecheck peers
#   --budget SECONDS  later steps are skipped, and a running one is ended; default 530
# Needs only a driver. If they are there, it uses Python with PyTorch (daemon, connector, peers,
# cuBLASLt for the engine), FlashInfer and compute-sanitizer.
# Exit status: 0 all steps passed, 1 some failed or were not finished, 77 no device.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/../../build/gpu-tests/bin
out=$PWD
wanted="kernels pools engine daemon connector kernels_bench hopper_bench transfers_bench graphs products engine_bench connector_bench random memcheck racecheck peers"
budget=530
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --steps) wanted=$2 ;;
    --budget) budget=$2 ;;
    *) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift 2
done
for program in gpu_kernels_test gpu_engine_test gpu_engine_bench gpu_kernels_bench gpu_pools_test gpu_transfers_bench; do
  [ -x "$bin/$program" ] || { echo "$bin/$program is not there: cmake --preset gpu-tests && ninja -C build/gpu-tests" >&2; exit 2; }
done
bin=$(cd "$bin" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
: > "$out/steps"
started=$(date +%s)

is_wanted() { [[ " $wanted " == *" $1 "* ]]; }

# step NAME SECONDS COMMAND...: writes the output to NAME.log, and a line with NAME, exit status and
# seconds to `steps`.
step() {
  local name=$1 limit=$2 began left status
  shift 2
  is_wanted "${name%%-*}" || return 0
  began=$(date +%s)
  left=$((budget - began + started))
  [ "$left" -lt "$limit" ] && limit=$left
  if [ "$limit" -le 0 ]; then
    echo "$name: no time is left"
    echo "$name 124 0" >> "$out/steps"
    return
  fi
  timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
  status=$?
  echo "$name $status $(($(date +%s) - began))" >> "$out/steps"
  case $status in
    0) echo "$name: passed after $(($(date +%s) - began)) s" ;;
    5 | 77) echo "$name: skipped: $(tail -n 1 "$out/$name.log")" ;;
    124 | 137) echo "$name: not finished after $limit s; last line: $(tail -n 1 "$out/$name.log")" ;;
    *)
      echo "$name: failed with status $status after $(($(date +%s) - began)) s"
      grep -hE '^\[  FAILED|Failure$|^FAILED|^E  |Error' "$out/$name.log" | head -25
      ;;
  esac
}

# The cuBLASLt of PyTorch. Without it, each test of a model is skipped.
if command -v python3 > /dev/null; then
  for folder in $(python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")))'); do
    [ -n "$(ls "$folder"/libcublasLt.so.1[23] 2> /dev/null)" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
  done
fi
export PAGODA_GOLDEN=${PAGODA_GOLDEN:-$here/../golden} PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$here:$here/../e2e:$here/../../clients/python/src${PYTHONPATH:+:$PYTHONPATH}"
has_server=$([ -x "$bin/server/bin/pagodad" ] && command -v python3 > /dev/null && echo yes)
export PAGODA_BIN=$bin/server/bin
# The package reads the contract from its source folder.
[ -f "$bin/server/contract.binpb" ] && [ ! -f "$here/../../clients/python/src/pagoda/contract.binpb" ] &&
  cp "$bin/server/contract.binpb" "$here/../../clients/python/src/pagoda/"
pytest=(python3 -B -m pytest -q --maxfail=6 -p no:cacheprovider)

if "$bin/gpu_kernels_test" --gtest_filter=none > "$out/device.log"; [ $? -eq 77 ]; then
  cat "$out/device.log"
  exit 77
fi

# Tests run in parallel: most of their time goes to references on the CPU.
short='-*RandomCases*:*LongContexts*:*SeventyThousand*'
for shard in 0 1 2 3; do
  GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$shard step kernels-$shard 150 "$bin/gpu_kernels_test" --gtest_filter="$short" &
done
step engine 150 "$bin/gpu_engine_test" &
[ -n "$has_server" ] || echo "daemon, connector: Python or the programs of pagoda-server are not here"
if [ -n "$has_server" ]; then
  step daemon 150 "${pytest[@]}" "$here/test_device_pools.py" &
  step connector 150 "${pytest[@]}" "$here/test_connector.py" &
fi
wait
# Alone: it reads the device's free memory.
PAGODA_MUST_HAVE_CUDA=1 step pools 60 "$bin/gpu_pools_test"

# Figures, one at a time: first the kernels for any GPU, then those for Hopper.
step kernels_bench 90 "$bin/gpu_kernels_bench" gpu_read gpu_mma_sync gpu_decode gpu_chunk gpu_prefill gpu_plan gpu_block_copy
step hopper_bench 60 "$bin/gpu_kernels_bench" gpu_hopper
step transfers_bench 40 "$bin/gpu_transfers_bench"
# The engine with and without CUDA graphs: equal tokens, and both times.
step graphs 60 "$bin/gpu_engine_bench" gpu_engine_graphs
# Decode steps with fused products and with cuBLASLt's.
step products 40 "$bin/gpu_engine_bench" gpu_engine_products
step engine_bench 90 "$bin/gpu_engine_bench" gpu_engine_decode gpu_engine_greedy gpu_engine_drawn gpu_engine_prefill
[ -n "$has_server" ] && step connector_bench 60 python3 -B "$here/connector_bench.py"

# Long steps. The checker makes kernels ten to a hundred times slower.
step random-cases 120 "$bin/gpu_kernels_test" --gtest_filter='*RandomCases*' &
step random-long 120 "$bin/gpu_kernels_test" --gtest_filter='*LongContexts*:*SeventyThousand*' &
if sanitizer=$(command -v compute-sanitizer); then
  # The left out test makes an error on purpose.
  step memcheck 120 "$sanitizer" --tool memcheck --error-exitcode 3 "$bin/gpu_kernels_test" --gtest_filter="$short:*AnEarlierError*" &
  small='CudaAttentionTest.LengthsAroundBlocksAndTiles:CudaAttentionTest.EveryTypeAndDimension:CudaAttentionTest.Windows:CudaCacheTest.*'
  step racecheck 80 "$sanitizer" --tool racecheck --error-exitcode 3 "$bin/gpu_kernels_test" --gtest_filter="$small" &
  for tool in memcheck racecheck; do
    step $tool-products 60 "$sanitizer" --tool $tool --error-exitcode 3 "$bin/gpu_engine_test" --gtest_filter='*FusedProducts*' &
  done
else
  echo "memcheck, racecheck: compute-sanitizer is not here"
fi
wait
command -v python3 > /dev/null && step peers 150 python3 -B "$here/peers.py"

gpu=$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader 2> /dev/null | head -1)
commit=$(cat "$bin/commit" 2> /dev/null || git -C "$here" rev-parse HEAD 2> /dev/null || echo unknown)
{
  printf '{"date":"%s","gpu":"%s","commit":"%s","steps":[\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$gpu" "$commit"
  sed 's/\(.*\) \(.*\) \(.*\)/{"step":"\1","status":\2,"seconds":\3}/; $!s/$/,/' "$out/steps"
  printf '],\n"tests":"%s",\n"figures":[\n' "$(cat "$out"/*.log | grep -hE '^\[  (PASSED|FAILED|SKIPPED)|^[0-9]+ (passed|failed)' | tr '\n' ';' | tr -d '"')"
  cat "$out"/*.log | grep -hE '^\{"figure"|^\{"id"' | sed '$!s/$/,/'
  printf ']}\n'
} > "$out/results.json"
echo "$out/results.json: $(grep -cE '"figure"|"id"' "$out/results.json") figures, $(($(date +%s) - started)) s"
! grep -qvE ' (0|5|77) ' "$out/steps"
