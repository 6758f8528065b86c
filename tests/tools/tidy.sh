#!/usr/bin/env bash
# tests/tools/tidy.sh [BASE]
# Runs clang-tidy with the checks of .clang-tidy on the C++ files that changed since the commit
# BASE, in commits and in the working tree. A changed header is checked through the files that
# include it: through all of them if they are few, otherwise through the .cc file of the same name.
#   BASE        by default the merge base with origin/main or main; on that branch itself, and in a
#               clone without it, the parent of HEAD
#   BUILD_DIR   variable: the build folder with compile_commands.json, build/release by default
# Checks at most MOST_FILES files, those with the most changed lines first, and starts none after
# LAST_START seconds. A file that only GCC can compile is left out too. Names every file that it
# leaves out. Exit status 77: it is skipped, because clang-tidy 16, the build or the history is
# missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

MOST_FILES=20
MOST_INCLUDERS=4
LAST_START=400
LAST_END=560
build=${BUILD_DIR:-build/release}
commands=$build/tidy

skip() { echo "SKIPPED: $1"; exit 77; }
run_git() { git -c "safe.directory=$PWD" "$@"; }
exists() { run_git rev-parse --quiet --verify "$1^{commit}" 2>/dev/null; }

default_base() {
  local branch base head
  head=$(exists HEAD)
  for branch in origin/main main; do
    base=$(run_git merge-base HEAD $branch 2>/dev/null) || continue
    [ "$base" = "$head" ] || { echo "$base"; return; }
  done
  # A clone of depth 1 has no parent. Only the working tree's changes are left.
  exists HEAD~1 || echo "$head"
}

# CHANGED_LINES PATH of each C++ file that changed and still exists.
changed_files() {
  {
    run_git diff --numstat --no-renames "$1" -- '*.h' '*.cc' | awk '{ print $1 + $2, $3 }'
    run_git ls-files --others --exclude-standard -- '*.h' '*.cc' | xargs -r wc -l | awk '$2 != "total" { print $1, $2 }'
  } | while read -r lines path; do [ ! -f "$path" ] || echo "$lines $path"; done
}

# CHANGED_LINES PATH of the .cc files to check, the most changed first.
files_to_check() {
  local lines path includers
  while read -r lines path; do
    if [[ $path == *.cc ]]; then
      echo "$lines $path"
      continue
    fi
    mapfile -t includers < <(run_git grep --untracked -lF "#include \"$path\"" -- '*.cc')
    [ ${#includers[@]} -le $MOST_INCLUDERS ] || includers=("${path%.h}.cc")
    for path in "${includers[@]}"; do [ ! -f "$path" ] || echo "$lines $path"; done
  done | sort -k1,1nr -k2 | awk '!seen[$2]++ { print $2 }'
}

# Prints the findings in one file; exit status 1 if there are any. clang-tidy counts the warnings in
# the libraries' headers on standard error.
check() {
  local file=$1 elapsed=$(($(date +%s) - started)) status=0 output
  if [ $elapsed -ge $LAST_START ]; then
    echo "left out, no time: ${file#"$PWD/"}"
    return
  fi
  output=$(timeout $((LAST_END - elapsed)) "$tidy" -p "$commands" --quiet "$file" 2>"$commands/$$.err") || status=$?
  grep -vE ' warnings? generated\.$|^Error while processing' "$commands/$$.err" >&2 || true
  rm -f "$commands/$$.err"
  if [ $status -eq 124 ]; then
    echo "left out, no time: ${file#"$PWD/"}"
  elif [[ $output == *"[clang-diagnostic-error]"* ]]; then
    echo "left out, clang cannot compile it: $(grep -m 1 -F "[clang-diagnostic-error]" <<<"$output")"
  elif [ $status -ne 0 ]; then
    printf '%s\n' "$output"
    return 1
  fi
}

tidy=$(command -v clang-tidy-16) || skip "clang-tidy-16 is not installed"
[ -f "$build/compile_commands.json" ] || skip "$build/compile_commands.json is missing: build first"
exists HEAD >/dev/null || skip "this is no git checkout"
base=$(exists "${1:-$(default_base)}") || { echo "tidy: there is no commit $1" >&2; exit 2; }

mapfile -t wanted < <(changed_files "$base" | files_to_check)
for file in "${wanted[@]:MOST_FILES}"; do echo "left out, more than $MOST_FILES files: $file"; done
mapfile -t files < <(/usr/bin/python3 -B tests/tools/clang_commands.py "$build" "$commands" "${wanted[@]:0:MOST_FILES}")
for file in "${wanted[@]:0:MOST_FILES}"; do
  [[ " ${files[*]} " == *" $PWD/$file "* ]] || echo "left out, not in this build: $file"
done

started=$(date +%s)
export started tidy commands LAST_START LAST_END
export -f check
status=0
[ ${#files[@]} -eq 0 ] || printf '%s\0' "${files[@]}" | xargs -0 -P 2 -I{} bash -c 'check "$1"' bash {} || status=1
echo "tidy: ${#files[@]} files with changes since ${base:0:12}: $([ $status -eq 0 ] && echo "no findings" || echo "see the findings above")"
exit $status
