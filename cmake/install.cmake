# Installation: `cmake --install`, then find_package(coda) and coda::coda elsewhere.
include(CMakePackageConfigHelpers)

install(TARGETS coda EXPORT codaTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET coda_cli)
  install(TARGETS coda_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/coda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/coda)
install(EXPORT codaTargets NAMESPACE coda:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/codaConfig.cmake.in ${PROJECT_BINARY_DIR}/codaConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/codaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/codaConfig.cmake ${PROJECT_BINARY_DIR}/codaConfigVersion.cmake
  DESTINATION ${package_dir})
