# What `cmake --install` puts down: the program, the public headers, the libraries, and the package
# that find_package(segue) reads. Public headers name no other library's types; bench.h and
# measurements.h are the program's own.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS segue RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/segue DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h"
  PATTERN "bench.h" EXCLUDE PATTERN "measurements.h" EXCLUDE)
install(TARGETS segue_api ${api_libraries} EXPORT segue-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/segue)
install(EXPORT segue-targets NAMESPACE segue:: DESTINATION ${package_folder})
configure_package_config_file(cmake/segue-config.cmake.in segue-config.cmake
  INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(segue-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/segue-config.cmake
  ${PROJECT_BINARY_DIR}/segue-config-version.cmake DESTINATION ${package_folder})
