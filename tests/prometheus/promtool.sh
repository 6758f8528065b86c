#!/bin/sh
# Runs promtool with these arguments. Without promtool the exit status is 77, which ctest calls
# skipped.
if ! command -v promtool >/dev/null; then
  echo "SKIPPED: promtool is not installed; it is in Debian's package prometheus"
  exit 77
fi
exec promtool "$@"
