#include "support/random_program.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "coda/build.hpp"

namespace coda::test {
namespace {

using namespace coda::epilogue;

/// splitmix64: the same on every machine, unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class C>
  auto& pick(C& c) {
    return c[static_cast<std::size_t>(below(static_cast<int>(c.size())))];
  }

 private:
  std::uint64_t state_;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomProgramOptions& o) : r_(seed), o_(o), e_("random") {}

  Program run() {
    choose_product();
    choose_pairing();
    for (int i = r_.below(o_.max_lets + 1); i > 0; --i) make_let();
    const int outs = 1 + r_.below(o_.max_outputs);
    for (int i = 0; i < outs; ++i) make_output();
    for (int i = r_.below(o_.max_outputs + 1); i > 0; --i) make_finish();
    use_all(full_, N);
    use_all(half_, N / 2);
    use_all(twice_, 2 * N);
    return e_.program();
  }

 private:
  void choose_product() {
    if (o_.fp8 && r_.chance(50))
      e_.gemm(r_.chance(50) ? e4m3 : e5m2, r_.chance(50) ? e4m3 : e5m2);
    else
      e_.gemm(o_.dtype, o_.dtype);
    if (r_.chance(30)) e_.doc("A random program.");
  }

  void choose_pairing() {
    const int head = 8 << r_.below(3);
    switch (r_.below(4)) {
      case 0: pairing_ = adjacent; break;
      case 1: pairing_ = halves; break;
      case 2: pairing_ = heads(head); break;
      default: pairing_ = heads(head, 2 + 2 * r_.below(head / 2)); break;
    }
    segment_ = 4 << r_.below(3);
  }

  std::string fresh(std::string_view stem) { return std::string(stem) + std::to_string(count_++); }

  DType operand_dtype() {
    if (o_.fp8 && r_.chance(15)) return r_.chance(50) ? e4m3 : e5m2;
    return r_.chance(50) ? o_.dtype : f32;
  }
  DType output_dtype() { return operand_dtype(); }

  // ---------------------------------------------------------------- leaves

  Value number() {
    constexpr double tame[] = {0.0, 1.0, -1.0, 0.5, 2.0, 0.044715, -0.25, 1.702, 3.0};
    double x = tame[r_.below(9)];
    if (!o_.tame && r_.chance(40)) {
      const auto bits = static_cast<std::uint32_t>(r_.next());
      float f;
      static_assert(sizeof f == sizeof bits);
      std::memcpy(&f, &bits, sizeof f);
      x = std::isnan(f) ? std::numeric_limits<double>::infinity() : static_cast<double>(f);
    }
    return r_.chance(30) ? e_.let(fresh("c"), x) : e_.constant(x);
  }

  /// An operand of a shape, new or one that is there.
  Value operand(Layout layout, Width width) {
    std::vector<Value> known;
    for (const Known& k : operands_)
      if (k.layout == layout && k.width == width) known.push_back(k.value);
    if (!known.empty() && (r_.chance(60) || operands_.size() >= 12)) return r_.pick(known);
    const DType t = operand_dtype();
    const std::string name = fresh("x");
    const auto dims = [&]() -> Value {
      const Dim columns = width == Width::half ? N / 2 : width == Width::twice ? 2 * N : N;
      switch (layout) {
        case Layout::row: return e_.input(name, t, {M});
        case Layout::column: return e_.input(name, t, {columns});
        case Layout::matrix: return e_.input(name, t, {M, columns});
        default: return e_.input(name, t, {});
      }
    };
    const Value v = dims();
    operands_.push_back({layout, width, v});
    return v;
  }

  Value integer_operand(Layout layout) {
    auto& known = layout == Layout::row ? integer_rows_ : integer_scalars_;
    if (!known.empty() && r_.chance(60)) return r_.pick(known);
    const DType t = r_.chance(50) ? i32 : i64;
    known.push_back(layout == Layout::row ? e_.input(fresh("i"), t, {M}) : e_.input(fresh("i"), t, {}));
    return known.back();
  }

  // ---------------------------------------------------------------- integers and conditions

  /// An integer value that fits a value of `width`.
  Value integer(Width width, int depth) {
    if (depth > 0 && r_.chance(50)) {
      const Value x = integer(width, depth - 1);
      switch (r_.below(7)) {
        case 0: return x + integer(width, depth - 1);
        case 1: return x - r_.below(100);
        case 2: return x * (1 + r_.below(5));
        case 3: return floordiv(x, 1 + r_.below(9));
        case 4: return max(x, integer(width, depth - 1));
        case 5: return where(condition(width, depth - 1), x, integer(width, depth - 1));
        default: return x % (1 + r_.below(31));
      }
    }
    switch (r_.below(4)) {
      case 0: return e_.row();
      case 1:
        if (width == Width::full) return e_.col();
        if (width == Width::half && o_.pairs) {
          const auto [i, j] = split(e_.col(), pairing_);
          return r_.chance(50) ? i : j;
        }
        [[fallthrough]];
      case 2: return integer_operand(Layout::row);
      default: return integer_operand(Layout::scalar);
    }
  }

  Value condition(Width width, int depth) {
    if (depth > 0 && r_.chance(25)) {
      const Value x = condition(width, depth - 1);
      if (r_.chance(30)) return !x;
      const Value y = condition(width, depth - 1);
      return r_.chance(50) ? x && y : x || y;
    }
    if (!o_.tame && r_.chance(50)) return compare(real(width, depth - 1), real(width, depth - 1));
    const Value x = integer(width, depth - 1);
    if (r_.chance(50)) return compare(x, e_.constant(r_.below(64)));
    return compare(x, integer(width, depth - 1));
  }

  Value compare(const Value& x, const Value& y) {
    switch (r_.below(6)) {
      case 0: return x == y;
      case 1: return x != y;
      case 2: return x < y;
      case 3: return x <= y;
      case 4: return x > y;
      default: return x >= y;
    }
  }

  // ---------------------------------------------------------------- reals

  Value table_value(Width width, int depth) {
    const int columns = 1 << r_.below(6), rows = 16 << r_.below(3);
    const bool two = r_.chance(50), free = !o_.tame && r_.chance(50);
    const std::string name = fresh("table");
    const auto index = [&](int extent) {
      const Value i = integer(width, depth);
      return o_.tame ? i % extent : i;
    };
    if (two) {
      const Table t = free ? e_.table(name, f32, {"P", columns}) : e_.table(name, f32, {rows, columns});
      const Value i = index(rows);
      return lookup(t, i, index(columns));
    }
    const Table t = free ? e_.table(name, f32, {"P"}) : e_.table(name, operand_dtype(), {rows});
    return lookup(t, index(rows));
  }

  Value leaf(Width width) {
    std::vector<Value>& lets = width == Width::full ? full_ : width == Width::half ? half_ : twice_;
    switch (r_.below(8)) {
      case 0: return number();
      case 1: return operand(Layout::scalar, Width::none);
      case 2: return operand(Layout::row, Width::none);
      case 3: return operand(Layout::column, width);
      case 4: return operand(Layout::matrix, width);
      case 5:
        if (o_.integers && r_.chance(50)) return o_.tame ? integer(width, 1) % 7 : integer(width, 1);
        [[fallthrough]];
      default: return lets.empty() || r_.chance(30) ? element(width, 0) : r_.pick(lets);
    }
  }

  /// A real value that fits a value of `width`; it may be narrower.
  Value real(Width width, int depth) {
    if (depth <= 0 || r_.chance(15)) return leaf(width);
    if (r_.chance(55)) return combine(width, depth);
    if (r_.chance(12) && o_.tables && o_.integers) return table_value(width, 1);
    if (r_.chance(12) && o_.pairs) return element(width, depth);
    if (r_.chance(12) && o_.segments && width == Width::full) {
      return over_segment(element(width, depth - 1));
    }
    return function(real(width, depth - 1));
  }

  /// A reduction of x, of full width, over segments.
  Value over_segment(const Value& x) {
    const Over over = segment(segment_);
    switch (r_.below(4)) {
      case 0: return sum(x, over) / segment_;
      case 1: return max(x, over);
      case 2:
        if (o_.softmax) {
          const auto [m, s] = softmax_stats(x, over);
          return r_.chance(50) ? exp(x - m) / s : m + log(s);
        }
        [[fallthrough]];
      default: {
        if (!o_.picks) return sum(x, over);
        const Value index = index_in_segment();
        return r_.chance(50) ? pick(x, index, over) : pick(x, index, over, 1) * 0.5;
      }
    }
  }

  /// An integer below `segment_`, the same for all of a segment.
  Value index_in_segment() {
    if (o_.integers && r_.chance(50)) {
      const Value at = r_.chance(50) ? e_.row() : floordiv(e_.col(), r_.chance(50) ? segment_ : 2 * segment_);
      return (at + r_.below(5)) % segment_;
    }
    if (!place_) place_ = r_.chance(70) ? e_.input("place", r_.chance(50) ? i32 : i64, {M}) : e_.input("place", i32, {});
    return *place_;
  }

  Value combine(Width width, int depth) {
    const Value x = real(width, depth - 1);
    const int which = r_.below(8);
    if (which == 7 && o_.integers) return where(condition(width, depth - 1), x, real(width, depth - 1));
    const Value y = real(width, depth - 1);
    switch (which) {
      case 0: return x + y;
      case 1: return x - y;
      case 2: return o_.tame ? x / (1.0 + y * y) : x / y;
      case 3: return min(x, y);
      case 4: return max(x, y);
      case 5: return o_.tame ? clamp(x, -1.5, 2.5) + y : clamp(x, y, real(width, depth - 1));
      default: return o_.tame ? tanh(x) * y : x * y;
    }
  }

  Value function(const Value& x) {
    const Value small = o_.tame ? clamp(x, -6.0, 4.0) : x;
    switch (r_.below(21)) {
      case 0: return -x;
      case 1: return abs(x);
      case 2: return exp(small);
      case 3: return o_.tame ? log(1.0 + x * x) : log(x);
      case 4: return o_.tame ? sqrt(1.0 + x * x) : sqrt(x);
      case 5: return o_.tame ? rsqrt(1.0 + x * x) : rsqrt(x);
      case 6: return tanh(x);
      case 7: return erf(x);
      case 8: return sin(small);
      case 9: return cos(small);
      case 10: return sigmoid(x);
      case 11: return silu(x);
      case 12: return relu(x);
      case 13: return gelu(x);
      case 14: return gelu_tanh(x);
      case 15: return softplus(x);
      case 16: return -(-x);
      // Rounding jumps, so its argument is exact in every engine: an operand.
      case 17:
        if (o_.rounding) {
          constexpr DType formats[] = {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
          return x + round_to(o_.tame ? operand(Layout::row, Width::none) : x, formats[r_.below(o_.fp8 ? 5 : 3)]);
        }
        [[fallthrough]];
      case 18: return expm1(small);
      case 19: return o_.tame ? log1p(x * x) : log1p(x);
      default: return x * 0.5;
    }
  }

  /// A real value of exactly `width`, one an element.
  Value element(Width width, int depth) {
    if (width == Width::half) {
      if (!half_.empty() && r_.chance(50)) return r_.pick(half_) + real(width, depth - 1);
      const auto [a, b] = split(element(Width::full, depth - 1), pairing_);
      return r_.chance(30) ? a * b : r_.chance(50) ? a : b;
    }
    if (width == Width::twice) {
      if (!twice_.empty() && r_.chance(50)) return r_.pick(twice_) + real(width, depth - 1);
      return join(element(Width::full, depth - 1), real_full(depth - 1), pairing_);
    }
    if (depth > 0 && o_.pairs && r_.chance(15)) return join(element(Width::half, depth - 1), real_half(), pairing_);
    if (depth > 0 && o_.pairs && r_.chance(10)) {
      const auto [a, b] = split(operand(Layout::matrix, Width::twice), pairing_);
      return r_.chance(50) ? a : a - b;
    }
    if (!full_.empty() && r_.chance(40)) return r_.pick(full_) + real(width, depth - 1);
    if (depth > 0) return e_.acc() * real(width, depth - 1) + real(width, depth - 1);
    return e_.acc();
  }
  Value real_full(int depth) { return r_.chance(50) ? element(Width::full, depth) : real(Width::full, depth); }
  Value real_half() { return element(Width::half, 0); }

  // ---------------------------------------------------------------- statements

  Width some_width() {
    if (!o_.pairs) return Width::full;
    const int w = r_.below(6);
    return w == 0 ? Width::twice : w <= 2 ? Width::half : Width::full;
  }

  void make_let() {
    const Width width = some_width();
    if (width == Width::half && r_.chance(50)) {
      const auto [a, b] = split(element(Width::full, 1), pairing_);
      if (r_.chance(50)) e_.let(fresh("a"), fresh("b"), {a, b});
      half_.push_back(a * 1.0);
      half_.push_back(b + a);
      return;
    }
    Value v = element(width, o_.max_depth);
    if (r_.chance(60)) v = e_.let(fresh("v"), v * 1.0);
    (width == Width::full ? full_ : width == Width::half ? half_ : twice_).push_back(v);
  }

  void make_output() {
    const Width width = some_width();
    const Value v = element(width, o_.max_depth);
    const Dim columns = width == Width::half ? N / 2 : width == Width::twice ? 2 * N : N;
    const bool transpose = o_.transposed && r_.chance(20);
    const std::string name = fresh("out");
    if (o_.accumulate && r_.chance(20)) {
      const DType t = r_.chance(50) ? f32 : bf16;
      transpose ? e_.accumulate(name, t, {columns, M}, v) : e_.accumulate(name, t, {M, columns}, v);
    } else {
      const DType t = output_dtype();
      transpose ? e_.output(name, t, {columns, M}, v) : e_.output(name, t, {M, columns}, v);
    }
  }

  void make_finish() {
    const Width width = some_width();
    const std::string name = fresh("red");
    const auto value = [&](Width w) { return element(w, o_.max_depth - 1); };
    const auto store = [&](std::initializer_list<Dim> extents, const Value& v) {
      o_.accumulate && r_.chance(20) ? e_.accumulate(name, r_.chance(70) ? f32 : bf16, extents, v)
                                     : e_.finish(name, f32, extents, v);
    };
    const Dim columns = width == Width::half ? N / 2 : width == Width::twice ? 2 * N : N;
    switch (r_.below(5)) {
      case 0:
        if (o_.row_reductions) {
          const Value x = value(width);
          store({M}, r_.chance(50) ? sum(x, over_n) / N * operand(Layout::row, Width::none)
                                   : max(x, over_n) + operand(Layout::scalar, Width::none));
        }
        break;
      case 1:
        if (o_.column_reductions) {
          const Value x = value(width);
          store({columns}, r_.chance(50) ? sum(x, over_m) : max(x, over_m) * 2.0);
        }
        break;
      case 2:
        if (o_.matrix_reductions) {
          const Value x = value(width);
          store({}, r_.chance(50) ? sum(abs(x), over_mn) / M : max(x, over_mn));
        }
        break;
      case 3:
        if (o_.softmax) {
          const bool rows = !o_.column_reductions || r_.chance(60);
          const auto [m, s] = softmax_stats(value(width), rows ? over_n : over_m);
          rows ? store({M}, m + log(s)) : store({columns}, m + log(s));
        }
        break;
      default:
        if (o_.picks) {
          const bool rows = !o_.column_reductions || r_.chance(60);
          std::optional<Value>& index = rows ? target_ : chosen_;
          const DType t = r_.chance(50) ? i32 : i64;
          if (!index) index = rows ? e_.input("target", t, {M}) : e_.input("chosen", t, {N});
          const Value full = value(Width::full);
          const Over over = rows ? over_n : over_m;
          const Value x = r_.chance(50) ? pick(full, *index, over) : pick(full, *index, over, -100) * 0.5;
          rows ? store({M}, x) : store({N}, x);
        }
        break;
    }
  }

  /// A name that nothing uses is an error, so every value is part of some output.
  void use_all(const std::vector<Value>& lets, const Dim& columns) {
    if (lets.empty()) return;
    Value total = lets[0];
    for (std::size_t i = 1; i < lets.size(); ++i) total = total + lets[i];
    e_.output(fresh("all"), output_dtype(), {M, columns}, total);
  }

  struct Known {
    Layout layout;
    Width width;
    Value value;
  };

  Random r_;
  RandomProgramOptions o_;
  Epilogue e_;
  Pairing pairing_;
  int segment_ = 4;
  int count_ = 0;
  std::vector<Known> operands_;
  std::vector<Value> integer_rows_, integer_scalars_, full_, half_, twice_;
  std::optional<Value> target_, chosen_, place_;  ///< indices of picks over n, over m, over segments
};

}  // namespace

Program random_program(std::uint64_t seed, const RandomProgramOptions& options) {
  return Generator(seed, options).run();
}

std::int64_t column_divisor(const Program& p) {
  std::int64_t least = 2;
  const auto need = [&](std::int64_t d) { least = std::lcm(least, d); };
  for (const Node& n : p.nodes) {
    if (n.op == Op::split || n.op == Op::join) need(n.pairing.kind == Pairing::Kind::heads ? n.pairing.head : 2);
    if (n.over.kind == Over::Kind::segment) need(n.type.width == Width::half ? 2 * n.over.segment : n.over.segment);
  }
  return least;
}

}  // namespace coda::test
