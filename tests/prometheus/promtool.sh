#!/bin/sh
# Runs promtool with these arguments. Exit status 77, which ctest calls skipped, where there is none.
if ! command -v promtool >/dev/null; then
  echo "SKIPPED: promtool is not installed; it is in Debian's package prometheus"
  exit 77
fi
exec promtool "$@"
