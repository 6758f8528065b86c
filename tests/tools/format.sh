#!/usr/bin/env bash
# Every C++ file is formatted as .clang-format says. Skips (exit 77) without clang-format 14,
# because other versions differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$formatter" ] || ! "$formatter" --version | grep -q 'version 14\.'; then
  echo "SKIPPED: clang-format 14 is not installed"
  exit 77
fi
/usr/bin/python3 -c '
import sys; sys.path.insert(0, "tests/tools")
import tree
files = tree.project_files(tree.ROOT, ".h", ".cc", ".cu", ".cuh")
assert files
print(*files, sep="\0", end="\0")' | xargs -0 "$formatter" --dry-run -Werror
echo "format: every file is formatted"
