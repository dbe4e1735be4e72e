# Finds LibTorch 2.11 to 2.14: Torch_DIR or CMAKE_PREFIX_PATH as given, else the
# project's .venv, else a torch that python3 can import. Includes its headers as
# SYSTEM, so that our warnings stay ours.
if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH)
  foreach(python ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE
      RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      list(APPEND CMAKE_PREFIX_PATH ${prefix})
      break()
    endif()
  endforeach()
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found: run 'make setup', or pass "
    "-DTorch_DIR=.../share/cmake/Torch or -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
if(Torch_VERSION VERSION_LESS 2.11 OR Torch_VERSION VERSION_GREATER_EQUAL 2.15)
  message(FATAL_ERROR "LibTorch ${Torch_VERSION} is not supported: 2.11 to 2.14 are")
endif()
# find_package(Torch) appends its flags globally; they hold no warning of ours.
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} ${TORCH_CXX_FLAGS}")
