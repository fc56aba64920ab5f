// How the language reports faults: place, program, what was expected, what was found, a line of text and a caret.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "coda/error.hpp"

namespace coda::language {

/// "file:3:7", "file:3" where the column is unknown, "" where the line is.
std::string place(const Location& where);

/// Throws Error with "file:3:7: in program P: message".
[[noreturn]] void fail(ErrorKind kind, const Location& where, std::string_view program, std::string_view message);

/// The line of `text` that `where` points at, cut to fit a terminal, and a caret below it. "" when there is none.
std::string excerpt(std::string_view text, const Location& where);

/// "; did you mean 'x'?" for the candidate nearest to `name`, "" when none is near.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace coda::language
