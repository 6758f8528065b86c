#!/bin/sh
# with_clang.sh CLANG [CCACHE] GXX ARGUMENT...
# Runs CLANG, by way of ccache where there is one, with the arguments that CMake made for g++. Used by tests/fuzz/CMakeLists.txt.
set -eu
clang=$1
shift
case $1 in
  */ccache)
    # A precompiled header is content like any other; clang stores no time in it below.
    export CCACHE_SLOPPINESS=pch_defines,time_macros
    launcher=$1
    shift 2
    exec "$launcher" "$clang" "$@"
    ;;
esac
shift
exec "$clang" "$@"
