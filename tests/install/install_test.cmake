# Installs BUILD, moves the tree elsewhere, then builds and runs consumer/ with it.
set(consumer ${CMAKE_CURRENT_LIST_DIR}/consumer)
set(prefix ${WORK}/moved/prefix)
unset(ENV{CMAKE_PREFIX_PATH})
unset(ENV{Torch_DIR})
unset(ENV{LD_LIBRARY_PATH})

function(run_or_fail)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run_or_fail(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
file(MAKE_DIRECTORY ${WORK}/moved)
file(RENAME ${WORK}/prefix ${prefix})

# Every public header is installed, and nothing else.
file(GLOB_RECURSE ours RELATIVE ${SOURCE}/include ${SOURCE}/include/*)
file(GLOB_RECURSE theirs RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT ours STREQUAL theirs)
  message(FATAL_ERROR "HEADERS of a tessera_layer() are not those of include/:\n"
    "in include/: ${ours}\ninstalled:   ${theirs}")
endif()

# The installed package knows the LibTorch that it was built with.
set(configure ${CMAKE_COMMAND} -S ${consumer} -G Ninja
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_FLAGS=${FLAGS}
  -DCMAKE_PREFIX_PATH=${prefix})
run_or_fail(${configure} -B ${WORK}/hinted -DTESSERA_PLAIN_TORCH=${PLAIN_TORCH})
run_or_fail(${configure} -B ${WORK}/given -DTorch_DIR=${TORCH}
  -DTESSERA_PLAIN_TORCH=${PLAIN_TORCH})
run_or_fail(${CMAKE_COMMAND} --build ${WORK}/given)
run_or_fail(${WORK}/given/consumer)
message("${output}")
if(NOT output MATCHES "consumer: ok")
  message(FATAL_ERROR "the consumer did not say that it is well")
endif()

# A program that is built without CMake.
find_program(pkg_config pkg-config)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/lib/pkgconfig)
  run_or_fail(${pkg_config} --validate tessera)
  run_or_fail(${pkg_config} --cflags tessera)
  separate_arguments(cflags UNIX_COMMAND "${output}")
  run_or_fail(${pkg_config} --libs tessera)
  separate_arguments(libs UNIX_COMMAND "${output}")
  separate_arguments(flags UNIX_COMMAND "${FLAGS}")
  run_or_fail(${LAUNCHER} ${COMPILER} ${flags} ${cflags} -O0
    -c ${consumer}/without_cmake.cpp -o ${WORK}/without_cmake.o)
  run_or_fail(${COMPILER} ${flags} ${WORK}/without_cmake.o ${libs}
    -o ${WORK}/without_cmake)
  run_or_fail(${WORK}/without_cmake)
  message("${output}")
  if(NOT output MATCHES "sum 12")
    message(FATAL_ERROR "pkg-config's program did not print its sum")
  endif()
else()
  message("no pkg-config: its program is left out")
endif()

# So it does where find_package(Torch) refuses: a CUDA build without nvcc.
run_or_fail(${configure} -B ${WORK}/plain -DTorch_DIR=${TORCH}
  -DTESSERA_PLAIN_TORCH=ON)
run_or_fail(${CMAKE_COMMAND} --build ${WORK}/plain)
run_or_fail(${WORK}/plain/consumer)

# Another minor release of LibTorch is refused by name.
file(MAKE_DIRECTORY ${WORK}/other/share/cmake/Torch)
file(WRITE ${WORK}/other/share/cmake/Torch/TorchConfig.cmake
  "add_library(torch INTERFACE IMPORTED)\nadd_library(c10 INTERFACE IMPORTED)\n")
file(WRITE ${WORK}/other/share/cmake/Torch/TorchConfigVersion.cmake
  "set(PACKAGE_VERSION 2.99.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
execute_process(COMMAND ${configure} -B ${WORK}/refused
  -DTorch_DIR=${WORK}/other/share/cmake/Torch
  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(NOT failed OR NOT output MATCHES "2\\.99\\.0 was found")
  message(FATAL_ERROR "another LibTorch was not refused:\n${output}")
endif()

# Installed programs start from where they now are.
if(EXISTS ${prefix}/bin/tessera)
  run_or_fail(${prefix}/bin/tessera --help)
  run_or_fail(${prefix}/bin/tessera ops aten::mm)  # in tessera-torch
endif()
