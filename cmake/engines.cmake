# Engines that need a library of their own are files beside tessera's, loaded when
# a program is started with them: what is not used need not be there.
function(tessera_engine_mpi)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(STATUS "MPI was not found: no engine 'mpi'")
    return()
  endif()
  add_library(tessera_mpi MODULE comm/engine/mpi/mpi_network.cpp)
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

function(tessera_engine_gloo)
  add_library(tessera_gloo MODULE comm/engine/c10d/gloo_network.cpp
    comm/launch.cpp)
  target_include_directories(tessera_gloo PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # Declarations of our own where gloo's headers are not installed.
  include(CheckIncludeFileCXX)
  check_include_file_cxx(gloo/config.h TESSERA_HAS_GLOO_HEADERS)
  if(NOT TESSERA_HAS_GLOO_HEADERS)
    target_include_directories(tessera_gloo SYSTEM PRIVATE
      ${PROJECT_SOURCE_DIR}/src/comm/engine/c10d/gloo_declarations)
  endif()
  target_compile_features(tessera_gloo PRIVATE cxx_std_20)
  target_link_libraries(tessera_gloo PRIVATE
    $<BUILD_INTERFACE:tessera_warnings> torch)
  install(TARGETS tessera_gloo LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
