# tessera_layer(NAME HEADERS ... SOURCES ... DEPENDS layer... LINK target...
#               [BATCH n] [PRECOMPILED])
# The only way a library is declared. For development each layer is a shared
# library, so that a use of a layer that DEPENDS does not name fails to link. For a
# release (TESSERA_ONE_LIBRARY) all layers are linked once, into libtessera.so, which
# exports what TESSERA_API marks and nothing else.
# BATCH n: so many sources are compiled together; PRECOMPILED: with LibTorch's
# headers compiled before; see compile_once.cmake.
include(GNUInstallDirs)

# Installed libraries and programs find each other wherever the tree is moved, and
# LibTorch where it was; the link path leaves out what lies in our own tree (.venv).
get_filename_component(torch_libraries ${Torch_DIR}/../../../lib ABSOLUTE)
set(CMAKE_INSTALL_RPATH $ORIGIN $ORIGIN/../${CMAKE_INSTALL_LIBDIR}
  ${torch_libraries})
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Calls inside a library need no table that other libraries could change, and may be
# inlined.
include(CheckLinkerFlag)
check_linker_flag(CXX LINKER:-Bsymbolic-functions TESSERA_HAS_DIRECT_CALLS)
if(TESSERA_HAS_DIRECT_CALLS)
  set(TESSERA_DIRECT_CALLS LINKER:-Bsymbolic-functions)
endif()

# What every shared library of ours is: named by version, whole, installed.
function(tessera_shared_library target)
  set_property(GLOBAL APPEND PROPERTY TESSERA_SHARED_LIBRARIES ${target})
  set(series ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  set(version ${PROJECT_VERSION})
  if(SKBUILD)  # a wheel has no links: a second name would be a second copy
    set(version ${series})
  endif()
  set_target_properties(${target} PROPERTIES VERSION ${version} SOVERSION ${series})
  target_link_options(${target} PRIVATE ${TESSERA_NO_UNDEFINED}
    ${TESSERA_DIRECT_CALLS})
  install(TARGETS ${target} EXPORT TesseraTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

if(TESSERA_ONE_LIBRARY)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
  set(TESSERA_LAYER_KIND STATIC)
  add_library(tessera SHARED)
  set(exports ${PROJECT_SOURCE_DIR}/src/exports.map)
  target_link_options(tessera PRIVATE LINKER:--version-script=${exports})
  set_target_properties(tessera PROPERTIES LINK_DEPENDS ${exports}
    LINKER_LANGUAGE CXX)
  target_compile_features(tessera PUBLIC cxx_std_20)
else()
  set(TESSERA_LAYER_KIND SHARED)
  # Names of files and lines for backtraces and for callgrind (walk_test.py): 3 % of
  # the time to compile.
  set(TESSERA_LINE_TABLES -g1)
  add_library(tessera INTERFACE)
  install(TARGETS tessera EXPORT TesseraTargets)
endif()
add_library(tessera::tessera ALIAS tessera)

# Compiles each public header by itself, twice included, as part of the build.
option(TESSERA_HEADERS_ALONE "Compile each public header alone" OFF)
function(tessera_headers_alone target)
  if(NOT TESSERA_HEADERS_ALONE OR NOT ARGN)
    return()
  endif()
  foreach(header ${ARGN})
    set(source ${PROJECT_BINARY_DIR}/headers_alone/${header}.cpp)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
      "#include <tessera/@header@>\n#include <tessera/@header@>\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(${target}_headers_alone OBJECT ${sources})
  target_compile_options(${target}_headers_alone PRIVATE -O0)
  target_link_libraries(${target}_headers_alone PRIVATE
    tessera_warnings ${target})
endfunction()

function(tessera_layer name)
  cmake_parse_arguments(arg "PRECOMPILED" "BATCH" "HEADERS;SOURCES;DEPENDS;LINK" ${ARGN})
  set(target tessera_${name})
  add_library(${target} ${TESSERA_LAYER_KIND} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
    POSITION_INDEPENDENT_CODE ON)
  tessera_headers_alone(${target} ${arg_HEADERS})
  list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/tessera/)
  set(headers FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
    FILES ${arg_HEADERS})
  target_sources(${target} PUBLIC ${headers})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -fno-semantic-interposition
    ${TESSERA_LINE_TABLES})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tessera_warnings>)
  list(TRANSFORM arg_DEPENDS PREPEND tessera_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_LINK})
  if(arg_BATCH)
    tessera_batches(${target} ${arg_BATCH})
  endif()
  if(arg_PRECOMPILED)
    tessera_precompiled(${target} tessera_precompiled)
  endif()
  if(TESSERA_ONE_LIBRARY)
    add_library(tessera::${name} ALIAS tessera)
    target_sources(tessera PRIVATE $<TARGET_OBJECTS:${target}> PUBLIC ${headers})
    target_link_libraries(tessera PUBLIC ${arg_LINK})
  else()
    add_library(tessera::${name} ALIAS ${target})
    tessera_shared_library(${target})
    target_link_libraries(tessera INTERFACE ${target})
  endif()
endfunction()
