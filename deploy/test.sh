#!/usr/bin/env bash
# deploy/test.sh [--long | --all] [--engines] [--strict] [-- CTEST_ARGUMENT...]
# Builds Pagoda and runs its tests. On a bare Debian 12 it first installs the packages it needs. At
# the end it prints what the build and the tests cost.
#   --long      runs only the tests that the default run leaves out: the property tests and the
#               simulations with many seeds, the planted faults, the fuzzers, the batteries,
#               clang-tidy on changed files, and every benchmark at its smallest size. It builds
#               their programs first
#   --all       runs the default tests and then those of --long, all at full size. The property
#               tests run 10,000 seeds, the simulations 20,000. Each fuzz target runs 60 s, not 5,
#               with ten times as many hostile connections. The batteries of tests/e2e run at full
#               size. The CPU's kernels are built with sanitizers, and tested. The container image
#               is built, and run by podman and by a systemd in a container, if that is allowed.
#               Both Python wheels are installed and run on a bare Debian 12
#   --engines   runs tests/engines too, with vLLM, SGLang and LMCache from PyPI under build/engines
#               (about 7 GB, some minutes the first time)
#   --          further arguments go to ctest, for example: deploy/test.sh -- -R block_manager
# A test that fails runs once more, because many tests start daemons and wait for them, and a busy
# machine can keep a process waiting for too long. At the end the script names the tests that passed
# only the second time. --strict runs each test once.
# Exit status 0: everything was built and every test passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,22s/^# \{0,1\}//p' deploy/test.sh; }

ctest_arguments=() image_packages=() engines='' presets=(release) repeat=(--repeat until-pass:2)
while [ $# -gt 0 ]; do
  case $1 in
    --long)
      presets=(long)
      export PAGODA_PROPERTY_SEEDS=${PAGODA_PROPERTY_SEEDS:-1000} PAGODA_SIM_SEEDS=${PAGODA_SIM_SEEDS:-2000}
      ;;
    --all)
      presets=(release long)
      export PAGODA_PROPERTY_SEEDS=10000 PAGODA_SIM_SEEDS=20000 PAGODA_IMAGE_TEST=1
      export PAGODA_EXCHANGE_SIM_SEEDS=20000
      export PAGODA_FUZZ_SECONDS=60 PAGODA_WIRE_CONNECTIONS=20000 PAGODA_LONG=1
      image_packages=(podman runc debootstrap python3-venv patchelf)
      ;;
    --engines) engines=yes; image_packages+=(python3-venv unzip) ;;
    --strict) repeat=() ;;
    --help | -h) usage; exit 0 ;;
    --) shift; ctest_arguments=("$@"); break ;;
    *) echo "deploy/test.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

. deploy/setup.sh
all_packages+=("${image_packages[@]}")
say "Pagoda: building and testing in $build_dir"
set_up
install_disassembler
install_valkey
case " ${presets[*]} " in
  *' long '*) build all long_tests ;;
  *) build ;;
esac
if [ -n "$engines" ]; then
  step "the engines" "check that PyPI is reachable and 10 GB are free, then run this again." \
    tests/engines/environment.sh build/engines
  export PAGODA_ENGINES=$PWD/build/engines
fi
case " ${ctest_arguments[*]} " in *' --repeat'*) repeat=() ;; esac  # The user's own.
status=0 logs=()
for preset in "${presets[@]}"; do
  logs+=("$log_dir/tests-$preset.log")
  # With --all the default tests have run as many seeds already.
  without=()
  [ "${#presets[@]}" -eq 1 ] || [ "$preset" != long ] || without=(-E '_deep$')
  # The default tests often wait, so three keep two processors busy. The long ones compute.
  jobs=3
  [ "$preset" != long ] || jobs=2
  ctest --preset "$preset" -j $jobs "${repeat[@]}" "${without[@]}" "${ctest_arguments[@]}" 2>&1 | tee "${logs[-1]}" || status=$?
done
failed=$(sed -nE 's/^ *([0-9]+\/[0-9]+)? *Test +#[0-9]+: +([^ ]+) \.*\*\*\*(Failed|Timeout|Exception).*/\2/p' "${logs[@]}" | sort -u | tr '\n' ' ')
if [ $status -eq 0 ] && [ -n "$failed" ]; then
  say "These tests failed and then passed: ${failed% }. ${logs[*]} has the output of both runs."
fi
/usr/bin/python3 -B tests/tools/costs.py --build "$build_dir" --tests "${logs[@]}"
exit $status
