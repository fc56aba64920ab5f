// Whole-matrix evaluation, one node at a time.
#include "cpu/whole.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "coda/convert.hpp"
#include "cpu/columns.hpp"
#include "cpu/scalar_ops.hpp"

namespace coda::reference {
namespace {

using scalar::Formulas;
using scalar::Rule;
using scalar::Wrapping;

std::int32_t saturate(std::int64_t v) {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(v, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
}

const void* address(const Tensor& t, std::int64_t i, std::int64_t j) {
  // The last two dimensions are (i, j); a vector uses j, a scalar neither.
  std::int64_t offset = 0;
  if (t.rank == 2) offset = i * t.stride[0] + j * t.stride[1];
  if (t.rank == 1) offset = j * t.stride[0];
  return static_cast<const char*>(t.data) + offset * static_cast<std::int64_t>(size_of(t.dtype));
}

double number_at(const Tensor& t, std::int64_t i, std::int64_t j) {
  const void* p = address(t, i, j);
  switch (t.dtype) {
    case DType::f32: return *static_cast<const float*>(p);
    case DType::f64: return *static_cast<const double*>(p);
    case DType::bf16: return bf16_to_float(*static_cast<const std::uint16_t*>(p));
    case DType::f16: return f16_to_float(*static_cast<const std::uint16_t*>(p));
    case DType::e4m3: return e4m3_to_float(*static_cast<const std::uint8_t*>(p));
    case DType::e5m2: return e5m2_to_float(*static_cast<const std::uint8_t*>(p));
    case DType::i32: return *static_cast<const std::int32_t*>(p);
    case DType::i64: return static_cast<double>(*static_cast<const std::int64_t*>(p));
  }
  return 0;
}

std::int32_t integer_at(const Tensor& t, std::int64_t i, std::int64_t j) {
  const void* p = address(t, i, j);
  return t.dtype == DType::i64 ? saturate(*static_cast<const std::int64_t*>(p)) : *static_cast<const std::int32_t*>(p);
}

template <class R>
R round_dtype(R x, DType t) {
  switch (t) {
    case DType::f32: return static_cast<R>(static_cast<float>(x));
    case DType::bf16: return static_cast<R>(bf16_to_float(to_bf16(x)));
    case DType::f16: return static_cast<R>(f16_to_float(to_f16(x)));
    case DType::e4m3: return static_cast<R>(e4m3_to_float(to_e4m3(x)));
    case DType::e5m2: return static_cast<R>(e5m2_to_float(to_e5m2(x)));
    default: return x;
  }
}

template <class R>
class Evaluation {
 public:
  Evaluation(const Program& p, Slots slots, const Policy<R>& policy)
      : p_(p), slots_(slots), policy_(policy), extents_(check_arguments(p, slots)), values_(p.nodes.size()) {}

  std::vector<Value<R>> outputs() {
    for (std::size_t i = 0; i < p_.nodes.size(); ++i) {
      values_[i] = node(p_.nodes[i]);
      if (policy_.stored[i]) {
        for (R& x : values_[i].real) x = policy_.round_stored(x);
      }
    }
    std::vector<Value<R>> out;
    for (const Output& o : p_.outputs) out.push_back(values_[static_cast<std::size_t>(o.value)]);
    return out;
  }

 private:
  const Value<R>& arg(const Node& n, int i) const { return values_[static_cast<std::size_t>(n.args[i])]; }
  std::int64_t columns(Width w) const { return columns_of(w, extents_.n); }

  /// An empty value of the shape that `t` says, holding reals or integers.
  Value<R> make(const Type& t) const {
    Value<R> v;
    v.rows = t.rows ? extents_.m : 1;
    v.columns = t.width == Width::none ? 1 : columns(t.width);
    const auto size = static_cast<std::size_t>(v.rows * v.columns);
    if (t.kind == ValueKind::real)
      v.real.resize(size);
    else
      v.integer.resize(size);
    return v;
  }

  template <class F>
  Value<R> fill(const Type& t, F&& element) const {
    Value<R> v = make(t);
    for (std::int64_t i = 0; i < v.rows; ++i) {
      for (std::int64_t j = 0; j < v.columns; ++j) {
        if (t.kind == ValueKind::real)
          v.real[v.at(i, j)] = static_cast<R>(element(i, j));
        else
          v.integer[v.at(i, j)] = static_cast<std::int32_t>(element(i, j));
      }
    }
    return v;
  }

  Value<R> node(const Node& n) const {
    switch (n.op) {
      case Op::acc: {
        Value<R> v = make(n.type);
        policy_.product(slots_[0], slots_[1], v.real.data());
        return v;
      }
      case Op::constant:
        return fill(n.type, [&](auto, auto) {
          return n.type.kind == ValueKind::real ? static_cast<double>(static_cast<float>(n.number)) : n.number;
        });
      case Op::operand: return operand(n);
      case Op::extent:
        return fill(n.type, [&](auto, auto) {
          return static_cast<double>(n.index == 0 ? extents_.m : n.index == 1 ? extents_.n : extents_.k);
        });
      case Op::row: return fill(n.type, [](auto i, auto) { return i; });
      case Op::col: return fill(n.type, [](auto, auto j) { return j; });
      case Op::split: return split(n);
      case Op::join: return join(n);
      case Op::lookup: return lookup(n);
      case Op::round_to:
        return fill(n.type, [&](auto i, auto j) { return round_dtype(arg(n, 0).number(i, j), n.dtype); });
      case Op::reduce_sum:
      case Op::reduce_max:
      case Op::softmax_max:
      case Op::softmax_sum: return reduce(n);
      case Op::pick: return pick(n);
      default: return elementwise(n);
    }
  }

  Value<R> operand(const Node& n) const {
    const Tensor& t = slots_[static_cast<std::size_t>(2 + n.index)];
    const Layout layout = p_.operands[static_cast<std::size_t>(n.index)].shape.layout;
    return fill(n.type, [&](std::int64_t i, std::int64_t j) -> double {
      if (layout == Layout::row) j = i;
      return n.type.kind == ValueKind::real ? number_at(t, i, j) : integer_at(t, i, j);
    });
  }

  Value<R> split(const Node& n) const {
    const Value<R>& x = arg(n, 0);
    return fill(n.type, [&](std::int64_t i, std::int64_t j) -> R {
      const std::int64_t at = x.columns == 1 ? 0 : member_column(n.pairing, n.index, j, x.columns);
      return x.number(i, at);
    });
  }

  Value<R> join(const Node& n) const {
    Value<R> v = make(n.type);
    for (int member = 0; member < 2; ++member) {
      const Value<R>& x = arg(n, member);
      for (std::int64_t i = 0; i < v.rows; ++i) {
        for (std::int64_t j = 0; j < v.columns / 2; ++j) {
          const std::size_t at = v.at(i, member_column(n.pairing, member, j, v.columns));
          if (n.type.kind == ValueKind::real)
            v.real[at] = x.number(i, j);
          else
            v.integer[at] = x.whole(i, j);
        }
      }
    }
    return v;
  }

  Value<R> lookup(const Node& n) const {
    const Tensor& t = slots_[static_cast<std::size_t>(2 + n.index)];
    const Value<R>& first = arg(n, 0);
    const Value<R>* second = n.args[1] == no_value ? nullptr : &arg(n, 1);
    return fill(n.type, [&](std::int64_t i, std::int64_t j) -> double {
      const std::int64_t a = first.whole(i, j);
      const std::int64_t b = second ? second->whole(i, j) : 0;
      const bool inside = a >= 0 && a < t.shape[0] && b >= 0 && (!second || b < t.shape[1]);
      const bool real = n.type.kind == ValueKind::real;
      if (!inside) return real ? std::numeric_limits<double>::quiet_NaN() : 0;
      if (real) return second ? number_at(t, a, b) : number_at(t, 0, a);
      return second ? integer_at(t, a, b) : integer_at(t, 0, a);
    });
  }

  /// Reduces one run of numbers.
  R reduce_run(Op op, std::vector<R>& x) const {
    const R lowest = -std::numeric_limits<R>::infinity();
    if (op == Op::reduce_sum) return policy_.sum(x.data(), static_cast<std::int64_t>(x.size()));
    R largest = lowest;
    for (const R v : x) largest = Formulas<R>::maximum(largest, v);
    if (op != Op::softmax_sum) return largest;
    if (largest == lowest) return 0;  // nothing but -inf, or nothing at all
    for (R& v : x) v = std::exp(v - largest);
    return policy_.sum(x.data(), static_cast<std::int64_t>(x.size()));
  }

  Value<R> reduce(const Node& n) const {
    const Value<R>& x = arg(n, 0);
    const Type& type = p_.node(n.args[0]).type;
    const std::int64_t rows =
        type.rows || n.over.kind == Over::Kind::m || n.over.kind == Over::Kind::mn ? extents_.m : 1;
    const std::int64_t width = columns(type.width == Width::none ? Width::full : type.width);
    std::vector<R> run;
    const auto gather = [&](std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
      run.clear();
      for (std::int64_t i = i0; i < i1; ++i) {
        for (std::int64_t j = j0; j < j1; ++j) run.push_back(x.number(i, j));
      }
      return reduce_run(n.op, run);
    };
    switch (n.over.kind) {
      case Over::Kind::n: return fill(n.type, [&](auto i, auto) { return gather(i, i + 1, 0, width); });
      case Over::Kind::m: return fill(n.type, [&](auto, auto j) { return gather(0, rows, j, j + 1); });
      case Over::Kind::mn: return fill(n.type, [&](auto, auto) { return gather(0, rows, 0, width); });
      case Over::Kind::segment: break;
    }
    Value<R> v = make(n.type);
    const std::int64_t segment = n.over.segment;
    for (std::int64_t i = 0; i < v.rows; ++i) {
      for (std::int64_t j = 0; j + segment <= v.columns; j += segment) {
        const R result = gather(i, i + 1, j, j + segment);
        for (std::int64_t d = 0; d < segment; ++d) v.real[v.at(i, j + d)] = result;
      }
    }
    return v;
  }

  Value<R> pick(const Node& n) const {
    const Value<R>& x = arg(n, 0);
    const Value<R>& index = arg(n, 1);
    const std::int64_t segment = n.over.segment;
    const std::int64_t limit = n.over.kind == Over::Kind::n   ? columns(p_.node(n.args[0]).type.width)
                               : n.over.kind == Over::Kind::m ? extents_.m
                                                              : segment;
    return fill(n.type, [&](std::int64_t i, std::int64_t j) -> R {
      const std::int32_t at = index.whole(i, j);
      if (n.args[2] != no_value && at == arg(n, 2).whole(i, j)) return 0;
      if (at < 0 || at >= limit) return std::numeric_limits<R>::quiet_NaN();
      if (n.over.kind == Over::Kind::m) return x.number(at, j);
      return x.number(i, n.over.kind == Over::Kind::n ? at : j / segment * segment + at);
    });
  }

  Value<R> elementwise(const Node& n) const {
    const int arity = arity_of(n.op);
    const Value<R>& x = arg(n, 0);
    const Value<R>& y = arity > 1 ? arg(n, 1) : x;
    const Value<R>& z = arity > 2 ? arg(n, 2) : y;
    bool integers = true;  // every argument that the rule treats as a number is an integer
    for (int a = n.op == Op::where ? 1 : 0; a < arity; ++a) integers = integers && arg(n, a).real.empty();
    // An empty matrix holds neither; its type tells, and nothing is computed.
    switch (n.op) {
#define CODA_NUMBER(T, v) static_cast<T>(v)
#define CODA_APPLY_real(name) \
  return fill(n.type,         \
              [&](auto i, auto j) { return Formulas<R>::op_##name(x.number(i, j), y.number(i, j), z.number(i, j)); });
#define CODA_APPLY_integer(name)                                                         \
  return fill(n.type, [&](auto i, auto j) {                                              \
    return Formulas<Wrapping>::op_##name(x.whole(i, j), y.whole(i, j), z.whole(i, j)).v; \
  });
#define CODA_APPLY_arith(name) \
  if (integers) {              \
    CODA_APPLY_integer(name)   \
  } else {                     \
    CODA_APPLY_real(name)      \
  }
#define CODA_APPLY_compare(name)                                                         \
  if (integers) {                                                                        \
    return fill(n.type, [&](auto i, auto j) {                                            \
      return Formulas<Wrapping>::op_##name(x.whole(i, j), y.whole(i, j), z.whole(i, j)); \
    });                                                                                  \
  }                                                                                      \
  CODA_APPLY_real(name)
#define CODA_APPLY_logic(name)                                                                 \
  return fill(n.type, [&](auto i, auto j) {                                                    \
    return Formulas<R>::op_##name(x.whole(i, j) != 0, y.whole(i, j) != 0, z.whole(i, j) != 0); \
  });
#define CODA_APPLY_where(name)                                                                  \
  if (n.type.kind != ValueKind::real) {                                                         \
    return fill(n.type, [&](auto i, auto j) {                                                   \
      return Formulas<Wrapping>::op_##name(x.whole(i, j) != 0, y.whole(i, j), z.whole(i, j)).v; \
    });                                                                                         \
  }                                                                                             \
  return fill(n.type, [&](auto i, auto j) {                                                     \
    return Formulas<R>::op_##name(x.whole(i, j) != 0, y.number(i, j), z.number(i, j));          \
  });
#define CODA_OP(name, arity, rule, formula) \
  case Op::name:                            \
    CODA_APPLY_##rule(name)
#include "coda/ops.def"
#undef CODA_OP
      default: break;
    }
    throw Error(ErrorKind::internal, fmt::format("no evaluation for op {}", name_of(n.op)));
  }

  const Program& p_;
  Slots slots_;
  const Policy<R>& policy_;
  Extents extents_;
  std::vector<Value<R>> values_;
};

}  // namespace

double matrix_element(const Tensor& t, std::int64_t i, std::int64_t j) { return number_at(t, i, j); }

template <class R>
std::vector<Value<R>> evaluate_whole(const Program& p, Slots slots, const Policy<R>& policy) {
  return Evaluation<R>(p, slots, policy).outputs();
}

template std::vector<Value<double>> evaluate_whole(const Program&, Slots, const Policy<double>&);
template std::vector<Value<float>> evaluate_whole(const Program&, Slots, const Policy<float>&);

}  // namespace coda::reference
