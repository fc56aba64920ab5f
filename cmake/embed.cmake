# Embeds text files in the library, so that an installed libcoda needs no data directory.
#
# Included, it offers coda_embed(OUTPUT file.cpp DEVICE_HEADERS files... PROGRAMS files...).
# Run with `cmake -P` it is the generator itself: it writes the .cpp that defines the functions of
# src/embedded.hpp. Each text becomes raw string literals of at most 12 KiB, under every compiler's limit; a line must be shorter.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(CODA_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

  function(coda_embed)
    cmake_parse_arguments(arg "" "OUTPUT" "DEVICE_HEADERS;PROGRAMS" ${ARGN})
    # The lists go through a file: a command line may be too short for them, and the file changes when they do.
    set(lists ${arg_OUTPUT}.lists.cmake)
    file(CONFIGURE OUTPUT ${lists} @ONLY CONTENT
         "set(DEVICE_HEADERS \"@arg_DEVICE_HEADERS@\")\nset(PROGRAMS \"@arg_PROGRAMS@\")\n")
    add_custom_command(
      OUTPUT ${arg_OUTPUT}
      COMMAND ${CMAKE_COMMAND} -D OUTPUT=${arg_OUTPUT} -D LISTS=${lists} -P ${CODA_EMBED_SCRIPT}
      DEPENDS ${CODA_EMBED_SCRIPT} ${lists} ${arg_DEVICE_HEADERS} ${arg_PROGRAMS}
      COMMENT "Embedding device headers and programs"
      VERBATIM)
  endfunction()
  return()
endif()

include(${LISTS})

function(append_table function array files)
  set(rows "")
  set(count 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    file(READ ${file} text)
    string(LENGTH "${text}" size)
    set(literals "")
    # Cut after a newline, so that no character of several bytes is split between two literals.
    while(NOT text STREQUAL "")
      string(SUBSTRING "${text}" 0 12288 piece)
      string(FIND "${piece}" "\n" cut REVERSE)
      if(cut EQUAL -1)
        message(FATAL_ERROR "${file}: can't embed it: it must end with a newline and have no line over 12 KiB")
      endif()
      math(EXPR cut "${cut} + 1")
      string(SUBSTRING "${text}" 0 ${cut} piece)
      string(SUBSTRING "${text}" ${cut} -1 text)
      string(APPEND literals "R\"__coda__(${piece})__coda__\"\n")
    endwhile()
    if(literals STREQUAL "")
      set(literals "\"\"")
    endif()
    string(APPEND rows "    {\"${name}\"sv, std::string_view(${literals}, ${size})},\n")
    math(EXPR count "${count} + 1")
  endforeach()
  set(body "std::span<const File> ${function}() {\n")
  if(count EQUAL 0)
    string(APPEND body "  return {};\n}\n")
  else()
    string(APPEND body "  static constexpr File ${array}[] = {\n${rows}  };\n  return ${array};\n}\n")
  endif()
  set(definitions "${definitions}${body}\n" PARENT_SCOPE)
endfunction()

set(definitions "")
append_table(device_headers headers "${DEVICE_HEADERS}")
append_table(programs texts "${PROGRAMS}")
file(WRITE ${OUTPUT} "// Written by cmake/embed.cmake; don't edit.
#include \"embedded.hpp\"

namespace coda::embedded {
using namespace std::string_view_literals;

${definitions}}  // namespace coda::embedded
")
