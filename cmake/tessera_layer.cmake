# tessera_layer(NAME HEADERS ... SOURCES ... DEPENDS layer... LINK target...)
# The only way a library is declared: one shared library per layer, so that a
# use of a layer that DEPENDS does not name fails to link.
include(GNUInstallDirs)

# Installed libraries and programs find each other wherever the tree is moved, and
# LibTorch where it was; the link path leaves out what lies in our own tree (.venv).
get_filename_component(torch_libraries ${Torch_DIR}/../../../lib ABSOLUTE)
set(CMAKE_INSTALL_RPATH $ORIGIN $ORIGIN/../${CMAKE_INSTALL_LIBDIR}
  ${torch_libraries})
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Compiles each public header by itself, twice included, as part of the build.
function(tessera_headers_alone target)
  if(NOT TESSERA_BUILD_TESTS OR TESSERA_SANITIZE)
    return()
  endif()
  foreach(header ${ARGN})
    set(source ${PROJECT_BINARY_DIR}/headers_alone/${header}.cpp)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
      "#include <tessera/@header@>\n#include <tessera/@header@>\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(${target}_headers_alone OBJECT ${sources})
  target_link_libraries(${target}_headers_alone PRIVATE
    tessera_warnings ${target})
endfunction()

# Calls inside a library need no table that other libraries could change.
include(CheckLinkerFlag)
check_linker_flag(CXX LINKER:-Bsymbolic-functions TESSERA_HAS_DIRECT_CALLS)
if(TESSERA_HAS_DIRECT_CALLS)
  set(TESSERA_DIRECT_CALLS LINKER:-Bsymbolic-functions)
endif()

function(tessera_layer name)
  cmake_parse_arguments(arg "" "" "HEADERS;SOURCES;DEPENDS;LINK" ${ARGN})
  set(target tessera_${name})
  add_library(${target} SHARED ${arg_SOURCES})
  add_library(tessera::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  tessera_headers_alone(${target} ${arg_HEADERS})
  list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/tessera/)
  target_sources(${target} PUBLIC FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${arg_HEADERS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_options(${target} PRIVATE ${TESSERA_NO_UNDEFINED}
    ${TESSERA_DIRECT_CALLS})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tessera_warnings>)
  list(TRANSFORM arg_DEPENDS PREPEND tessera_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_LINK})
  install(TARGETS ${target} EXPORT TesseraTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${target})
endfunction()
