// The formulas of ops.def for one element at a time: in double, in float, and in wrapping 32-bit integers. This is
// the plain side that the vectorised kernels are compared with, so it uses <cmath> and nothing of theirs.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "coda/program.hpp"

namespace coda::scalar {

/// A 32-bit integer whose arithmetic wraps.
struct Wrapping {
  std::int32_t v = 0;
  constexpr Wrapping(std::int32_t value = 0) : v(value) {}
  static constexpr Wrapping of(std::uint32_t bits) { return Wrapping(static_cast<std::int32_t>(bits)); }
  constexpr std::uint32_t bits() const { return static_cast<std::uint32_t>(v); }
  friend constexpr Wrapping operator+(Wrapping a, Wrapping b) { return of(a.bits() + b.bits()); }
  friend constexpr Wrapping operator-(Wrapping a, Wrapping b) { return of(a.bits() - b.bits()); }
  friend constexpr Wrapping operator*(Wrapping a, Wrapping b) { return of(a.bits() * b.bits()); }
  constexpr Wrapping operator-() const { return of(0U - bits()); }
  friend constexpr auto operator<=>(const Wrapping&, const Wrapping&) = default;
};

constexpr Wrapping floor_divide(Wrapping a, Wrapping b) {
  if (b.v == 0) return 0;
  if (b.v == -1) return -a;  // the one quotient that overflows
  const std::int32_t q = a.v / b.v;
  return q - ((a.v % b.v != 0) && ((a.v < 0) != (b.v < 0)) ? 1 : 0);
}
constexpr Wrapping floor_modulo(Wrapping a, Wrapping b) {
  if (b.v == 0 || b.v == -1) return 0;
  const std::int32_t r = a.v % b.v;
  return r != 0 && ((r < 0) != (b.v < 0)) ? r + b.v : r;
}

/// The maths vocabulary of ops.def over T, and each op as `op_<name>`.
template <class T>
struct Formulas {
  static T exp(T x) { return std::exp(x); }
  static T expm1(T x) { return std::expm1(x); }
  static T log(T x) { return std::log(x); }
  static T log1p(T x) { return std::log1p(x); }
  static T log1p_exp(T x) { return std::log1p(std::exp(x)); }
  static T sqrt(T x) { return std::sqrt(x); }
  static T rsqrt(T x) { return 1 / std::sqrt(x); }
  static T tanh(T x) { return std::tanh(x); }
  static T erf(T x) { return std::erf(x); }
  static T sin(T x) { return std::sin(x); }
  static T cos(T x) { return std::cos(x); }
  static T floor(T x) { return std::floor(x); }
  static T abs(T x) {
    if constexpr (std::is_same_v<T, Wrapping>)
      return x < T(0) ? -x : x;
    else
      return std::fabs(x);
  }
  static T ratio(T a, T b) { return a / b; }
  static T real(double c) { return static_cast<T>(c); }
  static T select(bool c, T a, T b) { return c ? a : b; }
  static T minimum(T a, T b) { return a != a ? a : b != b ? b : b < a ? b : a; }
  static T maximum(T a, T b) { return a != a ? a : b != b ? b : b > a ? b : a; }
  static T sigmoid(T x) { return op_sigmoid(x, x, x); }

  // What each rule of the table takes first, takes next, and yields.
  using real_x = T;
  using real_y = T;
  using real_result = T;
  using arith_x = T;
  using arith_y = T;
  using arith_result = T;
  using integer_x = T;
  using integer_y = T;
  using integer_result = T;
  using compare_x = T;
  using compare_y = T;
  using compare_result = bool;
  using logic_x = bool;
  using logic_y = bool;
  using logic_result = bool;
  using where_x = bool;
  using where_y = T;
  using where_result = T;
#define CODA_OP(name, arity, rule, formula)                                                \
  static rule##_result op_##name([[maybe_unused]] rule##_x x, [[maybe_unused]] rule##_y y, \
                                 [[maybe_unused]] rule##_y z) {                            \
    return formula;                                                                        \
  }
#include "coda/ops.def"
#undef CODA_OP
};

/// The rule of an op: what kinds it takes and yields.
enum class Rule : std::uint8_t { real, arith, integer, compare, logic, where };

constexpr Rule rule_of(Op op) {
  switch (op) {
#define CODA_OP(name, arity, rule, formula) \
  case Op::name:                            \
    return Rule::rule;
#include "coda/ops.def"
#undef CODA_OP
    default: return Rule::real;
  }
}

}  // namespace coda::scalar
