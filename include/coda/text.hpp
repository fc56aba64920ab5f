// The text form of programs: parse and print.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program.hpp"

namespace coda {

/// Values for `param` lines, by name. An unknown name is an error.
using ParamValues = std::map<std::string, std::int64_t, std::less<>>;

/// Parses and checks a program text. Safe on any bytes. `file` appears in messages. Throws Error(syntax | type |
/// locality) whose message has file:line:column, what was expected, what was found.
Program parse(std::string_view text, const ParamValues& params = {}, std::string_view file = "<text>");

/// The canonical text: parse(print(p)) == p and print(parse(t)) is the same for every t that means the same text.
std::string print(const Program& p);

/// Reads a file, or, when no file of that name exists and it has no '/' or '.', the standard program of that name.
Program load_program(std::string_view path_or_name, const ParamValues& params = {});

/// Names of the standard programs that are built into the library, sorted.
std::vector<std::string> standard_programs();

}  // namespace coda
