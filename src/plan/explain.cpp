// Counts arithmetic and memory traffic of a program, fused and unfused.
#include "coda/explain.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace coda {
namespace {

std::int64_t product_of(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_mul_overflow(a, b, &r))
    throw Error(ErrorKind::value, fmt::format("extents overflow: {} x {} doesn't fit in 63 bits", a, b));
  return r;
}

void add_to(std::int64_t& sum, std::int64_t bytes) {
  if (__builtin_add_overflow(sum, bytes, &sum))
    throw Error(ErrorKind::value, "extents overflow: the bytes moved don't fit in 63 bits");
}

std::int64_t size_named(const Sizes& sizes, std::string_view name) {
  const auto it = sizes.find(name);
  if (it == sizes.end())
    throw Error(ErrorKind::value,
                fmt::format("extent {} is missing: give M, N and K, as in M=8192,N=4096,K=4096", name));
  return it->second;
}

void check_sizes(const Program& p, const Sizes& sizes) {
  for (const char* name : {"M", "N", "K"}) size_named(sizes, name);
  std::set<std::string, std::less<>> known{"M", "N", "K"};
  for (const Operand& o : p.operands)
    for (const Extent& e : o.shape.extents)
      if (e.kind == Extent::Kind::symbol) known.insert(e.symbol);
  for (const auto& [name, value] : sizes) {
    if (!known.contains(name))
      throw Error(ErrorKind::value,
                  fmt::format("program {} has no extent named {}; it has {}", p.name, name, fmt::join(known, ", ")));
    if (value <= 0) throw Error(ErrorKind::value, fmt::format("extent {} = {} must be at least 1", name, value));
  }
  const std::int64_t n = size_named(sizes, "N");
  const auto divides = [&](std::int64_t width, std::int64_t by, std::string_view what) {
    if (by > 0 && width % by != 0)
      throw Error(ErrorKind::value,
                  fmt::format("program {} needs N to be a multiple of {} ({}); found N = {}", p.name, by, what, n));
  };
  for (const Node& v : p.nodes) {
    if (v.op == Op::split) {
      const std::int64_t width = p.node(v.args[0]).type.width == Width::twice ? product_of(n, 2) : n;
      divides(width, v.pairing.kind == Pairing::Kind::heads ? v.pairing.head : 2, "its columns are split in pairs");
    }
    if (v.over.kind == Over::Kind::segment) divides(n, v.over.segment, "it reduces over segments");
  }
}

/// Counting on one program and one set of sizes.
class Counter {
 public:
  Counter(const Program& p, const Sizes& sizes)
      : p_(p), sizes_(sizes), m_(size_named(sizes, "M")), n_(size_named(sizes, "N")), k_(size_named(sizes, "K")) {
    for (const Let& let : p.lets)
      for (const ValueId v : let.values)
        if (v != no_value && is_stored_by_frameworks(p.node(v))) stored_.insert(v);
    for (ValueId v = 0; v < static_cast<ValueId>(p.nodes.size()); ++v)
      if (p.node(v).op == Op::acc) stored_.insert(v);
  }

  std::vector<Pass> fused() const {
    std::vector<Pass> passes;
    for (const Slot& s : p_.slots()) {
      Pass pass{std::string(s.name), 0, 0};
      switch (s.role) {
        case Slot::Role::a: pass.read = bytes(product_of(m_, k_), s.dtype); break;
        case Slot::Role::b: pass.read = bytes(product_of(n_, k_), s.dtype); break;
        case Slot::Role::operand: pass.read = bytes_of(*s.shape, s.dtype); break;
        case Slot::Role::output:
          pass.written = bytes_of(*s.shape, s.dtype);
          if (p_.outputs[static_cast<std::size_t>(s.index)].accumulate) pass.read = pass.written;
          break;
      }
      passes.push_back(std::move(pass));
    }
    return passes;
  }

  std::vector<Pass> one_pass() const {
    std::vector<Pass> passes{product_alone()};
    Pass epilogue{"epilogue", 0, 0};
    for (const Operand& o : p_.operands) add_to(epilogue.read, bytes_of(o.shape, o.dtype));
    bool needs_acc = false;
    for (const Output& o : p_.outputs) {
      if (is_the_product(o)) continue;
      needs_acc = true;
      add_to(epilogue.written, bytes_of(o.shape, o.dtype));
      if (o.accumulate) add_to(epilogue.read, bytes_of(o.shape, o.dtype));
    }
    if (needs_acc) add_to(epilogue.read, bytes(product_of(m_, n_), p_.a_dtype));
    if (epilogue.bytes() > 0) passes.push_back(std::move(epilogue));
    return passes;
  }

  std::vector<Pass> eager() const {
    std::vector<Pass> passes{product_alone()};
    std::set<ValueId> seen;
    const auto reductions_under = [&](ValueId root) {
      std::set<ValueId> found;
      walk(root, [&](ValueId v) {
        if (is_complete_reduction(p_.node(v))) found.insert(v);
        return true;
      });
      for (const ValueId v : found) {
        // Max and sum of one softmax are one pass.
        if (p_.node(v).op == Op::softmax_sum && softmax_max_seen(v, seen)) continue;
        if (seen.insert(v).second) passes.push_back(pass_for(std::string(name_of(p_.node(v).op)), v, 4 * m_));
      }
    };
    for (const std::int32_t statement : p_.statements) {
      if (statement >= 0) {
        const Let& let = p_.lets[static_cast<std::size_t>(statement)];
        for (std::size_t i = 0; i < let.values.size(); ++i) {
          const ValueId v = let.values[i];
          if (v != no_value && stored_.contains(v) && p_.node(v).op != Op::acc && seen.insert(v).second)
            passes.push_back(pass_for(let.names[i], v, matrix_bytes(p_.node(v))));
        }
        continue;
      }
      const Output& o = p_.outputs[static_cast<std::size_t>(-1 - statement)];
      reductions_under(o.value);
      if (o.finish || is_the_product(o) || is_a_stored_value(o)) continue;
      Pass pass =
          stored_.contains(o.value) ? Pass{o.name, matrix_bytes(p_.node(o.value)), 0} : pass_for(o.name, o.value, 0);
      pass.written = bytes_of(o.shape, o.dtype);
      if (o.accumulate) add_to(pass.read, pass.written);
      passes.push_back(std::move(pass));
    }
    return passes;
  }

 private:
  /// A named real matrix that isn't a view or a table's row. Halves of a split are views of what is split.
  static bool is_stored_by_frameworks(const Node& v) {
    const bool matrix = v.type.rows && v.type.width != Width::none;
    return matrix && v.type.kind == ValueKind::real && v.op != Op::split && v.op != Op::lookup && v.op != Op::operand;
  }

  static bool is_complete_reduction(const Node& v) {
    const bool reduction = v.op == Op::reduce_sum || v.op == Op::reduce_max || v.op == Op::softmax_max ||
                           v.op == Op::softmax_sum || v.op == Op::pick;
    return reduction && v.over.kind != Over::Kind::segment;
  }

  bool softmax_max_seen(ValueId sum, const std::set<ValueId>& seen) const {
    return std::any_of(seen.begin(), seen.end(), [&](ValueId v) {
      return p_.node(v).op == Op::softmax_max && p_.node(v).args == p_.node(sum).args && p_.node(v).over == p_.node(sum).over;
    });
  }

  bool is_the_product(const Output& o) const {
    return p_.node(o.value).op == Op::acc && o.dtype == p_.a_dtype && !o.accumulate && !o.shape.transposed;
  }
  bool is_a_stored_value(const Output& o) const {
    return stored_.contains(o.value) && o.dtype == p_.a_dtype && !o.accumulate && !o.shape.transposed;
  }

  /// Calls visit(v) for every value `root` depends on, itself included; visit says whether to go on below v.
  template <class Visit>
  void walk(ValueId root, Visit visit) const {
    std::vector<ValueId> todo{root};
    std::set<ValueId> seen;
    while (!todo.empty()) {
      const ValueId v = todo.back();
      todo.pop_back();
      if (v == no_value || !seen.insert(v).second || !visit(v)) continue;
      for (const ValueId a : p_.node(v).args) todo.push_back(a);
    }
  }

  /// What a kernel that computes `root` from stored matrices and operands reads.
  Pass pass_for(std::string name, ValueId root, std::int64_t written) const {
    Pass pass{std::move(name), 0, written};
    std::set<int> operands;
    walk(root, [&](ValueId v) {
      const Node& node = p_.node(v);
      if (node.op == Op::operand || node.op == Op::lookup) operands.insert(node.index);
      if (v == root || !stored_.contains(v)) return true;
      add_to(pass.read, matrix_bytes(node));
      return false;
    });
    for (const int i : operands) {
      const Operand& o = p_.operands[static_cast<std::size_t>(i)];
      add_to(pass.read, bytes_of(o.shape, o.dtype));
    }
    return pass;
  }

  Pass product_alone() const {
    return {"product", bytes(product_of(m_, k_), p_.a_dtype) + bytes(product_of(n_, k_), p_.b_dtype),
            bytes(product_of(m_, n_), p_.a_dtype)};
  }

  static std::int64_t bytes(std::int64_t count, DType t) {
    return product_of(count, static_cast<std::int64_t>(size_of(t)));
  }

  std::int64_t extent(const Extent& e) const {
    switch (e.kind) {
      case Extent::Kind::m: return m_;
      case Extent::Kind::n: return n_;
      case Extent::Kind::half_n: return n_ / 2;
      case Extent::Kind::twice_n: return product_of(n_, 2);
      case Extent::Kind::number: return e.number;
      case Extent::Kind::symbol: {
        const auto it = sizes_.find(e.symbol);
        return it == sizes_.end() ? m_ : it->second;
      }
    }
    return 0;
  }

  std::int64_t bytes_of(const Shape& shape, DType t) const {
    std::int64_t count = 1;
    for (const Extent& e : shape.extents) count = product_of(count, extent(e));
    return bytes(count, t);
  }

  /// Of a matrix value as a framework stores it, in A's dtype.
  std::int64_t matrix_bytes(const Node& v) const {
    const std::int64_t columns = v.type.width == Width::half ? n_ / 2 : v.type.width == Width::twice ? 2 * n_ : n_;
    return bytes(product_of(m_, columns), p_.a_dtype);
  }

  const Program& p_;
  const Sizes& sizes_;
  std::int64_t m_, n_, k_;
  std::set<ValueId> stored_;
};

}  // namespace

Explanation explain(const Program& p, const Sizes& sizes) {
  check_sizes(p, sizes);
  const Counter counter(p, sizes);
  Explanation e;
  e.m = size_named(sizes, "M"), e.n = size_named(sizes, "N"), e.k = size_named(sizes, "K");
  e.flops = 2.0 * static_cast<double>(e.m) * static_cast<double>(e.n) * static_cast<double>(e.k);
  e.fused = counter.fused();
  e.one_pass = counter.one_pass();
  e.eager = counter.eager();
  return e;
}

std::int64_t total_bytes(std::span<const Pass> passes) {
  std::int64_t sum = 0;
  for (const Pass& pass : passes) {
    add_to(sum, pass.read);
    add_to(sum, pass.written);
  }
  return sum;
}

double floor_seconds(const Explanation& e, std::span<const Pass> passes, bool one_kernel, DType operand,
                     const Gpu& gpu) {
  const double rate = size_of(operand) == 1 ? gpu.flops_8bit : size_of(operand) == 2 ? gpu.flops_16bit : gpu.flops_f32;
  const double arithmetic = e.flops / rate;
  if (one_kernel) return std::max(arithmetic, static_cast<double>(total_bytes(passes)) / gpu.bandwidth);
  double seconds = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const double memory = static_cast<double>(passes[i].bytes()) / gpu.bandwidth;
    seconds += i == 0 ? std::max(arithmetic, memory) : memory;
  }
  return seconds;
}

}  // namespace coda
