// Argument slots: names to slot order, and the check of tensors against a program that every engine starts with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <map>

#include "coda/engine.hpp"

namespace coda {
namespace {

std::string declared(const Slot& s) {
  if (s.role == Slot::Role::a) return fmt::format("{}[M, K]", name_of(s.dtype));
  if (s.role == Slot::Role::b) return fmt::format("{}[N, K]", name_of(s.dtype));
  std::vector<std::string> extents;
  for (const Extent& e : s.shape->extents) {
    switch (e.kind) {
      case Extent::Kind::m: extents.emplace_back("M"); break;
      case Extent::Kind::n: extents.emplace_back("N"); break;
      case Extent::Kind::half_n: extents.emplace_back("N/2"); break;
      case Extent::Kind::twice_n: extents.emplace_back("2N"); break;
      case Extent::Kind::symbol: extents.push_back(e.symbol); break;
      case Extent::Kind::number: extents.push_back(std::to_string(e.number)); break;
    }
  }
  return fmt::format("{}[{}]", name_of(s.dtype), fmt::join(extents, ", "));
}

[[noreturn]] void fail(ErrorKind kind, const Program& p, const Slot& s, const Tensor& t, std::string_view why) {
  const std::string_view what = s.role == Slot::Role::output ? "output" : "operand";
  throw Error(kind, fmt::format("program {}: {} {} is declared {}, but was given {}: {}", p.name, what, s.name,
                                declared(s), describe(t), why));
}

bool absent(const Slot& s, const Tensor& t) {
  return s.role == Slot::Role::output && t.data == nullptr && t.rank == 0;
}

/// What every tensor must satisfy by itself.
void check_view(const Program& p, const Slot& s, const Tensor& t) {
  if (t.dtype != s.dtype) fail(ErrorKind::dtype, p, s, t, "the element types differ; convert it first");
  const int rank = s.shape ? static_cast<int>(s.shape->extents.size()) : 2;
  if (t.rank != rank) fail(ErrorKind::shape, p, s, t, fmt::format("expected rank {}, found {}", rank, t.rank));
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) fail(ErrorKind::shape, p, s, t, "an extent is negative");
    if (t.stride[d] < 0) fail(ErrorKind::layout, p, s, t, "a stride is negative; copy it to a plain layout first");
    if (t.shape[d] > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorKind::shape, p, s, t, "extents above 2^31 - 1 can't be indexed");
    }
    if (s.role == Slot::Role::output && t.shape[d] > 1 && t.stride[d] == 0) {
      fail(ErrorKind::layout, p, s, t, "an output needs memory of its own for each element, but a stride is 0");
    }
  }
  if (t.data == nullptr && t.numel() > 0) fail(ErrorKind::layout, p, s, t, "its data pointer is null");
}

/// What the program's pairs and segments ask of N.
void check_columns(const Program& p, std::int64_t n) {
  const auto need = [&](std::int64_t columns, std::int64_t multiple, std::string_view what) {
    if (columns % multiple == 0) return;
    throw Error(ErrorKind::shape, fmt::format("program {}: {} needs its {} columns to be a multiple of {} (N = {}); "
                                              "pad B or change the program's param", p.name, what, columns, multiple, n));
  };
  const auto columns_of = [&](const Type& t) {
    return t.width == Width::half ? n / 2 : t.width == Width::twice ? 2 * n : n;
  };
  for (const Node& node : p.nodes) {
    if (node.op == Op::split || node.op == Op::join) {
      const std::int64_t columns = columns_of(node.op == Op::split ? p.node(node.args[0]).type : node.type);
      if (node.pairing.kind == Pairing::Kind::heads) {
        need(columns, node.pairing.head, fmt::format("heads({})", node.pairing.head));
      } else {
        need(columns, 2, "a pair of columns");
      }
    } else if (node.over.kind == Over::Kind::segment) {
      need(columns_of(p.node(node.args[0]).type), node.over.segment, fmt::format("segment({})", node.over.segment));
    }
  }
  for (const Operand& o : p.operands) {
    if (o.shape.width == Width::half) need(n, 2, fmt::format("{}, of N/2 columns,", o.name));
  }
  for (const Output& o : p.outputs) {
    if (o.shape.width == Width::half) need(n, 2, fmt::format("{}, of N/2 columns,", o.name));
  }
}

}  // namespace

std::vector<Tensor> bind(const Program& p, const std::map<std::string, Tensor, std::less<>>& named) {
  const std::vector<Slot> slots = p.slots();
  std::vector<Tensor> bound(slots.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto found = named.find(slots[i].name);
    if (found != named.end()) {
      bound[i] = found->second;
      ++used;
    } else if (slots[i].role != Slot::Role::output) {
      throw Error(ErrorKind::shape, fmt::format("program {}: operand {} ({}) is missing; give a tensor of that name",
                                                p.name, slots[i].name, declared(slots[i])));
    } else {
      bound[i].dtype = slots[i].dtype;
    }
  }
  if (used != named.size()) {
    for (const auto& [name, tensor] : named) {
      if (p.slot(name)) continue;
      std::vector<std::string_view> names;
      for (const Slot& s : slots) names.push_back(s.name);
      throw Error(ErrorKind::type, fmt::format("program {} has no argument {}; it has {}", p.name, name,
                                               fmt::join(names, ", ")));
    }
  }
  return bound;
}

Extents check_arguments(const Program& p, Slots given) {
  const std::vector<Slot> slots = p.slots();
  if (given.size() != slots.size()) {
    throw Error(ErrorKind::shape, fmt::format("program {} takes {} arguments (A, B, operands, outputs), but {} were "
                                              "given", p.name, slots.size(), given.size()));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!absent(slots[i], given[i])) check_view(p, slots[i], given[i]);
  }
  const Extents e{given[0].shape[0], given[1].shape[0], given[0].shape[1]};
  if (given[1].shape[1] != e.k) {
    fail(ErrorKind::shape, p, slots[1], given[1], fmt::format("K is {} in A and {} in B", e.k, given[1].shape[1]));
  }
  if (e.n > std::numeric_limits<std::int32_t>::max() / 2) {
    fail(ErrorKind::shape, p, slots[1], given[1], "N above 2^30 can't be indexed");
  }
  check_columns(p, e.n);
  std::map<std::string, std::pair<std::int64_t, std::string_view>> symbols;
  for (std::size_t i = 2; i < slots.size(); ++i) {
    if (absent(slots[i], given[i])) continue;
    for (int d = 0; d < given[i].rank; ++d) {
      const Extent& extent = slots[i].shape->extents[static_cast<std::size_t>(d)];
      const std::int64_t found = given[i].shape[d];
      std::int64_t expected = found;
      std::string source;
      switch (extent.kind) {
        case Extent::Kind::m: expected = e.m; source = "M is A's"; break;
        case Extent::Kind::n: expected = e.n; source = "N is B's"; break;
        case Extent::Kind::half_n: expected = e.n / 2; source = "N is B's"; break;
        case Extent::Kind::twice_n: expected = 2 * e.n; source = "N is B's"; break;
        case Extent::Kind::number: expected = extent.number; source = "declared"; break;
        case Extent::Kind::symbol: {
          const auto [at, fresh] = symbols.try_emplace(extent.symbol, found, slots[i].name);
          expected = at->second.first;
          source = fmt::format("{} was bound by {}", extent.symbol, at->second.second);
          break;
        }
      }
      if (found != expected) {
        fail(ErrorKind::shape, p, slots[i], given[i],
             fmt::format("expected extent {} to be {} ({}), found {}", d, expected, source, found));
      }
    }
  }
  return e;
}

}  // namespace coda
