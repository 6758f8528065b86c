# find_package(pagoda): the installed C++ client, as the target `pagoda::client`.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl CONFIG)
# Module mode, because Debian has no protobuf-config.cmake. Before gRPC, which looks for protobuf.
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
include(${CMAKE_CURRENT_LIST_DIR}/pagoda-targets.cmake)
