# Engines that need a library of their own are files beside tessera's, loaded when
# a program is started with them: what is not used need not be there.
function(tessera_engine_mpi)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(STATUS "MPI was not found: no engine 'mpi'")
    return()
  endif()
  add_library(tessera_mpi MODULE comm/engine/mpi/mpi_transport.cpp
    comm/engine/mpi/failed_ranks.cpp
    comm/engine/process/peer_events.cpp)
  target_include_directories(tessera_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(tessera_mpi SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
  target_compile_features(tessera_mpi PRIVATE cxx_std_20)
  # The C++ bindings of MPI are not used and do not compile cleanly.
  target_compile_definitions(tessera_mpi PRIVATE OMPI_SKIP_MPICXX
    MPICH_SKIP_MPICXX)
  target_link_libraries(tessera_mpi PRIVATE
    $<BUILD_INTERFACE:tessera_warnings> ${MPI_CXX_LIBRARIES})
  install(TARGETS tessera_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# Sets `sources` to the c10d engine's files, or to their stand-in where LibTorch was
# built without Gloo.
function(tessera_engine_c10d sources)
  include(CheckCXXSourceCompiles)
  find_library(TESSERA_TORCH_CPU torch_cpu REQUIRED HINTS ${torch_libraries})
  mark_as_advanced(TESSERA_TORCH_CPU)
  set(CMAKE_REQUIRED_LIBRARIES ${TESSERA_TORCH_CPU})
  set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,--unresolved-symbols=ignore-in-shared-libs)
  check_cxx_source_compiles(
    "namespace c10d { bool getDefaultGlooLazyInit(); }
     int main() { return c10d::getDefaultGlooLazyInit(); }"
    TESSERA_HAS_C10D)
  if(NOT TESSERA_HAS_C10D)
    message(STATUS "LibTorch has no Gloo: no engine 'c10d'")
    set(${sources} comm/engine/c10d/without_c10d.cpp PARENT_SCOPE)
    return()
  endif()
  list(TRANSFORM TESSERA_C10D_FILES PREPEND comm/engine/c10d/)
  set(${sources} ${TESSERA_C10D_FILES} PARENT_SCOPE)
endfunction()

# Lets the files of a target include c10d's headers, with declarations of our own
# where gloo's headers are not installed.
function(tessera_uses_c10d target)
  include(CheckIncludeFileCXX)
  check_include_file_cxx(gloo/config.h TESSERA_HAS_GLOO_HEADERS)
  if(NOT TESSERA_HAS_GLOO_HEADERS)
    target_include_directories(${target} PRIVATE
      ${PROJECT_SOURCE_DIR}/src/comm/engine/c10d/gloo_declarations)
  endif()
endfunction()
