// Random arguments for a program.
#include "coda/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "coda/convert.hpp"

namespace coda {
namespace {

/// splitmix64: 64 good bits a step, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 0x1234567U) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double a, double b) { return a + (b - a) * uniform(); }
  /// Sum of four uniforms, scaled to variance 1: close to normal, with no libm whose last bit could differ.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508075688772; }
  std::int64_t below(std::int64_t n) {
    return n <= 0 ? 0 : static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

template <class F>
void fill(const Tensor& t, F&& value) {
  const std::int64_t n = t.numel();
  for (std::int64_t i = 0; i < n; ++i) {
    switch (t.dtype) {
      case DType::f32: t.as<float>()[i] = static_cast<float>(value(i)); break;
      case DType::bf16: t.as<std::uint16_t>()[i] = to_bf16(static_cast<double>(value(i))); break;
      case DType::f16: t.as<std::uint16_t>()[i] = to_f16(static_cast<double>(value(i))); break;
      case DType::e4m3: t.as<std::uint8_t>()[i] = to_e4m3(static_cast<double>(value(i))); break;
      case DType::e5m2: t.as<std::uint8_t>()[i] = to_e5m2(static_cast<double>(value(i))); break;
      case DType::i32: t.as<std::int32_t>()[i] = static_cast<std::int32_t>(value(i)); break;
      case DType::i64: t.as<std::int64_t>()[i] = static_cast<std::int64_t>(value(i)); break;
      case DType::f64: t.as<double>()[i] = static_cast<double>(value(i)); break;
    }
  }
}

/// What an integer operand is for, as its uses show.
struct Use {
  std::int64_t target = -1;  ///< indexes a pick from this many elements, or meets `col` in ==
  bool ignored = false;      ///< names the index that a pick ignores
  bool boundary = false;     ///< meets `col` in an order comparison
  std::int64_t table = -1;   ///< indexes a table of this many entries

  void pick_from(std::int64_t elements) { target = target < 0 ? elements : std::min(target, elements); }
};

class Maker {
 public:
  Maker(const Program& p, const InputOptions& options)
      : p_(p), options_(options), random_(options.seed), uses_(p.operands.size()) {
    find_uses();
  }

  Inputs make() {
    Inputs inputs;
    const std::vector<Slot> slots = p_.slots();
    for (const Slot& s : slots) {
      HostTensor t(s.dtype, shape_of(s));
      switch (s.role) {
        case Slot::Role::a: fill(t, [&](auto) { return random_.normal(); }); break;
        case Slot::Role::b: {
          const double scale = options_.extents.k > 0 ? 1 / std::sqrt(static_cast<double>(options_.extents.k)) : 1;
          fill(t, [&](auto) { return scale * random_.normal(); });
          break;
        }
        case Slot::Role::operand: operand(static_cast<std::size_t>(s.index), t); break;
        case Slot::Role::output:
          if (p_.outputs[static_cast<std::size_t>(s.index)].accumulate)
            fill(t, [&](auto) { return random_.normal(); });
          else if (t.numel() > 0)
            std::memset(t.view().data, 0xFF, static_cast<std::size_t>(t.numel()) * size_of(s.dtype));
          break;
      }
      inputs.tensors.push_back(std::move(t));
    }
    for (const HostTensor& t : inputs.tensors) inputs.slots.push_back(t.view());
    return inputs;
  }

 private:
  std::int64_t extent(const Extent& e) const {
    const std::int64_t n = options_.extents.n;
    switch (e.kind) {
      case Extent::Kind::m: return options_.extents.m;
      case Extent::Kind::n: return n;
      case Extent::Kind::half_n: return n / 2;
      case Extent::Kind::twice_n: return 2 * n;
      case Extent::Kind::number: return e.number;
      case Extent::Kind::symbol: {
        const auto found = options_.symbols.find(e.symbol);
        return found == options_.symbols.end() ? 64 : found->second;
      }
    }
    return 0;
  }

  std::vector<std::int64_t> shape_of(const Slot& s) const {
    if (s.role == Slot::Role::a) return {options_.extents.m, options_.extents.k};
    if (s.role == Slot::Role::b) return {options_.extents.n, options_.extents.k};
    std::vector<std::int64_t> shape;
    for (const Extent& e : s.shape->extents) shape.push_back(extent(e));
    return shape;
  }

  Use* use_of(ValueId v) {
    if (v == no_value || p_.node(v).op != Op::operand) return nullptr;
    return &uses_[static_cast<std::size_t>(p_.node(v).index)];
  }

  bool is_column(ValueId v) const { return v != no_value && p_.node(v).op == Op::col; }

  void find_uses() {
    for (const Node& n : p_.nodes) {
      if (n.op == Op::pick) {
        if (Use* u = use_of(n.args[1]))
          u->pick_from(n.over.kind == Over::Kind::n   ? options_.extents.n
                       : n.over.kind == Over::Kind::m ? options_.extents.m
                                                      : n.over.segment);
        if (Use* u = use_of(n.args[2])) u->ignored = true;
      } else if (n.op == Op::lookup) {
        const Operand& table = p_.operands[static_cast<std::size_t>(n.index)];
        for (std::size_t a = 0; a < table.shape.extents.size(); ++a) {
          if (Use* u = use_of(n.args[a])) u->table = extent(table.shape.extents[a]);
        }
      } else if (n.op >= Op::eq && n.op <= Op::ge) {
        for (int a = 0; a < 2; ++a) {
          Use* u = is_column(n.args[1 - a]) ? use_of(n.args[a]) : nullptr;
          if (u == nullptr) continue;
          if (n.op == Op::eq || n.op == Op::ne)
            u->pick_from(options_.extents.n);
          else
            u->boundary = true;
        }
      }
      align_ = std::max<std::int64_t>({align_, n.pairing.head, n.over.segment});
    }
  }

  void operand(std::size_t index, const Tensor& t) {
    const Operand& o = p_.operands[index];
    const Use& use = uses_[index];
    const std::int64_t n = options_.extents.n;
    if (is_integer(o.dtype)) {
      // -100 is what frameworks ignore.
      const bool ignores =
          std::any_of(p_.operands.begin(), p_.operands.end(), [](const Operand& x) { return x.name == "ignore"; }) ||
          std::any_of(uses_.begin(), uses_.end(), [](const Use& u) { return u.ignored; });
      if (use.ignored || o.name == "ignore") return fill(t, [](auto) { return -100; });
      if (use.target >= 0) {
        return fill(t, [&](auto) { return ignores && random_.below(8) == 0 ? -100 : random_.below(use.target); });
      }
      if (use.table >= 0) return fill(t, [&](auto) { return random_.below(use.table); });
      // Where the rotated columns end, say: at a head's boundary inside the matrix.
      if (use.boundary)
        return fill(t, [&](auto) { return (o.name == "rotated" ? 3 * n / 4 : n / 2) / align_ * align_; });
      return fill(t, [&](auto) { return random_.below(16); });
    }
    if (o.name == "cos" || o.name == "sin") {
      const std::int64_t width = t.rank == 2 ? t.shape[1] : 1;
      return fill(t, [&](std::int64_t i) {
        const double frequency = std::pow(10000.0, -static_cast<double>(i % width) / static_cast<double>(width));
        const double angle = static_cast<double>(i / width) * frequency;
        return o.name == "cos" ? std::cos(angle) : std::sin(angle);
      });
    }
    const auto constant = [&](double c) { fill(t, [c](auto) { return c; }); };
    if (o.name == "eps") return constant(1e-6);
    if (o.name == "cap") return constant(5);
    if (o.name == "limit") return constant(1.5);
    if (o.name == "alpha") return constant(1.702);
    if (o.name == "smooth") return constant(0.1);
    if (o.name == "z_weight") return constant(1e-3);
    if (o.name == "rstd" || o.name == "scale") return fill(t, [&](auto) { return random_.uniform(0.5, 1.5); });
    if (o.name == "zmax") return fill(t, [&](auto) { return random_.uniform(2.5, 3.5); });
    if (o.name == "zsum") return fill(t, [&](auto) { return static_cast<double>(n) * random_.uniform(0.05, 0.1) + 1; });
    if (o.name == "w" || o.name == "wq" || o.name == "wk" || o.name == "gamma") {
      return fill(t, [&](auto) { return 1 + 0.2 * random_.normal(); });
    }
    fill(t, [&](auto) { return random_.normal(); });
  }

  const Program& p_;
  const InputOptions& options_;
  Random random_;
  std::vector<Use> uses_;
  std::int64_t align_ = 1;
};

}  // namespace

Inputs make_inputs(const Program& p, const InputOptions& options) { return Maker(p, options).make(); }

}  // namespace coda
