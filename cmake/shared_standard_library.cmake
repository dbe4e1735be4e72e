# Refuses a compiler that links the C++ standard library statically into what it
# makes: LibTorch brings the shared one, and two of them in a process have two sets
# of locales, streams and exceptions, so that operators crash in std::ostream.
if(CMAKE_READELF)
  set(probe ${PROJECT_BINARY_DIR}/shared_standard_library)
  file(WRITE ${probe}/probe.cpp
    "#include <iostream>\nint main() { std::cout << std::endl; }\n")
  try_compile(TESSERA_LINKS ${probe} ${probe}/probe.cpp
    OUTPUT_VARIABLE output COPY_FILE ${probe}/probe)
  if(NOT TESSERA_LINKS)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} cannot build a program:\n${output}")
  endif()
  execute_process(COMMAND ${CMAKE_READELF} -d ${probe}/probe
    OUTPUT_VARIABLE dynamic ERROR_QUIET)
  if(NOT dynamic MATCHES "NEEDED.*(libstdc\\+\\+|libc\\+\\+)")
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} links the C++ standard library "
      "statically, and LibTorch brings the shared one; use another compiler "
      "(CXX=/usr/bin/g++), or take -static-libstdc++ out of its options")
  endif()
endif()
