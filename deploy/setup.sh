# Common functions. The other scripts and the Dockerfile source this file from the repository's
# root.
#   install_packages       installs the missing ones of ${all_packages[@]}. A script that needs
#                          others sets the list itself
#   install_disassembler   if nvcc is there, installs two packages of PyPI for the test that reads
#                          the GPU kernels' machine code
#   install_valkey         unpacks Valkey 8, for the tests of stores
#   install_xgrammar       unpacks the sources of XGrammar, for the engine's structured output
#   set_up                 installs missing Debian packages and XGrammar, and configures
#                          build/release; quick if nothing is missing
#   build [TARGET...]      builds the targets, or everything; quick if nothing changed
#   step NAME ADVICE COMMAND...
#                          runs COMMAND with its output in build/logs/NAME.log, and prints one line
#                          with the time taken. If COMMAND fails, prints the log's end and ADVICE,
#                          and ends the script
# Needs bash, and apt if packages are missing.

build_dir=build/release
log_dir=build/logs

# The packages that Pagoda needs, and their use.
compiler_packages=(g++ cmake ninja-build ccache mold)                          # C++20, presets, fast rebuilds
service_packages=(libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libc-ares-dev
                  prometheus-cpp-dev libyaml-cpp-dev
                  libsystemd-dev libzmq3-dev cppzmq-dev
                  libmsgpack-cxx-dev zlib1g-dev)                            # gRPC, metrics over HTTP, configuration, sd_notify, vLLM's events
core_packages=(libabsl-dev libxxhash-dev libssl-dev nlohmann-json3-dev
               libcli11-dev liburing-dev)                                   # containers, block hash, SHA-256 and TLS, checkpoints, flags, disk I/O
engine_packages=(libdnnl-dev libicu-dev python3-pip)                        # matrix products on the CPU, text; XGrammar is only on PyPI
unit_test_packages=(libgtest-dev libgmock-dev)                              # CMake always asks for them
tour_packages=(python3 python3-dev python3-grpcio python3-protobuf
               python3-numpy procps)                                        # the Python client, its extension, and docs/tour.md
docs_packages=(python3-sphinx python3-myst-parser furo)                     # the manual
test_packages=("${tour_packages[@]}" clang-format-14 python3-pytest python3-yaml
               python3-kubernetes python3-setuptools python3-wheel openssl  # format check, end-to-end tests, manifests, a wheel, certificates
               python3-zmq python3-msgpack python3-pip                      # a router's side of vLLM's events; msgspec is only on PyPI
               clang-16 libclang-rt-16-dev                                  # fuzzing
               clang-tidy-16                                                # checks of changed C++ files
               prometheus                                                   # promtool, and a Prometheus that scrapes a daemon in a test
               haproxy                                                      # the proxy of deploy/proxy before a daemon
               redis-server redis-tools libhiredis-dev                      # stores on real servers; yardsticks of store_bench
               "${docs_packages[@]}"                                        # a test builds the manual
               fio                                                          # yardstick of disk_bench
               chromium chromium-driver python3-selenium)                   # the status page in a browser
build_packages=("${compiler_packages[@]}" "${service_packages[@]}" "${core_packages[@]}" "${engine_packages[@]}"
                "${unit_test_packages[@]}")                                 # the container image needs only these
all_packages=("${build_packages[@]}" "${test_packages[@]}")

trap 'echo "$0: line $LINENO: the command failed: $BASH_COMMAND" >&2' ERR

say() { printf '%s\n' "$*"; }

# die MESSAGE [ADVICE]
die() {
  printf '\n%s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'What to do: %s\n' "$2" >&2
  exit 1
}

step() {
  local name=$1 advice=$2 start=$SECONDS
  local log=$log_dir/${name// /-}.log
  shift 2
  mkdir -p "$log_dir"
  printf '  %-22s ' "$name"
  if "$@" >"$log" 2>&1; then
    printf '%ds\n' $((SECONDS - start))
  else
    printf 'FAILED\n\n' >&2
    tail -n 25 "$log" >&2
    die "\"$name\" failed. Its full output: $log" "$advice"
  fi
}

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${all_packages[@]}" 2>/dev/null |
              awk '$2 == "installed" { print $1 }' || true)
  printf '%s\n' "${all_packages[@]}" | grep -vxF "$installed" || true
}

install_packages() {
  local missing as_root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    die "This system has no apt, so this script cannot check or install its packages." \
        "use Debian 12, for example in a container. On another system, install the contents of these Debian packages, then run \
'cmake --preset release && cmake --build --preset release': ${all_packages[*]}"
  fi
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "Packages are missing, you are not root, and there is no sudo." \
        "as root, run apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${#missing[@]} Debian packages:"
  printf '%s ' "${missing[@]}" | fold -s -w 100 | sed 's/^/    /'
  printf '\n'
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  step "package lists" "check the network and /etc/apt/sources.list*, then run this again." "${as_root[@]}" update
  step "packages" "read the log. The package names are those of Debian 12 (bookworm)." \
       "${as_root[@]}" install --no-install-recommends "${missing[@]}"
}

# With nvcc the build has kernels for GPUs, and a test reads their machine code
# (tests/gpu/check_code.py). Not every installation of CUDA's toolkit has the disassembler. PyPI has
# it as two packages of 6 MB together. Without them the test is skipped.
install_disassembler() {
  local tools=build/cuda-tools
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || return 0
  ! compgen -G "$tools/nvidia/*/bin/nvdisasm" >/dev/null || return 0
  # One attempt for each build folder, because an attempt without a network takes its whole time
  # limit.
  [ ! -e $tools/absent ] || return 0
  mkdir -p $log_dir $tools
  say "  CUDA's disassembler from PyPI, 6 MB"
  python3 -m pip install -q --disable-pip-version-check --no-deps --retries 1 --timeout 10 --target $tools \
    nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37 >$log_dir/cuda-tools.log 2>&1 && return 0
  touch $tools/absent
  say "  It cannot be installed ($log_dir/cuda-tools.log), so kernels_cuda_code will be skipped. Remove $tools to try again."
}

# Debian 12 has Valkey only in its backports. Without it the tests of stores run on Redis alone.
install_valkey() {
  local folder=build/valkey
  # One attempt for each build folder, as above.
  [ ! -x $folder/usr/bin/valkey-server ] && [ ! -e $folder/absent ] || return 0
  mkdir -p $log_dir $folder
  say "  Valkey 8 from Debian's backports, 2 MB"
  tests/pools/store/valkey.sh $folder >$log_dir/valkey.log 2>&1 && return 0
  touch $folder/absent
  say "  It cannot be unpacked ($log_dir/valkey.log), so redis_store_test runs on Redis alone. Remove $folder to try again."
}

# Without it the engine is built without structured output, and refuses requests for it.
install_xgrammar() {
  local folder=build/xgrammar
  # One attempt for each build folder, as above.
  [ ! -e $folder/LICENSE ] && [ ! -e $folder/absent ] || return 0
  mkdir -p $log_dir $folder
  say "  The sources of XGrammar from PyPI, 3 MB"
  if deploy/xgrammar.sh $folder >$log_dir/xgrammar.log 2>&1; then
    rm -f $build_dir/packages.txt  # Configures again.
    return 0
  fi
  touch $folder/absent
  say "  They cannot be unpacked ($log_dir/xgrammar.log), so the engine has no structured output. Remove $folder to try again."
}

set_up() {
  local packages=$build_dir/packages.txt
  install_packages
  install_xgrammar
  # If a CMakeLists.txt changes, ninja configures again by itself. After a script with another list
  # of packages, this configures again: the packages can have tools that were not found then.
  if [ ! -f $build_dir/build.ninja ] || [ "${all_packages[*]}" != "$(cat "$packages" 2>/dev/null)" ]; then
    step "configure" "read the log. If the build folder comes from another machine, remove it: rm -r $build_dir" \
         cmake --preset release
    printf '%s\n' "${all_packages[*]}" >"$packages"
  fi
}

# Shows ninja's progress "[n/m]": in place on a terminal, otherwise each 10 %. Copies every line to
# standard output.
show_progress() {
  local line done total shown=0
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    if [ -t 4 ]; then
      printf '\r  %-22s [%d/%d] ' build "$done" "$total" >&4
    elif [ $((done * 10 / total)) -gt $shown ] && [ "$total" -ge 20 ]; then
      shown=$((done * 10 / total))
      printf '%d%% ' $((shown * 10)) >&4
    fi
  done
  [ ! -t 4 ] || printf '\r  %-22s %-14s\r  %-22s ' build "" build >&4
}

run_ninja() {
  set -o pipefail
  NINJA_STATUS='[%f/%t] ' ninja -C $build_dir "$@" 2>&1 | show_progress
}

# The lock keeps two scripts from building in the same folder at the same time.
build() {
  mkdir -p build
  exec 4>&1 5>build/.lock
  flock 5
  step "build" "read the log's first error. If the build folder is damaged, remove it: rm -r $build_dir" run_ninja "$@"
  exec 4>&- 5>&-
}
