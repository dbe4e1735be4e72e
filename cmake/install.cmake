# cmake --install gives find_package(Tessera) with tessera::tessera.
include(CMakePackageConfigHelpers)

if(TESSERA_ONE_LIBRARY)
  tessera_shared_library(tessera)  # now that all layers have named their headers
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(EXPORT TesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir})
string(REGEX MATCH "^[0-9]+\\.[0-9]+" TESSERA_TORCH_SERIES ${Torch_VERSION})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake
  ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/TesseraTorch.cmake DESTINATION ${package_dir})
