// What is known when a program is read: whole numbers made of params, and the pairings and extents they stand in.
#include <fmt/format.h>

#include <limits>

#include "parser.hpp"

namespace coda::language {

Over Parser::parse_over() {
  expect("over", "and n, m, mn or segment(D)");
  Over o;
  if (accept("n")) return o;
  if (accept("m")) {
    o.kind = Over::Kind::m;
  } else if (accept("mn")) {
    o.kind = Over::Kind::mn;
  } else if (accept("segment")) {
    o.kind = Over::Kind::segment;
    expect("(", "and the number of columns");
    o.segment = parse_columns("a segment");
    expect(")", "to close 'segment('");
  } else {
    fail_expected("n (a result for each row), m (for each column), mn (one) or segment(D)");
  }
  return o;
}

Pairing Parser::parse_pairing() {
  Pairing p;
  if (accept("adjacent")) {
    p.kind = Pairing::Kind::adjacent;
  } else if (accept("halves")) {
    p.kind = Pairing::Kind::halves;
  } else if (accept("heads")) {
    p.kind = Pairing::Kind::heads;
    expect("(", "and the number of columns of a head");
    p.head = p.rotary = parse_columns("a head");
    if (accept(",")) p.rotary = parse_columns("the rotary part of a head");
    expect(")", "to close 'heads('");
  } else {
    fail_expected("a pairing: adjacent, halves, heads(D) or heads(D, R)");
  }
  return p;
}

std::int32_t Parser::parse_columns(std::string_view what) {
  const Location where = lexer_.peek().where;
  const std::int64_t n = parse_integer();
  if (n < 1 || n > std::numeric_limits<std::int32_t>::max())
    fail_type(where, fmt::format("{} of {} columns: expected from 1 to {}", what, n,
                                 std::numeric_limits<std::int32_t>::max()));
  return static_cast<std::int32_t>(n);
}

std::int64_t Parser::parse_integer() {
  const Level level(*this);
  return parse_integer_sum();
}

std::int64_t Parser::parse_integer_sum() {
  std::int64_t left = parse_integer_product();
  while (at("+") || at("-")) {
    const Token op = lexer_.take();
    const std::int64_t right = parse_integer_product();
    if (op.is("+") ? __builtin_add_overflow(left, right, &left) : __builtin_sub_overflow(left, right, &left))
      fail_type(op.where, "an integer that 64 bits can't hold");
  }
  return left;
}

std::int64_t Parser::parse_integer_product() {
  std::int64_t left = parse_integer_atom();
  while (at("*") || at("/") || at("//") || at("%")) {
    const Token op = lexer_.take();
    const std::int64_t right = parse_integer_atom();
    if (op.is("*")) {
      if (__builtin_mul_overflow(left, right, &left)) fail_type(op.where, "an integer that 64 bits can't hold");
      continue;
    }
    if (right <= 0) fail_type(op.where, fmt::format("a division by {}: expected a positive divisor", right));
    const std::int64_t rest = ((left % right) + right) % right;
    if (op.is("/") && rest != 0)
      fail_type(op.where, fmt::format("{} isn't divisible by {}: write // to round down", left, right));
    left = op.is("%") ? rest : left / right - (left % right < 0 ? 1 : 0);
  }
  return left;
}

std::int64_t Parser::parse_integer_atom() {
  const Token& t = lexer_.peek();
  if (t.kind == Token::Kind::integer) return lexer_.take().integer;
  if (accept("-")) {
    const Level level(*this);
    const std::int64_t n = parse_integer_atom();
    if (n == std::numeric_limits<std::int64_t>::min())
      fail_at(lexer_.peek().where, "an integer that 64 bits can't hold");
    return -n;
  }
  if (accept("(")) {
    const std::int64_t n = parse_integer();
    expect(")", "to close '('");
    return n;
  }
  if (t.kind != Token::Kind::name) fail_expected("a whole number or a param");
  const Token name = lexer_.take();
  const auto known = names_.find(name.text);
  if (known == names_.end() || known->second.kind != Binding::Kind::param)
    fail_type(name.where, fmt::format("expected a whole number or a param, which is known when the program is read, "
                                      "found '{}'{}",
                                      name.text, suggest(name.text, false)));
  known->second.used = true;
  return known->second.number;
}

}  // namespace coda::language
