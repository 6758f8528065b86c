#!/usr/bin/env bash
# deploy/run.sh [--once] [--config FILE] [--model DIR] [--bin DIR]
# Builds Pagoda, starts the daemon with a tiny model, and shows it at work. The daemon then stays up
# until Ctrl-C. On a bare Debian 12 the script first installs the packages that it needs.
#   --once          stop the daemon after the report
#   --config FILE   the daemon's configuration; default: deploy/pagodad.yaml
#   --model DIR     replaces the configuration's model: a Hugging Face folder or a .gguf file
#                   (engine/README.md lists the models)
#   --bin DIR       built programs; the script installs and builds nothing
# Exit status 0: everything was shown, and the daemon drained and exited with status 0.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/setup.sh
. deploy/programs.sh

usage() { sed -n '2,10s/^# \{0,1\}//p' deploy/run.sh; }

once='' config='' bin='' model=''
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=1 ;;
    --config) config=${2:?--config needs a file}; shift ;;
    --model) model=${2:?--model needs a folder}; shift ;;
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "deploy/run.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
# Relative paths start where the script was called.
absolute_paths "$called_from" config bin model

daemon=            # The daemon's process id while it runs.
daemon_log=$log_dir/pagodad.log
start_seconds=30

start_daemon() {
  if [ -z "$config" ]; then
    for port in 7070 7071 7074 7076; do
      ! is_busy $port || die "Port $port is in use, perhaps by another pagodad." \
          "stop the process that listens there (ss -ltnp 'sport = :$port' shows it), or give other ports with --config FILE."
    done
    config=deploy/pagodad.yaml
  fi
  start_program "$daemon_log" "$bin/pagodad" --config "$config" ${model:+--model "$model"}
  daemon=$started
  local waited=0
  await_line "$daemon" "$daemon_log" '^pagodad is ready: ' $start_seconds || waited=$?
  case $waited in
    1) daemon_failed "The daemon ended while it started." \
           "correct the error that its last line names. deploy/pagodad.yaml is a good start for a new configuration." ;;
    2) daemon_failed "The daemon was not ready within $start_seconds s." "read its last lines above." ;;
  esac
  ready=$line
  find_addresses
}

# Takes the addresses from the ready line: PAGODA_ENDPOINT for pagodactl, whatever the environment
# had there, http_address, and openai_address of the engine. The line names TCP last, and TCP is
# preferred to the Unix socket.
find_addresses() {
  local daemon_part=${ready%%; engine: *} engine_part='' grpc
  case $ready in *'; engine: '*) engine_part=${ready##*; engine: } ;; esac
  http_address=$(http_of "$daemon_part") openai_address=$(http_of "$engine_part")
  grpc=${daemon_part#*gRPC on } grpc=${grpc%%, *}
  export PAGODA_ENDPOINT=${grpc##* and }
}

# http_of PART: the HTTP address in a part of the ready line, if it has one.
http_of() { sed -n 's/.*HTTP on \([^,]*\).*/\1/p' <<<"$1"; }

# daemon_failed WHAT ADVICE
daemon_failed() {
  tail -n 25 "$daemon_log" >&2
  die "$1 Its full output: $daemon_log" "$2"
}

# Drains the daemon and gives its exit status.
stop_daemon() {
  local process=$daemon
  daemon=
  trap '' INT TERM  # A second Ctrl-C does not end the drain.
  end_program "$process"
}

# A failure leaves no daemon behind.
trap '[ -z "$daemon" ] || stop_daemon || true' EXIT

# show TITLE COMMAND...: prints the command as a person would type it, then runs it.
show() {
  printf '\n%s\n$ %s\n' "$1" "${*:2}"
  "$bin/$2" "${@:3}" || daemon_failed "$2 ended with status $?." "read its message above, and the daemon's messages."
}

show_it_at_work() {
  show "A prompt of 64 tokens, nothing cached yet:" \
       pagodactl generate --random-prompt 64 --seed 1 --max-new-tokens 20
  show "The same prompt again. Its KV blocks are cached, so only the rest is computed." \
       pagodactl generate --random-prompt 64 --seed 1 --max-new-tokens 20
  show "3,000 chats of 4 turns with one system prompt, one batch for each decode step. Their history is larger than the pool:" \
       pagoda-plan workload --conversations 3000 --turns 4 --system-tokens 512 --concurrency 16 --seed 1
  show "The state of the cache now:" pagodactl status
}

where_to_look_next() {
  printf '\nWhere to look next\n'
  [ "$PAGODA_ENDPOINT" = 127.0.0.1:7070 ] || printf '  export PAGODA_ENDPOINT=%s\n' "$PAGODA_ENDPOINT"
  printf '  %s\n' "$bin/pagodactl watch"
  printf '  %-40s %s\n' "" "every change of the cache, as it happens"
  [ -z "$http_address" ] || printf '  %-40s %s\n' "http://$http_address/" "the status page" \
                                                   "http://$http_address/metrics" "the metrics, for Prometheus"
  [ -z "$openai_address" ] || printf '  %-40s %s\n' "http://$openai_address/v1" "the engine, for clients of OpenAI's API"
  printf '  %-40s %s\n' \
         "docs/tour.md" "a five-minute tour" \
         "$daemon_log" "the daemon's log"
}

if [ -z "$bin" ]; then
  all_packages=("${build_packages[@]}" "${tour_packages[@]}")
  say "Pagoda: building in $build_dir"
  set_up
  build pagodad pagodactl pagoda-plan pagoda-engine pagoda_python
  bin=$build_dir/bin
fi
mkdir -p "$log_dir"
start_daemon
say "${ready/is ready:/runs (process $daemon):}."
show_it_at_work
where_to_look_next

if [ -z "$once" ]; then
  interrupted=
  trap 'interrupted=1' INT TERM  # Before anybody is told of Ctrl-C.
  printf '\nThe daemon stays up. Ctrl-C drains and ends it.\n'
  # A trapped signal ends `wait` early.
  wait "$daemon" || true
  [ -n "$interrupted" ] || daemon_failed "The daemon ended by itself." "read its last lines above."
fi
if stop_daemon; then
  printf '\nThe daemon drained and ended without an error.\n'
else
  status=$?
  tail -n 25 "$daemon_log" >&2
  die "The daemon ended with status $status after SIGTERM." "read $daemon_log; this is a bug of pagodad."
fi
