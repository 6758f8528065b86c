#!/usr/bin/env bash
# tests/tools/wheel_tour.sh
# wheel.sh runs it on a bare Debian, in namespaces of its own; /tour has the wheels. Installs them,
# and runs the programs and a client. apt installs nothing, and there is no network.
set -euo pipefail
cd /tour

fail() { echo "FAILED: $1" >&2; exit 1; }
show() { printf '\n$ %s\n' "$*"; "$@"; }

# The loopback interface of a new network namespace is down. 0x8914 is SIOCSIFFLAGS, 1 is IFF_UP.
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'
if ldconfig -p | grep -E 'grpc|protobuf|dnnl|absl|gomp'; then fail "this system is not bare"; fi

version=$(python3 -c 'import runpy; print(runpy.run_path("version.py")["VERSION"])')
show python3 -m venv venv
show venv/bin/pip install --quiet --no-index --find-links wheels 'pagoda[server]'
PATH=/tour/venv/bin:$PATH
requires=$(python -c 'import importlib.metadata; print(importlib.metadata.requires("pagoda"))')
[[ $requires == *"'pagoda-server==$version; extra == \"server\"'"* ]] ||
  fail "pagoda[server] does not ask for pagoda-server==$version: $requires"
show python -c 'from pagoda import _native; print(_native.__file__)'
show python -c 'import importlib.metadata as metadata
for package in ("pagoda", "pagoda-server"):
    fields = metadata.metadata(package)
    print(package, fields.get("License-Expression") or fields.get("License"))
    assert "Apache-2.0" in (fields.get("License-Expression"), fields.get("License"))
    assert any(file.name == "LICENSE" and "dist-info" in str(file) for file in metadata.files(package))'
for program in pagodad pagodactl pagoda-plan pagoda-engine; do
  [ "$($program --version)" = "$program $version" ] || fail "$program says '$($program --version)'"
done

printf '\n$ pagodad --memory 64MiB &\n'
pagodad --memory 64MiB &
daemon=$!
for _ in {1..100}; do ! pagodactl status >/dev/null 2>&1 || break; sleep 0.1; done
show pagodactl status

# The process that was started is the program. What it has mapped is the wheel's, or glibc's.
program=$(readlink /proc/$daemon/exe)
[[ $program == /tour/venv/*/pagoda_server/bin/pagodad ]] || fail "process $daemon is $program"
mapped=$(awk '$6 ~ /\.so/ { print $6 }' /proc/$daemon/maps | sort -u)
foreign=$(grep -v '^/tour/venv/.*/pagoda_server/lib/' <<<"$mapped" |
          grep -vE '/(ld-linux-x86-64|lib(c|m|resolv|pthread|dl|rt))\.so\.[0-9]+$' || true)
[ -z "$foreign" ] || fail "the daemon loaded $foreign from the system"
printf '\nlibraries: %s from the wheel, glibc alone from the system\n' \
       "$(grep -c pagoda_server <<<"$mapped")"

status=0
show python hashed_pages.py || status=$?
[ $status -eq 137 ] || fail "the client ended with status $status instead of being killed"
found=$(show python hashed_pages.py)
echo "$found"
[[ $found == *"8 of 8 pages were cached"* ]] || fail "the pages are gone"
request=(--model qwen3_tiny --random-prompt 64 --max-new-tokens 20)
show pagoda-engine --cache tiny --open-cache 8MiB "${request[@]}"
again=$(show pagoda-engine --cache tiny "${request[@]}" 2>&1)
echo "$again"
[[ $again == *"64 prompt tokens, 63 reused"* ]] || fail "the engine's prefix is gone"
show pagoda-engine --local --model qwen3_tiny --prompt-tokens 1,2,3 --max-new-tokens 8
show pagodactl caches
show python -c 'import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:7071/").status, "from the status page")'

printf '\n$ kill -TERM %s\n' $daemon
kill -TERM $daemon
status=0
wait $daemon || status=$?
[ $status -eq 0 ] || fail "the daemon ended with status $status after SIGTERM"
glibc=$(ldd --version | sed -n '1s/.* //p')
printf '\nwheel: installed without apt and without a network, served and drained; glibc %s, %s\n' \
       "$glibc" "$(python --version)"
