#include "diagnostics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace coda::language {
namespace {

constexpr std::size_t excerpt_width = 100;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Optimal string alignment distance, for names of at most 64 characters.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), last(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j)
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
  }
  return row[b.size()];
}

}  // namespace

std::string place(const Location& where) {
  if (where.line <= 0) return where.file;
  if (where.column <= 0) return fmt::format("{}:{}", where.file, where.line);
  return fmt::format("{}:{}:{}", where.file, where.line, where.column);
}

void fail(ErrorKind kind, const Location& where, std::string_view program, std::string_view message) {
  std::string text = place(where);
  if (!text.empty()) text += ": ";
  if (!program.empty()) text += fmt::format("in program {}: ", program);
  text += message;
  throw Error(kind, text, where);
}

std::string excerpt(std::string_view text, const Location& where) {
  if (where.line <= 0 || where.column <= 0) return "";
  std::size_t begin = 0;
  for (int line = 1; line < where.line; ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return "";
    begin = end + 1;
  }
  std::string_view line = text.substr(begin, text.find('\n', begin) - begin);

  // Characters, not bytes, so that the caret stands under what it means; control characters become spaces.
  const auto caret = static_cast<std::size_t>(where.column - 1);
  const std::size_t first = caret > excerpt_width - 20 ? caret - (excerpt_width - 20) : 0;
  std::string shown;
  std::size_t character = 0;  // how many have begun
  for (char c : line) {
    if (!continues_character(c) || character == 0) ++character;
    if (character > first + excerpt_width) break;
    if (character > first) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  }
  while (!shown.empty() && shown.back() == ' ') shown.pop_back();
  if (shown.empty()) return "";
  return fmt::format("\n  | {}\n  | {:>{}}", shown, '^', caret - first + 1);
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t least = name.size() <= 3 ? 2 : 3;
  if (name.size() > 64) return "";
  for (std::string_view candidate : candidates) {
    if (candidate.size() > 64 || candidate == name) continue;
    const std::size_t d = distance(name, candidate);
    if (d < least && d < name.size()) least = d, best = candidate;
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace coda::language
