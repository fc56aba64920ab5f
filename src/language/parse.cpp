// parse() and load_program(): text to a checked Program, messages with the line they speak of.
#include <fmt/format.h>

#include "coda/text.hpp"
#include "diagnostics.hpp"
#include "internal.hpp"
#include "parser.hpp"

namespace coda {

Program parse(std::string_view text, const ParamValues& params, std::string_view file) {
  using namespace language;
  if (text.size() > max_text)
    fail(ErrorKind::syntax, {std::string(file), 1, 1}, "",
         fmt::format("a text of {} bytes: expected at most {}", text.size(), max_text));
  try {
    Program p = Parser(text, params, file).parse();
    check(p);
    return p;
  } catch (const Error& e) {
    const std::string lines = excerpt(text, e.where());
    if (lines.empty()) throw;
    throw Error(e.kind(), e.what() + lines, e.where());
  }
}

}  // namespace coda
