# `cmake --install` installs the C++ client: the library `pagoda::client`, the libraries that it
# needs, and their headers. A project outside then uses find_package(pagoda)
# (clients/cpp/README.md). Headers keep their paths, below include/pagoda.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PAGODA_INSTALLED client wire ring manager proto events pools kernels base)
set(PAGODA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/pagoda)
set(PAGODA_HEADERS_DIR ${CMAKE_INSTALL_INCLUDEDIR}/pagoda)

# The headers are C++20, also in a project with another default.
target_compile_features(pagoda_base INTERFACE cxx_std_20)
foreach(name ${PAGODA_INSTALLED})
  set_target_properties(pagoda_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS pagoda_${name} EXPORT pagoda ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${PAGODA_HEADERS_DIR})
endforeach()
install(EXPORT pagoda NAMESPACE pagoda:: FILE pagoda-targets.cmake DESTINATION ${PAGODA_PACKAGE_DIR})
install(DIRECTORY base events kernels manager pools wire DESTINATION ${PAGODA_HEADERS_DIR} FILES_MATCHING PATTERN *.h)
install(DIRECTORY clients/cpp DESTINATION ${PAGODA_HEADERS_DIR}/clients FILES_MATCHING PATTERN *.h)
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/gen/ DESTINATION ${PAGODA_HEADERS_DIR} FILES_MATCHING PATTERN *.h)

# Before version 1.0, a minor version can change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagoda-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/pagoda-config.cmake ${PROJECT_BINARY_DIR}/pagoda-config-version.cmake DESTINATION ${PAGODA_PACKAGE_DIR})
