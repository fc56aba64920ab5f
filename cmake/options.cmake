# Warnings and sanitizers, as one interface target that every target of ours links privately.
add_library(coda_options INTERFACE)
target_compile_options(coda_options INTERFACE -Wall -Wextra -Wpedantic)
if(CODA_WERROR)
  target_compile_options(coda_options INTERFACE -Werror)
endif()
if(CODA_SANITIZE)
  target_compile_options(coda_options INTERFACE -fsanitize=${CODA_SANITIZE} -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer)
  target_link_options(coda_options INTERFACE -fsanitize=${CODA_SANITIZE})
endif()
if(CODA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CODA_FUZZ needs Clang for libFuzzer; found ${CMAKE_CXX_COMPILER_ID}. "
                        "Configure with the preset: cmake --preset fuzz")
  endif()
  target_compile_options(coda_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
