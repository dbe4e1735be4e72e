# What many sources need is compiled once: LibTorch's and the standard library's
# headers as a precompiled header, and sources in batches (CMake's unity builds).
# No source may rely on either: `scripts/check_long.py plain-build` compiles every
# file alone, without them (preset `plain`).
option(TESSERA_UNITY "Compile the sources of a target in batches" ON)

# tessera_batches(TARGET SIZE): consecutive sources of the list are compiled
# together. A batch as large as the work of one core for about ten seconds: larger
# ones save little and make each edit of one of its sources dear.
function(tessera_batches target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TESSERA_UNITY}
    UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# tessera_precompiled_header(TARGET HEADER LINK target...): compiles HEADER as the
# targets that name it by tessera_precompiled() will use it: a precompiled header
# fits only where options agree, position-independent code among them.
function(tessera_precompiled_header name header)
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE -fPIC)
  target_link_libraries(${name} PRIVATE tessera_warnings ${ARGN})
  target_precompile_headers(${name} PRIVATE ${header})
endfunction()

function(tessera_precompiled target name)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# tessera_program(TARGET): compiles a test, an example or a snippet, which include
# torch/torch.h and run little beside kernels, with that header compiled before and
# without the optimisations that take long.
function(tessera_program target)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  if(NOT TARGET tessera_torch_precompiled)
    tessera_precompiled_header(tessera_torch_precompiled
      "<torch/torch.h>;<algorithm>;<functional>;<map>;<string>;<vector>" torch)
    target_compile_options(tessera_torch_precompiled PRIVATE -O1)
  endif()
  tessera_precompiled(${target} tessera_torch_precompiled)
  target_compile_options(${target} PRIVATE -O1)
endfunction()
