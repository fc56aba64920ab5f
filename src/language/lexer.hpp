// Program text to tokens, on demand, with two tokens of lookahead and constant memory.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "coda/error.hpp"

namespace coda::language {

struct Token {
  enum class Kind : std::uint8_t { end, newline, name, integer, real, symbol };
  Kind kind = Kind::end;
  std::string_view text;     ///< as written; a symbol is one of ( ) [ ] : , = += + - * / // % < <= > >= == !=
  std::int64_t integer = 0;  ///< kind == integer
  double real = 0;           ///< kind == real: the nearest f32
  Location where;

  bool is(std::string_view spelling) const { return (kind == Kind::name || kind == Kind::symbol) && text == spelling; }
};

/// "'acc'", "the end of the line", "the number 3": for messages.
std::string describe(const Token& t);

/// Newlines inside ( ) and [ ] are skipped, as are comments. Throws Error(syntax) on bytes that start no token.
class Lexer {
 public:
  static constexpr std::size_t max_name = 64;

  Lexer(std::string_view text, std::string_view file);

  const Token& peek(int ahead = 0) const { return lookahead_[static_cast<std::size_t>(ahead)]; }
  Token take();
  /// The program's name, for messages.
  void name_program(std::string_view name) { program_ = name; }

 private:
  Token scan();
  Token scan_number(Token t);
  [[noreturn]] void fail_at(const Location& where, std::string_view message) const;
  void skip_blank();
  void advance();

  std::string_view text_;
  std::string_view file_, program_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
  int depth_ = 0;  ///< of ( and [
  std::array<Token, 2> lookahead_;
};

}  // namespace coda::language
