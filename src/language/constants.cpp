// Values known when a program is read: what decides the conditions of `where` and `if`.
#include <optional>
#include <type_traits>

#include "cpu/scalar_ops.hpp"
#include "internal.hpp"

namespace coda::language {
namespace {

std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

/// Whether an op's formula is written for T: integers have no exp, reals no //.
template <class T>
constexpr bool has_formula(scalar::Rule rule) {
  return std::is_same_v<T, float> ? rule != scalar::Rule::integer : rule != scalar::Rule::real;
}

/// An op of ops.def on constants, computed in T, as the engines compute it.
template <class T>
double apply(Op op, double x, double y, double z) {
  using F = scalar::Formulas<T>;
  const auto to = [](auto kind, double v) {
    using To = decltype(kind);
    if constexpr (std::is_same_v<To, scalar::Wrapping>)
      return To(static_cast<std::int32_t>(v));
    else
      return static_cast<To>(v);
  };
  const auto from = [](auto v) {
    if constexpr (std::is_same_v<decltype(v), scalar::Wrapping>)
      return static_cast<double>(v.v);
    else
      return static_cast<double>(v);
  };
  switch (op) {
#define CODA_OP(name, arity, rule, formula)                                                                           \
  case Op::name:                                                                                                      \
    if constexpr (has_formula<T>(scalar::Rule::rule))                                                                 \
      return from(                                                                                                    \
          F::op_##name(to(typename F::rule##_x{}, x), to(typename F::rule##_y{}, y), to(typename F::rule##_y{}, z))); \
    break;
#include "coda/ops.def"
#undef CODA_OP
    default: break;
  }
  return 0;
}

}  // namespace

std::optional<Constant> evaluate(const Node& n, const Constants& known) {
  if (n.op == Op::constant) return Constant{n.is_integer ? ValueKind::integer : ValueKind::real, n.number};
  if (!is_elementwise(n.op)) return std::nullopt;
  const scalar::Rule rule = scalar::rule_of(n.op);
  double values[3] = {0, 0, 0};
  bool integers = rule != scalar::Rule::real;
  for (std::size_t i = 0; i < n.args.size() && n.args[i] != no_value; ++i) {
    const auto& a = known[at(n.args[i])];
    const bool condition = rule == scalar::Rule::logic || (rule == scalar::Rule::where && i == 0);
    if (!a || (a->kind == ValueKind::boolean) != condition) return std::nullopt;
    values[i] = a->value;
    if (!condition) integers = integers && a->kind == ValueKind::integer;
  }
  if (rule == scalar::Rule::integer && !integers) return std::nullopt;
  const ValueKind kind = rule == scalar::Rule::compare || rule == scalar::Rule::logic ? ValueKind::boolean
                         : integers                                                   ? ValueKind::integer
                                                                                      : ValueKind::real;
  return Constant{kind, integers ? apply<scalar::Wrapping>(n.op, values[0], values[1], values[2])
                                 : apply<float>(n.op, values[0], values[1], values[2])};
}

std::optional<bool> constant_boolean(const Program& p, ValueId v) {
  Constants known(at(v) + 1);
  for (ValueId u = 0; u <= v; ++u) known[at(u)] = evaluate(p.node(u), known);
  if (!known[at(v)] || known[at(v)]->kind != ValueKind::boolean) return std::nullopt;
  return known[at(v)]->value != 0;
}

}  // namespace coda::language
