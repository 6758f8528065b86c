#!/usr/bin/env bash
# deploy/cluster.sh [--once] [--bin DIR]
# Builds Pagoda, starts a Redis Cluster of six nodes and three daemons with a tiny model on this
# machine, and shows how the daemons share prefixes: through the store and directly, while a Redis
# node fails, without any Redis node, and when the nodes are back. Each step is checked. Then
# everything stays up until Ctrl-C. On a bare Debian 12 the script first installs the packages that
# it needs.
#   --once      stop everything after the demonstration; it takes half a minute
#   --bin DIR   built programs; the script installs and builds nothing
# Exit status 0: every step was as described, and nothing is left. 77: with --bin, a program that
# the script needs is not installed. The configurations and data are in a temporary folder, which
# the script removes. If a step fails, the logs are kept in build/logs/cluster/.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/setup.sh
. deploy/programs.sh

usage() { sed -n '2,13s/^# \{0,1\}//p' deploy/cluster.sh; }

once='' bin=''
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=1 ;;
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "deploy/cluster.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
absolute_paths "$called_from" bin
# The user's own, which are for other daemons and other servers.
unset "${!PAGODA_@}" REDISCLI_AUTH

redis_nodes=6 primaries=3 daemons=3
prompt_tokens=289   # 18 blocks of 16 tokens, and the last token, which is always computed.
shared_tokens=288
fetch_base=2s fetch_bound=2.029  # Seconds for a prompt of 289 tokens: base + 0.289 * 100 ms.
slow_machine=2      # Seconds that a busy machine may need on top.
patience=30         # Seconds to wait for anything.
# Milliseconds until a Redis node gives up another one. It also forgets one that is slower to greet
# it, and then `redis-cli --cluster create` would wait for ever. So at first it is long.
node_timeout=15000

folder=             # The temporary folder.
redis_pids=() redis_ports=() daemon_pids=() peer_ports=() load_pid=
name=cluster-$$     # The start of the caches' names, and so of their shared memory's.

# --- The end ---

# Ends all processes and removes what they leave. Gives 1 if a daemon did not drain well.
stop_everything() {
  local process status=0
  trap '' INT TERM HUP  # A second Ctrl-C does not end the clean-up.
  [ -z "$load_pid" ] || end_program "$load_pid" || true
  load_pid=
  for process in "${daemon_pids[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
  for process in "${daemon_pids[@]}"; do
    end_within "$process" 20 || status=1
  done
  for process in "${redis_pids[@]}"; do end_program "$process" KILL || true; done
  daemon_pids=() redis_pids=()
  return $status
}

# end_within PROCESS SECONDS: waits, then kills. Gives the exit status.
end_within() {
  local deadline=$((SECONDS + $2)) status=0
  while kill -0 "$1" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || kill -KILL "$1" 2>/dev/null || true
    sleep 0.05
  done
  wait "$1" 2>/dev/null || status=$?
  return $status
}

# Also runs after an error and after Ctrl-C.
clean_up() {
  local status=$?
  set +e
  trap - ERR
  stop_everything
  rm -f /dev/shm/pagoda-"$name"-*
  if [ -n "$folder" ]; then
    case $status in
      0 | 77 | 130 | 143) ;;
      *) rm -rf "$log_dir/cluster" && mkdir -p "$log_dir/cluster" && cp "$folder"/*.log "$folder"/*.yaml "$log_dir/cluster" 2>/dev/null ;;
    esac
    rm -rf "$folder"
  fi
  exit "$status"
}

failed() { die "$1" "read the logs in $log_dir/cluster/${2:+; $2}."; }

# expect WHAT GOT WANTED
expect() { [ "$2" = "$3" ] || failed "$1: $2, and not $3, as it should be."; }

# --- Starting ---

need_programs() {
  local program
  for program in redis-server redis-cli setsid setpriv; do
    command -v $program >/dev/null && continue
    say "$program is not installed, so deploy/cluster.sh --bin cannot run. On Debian: apt-get install redis-server redis-tools"
    exit 77
  done
  for program in pagodad pagodactl pagoda-engine; do
    [ -x "$bin/$program" ] || die "There is no program $bin/$program." "name the folder of the built programs with --bin, or leave --bin out to build them."
  done
}

# Sets `port` to the first of $1 free ports in a row. It looks below the ports that the kernel gives
# to clients. Another process can still take one before it is used, so whoever starts a server tries
# again with other ports.
next_port=$((20000 + $$ % 10000))
free_ports() {
  local i found=
  until [ -n "$found" ]; do
    port=$next_port found=1
    next_port=$((next_port < 31000 ? next_port + $1 : 20000))
    for ((i = port; i < port + $1; ++i)); do
      ! is_busy $i || found=
    done
  done
}

# A command that hangs fails after the time.
limited() { timeout --foreground "$@"; }

redis() { limited 5 redis-cli -h 127.0.0.1 -p "$1" "${@:2}" 2>/dev/null; }

# start_redis INDEX PORT: gives 1 if the server ended at its start.
start_redis() {
  local deadline=$((SECONDS + patience)) home=$folder/redis-$1
  mkdir -p "$home"
  start_program "$folder/redis-$1.log" redis-server --bind 127.0.0.1 --port "$2" --dir "$home" \
    --cluster-enabled yes --cluster-port $(($2 + 1)) --cluster-node-timeout $node_timeout --cluster-replica-validity-factor 0 \
    --repl-diskless-sync-delay 0 --save '' --appendonly no --maxmemory 256mb --maxmemory-policy allkeys-lru
  redis_pids[$1]=$started redis_ports[$1]=$2
  until [ "$(redis "$2" ping)" = PONG ] && grep -q 'Ready to accept connections' "$folder/redis-$1.log"; do
    kill -0 "$started" 2>/dev/null || return 1
    [ $SECONDS -lt $deadline ] || failed "Redis node $1 does not answer."
    sleep 0.05
  done
}

# At the first start a node takes other ports if the ones it found are taken in the meantime.
start_redis_nodes() {
  local i try
  for ((i = 1; i <= redis_nodes; ++i)); do
    for try in 1 2 3 4 5; do
      free_ports 2
      start_redis $i "$port" && continue 2
    done
    failed "Redis node $i ended at its start, $try times." "$(tail -n 1 "$folder/redis-$i.log")"
  done
}

# All nodes know each other and serve all slots, and each replica has its primary's data.
await_cluster() {
  local i deadline=$((SECONDS + patience)) ready=
  until [ -n "$ready" ]; do
    ready=1
    for ((i = 1; i <= redis_nodes; ++i)); do
      redis "${redis_ports[i]}" cluster info | grep -q '^cluster_state:ok' || ready=
      ! redis "${redis_ports[i]}" info replication | grep -q '^master_link_status:down' || ready=
      ! redis "${redis_ports[i]}" cluster nodes | grep -q 'fail' || ready=
    done
    [ $SECONDS -lt $deadline ] || failed "The Redis Cluster is not complete."
    [ -n "$ready" ] || sleep 0.1
  done
}

create_cluster() {
  local i addresses=()
  for ((i = 1; i <= redis_nodes; ++i)); do addresses+=("127.0.0.1:${redis_ports[i]}"); done
  print_command redis-cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes
  limited $patience redis-cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes >"$folder/create.log" 2>&1 ||
    failed "redis-cli could not create the cluster in $patience s." "create.log: $(tail -n 1 "$folder/create.log")"
  await_cluster
  node_timeout=1000
  for ((i = 1; i <= redis_nodes; ++i)); do
    [ "$(redis "${redis_ports[i]}" config set cluster-node-timeout $node_timeout)" = OK ] ||
      failed "Redis node $i does not take its cluster-node-timeout."
  done
  redis "${redis_ports[1]}" cluster nodes | sort -k 3,3 -k 2,2 | awk '{ sub(/@.*/, "", $2); sub(/myself,/, "", $3); print "    " $2 "  " ($3 == "master" ? "primary, slots " $9 : "replica") }'
}

# Daemon 3 has no store. So what it fetches can only come from another daemon.
write_config() {
  local store=
  [ "$1" -eq 3 ] || store="store:
  servers: [127.0.0.1:${redis_ports[1]}, 127.0.0.1:${redis_ports[2]}, 127.0.0.1:${redis_ports[3]}]
  # Prompts are written at once, and not only when they have been used twice.
  publish: {min_uses: 0, delay: 20ms}"
  cat >"$folder/daemon-$1.yaml" <<END
cache: {name: $name-$1, tokens_per_block: 16, primary: 2048}
server: {unix_socket: $folder/$1.sock, grpc_address: "", http_address: "", drain_timeout: 2s}
$store
peers:
  address: 127.0.0.1:$2
  sources: ["127.0.0.1:*"]
fetch: {base: $fetch_base, per_thousand_tokens: 100ms}
engine: {model_dir: $PWD/tests/golden/qwen3_tiny, unix_socket: $folder/engine-$1.sock, grpc_address: "", http_address: ""}
END
}

# Starts a daemon; gives 1 if it ended, for example because its port was taken in the meantime.
start_daemon() {
  free_ports 1
  write_config "$1" "$port"
  start_program "$folder/daemon-$1.log" "$bin/pagodad" --config "$folder/daemon-$1.yaml"
  daemon_pids[$1]=$started peer_ports[$1]=$port
  local waited=0
  await_line "$started" "$folder/daemon-$1.log" '^pagodad is ready: ' $patience || waited=$?
  [ $waited -ne 2 ] || failed "Daemon $1 is not ready after $patience s."
  return $waited
}

start_daemons() {
  local i try
  for ((i = 1; i <= daemons; ++i)); do
    for try in 1 2 3; do
      start_daemon $i && break
      [ "$try" -lt 3 ] || failed "Daemon $i ended at its start, $try times." "$(tail -n 1 "$folder/daemon-$i.log")"
    done
    say "    daemon $i: $i.sock, for other daemons 127.0.0.1:${peer_ports[i]}$([ $i -ne 3 ] || printf ', without a store')"
  done
}

# --- Prompts ---

# new_prompt NAME SEED: a file of token ids.
new_prompt() {
  prompt=$1
  awk -v seed="$2" -v n=$prompt_tokens 'BEGIN { srand(seed); for (i = 0; i < n; ++i) print int(rand() * 500) }' >"$folder/$prompt"
}

print_command() { printf '  $ %s\n' "$*"; }

# json FIELD: the value of a field of $answered: a number, a text or a list.
json() { sed -n "s/.*\"$1\":\(\[[^]]*\]\|\"[^\"]*\"\|[^,}]*\).*/\1/p" <<<"$answered" | tr -d '"'; }

# All printed commands work in the temporary folder.
pagodactl() { (cd "$folder" && limited $((2 * patience)) "$bin/pagodactl" "$@"); }

# run_quietly ARGUMENT...: pagodactl, with its JSON in $answered.
run_quietly() {
  answered=$(pagodactl "$@" -o json 2>"$folder/pagodactl.log") || failed "pagodactl $* failed: $(head -n 1 "$folder/pagodactl.log")"
}

# generate DAEMON: sends $prompt to the daemon, and sets answer, reused and first_token.
generate() {
  run_quietly --endpoint "unix:$1.sock" generate --prompt-file "$prompt" --max-new-tokens 8
  answer=$(json tokens) reused=$(json reused_tokens) first_token=$(json time_to_first_token)
  first_token=${first_token%s}
}

# ask DAEMON: the same, in sight.
ask() {
  print_command pagodactl --endpoint "unix:$1.sock" generate --prompt-file "$prompt" --max-new-tokens 8 -o json
  generate "$1"
  printf '    daemon %s: %s of %s tokens reused, first token after %s ms; answer %s\n' \
    "$1" "$reused" $prompt_tokens "$(awk -v s="$first_token" 'BEGIN { printf "%.1f", s * 1000 }')" "$answer"
}

# The keys in the store.
count_keys() { limited 5 redis-cli --cluster info "127.0.0.1:$1" 2>/dev/null | sed -n 's/.*\[OK\] \([0-9]*\) keys.*/\1/p'; }

# await_keys PORT COUNT: the daemon writes in the background.
await_keys() {
  local deadline=$((SECONDS + patience))
  until keys=$(count_keys "$1") && [ "${keys:-0}" -ge "$2" ]; do
    [ $SECONDS -lt $deadline ] || failed "The store has ${keys:-no} keys after $patience s, fewer than $2."
    sleep 0.1
  done
}

# find_share FIRST_SEED: until daemon 2 reuses a prompt that daemon 1 has computed. A prompt that
# daemon 1 computes while it reconnects may lack blocks in the store, so each try has a new prompt.
find_share() {
  local deadline=$((SECONDS + patience)) seed=$1
  while :; do
    new_prompt "prompt-$seed" "$seed"
    generate 1
    local first=$answer
    sleep 0.3
    generate 2
    expect "The answer of daemon 2" "$answer" "$first"
    [ "$reused" -ne $shared_tokens ] || break
    [ $SECONDS -lt $deadline ] || failed "Daemon 2 reuses $reused tokens of daemon 1's prompts after $patience s."
    seed=$((seed + 1))
    sleep 0.5
  done
  print_command pagodactl --endpoint unix:2.sock generate --prompt-file "$prompt" --max-new-tokens 8 -o json
  say "    daemon 2: $reused of $prompt_tokens tokens reused that daemon 1 has computed, and the same answer (prompts tried: $((seed - $1 + 1)))"
}

# --- The demonstration ---

title() { printf '\n%s\n' "$*"; }

share_through_the_store() {
  title "a. A prompt that daemon 1 computes, and daemon 2 reuses through the store:"
  new_prompt prompt-a 1
  ask 1
  expect "The tokens that daemon 1 reused" "$reused" 0
  answer_a=$answer
  await_keys "${redis_ports[1]}" 18
  say "    The store has $keys keys now, one for each block."
  ask 2
  expect "The tokens that daemon 2 reused" "$reused" $shared_tokens
  expect "The answer of daemon 2" "$answer" "$answer_a"
}

# Shows how much of $prompt each daemon has, and sets `matched` to the numbers of tokens.
inspect() {
  local i
  matched=
  for ((i = 1; i <= daemons; ++i)); do
    print_command pagodactl --endpoint "unix:$i.sock" inspect --token-file "$prompt" -o json
    run_quietly --endpoint "unix:$i.sock" inspect --token-file "$prompt"
    matched+="${matched:+ }$(json matched_tokens)"
    say "    daemon $i: ${matched##* } tokens"
  done
}

fetch_from_a_peer() {
  title "b. Daemon 1 computes another prompt. Which daemon has it?"
  new_prompt prompt-b 2
  ask 1
  answer_b=$answer
  inspect
  expect "The tokens that the daemons have" "$matched" "$prompt_tokens 0 0"
  title "c. Daemon 3 has no store. It fetches the prompt from daemon 1:"
  print_command pagodactl --endpoint unix:3.sock fetch --token-file "$prompt" --source "127.0.0.1:${peer_ports[1]}"
  run_quietly --endpoint unix:3.sock fetch --token-file "$prompt" --source "127.0.0.1:${peer_ports[1]}"
  say "    $(json fetched_tokens) tokens fetched, outcome: $(json outcome)"
  expect "The tokens that daemon 3 fetched" "$(json fetched_tokens)" $shared_tokens
  ask 3
  expect "The tokens that daemon 3 reused" "$reused" $shared_tokens
  expect "The answer of daemon 3" "$answer" "$answer_b"
  inspect
  expect "The tokens that the daemons have" "$matched" "$prompt_tokens 0 $prompt_tokens"
}

# Sends new prompts to all daemons until the file `stop` exists. Daemon 3 has no store: it computes
# each answer itself. Leaves the number of requests in the file `requests`.
prompts_without_end() {
  local seed=1000 right daemon
  while [ ! -e "$folder/stop" ]; do
    new_prompt load $((seed++))
    generate 3
    right=$answer
    for daemon in 1 2; do
      generate $daemon
      expect "The answer of daemon $daemon while Redis fails" "$answer" "$right"
    done
    echo $(((seed - 1000) * 3)) >"$folder/requests"
  done
}

# The load ended before it should: it has printed why.
check_load() {
  kill -0 "$load_pid" 2>/dev/null || { load_pid=; failed "A request failed while a Redis node was away."; }
}

# await_requests COUNT: until the daemons have answered so many.
await_requests() {
  local deadline=$((SECONDS + 2 * patience)) count=0
  until [ "$count" -ge "$1" ]; do
    check_load
    [ $SECONDS -lt $deadline ] || failed "The daemons have answered $count requests of $1 after $((2 * patience)) s."
    sleep 0.05
    count=$(cat "$folder/requests" 2>/dev/null) || true
    count=${count:-0}
  done
}

kill_a_primary() {
  title "d. While all daemons answer prompts, one Redis primary is killed:"
  local id replica i deadline=$((SECONDS + patience)) killed=$SECONDS
  id=$(redis "${redis_ports[1]}" cluster myid)
  replica=$(redis "${redis_ports[2]}" cluster nodes | awk -v id="$id" '$4 == id { split($2, part, /[:@]/); print part[2] }')
  [ -n "$replica" ] || failed "The primary on port ${redis_ports[1]} has no replica."
  prompts_without_end &
  load_pid=$!
  await_requests 1
  print_command kill -9 "${redis_pids[1]}"
  end_program "${redis_pids[1]}" KILL || true
  unset 'redis_pids[1]'
  until [ "$(redis "$replica" role | head -n 1)" = master ] && redis "$replica" cluster info | grep -q '^cluster_state:ok'; do
    check_load
    [ $SECONDS -lt $deadline ] || failed "No replica took over after $patience s."
    sleep 0.1
  done
  say "    The replica on port $replica is the primary now, after about $((SECONDS - killed)) s."
  # The daemons also answer after the failover.
  await_requests $(($(cat "$folder/requests") + 6))
  touch "$folder/stop"
  wait "$load_pid" || { load_pid=; failed "A request failed while a Redis node was away."; }
  load_pid=
  say "    $(cat "$folder/requests") requests in this time. None failed, and every answer was the same as that of daemon 3, which has no store."
  find_share 100
}

kill_all_nodes() {
  title "e. All Redis nodes are killed. The daemons compute the prompts themselves:"
  local process first
  print_command kill -9 "${redis_pids[@]}"
  for process in "${redis_pids[@]}"; do end_program "$process" KILL || true; done
  redis_pids=()
  new_prompt prompt-e 3
  ask 3
  first=$answer
  for process in 1 2; do
    ask $process
    expect "The tokens that daemon $process reused" "$reused" 0
    expect "The answer of daemon $process" "$answer" "$first"
    awk -v s="$first_token" -v most=$fetch_bound -v slow=$slow_machine 'BEGIN { exit !(s <= most + slow) }' ||
      failed "Daemon $process waited for a store that is away: $first_token s, and a fetch may take $fetch_bound s."
  done
  say "    A fetch of this prompt may take $fetch_bound s at most (section fetch of the configuration)."
}

start_the_nodes_again() {
  title "f. The Redis nodes start again, empty. The daemons connect to them without a restart:"
  local i
  for ((i = 1; i <= redis_nodes; ++i)); do
    start_redis $i "${redis_ports[i]}" || failed "Redis node $i did not start again." "$(tail -n 1 "$folder/redis-$i.log")"
  done
  await_cluster
  find_share 200
}

# --- Main ---

if [ -z "$bin" ]; then
  all_packages=("${build_packages[@]}" redis-server redis-tools)
  say "Pagoda: building in $build_dir"
  set_up
  build pagodad pagodactl pagoda-engine
  bin=$PWD/$build_dir/bin
fi
need_programs
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
folder=$(mktemp -d "${TMPDIR:-/tmp}/pagoda-cluster.XXXXXX")

say "The configurations, sockets and prompts are in $folder, and pagodactl in $bin."
title "A Redis Cluster: $primaries primaries, and a replica of each."
start_redis_nodes
create_cluster
title "Three daemons with a tiny model, which stand for three machines:"
start_daemons
share_through_the_store
fetch_from_a_peer
kill_a_primary
kill_all_nodes
start_the_nodes_again

if [ -z "$once" ]; then
  interrupted=
  trap 'interrupted=1' INT TERM HUP  # Before anybody is told of Ctrl-C.
  title "Everything was as described. The daemons and the Redis nodes stay up; Ctrl-C ends them. To use them:"
  say "    cd $folder; PATH=$bin:\$PATH"
  say "    pagodactl --endpoint unix:1.sock status"
  until [ -n "$interrupted" ]; do
    sleep 1 || true
    for i in "${!daemon_pids[@]}"; do
      kill -0 "${daemon_pids[i]}" 2>/dev/null || failed "Daemon $i ended by itself."
    done
  done
fi
stop_everything || failed "A daemon did not end with status 0 after SIGTERM."
! compgen -G "/dev/shm/pagoda-$name-*" >/dev/null || failed "A daemon left shared memory."
title "Everything was as described. All processes are stopped, and nothing is left."
