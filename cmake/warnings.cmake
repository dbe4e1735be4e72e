# Warnings of the house, for our own targets; errors only with TESSERA_WERROR.
add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch-enum -Wundef
  -Wimplicit-fallthrough
  # GCC 12 sees overlapping copies in std::string + std::string that are none.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${TESSERA_WERROR}>:-Werror>)

# Sanitizers: TESSERA_SANITIZE=address (with undefined) or thread.
if(TESSERA_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr
    -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(TESSERA_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
elseif(TESSERA_SANITIZE)
  message(FATAL_ERROR "TESSERA_SANITIZE is address or thread, not '${TESSERA_SANITIZE}'")
endif()
if(NOT TESSERA_SANITIZE)
  set(TESSERA_NO_UNDEFINED -Wl,-z,defs)
endif()
