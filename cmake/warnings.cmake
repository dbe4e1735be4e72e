# Warnings of the house, for our own targets. TESSERA_WERROR makes them errors
# with the compilers that the project is tested with; newer ones know warnings
# that nobody has seen yet.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(oldest 12)
  set(tested_until 13)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(oldest 14)
  set(tested_until 15)
endif()
if(DEFINED oldest AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} "
    "is too old: Tessera needs GCC 12 or Clang 14")
endif()
add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch-enum -Wundef
  -Wimplicit-fallthrough
  # GCC 12 sees overlapping copies in std::string + std::string that are none.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # In a batch of sources, what one keeps to itself looks like a header's, and GCC
  # inlines so much that it loses track of sizes and of what was initialised. The
  # preset `plain`, which has no batches, has these warnings.
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${TESSERA_UNITY}>>:-Wno-subobject-linkage;-Wno-maybe-uninitialized;-Wno-stringop-overread;-Wno-stringop-overflow;-Wno-array-bounds>"
  # Instrumented code loses track of what std::optional initialised.
  $<$<BOOL:${TESSERA_SANITIZE}>:-Wno-maybe-uninitialized>)
if(TESSERA_WERROR AND DEFINED oldest
    AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS tested_until)
  target_compile_options(tessera_warnings INTERFACE -Werror)
endif()

# Sanitizers: TESSERA_SANITIZE=address (with undefined) or thread. LibTorch is
# the stock one, without instrumentation. TESSERA_TEST_ENVIRONMENT tells the
# runtimes how to run; tests/sanitizer/{leak,thread}.supp, where they exist, may
# name LibTorch's libraries and nothing of ours.
function(tessera_suppressions variable name)
  set(file ${PROJECT_SOURCE_DIR}/tests/sanitizer/${name}.supp)
  if(EXISTS ${file})
    set(${variable} ":suppressions=${file}" PARENT_SCOPE)
  endif()
endfunction()
if(TESSERA_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr
    -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
  tessera_suppressions(suppressions leak)
  # Recursive tests have millions of call stacks, hence the limit. The path:
  # the sanitizer's dlopen() does not look where the caller's would. Open MPI
  # unloads the plugins that leak before they could be named, so ranks that it
  # starts are not asked about leaks; Gloo's run the same code of ours.
  set(TESSERA_TEST_ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:malloc_context_size=10
    LD_LIBRARY_PATH=${CMAKE_LIBRARY_OUTPUT_DIRECTORY}
    OMPI_MCA_mca_base_env_list=ASAN_OPTIONS=detect_leaks=0
    LSAN_OPTIONS=print_suppressions=0${suppressions}
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1)
elseif(TESSERA_SANITIZE STREQUAL "thread")
  # LibTorch's reference counts have fences, which the sanitizer does not see.
  add_compile_options(-Wno-tsan -fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
  tessera_suppressions(suppressions thread)
  # Nor does it see how OpenMP's threads wait for each other.
  set(TESSERA_TEST_ENVIRONMENT OMP_NUM_THREADS=1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1${suppressions})
elseif(TESSERA_SANITIZE)
  message(FATAL_ERROR "TESSERA_SANITIZE is address or thread, not '${TESSERA_SANITIZE}'")
else()
  set(TESSERA_NO_UNDEFINED -Wl,-z,defs)
endif()
