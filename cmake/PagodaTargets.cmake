# pagoda_library(NAME [ALONE] SRCS ... [DEPS ...] [PRIVATE_DEPS ...]): a static library
# `pagoda_NAME` with the alias `pagoda::NAME`. ALONE: its files are compiled one by one (see
# pagoda_batch). Includes start at the repository's root: #include "manager/block_manager.h".
# -Wno-missing-field-initializers: designated initialisers leave fields at their defaults.
# -Wno-maybe-uninitialized: GCC 12 at -O3 wrongly reports strings in temporaries as uninitialised.
set(PAGODA_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
                    -Wno-missing-field-initializers -Wno-maybe-uninitialized)

# nvcc's warnings are errors too. There is no -Wpedantic, because the code that nvcc generates is
# not pedantic C++. --expt-relaxed-constexpr: kernels call constexpr functions.
set(PAGODA_CUDA_WARNINGS -Werror=all-warnings --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers)

# Compiles PAGODA_BATCH files of a target as one (CMake's unity build). Headers and templates take
# most of a file's time, and neighbours need the same ones, so a first build takes half as long.
# The files of a target then share their anonymous namespaces: two files that declare the same name
# do not compile. Each file still includes what it uses. PAGODA_UNITY=OFF compiles one by one.
option(PAGODA_UNITY "Compile several files of a target together" ON)
set(PAGODA_BATCH 16 CACHE STRING "With PAGODA_UNITY: how many files are compiled together")
function(pagoda_batch target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PAGODA_UNITY} UNITY_BUILD_BATCH_SIZE ${PAGODA_BATCH})
  if(PAGODA_UNITY)
    # GCC takes the .cc files for headers here. A class of a .cc may use its anonymous namespace.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(pagoda_library name)
  cmake_parse_arguments(ARG "ALONE" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(pagoda_${name} STATIC ${ARG_SRCS})
  add_library(pagoda::${name} ALIAS pagoda_${name})
  target_include_directories(pagoda_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(pagoda_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(NOT ARG_ALONE)
    pagoda_batch(pagoda_${name})
  endif()
  target_compile_options(pagoda_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PAGODA_WARNINGS}>
                                                $<$<COMPILE_LANGUAGE:CUDA>:${PAGODA_CUDA_WARNINGS}>)
endfunction()

# pagoda_binary(NAME SRCS ... DEPS ...): an executable in build/<preset>/bin.
function(pagoda_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PAGODA_WARNINGS}>)
endfunction()

# pagoda_test(NAME [COMPUTES] [GRPC] SRCS ... [APART ...] DEPS ... [TIMEOUT SECONDS]): one
# GoogleTest binary, one ctest entry. Tests are compiled with -O1: compiling them takes longer than
# running them.
# COMPUTES: the test's own code runs long, so it is optimised like the code under test.
# GRPC: its files use gRPC, whose headers are precompiled then (see pagoda_precompile).
# APART: sources that are compiled one by one, because they declare names that other sources of the
# test declare too (see pagoda_batch).
function(pagoda_test name)
  cmake_parse_arguments(ARG "COMPUTES;GRPC" "TIMEOUT" "SRCS;APART;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  pagoda_binary(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  pagoda_batch(${name})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # A local name may be that of a constant in the batch, but not that of another local.
  target_compile_options(
    ${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
                    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow=local>)
  if(NOT ARG_COMPUTES)
    target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O1>)
  endif()
  if(ARG_GRPC)
    pagoda_precompile(${name} core grpc test)
  else()
    pagoda_precompile(${name} core test)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()

# pagoda_long([TARGETS ...] [TESTS ...]): parts of `deploy/test.sh --long`. The default build leaves
# the targets out, and the test preset "release" the tests.
add_custom_target(long_tests)
function(pagoda_long)
  cmake_parse_arguments(ARG "" "" "TARGETS;TESTS" ${ARGN})
  foreach(target ${ARG_TARGETS})
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    add_dependencies(long_tests ${target})
  endforeach()
  if(ARG_TESTS)
    set_property(TEST ${ARG_TESTS} APPEND PROPERTY LABELS long)
  endif()
endfunction()

# pagoda_deep(TEST): the test TEST_deep of `deploy/test.sh --long` runs the program of TEST with as
# many seeds as that script asks for.
function(pagoda_deep test)
  get_test_property(${test} TIMEOUT timeout)
  add_test(NAME ${test}_deep COMMAND ${test})
  set_tests_properties(${test}_deep PROPERTIES TIMEOUT ${timeout} PROCESSORS 2)
  pagoda_long(TESTS ${test}_deep)
endfunction()

# pagoda_precompile(TARGET KIND...): compiles the headers of these kinds once, and includes them
# first in all files of the target. Libraries with the same kinds share the result, and so do
# programs. A file still includes every header that it needs. The headers are those of libraries and
# generated ones, because the project's own headers change too often.
set(PAGODA_PRECOMPILED_core
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <deque> <functional> <map> <memory> <mutex> <optional> <string>
  <thread> <utility> <variant> <vector>
  <absl/container/btree_map.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/container/inlined_vector.h>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h>
  <absl/strings/str_split.h> <absl/synchronization/mutex.h> <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)
set(PAGODA_PRECOMPILED_grpc
  <grpcpp/grpcpp.h> <grpcpp/support/server_callback.h> <pagoda/v1/admin.grpc.pb.h> <pagoda/v1/cache.grpc.pb.h>)
set(PAGODA_PRECOMPILED_flags <CLI/CLI.hpp>)
set(PAGODA_PRECOMPILED_json <nlohmann/json.hpp>)
set(PAGODA_PRECOMPILED_test <gmock/gmock.h> <gtest/gtest.h>)
function(pagoda_precompile target)
  # GCC 12 crashes if a file with another optimisation level reads the result.
  get_target_property(type ${target} TYPE)
  get_target_property(options ${target} COMPILE_OPTIONS)
  string(JOIN _ shared ${type} ${ARGN})
  if(options MATCHES "-O1")
    string(APPEND shared _O1)
  endif()
  get_property(owner GLOBAL PROPERTY PAGODA_PRECOMPILED_BY_${shared})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    set(headers)
    foreach(kind ${ARGN})
      list(APPEND headers ${PAGODA_PRECOMPILED_${kind}})
    endforeach()
    target_precompile_headers(${target} PRIVATE ${headers})
    set_property(GLOBAL PROPERTY PAGODA_PRECOMPILED_BY_${shared} ${target})
  endif()
  # ccache needs this option to keep files that begin with such a header.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()
