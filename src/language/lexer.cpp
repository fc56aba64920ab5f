#include "lexer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "diagnostics.hpp"

namespace coda::language {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// The byte or character that stands at the start of `rest`, for a message.
std::string describe_bytes(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
  bool whole = first >= 0xC2 && first < 0xF5 && rest.size() >= length;
  for (std::size_t i = 1; whole && i < length; ++i) whole = (static_cast<unsigned char>(rest[i]) & 0xC0) == 0x80;
  if (whole) return fmt::format("'{}'", rest.substr(0, length));
  if (first >= 0x20 && first < 0x7F) return fmt::format("'{}'", rest[0]);
  return fmt::format("the byte 0x{:02X}", first);
}

}  // namespace

std::string describe(const Token& t) {
  switch (t.kind) {
    case Token::Kind::end: return "the end of the text";
    case Token::Kind::newline: return "the end of the line";
    case Token::Kind::integer:
    case Token::Kind::real: return t.text.size() <= 40 ? fmt::format("the number {}", t.text) : "a number";
    default: return fmt::format("'{}'", t.text);
  }
}

Lexer::Lexer(std::string_view text, std::string_view file) : text_(text), file_(file) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  for (Token& t : lookahead_) t = scan();
}

Token Lexer::take() {
  Token first = std::move(lookahead_[0]);
  lookahead_[0] = std::move(lookahead_[1]);
  lookahead_[1] = scan();
  return first;
}

void Lexer::fail_at(const Location& where, std::string_view message) const {
  fail(ErrorKind::syntax, where, program_, message);
}

void Lexer::advance() {
  if (text_[at_] == '\n') {
    ++line_;
    column_ = 1;
  } else if (at_ + 1 >= text_.size() || (static_cast<unsigned char>(text_[at_ + 1]) & 0xC0) != 0x80) {
    ++column_;  // columns count characters: the bytes 10xxxxxx continue one
  }
  ++at_;
}

void Lexer::skip_blank() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') advance();
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && depth_ > 0)) {
      advance();
    } else {
      return;
    }
  }
}

Token Lexer::scan() {
  skip_blank();
  Token t;
  t.where = {std::string(file_), line_, column_};
  if (at_ == text_.size()) return t;

  const std::size_t begin = at_;
  const char c = text_[at_];
  if (c == '\n') {
    advance();
    t.kind = Token::Kind::newline;
    return t;
  }
  if (is_letter(c)) {
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) advance();
    t.kind = Token::Kind::name;
    t.text = text_.substr(begin, at_ - begin);
    if (t.text.size() > max_name)
      fail_at(t.where, fmt::format("a name of {} characters: expected at most {}", t.text.size(), max_name));
    return t;
  }
  if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) return scan_number(t);

  t.kind = Token::Kind::symbol;
  for (std::string_view two : {"+=", "//", "<=", ">=", "==", "!="}) {
    if (text_.substr(at_).starts_with(two)) {
      advance(), advance();
      t.text = text_.substr(begin, 2);
      return t;
    }
  }
  if (std::string_view("()[]:,=+-*/%<>").find(c) == std::string_view::npos)
    fail_at(t.where,
            fmt::format("expected a name, a number or an operator, found {}", describe_bytes(text_.substr(at_))));
  if (c == '(' || c == '[') ++depth_;
  if ((c == ')' || c == ']') && depth_ > 0) --depth_;
  advance();
  t.text = text_.substr(begin, 1);
  return t;
}

Token Lexer::scan_number(Token t) {
  const std::size_t begin = at_;
  bool integer = true;
  const auto digits = [&] {
    while (at_ < text_.size() && is_digit(text_[at_])) advance();
  };
  digits();
  if (at_ < text_.size() && text_[at_] == '.') {
    integer = false;
    advance();
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    std::size_t p = at_ + 1;
    if (p < text_.size() && (text_[p] == '+' || text_[p] == '-')) ++p;
    if (p < text_.size() && is_digit(text_[p])) {
      integer = false;
      while (at_ < p) advance();
      digits();
    }
  }
  t.text = text_.substr(begin, at_ - begin);
  const char* first = t.text.data();
  const char* last = first + t.text.size();
  if (integer) {
    t.kind = Token::Kind::integer;
    if (std::from_chars(first, last, t.integer).ec != std::errc())
      fail_at(t.where, "an integer that 64 bits can't hold; write it with a point if it is real");
    return t;
  }
  t.kind = Token::Kind::real;
  float nearest = 0;
  if (std::from_chars(first, last, nearest).ec != std::errc())
    fail_at(t.where, "a real number outside the range of f32; write inf for infinity");
  t.real = nearest;
  return t;
}

}  // namespace coda::language
