#!/usr/bin/env bash
# deploy/run.sh [--once] [--config FILE] [--model DIR] [--bin DIR]
# Builds Pagoda, starts the daemon with a tiny model, and shows it at work; the daemon then stays up until Ctrl-C. On a bare
# Debian 12 it first installs what it needs.
#   --once          stop the daemon after the report
#   --config FILE   the daemon's configuration; deploy/pagodad.yaml where it is left out. Where it names another grpc_address,
#                   set PAGODA_ENDPOINT to it
#   --model DIR     a Hugging Face folder with a Qwen3 checkpoint, in the place of the configuration's model
#   --bin DIR       programs that are built already; nothing is installed or built
# Exit status 0: everything was shown, and the daemon drained and ended well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/setup.sh

usage() { sed -n '2,10s/^# \{0,1\}//p' deploy/run.sh; }

once= config= bin= model=()
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=1 ;;
    --config) config=${2:?--config needs a file}; shift ;;
    --model) model=(--model "${2:?--model needs a folder}"); shift ;;
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "deploy/run.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

daemon=            # The daemon's process id while it runs.
daemon_log=$log_dir/pagodad.log
start_seconds=30

# True where somebody listens on a local TCP port.
is_busy() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_daemon() {
  if [ -z "$config" ]; then
    for port in 7070 7071; do
      ! is_busy $port || die "Port $port is busy, perhaps by another pagodad." \
          "stop what listens there (ss -ltnp 'sport = :$port' shows it), or give other ports with --config FILE."
    done
    config=deploy/pagodad.yaml
  fi
  # In a session of its own, so that Ctrl-C reaches this script alone.
  setsid "$bin/pagodad" --config "$config" "${model[@]}" >"$daemon_log" 2>&1 &
  daemon=$!
  local deadline=$((SECONDS + start_seconds))
  until "$bin/pagodactl" status >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || daemon_failed "The daemon ended while it started." \
        "correct what its last line names; a configuration of your own may start from deploy/pagodad.yaml."
    [ $SECONDS -lt $deadline ] || daemon_failed "The daemon did not answer within $start_seconds s." \
        "where the configuration names another grpc_address, set PAGODA_ENDPOINT to it."
    sleep 0.1
  done
}

# daemon_failed WHAT ADVICE
daemon_failed() {
  tail -n 25 "$daemon_log" >&2
  die "$1 All that it wrote: $daemon_log" "$2"
}

# Drains the daemon and gives its exit status.
stop_daemon() {
  local process=$daemon status=0
  daemon=
  trap '' INT TERM  # A second Ctrl-C does not cut the drain short.
  kill -TERM "$process" 2>/dev/null || true
  wait "$process" || status=$?
  return $status
}

# A failure leaves no daemon behind.
trap '[ -z "$daemon" ] || stop_daemon || true' EXIT

# show TITLE COMMAND...: the command as a person would type it, then what it does.
show() {
  printf '\n%s\n$ %s\n' "$1" "${*:2}"
  "$bin/$2" "${@:3}" || daemon_failed "$2 ended with status $?." "read its own message above, and the daemon's."
}

show_it_at_work() {
  show "A prompt of 64 tokens, nothing cached yet:" \
       pagodactl generate --random-prompt 64 --seed 1 --max-new-tokens 20
  show "The same prompt again: its KV blocks are still there, so only the rest is computed." \
       pagodactl generate --random-prompt 64 --seed 1 --max-new-tokens 20
  show "1,500 chats of 4 turns with one system prompt, a batch for each decode step. Their history is more than the pool holds:" \
       pagodactl workload --conversations 1500 --turns 4 --system-tokens 512 --concurrency 16 --seed 1
  show "What is in the cache now:" pagodactl status
}

where_to_look_next() {
  printf '\nWhere to look next\n'
  printf '  %-40s %s\n' \
         "$bin/pagodactl watch" "every change of the cache, as it happens" \
         "http://127.0.0.1:7071/metrics" "the numbers, for Prometheus" \
         "README.md" "a five-minute tour, and the reading order of the code" \
         "$daemon_log" "what the daemon says"
}

if [ -z "$bin" ]; then
  say "Pagoda: building in $build_dir"
  set_up
  build pagodad pagodactl pagoda_python_stubs
  bin=$build_dir/bin
fi
mkdir -p "$log_dir"
start_daemon
say "pagodad runs (process $daemon), with gRPC on 127.0.0.1:7070 and HTTP on 127.0.0.1:7071."
show_it_at_work
where_to_look_next

if [ -z "$once" ]; then
  printf '\nThe daemon stays up. Ctrl-C drains it and ends.\n'
  trap 'interrupted=1' INT TERM
  interrupted=
  # `wait` returns early when a trapped signal comes.
  wait "$daemon" || true
  [ -n "$interrupted" ] || daemon_failed "The daemon ended by itself." "read its last lines above."
fi
if stop_daemon; then
  printf '\nThe daemon drained and ended well.\n'
else
  status=$?
  tail -n 25 "$daemon_log" >&2
  die "The daemon ended with status $status after SIGTERM." "look at $daemon_log; this is a fault of pagodad."
fi
