// How the text form spells operators and how tightly they bind: parser, printer and messages read this table.
#pragma once
#include <string_view>

#include "coda/program.hpp"

namespace coda::language {

/// Loosest first. Comparisons don't chain; every other binary operator groups from the left.
enum Precedence : int {
  p_lowest,
  p_or,
  p_and,
  p_not,
  p_comparison,
  p_sum,
  p_product,
  p_unary,
  p_atom,  ///< names, numbers, calls
};

struct Operator {
  std::string_view spelling;
  Op op;
  Precedence precedence;
  bool binary = true;
};

inline constexpr Operator operators[] = {
    {"or", Op::logical_or, p_or},   {"and", Op::logical_and, p_and}, {"not", Op::logical_not, p_not, false},
    {"==", Op::eq, p_comparison},   {"!=", Op::ne, p_comparison},    {"<", Op::lt, p_comparison},
    {"<=", Op::le, p_comparison},   {">", Op::gt, p_comparison},     {">=", Op::ge, p_comparison},
    {"+", Op::add, p_sum},          {"-", Op::sub, p_sum},           {"*", Op::mul, p_product},
    {"/", Op::div, p_product},      {"//", Op::floordiv, p_product}, {"%", Op::mod, p_product},
    {"-", Op::neg, p_unary, false},
};

/// The operator that spells `op`, or null for what is spelled as a call or a name.
constexpr const Operator* operator_of(Op op) {
  for (const Operator& o : operators)
    if (o.op == op) return &o;
  return nullptr;
}

}  // namespace coda::language
