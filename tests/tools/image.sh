#!/usr/bin/env bash
# tests/tools/image.sh
# Tests the container and systemd files of deploy/, with an operator's commands.
# * Builds deploy/Dockerfile, and runs the image read-only, without capabilities, with Docker's
#   64 MiB of /dev/shm. It serves, its health check tells a hanging daemon from a healthy one, and
#   SIGTERM drains it.
# * A systemd, in a container over that image, installs the unit with the commands of
#   deploy/README.md. The daemon runs hardened, systemd shows its messages, its watchdog replaces a
#   hanging daemon, and `systemctl stop` drains it.
# The tools are Debian's: podman with runc, and debootstrap for the base image instead of
# debian:12-slim, so nothing comes from a registry of images. The results lie in build/image. A
# second run uses the packages and the compiler's cache again. It takes minutes. Needs root. Skips
# (exit 77) without root, without the tools, and unless PAGODA_IMAGE_TEST is set, as
# deploy/test.sh --all does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

skip() { echo "SKIPPED: $1"; exit 77; }
fail() { echo "FAILED: $1" >&2; exit 1; }

[ -n "${PAGODA_IMAGE_TEST:-}" ] || skip "PAGODA_IMAGE_TEST is not set; deploy/test.sh --all sets it"
[ "$(id -u)" -eq 0 ] || skip "images are built as root here"
for tool in podman runc debootstrap; do command -v $tool >/dev/null || skip "$tool is not installed"; done
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces can be made here"

folder=$PWD/build/image
base=docker.io/library/debian:12-slim
image=localhost/pagoda:test
systemd_image=localhost/pagoda:systemd
name=pagoda-image-test-$$
machine=pagoda-systemd-test-$$

# Uses a separate store beside the machine's. There may be no systemd to ask for cgroups and timers.
store=(--root "$folder/storage" --runroot "$folder/run" --storage-driver overlay --cgroup-manager cgroupfs --runtime runc)
podman_here() { podman "${store[@]}" --log-level fatal "$@"; }
build_image() { podman_here build --isolation chroot --pull=never --format docker "$@"; }
trap 'podman_here rm --force --volumes --time 0 --ignore "$name" "$machine" >/dev/null || true' EXIT

# A bare Debian 12 that asks for packages where this machine asks.
make_base() {
  local root=$folder/root
  rm -rf --one-file-system "$root"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root"
  if grep -qs bookworm /etc/apt/sources.list.d/debian.sources; then
    cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
    : >"$root/etc/apt/sources.list"
  fi
  apt-config dump | grep -E '^Acquire::(Check|http|https|Retries)' >"$root/etc/apt/apt.conf.d/99machine" || true
  tar -C "$root" -c . | podman_here import --quiet - $base
  rm -rf --one-file-system "$root"
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local deadline=$((SECONDS + $1))
  until "${@:3}" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || fail "$2 did not come in $1 s"
    sleep 0.2
  done
}

limits=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=4096:4096)

inside() { podman_here exec "$name" "$@"; }
is_healthy() { podman_here healthcheck run "$name"; }

check_image() {
  podman_here run --detach --name "$name" --read-only --read-only-tmpfs=false --volume /run/pagoda --cap-drop ALL \
              --security-opt no-new-privileges --network none --shm-size 64m "${limits[@]}" $image >/dev/null
  wait_for 30 "health" is_healthy
  [ "$(inside id -u):$(inside id -g)" = 10001:10001 ] || fail "the daemon is not the image's user: $(inside id)"
  inside pagodactl status
  # 7071 of every interface: where Prometheus and probes ask.
  inside grep -q '00000000:1B9F 00000000:0000 0A' /proc/net/tcp || fail "nobody listens on 0.0.0.0:7071"

  podman_here kill --signal STOP "$name" >/dev/null
  ! is_healthy || fail "the health check passes while the daemon stands still"
  podman_here kill --signal CONT "$name" >/dev/null
  wait_for 30 "health again" is_healthy

  podman_here stop --time 30 "$name" >/dev/null
  podman_here logs "$name" 2>&1 | tail -n 3
  [ "$(podman_here inspect --format '{{.State.ExitCode}}' "$name")" = 0 ] || fail "SIGTERM did not drain it"
  podman_here images --format 'image: built, served and drained; it has {{.Size}}' $image
}

# The image with systemd, with the programs in the build's folder, and without the results of the
# operator's commands.
build_systemd_image() {
  build_image --tag $systemd_image --file - . <<END
FROM $image
USER 0
RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends systemd systemd-sysv
RUN userdel pagoda; rm -r /run/pagoda /etc/pagoda; mkdir -p /src/build/release/bin; mv /usr/local/bin/pagoda* /src/build/release/bin/; \
    printf '#!/bin/sh\nexec "\$@"\n' > /usr/local/bin/sudo; chmod +x /usr/local/bin/sudo
COPY deploy/ /src/deploy/
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/sbin/init"]
CMD []
END
}

# The first sh block of the section "systemd".
readme_commands() { sed -n '/^## systemd/,/^## /p' deploy/README.md | sed -n '/^```sh$/,/^```$/p' | sed '/^```sh$/d; /^```$/,$d'; }

on_machine() { podman_here exec --workdir /src "$machine" "$@"; }
unit_shows() { on_machine systemctl show --value --property "$1" pagodad; }
answered=  # When the watchdog had its answer.
has_answered() { [ "$(unit_shows WatchdogTimestampMonotonic)" != "$answered" ]; }
has_booted() { on_machine systemctl is-active multi-user.target; }
is_replaced() { [ "$(unit_shows NRestarts)" -ge 1 ] && [ "$(unit_shows ActiveState)" = active ]; }

check_unit() {
  podman_here run --detach --name "$machine" --systemd=always --privileged --network none --shm-size 256m "${limits[@]}" \
              $systemd_image >/dev/null
  wait_for 60 "systemd" has_booted
  on_machine bash -euxc "$(readme_commands)" || { on_machine journalctl --no-pager -u pagodad; fail "the README's commands"; }
  [[ $(unit_shows StatusText) == "serving gRPC on unix:/run/pagoda/pagoda.sock"* ]] || fail "status: $(unit_shows StatusText)"
  on_machine pagodactl --endpoint unix:/run/pagoda/pagoda.sock status >/dev/null
  local process
  process=$(unit_shows MainPID)
  [ "$(on_machine stat -c %U "/proc/$process")" = pagoda ] || fail "it runs as another user"
  on_machine grep -E '^(CapEff|NoNewPrivs|Seccomp):' "/proc/$process/status" | tr -s '\t\n' ' ' |
    grep 'CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2' || fail "it is not hardened"

  # A watchdog that does not wait long: answered twice, then left without an answer.
  on_machine mkdir -p /run/systemd/system/pagodad.service.d
  printf '[Service]\nWatchdogSec=4\n' | podman_here exec --interactive "$machine" tee /run/systemd/system/pagodad.service.d/watchdog.conf
  on_machine systemctl daemon-reload
  on_machine systemctl restart pagodad
  for _ in 1 2; do
    answered=$(unit_shows WatchdogTimestampMonotonic)
    wait_for 10 "an answer to the watchdog" has_answered
  done
  [ "$(unit_shows NRestarts)" = 0 ] || fail "the watchdog ends a healthy daemon"
  on_machine systemctl kill --kill-whom main --signal STOP pagodad
  wait_for 30 "the watchdog's new daemon" is_replaced
  on_machine journalctl --no-pager -u pagodad | grep -F 'Watchdog timeout'

  on_machine systemctl stop pagodad
  [ "$(unit_shows Result) $(unit_shows ExecMainStatus) $(unit_shows StatusText)" = "success 0 drained" ] ||
    fail "systemctl stop: $(unit_shows Result), $(unit_shows ExecMainStatus), $(unit_shows StatusText)"
  [ -z "$(on_machine ls -A /dev/shm)" ] || fail "shared memory is left: $(on_machine ls -A /dev/shm)"
  echo "unit: installed, served, watched over and drained by systemd"
}

mkdir -p "$folder/ccache"
podman_here image exists $base || make_base
build_image --layers --volume "$folder/ccache:/root/.cache/ccache" --file deploy/Dockerfile --tag $image .
check_image
build_systemd_image
check_unit
