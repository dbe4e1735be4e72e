# Finds LibTorch as the targets torch and c10; installed beside
# TesseraConfig.cmake, so that users find it as we do.
#
# Looks in Torch_DIR, CMAKE_PREFIX_PATH (variables, then environment), then in
# the places of TESSERA_TORCH_HINTS, then where CMake looks anyway.
#
# A CUDA build of LibTorch refuses find_package(Torch) on a machine without nvcc,
# though C++ programs need its headers and libraries only: there the two targets
# are made here.

function(tessera_locate_torch)
  string(REPLACE ":" ";" environment "$ENV{CMAKE_PREFIX_PATH}")
  foreach(root "${Torch_DIR}" "$ENV{Torch_DIR}" ${CMAKE_PREFIX_PATH}
      ${environment} ${TESSERA_TORCH_HINTS})
    foreach(place . Torch share/cmake/Torch lib/cmake/Torch)
      if(root AND EXISTS "${root}/${place}/TorchConfig.cmake")
        get_filename_component(dir "${root}/${place}" ABSOLUTE)
        set(Torch_DIR ${dir} CACHE PATH "Where TorchConfig.cmake lies" FORCE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

function(tessera_plain_torch prefix)
  set(lib ${prefix}/lib/lib)
  set(includes ${prefix}/include ${prefix}/include/torch/csrc/api/include)
  add_library(c10 SHARED IMPORTED GLOBAL)
  set_target_properties(c10 PROPERTIES IMPORTED_LOCATION ${lib}c10.so
    INTERFACE_INCLUDE_DIRECTORIES "${includes}")
  add_library(torch_cpu SHARED IMPORTED GLOBAL)
  set_target_properties(torch_cpu PROPERTIES
    IMPORTED_LOCATION ${lib}torch_cpu.so INTERFACE_LINK_LIBRARIES c10)
  add_library(torch INTERFACE IMPORTED GLOBAL)
  # libtorch.so names the device libraries and uses none of their symbols.
  set_target_properties(torch PROPERTIES INTERFACE_LINK_LIBRARIES
    "-Wl,--no-as-needed,${lib}torch.so,--as-needed;torch_cpu"
    # As find_package(Torch) defines them; without them c10d's headers are empty.
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO")
endfunction()

# LibTorch exports functions of the standard library that its builders linked
# statically, all of std::filesystem among them. Bound to those, a program of another
# g++ reads their classes by its own headers: directory iteration jumps to address 0
# (g++ 13, LibTorch 2.11). So the standard library is looked through first.
function(tessera_own_standard_library)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_property(TARGET torch APPEND PROPERTY INTERFACE_LINK_OPTIONS
      "LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state")
  endif()
endfunction()

macro(tessera_find_torch)
  if(NOT TARGET torch)
    tessera_locate_torch()
    set(tessera_torch_plain ${TESSERA_PLAIN_TORCH})
    get_filename_component(tessera_torch_prefix "${Torch_DIR}/../../.." ABSOLUTE)
    if(EXISTS "${tessera_torch_prefix}/lib/libtorch_cuda.so")
      find_package(CUDAToolkit QUIET)
      if(NOT CUDAToolkit_NVCC_EXECUTABLE)
        set(tessera_torch_plain ON)
      endif()
    endif()
    if(tessera_torch_plain)
      include(${Torch_DIR}/TorchConfigVersion.cmake)
      set(Torch_VERSION ${PACKAGE_VERSION})
      unset(PACKAGE_VERSION)
      tessera_plain_torch(${tessera_torch_prefix})
      set(Torch_FOUND TRUE)
    else()
      # It warns of a profiler library that wheels do not carry.
      set(tessera_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
      set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
      find_package(Torch QUIET)
      set(CMAKE_MESSAGE_LOG_LEVEL "${tessera_log_level}")
    endif()
    if(TARGET torch)
      tessera_own_standard_library()
    endif()
  endif()
endmacro()
