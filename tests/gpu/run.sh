#!/usr/bin/env bash
# tests/gpu/run.sh [--bin FOLDER] [--out FOLDER]
# Runs the kernels' and the pools' tests on this machine's GPU, then the benchmarks and what peers there are, in less than 9 minutes together, and leaves
# OUT/results.json and the logs. FOLDER: where `cmake --preset gpu-tests` put the binaries; without --bin, build/gpu-tests/bin.
# Needs a driver, and nothing else; compute-sanitizer and Python with PyTorch or FlashInfer are used where they are.
# Exit status: 0 all tests passed, 1 some failed, 77 no device.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/../../build/gpu-tests/bin
out=$PWD
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
for binary in gpu_kernels_test gpu_engine_test gpu_engine_bench gpu_kernels_bench gpu_pools_test gpu_transfers_bench; do
  [ -x "$bin/$binary" ] || { echo "$bin/$binary is not there: cmake --preset gpu-tests && ninja -C build/gpu-tests" >&2; exit 2; }
done
mkdir -p "$out"
started=$(date +%s)
budget=530

# Seconds that are left, at most $1.
left() {
  local rest=$((budget - $(date +%s) + started))
  [ "$rest" -lt 1 ] && rest=1
  [ "$rest" -lt "$1" ] && echo "$rest" || echo "$1"
}

# step NAME SECONDS COMMAND...: its output to NAME.log, its exit status to the table of steps.
steps=""
step() {
  local name=$1 limit=$2 began status
  shift 2
  began=$(date +%s)
  timeout "$(left "$limit")" "$@" > "$out/$name.log" 2>&1
  status=$?
  local finished=true note=""
  # timeout's own status, and that of a program that it had to kill.
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then finished=false note=", not finished"; fi
  steps="$steps${steps:+,}{\"step\":\"$name\",\"status\":$status,\"finished\":$finished,\"seconds\":$(($(date +%s) - began))}"
  echo "$name: status $status after $(($(date +%s) - began)) s$note"
  return $status
}

failed=0
step tests 200 "$bin/gpu_kernels_test"
status=$?
if [ $status -eq 77 ]; then
  cat "$out/tests.log"
  exit 77
fi
[ $status -eq 0 ] || { failed=1; grep -E '^\[  FAILED|Failure' "$out/tests.log" | head -20; }

# Where the kernels found a device, the pools find one.
PAGODA_MUST_HAVE_CUDA=1 step pools 60 "$bin/gpu_pools_test" || { failed=1; grep -E '^\[  FAILED|Failure' "$out/pools.log" | head -20; }

# Without cuBLASLt the models' tests are skipped, one by one; PyTorch brings it.
if command -v python3 > /dev/null; then
  for folder in $(python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")))'); do
    [ -n "$(ls "$folder"/libcublasLt.so.1[23] 2> /dev/null)" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
  done
fi
step engine 120 "$bin/gpu_engine_test" || { failed=1; grep -E '^\[  FAILED|Failure' "$out/engine.log" | head -20; }
grep -E '^\[  SKIPPED' "$out/engine.log" | head -1

# The checker makes kernels ten to a hundred times slower: the tests with small shapes.
if sanitizer=$(command -v compute-sanitizer); then
  small='CudaAttentionTest.LengthsAroundBlocksAndTiles:CudaAttentionTest.EveryTypeAndDimension:CudaAttentionTest.Windows'
  for tool in memcheck racecheck; do
    # Errors that it found, tests that failed under it, and a check that did not finish: none of them passed.
    step "$tool" 80 "$sanitizer" --tool $tool --error-exitcode 3 "$bin/gpu_kernels_test" --gtest_filter="$small:CudaCacheTest.*" || failed=1
  done
else
  echo "compute-sanitizer: not here"
fi

# Full standard output is figures; the log has them, and what went wrong.
step engine_bench 60 "$bin/gpu_engine_bench"
# The kernels for any GPU, then those for Hopper alone: what AttentionKernels::kAuto takes is to be the faster.
step bench 130 "$bin/gpu_kernels_bench" gpu_read gpu_mma_sync gpu_decode gpu_prefill gpu_block_copy
step bench-hopper 90 "$bin/gpu_kernels_bench" gpu_hopper
step transfers 40 "$bin/gpu_transfers_bench"
if command -v python3 > /dev/null; then
  step peers 150 python3 -B "$here/peers.py"
else
  echo "peers: no python3"
fi

gpu=$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader 2> /dev/null | head -1)
commit=$(cat "$bin/commit" 2> /dev/null || git -C "$here" rev-parse HEAD 2> /dev/null || echo unknown)
{
  printf '{"date":"%s","gpu":"%s","commit":"%s","steps":[%s],\n"tests":"%s",\n"figures":[\n' \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$gpu" "$commit" "$steps" \
    "$(grep -hE '^\[  (PASSED|FAILED|SKIPPED)' "$out/tests.log" "$out/pools.log" "$out/engine.log" | tr '\n' ';' | tr -d '"')"
  grep -hE '^\{' "$out/bench.log" "$out/bench-hopper.log" "$out/engine_bench.log" "$out/transfers.log" "$out/peers.log" 2> /dev/null | sed '$!s/$/,/'
  printf ']}\n'
} > "$out/results.json"
echo "$out/results.json: $(grep -c '"figure"' "$out/results.json") figures, $(($(date +%s) - started)) s"
exit $failed
