#!/bin/sh
# with_clang.sh CLANG [env SETTING... CCACHE] GXX ARGUMENT...
# Runs CLANG, by way of ccache where there is one, with the arguments that CMake made for g++. Used by tests/fuzz/CMakeLists.txt.
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
case " $* " in
  *" c++-header "*)
    # To make a precompiled header, CMake includes what it is made of; clang would take the old one for that, and find it out of date.
    output=$(printf '%s\n' "$@" | sed -n '/^-o$/{n;p;}')
    rm -f "$output"
    # The header names its folder, so another clone cannot use it: it is not cached.
    launcher=
    ;;
esac
exec $launcher "$clang" "$@"
