# Finds LibTorch: Torch_DIR or CMAKE_PREFIX_PATH as given, else the torch of
# python3, else the project's .venv, as scripts/setup.sh does. Under pip that of the
# Python which pip installs for; -I, since pip hides its packages while it builds. Its headers are
# SYSTEM, so that our warnings stay ours.
include(TesseraTorch)
set(pythons python3 ${PROJECT_SOURCE_DIR}/.venv/bin/python)
if(SKBUILD)
  set(pythons ${Python_EXECUTABLE})
  set(python_flags -I)
endif()
foreach(python ${pythons})
  execute_process(
    COMMAND ${python} ${python_flags} ${PROJECT_SOURCE_DIR}/scripts/find_torch.py
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    list(APPEND TESSERA_TORCH_HINTS ${prefix})
  endif()
endforeach()
tessera_find_torch()
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found: run 'make setup' (for pip install: "
    "pip install torch first), or pass "
    "-DTorch_DIR=.../share/cmake/Torch or -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
file(STRINGS ${PROJECT_SOURCE_DIR}/scripts/find_torch.py supported
  REGEX "^SUPPORTED = ")
string(REGEX REPLACE ".*\\(([0-9]+), ([0-9]+)\\), \\(([0-9]+), ([0-9]+)\\).*"
  "\\1.\\2;\\3.\\4" supported "${supported}")
list(GET supported 0 first)
list(GET supported 1 last)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" series "${Torch_VERSION}")
if(series VERSION_LESS first OR series VERSION_GREATER last)
  message(FATAL_ERROR
    "LibTorch ${Torch_VERSION} is not supported: ${first} to ${last} are")
endif()
message(STATUS "LibTorch ${Torch_VERSION}: ${Torch_DIR}")
