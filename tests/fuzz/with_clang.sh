#!/bin/sh
# with_clang.sh CLANG [env SETTING... CCACHE] GXX ARGUMENT...
# Runs CLANG, through ccache if there is one, with the arguments that CMake made for g++, without
# those that clang does not know.
# tests/fuzz/CMakeLists.txt uses it.
set -eu
clang=$1
shift
launcher=
while :; do
  case $1 in
    env) shift ;;
    CCACHE_*=*) export "$1"; shift ;;
    */ccache) launcher=$1; shift ;;
    *) break ;;
  esac
done
shift
for argument; do
  shift
  case $argument in
    --param=ggc-*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
case " $* " in
  *" c++-header "*)
    # For a precompiled header, CMake includes the header's sources. clang would use the old
    # precompiled header instead, and find it out of date.
    output=$(printf '%s\n' "$@" | sed -n '/^-o$/{n;p;}')
    rm -f "$output"
    # The header names its folder, so another clone cannot use it: it is not cached.
    launcher=
    ;;
esac
exec $launcher "$clang" "$@"
