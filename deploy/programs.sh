# shellcheck shell=bash disable=SC2034  # The scripts read `started` and `line`.
# Functions that start programs and watch them, for run.sh and cluster.sh. Source deploy/setup.sh
# first.
#   absolute_paths FOLDER NAME...
#                     in each variable NAME, makes a relative path start at FOLDER
#   is_busy PORT      true if a process listens on this local TCP port
#   start_program LOG COMMAND...
#                     starts COMMAND in the background, with its output in LOG, and sets `started`
#                     to its process id
#   await_line PROCESS LOG PATTERN SECONDS
#                     waits until LOG has a line that matches PATTERN, and sets `line` to it. Gives
#                     1 if the process ended before, and 2 after SECONDS
#   end_program PROCESS [SIGNAL]
#                     sends the signal (default: TERM), waits, and gives the process's exit status

absolute_paths() {
  local from=$1 name
  shift
  for name; do
    case ${!name} in '' | /*) ;; *) printf -v "$name" '%s' "$from/${!name}" ;; esac
  done
}

is_busy() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# In a separate session, so that Ctrl-C reaches only the script. If the script is killed, the kernel
# ends the program.
start_program() {
  local log=$1
  shift
  : >"$log"  # Drops the lines of an earlier process.
  setsid setpriv --pdeathsig TERM "$@" >"$log" 2>&1 &
  started=$!
}

await_line() {
  local deadline=$((SECONDS + $4))
  until line=$(grep -m 1 "$3" "$2"); do
    kill -0 "$1" 2>/dev/null || return 1
    [ $SECONDS -lt $deadline ] || return 2
    sleep 0.05
  done
}

end_program() {
  local status=0
  kill "-${2:-TERM}" "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || status=$?
  return $status
}
