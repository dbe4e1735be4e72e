# cmake --install gives find_package(Tessera) with tessera::tessera, and tessera.pc for
# programs that are built without CMake; cpack makes a Debian package of the same files.
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

# For pkg-config.
get_filename_component(torch_prefix ${torch_libraries} DIRECTORY)
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
get_property(shared_libraries GLOBAL PROPERTY TESSERA_SHARED_LIBRARIES)
list(TRANSFORM shared_libraries PREPEND -l)
list(JOIN shared_libraries " " pc_libraries)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # why: TesseraTorch.cmake
  set(pc_standard_library -Wl,--no-as-needed,-lstdc++,--as-needed)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/tessera.pc.in
  ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# `make deb`. LibTorch is no Debian package: the libraries find the one that they were
# built with by its path.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # cpack packs what is built
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "Tessera developers <tessera@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6, libstdc++6")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Headers, library, CMake package, pkg-config file and the tessera command.
Built with LibTorch ${Torch_VERSION} in ${torch_prefix}")
include(CPack)
