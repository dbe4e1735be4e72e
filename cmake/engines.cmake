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
