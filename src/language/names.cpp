// Spellings of ops, shapes and pairings, the shapes there are, and which words are taken.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "internal.hpp"
#include "operators.hpp"

namespace coda {
namespace {

struct ElementwiseOp {
  std::string_view name;
  int arity;
  std::string_view formula;
};
constexpr ElementwiseOp elementwise[] = {
#define CODA_OP(name, arity, rule, formula) {#name, arity, #formula},
#include "coda/ops.def"
#undef CODA_OP
};

const ElementwiseOp* find(Op op) {
  if (!is_elementwise(op)) return nullptr;
  const auto i = static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::add);
  return i < std::size(elementwise) ? &elementwise[i] : nullptr;
}

}  // namespace

std::string_view name_of(Op op) {
  switch (op) {
    case Op::acc: return "acc";
    case Op::constant: return "constant";
    case Op::operand: return "operand";
    case Op::extent: return "extent";
    case Op::row: return "row";
    case Op::col: return "col";
    case Op::split: return "split";
    case Op::join: return "join";
    case Op::lookup: return "lookup";
    case Op::round_to: return "round_to";
    case Op::reduce_sum: return "sum";
    case Op::reduce_max: return "max";
    case Op::softmax_max:
    case Op::softmax_sum: return "softmax_stats";
    case Op::pick: return "pick";
    default: {
      if (const language::Operator* o = language::operator_of(op)) return o->spelling;
      const ElementwiseOp* e = find(op);
      return e ? e->name : "?";
    }
  }
}

int arity_of(Op op) {
  const ElementwiseOp* e = find(op);
  return e ? e->arity : 0;
}

std::string_view formula_of(Op op) {
  const ElementwiseOp* e = find(op);
  return e ? e->formula : "";
}

namespace language {

bool is_reserved(std::string_view name) {
  static constexpr std::string_view words[] = {"program", "param", "gemm", "in",  "out", "finish", "if", "over", "and",
                                               "or",      "not",   "acc",  "row", "col", "M",      "N",  "K",    "inf"};
  return std::find(std::begin(words), std::end(words), name) != std::end(words);
}

bool is_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 64 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool is_leaf(Op op) { return op == Op::acc || op == Op::row || op == Op::col || op == Op::extent || op == Op::operand; }

bool is_pair(Op op) { return op == Op::split || op == Op::softmax_max || op == Op::softmax_sum; }

std::optional<Shape> shape_of(std::vector<Extent> extents) {
  using Kind = Extent::Kind;
  const auto width = [](const Extent& e) {
    return e.kind == Kind::n         ? Width::full
           : e.kind == Kind::half_n  ? Width::half
           : e.kind == Kind::twice_n ? Width::twice
                                     : Width::none;
  };
  const auto of_table = [](const Extent& e) {
    return (e.kind == Kind::number && e.number >= 0) ||
           (e.kind == Kind::symbol && is_name(e.symbol) && !is_reserved(e.symbol));
  };
  Shape s;
  const auto& e = extents;
  if (e.empty()) {
    s.layout = Layout::scalar;
  } else if (e.size() <= 2 && std::all_of(e.begin(), e.end(), of_table)) {
    s.layout = e.size() == 1 ? Layout::table1 : Layout::table2;
  } else if (e.size() == 1) {
    s.layout = e[0].kind == Kind::m ? Layout::row : Layout::column;
    s.width = width(e[0]);
    if (s.layout == Layout::column && s.width == Width::none) return std::nullopt;
  } else if (e.size() == 2) {
    s.layout = Layout::matrix;
    s.transposed = e[1].kind == Kind::m;
    s.width = width(e[s.transposed ? 0 : 1]);
    if (s.width == Width::none || e[s.transposed ? 1 : 0].kind != Kind::m) return std::nullopt;
  } else {
    return std::nullopt;
  }
  s.extents = std::move(extents);
  return s;
}

std::string spell(const Shape& s) {
  std::string text = "[";
  for (const Extent& e : s.extents) {
    if (text.size() > 1) text += ", ";
    switch (e.kind) {
      case Extent::Kind::m: text += "M"; break;
      case Extent::Kind::n: text += "N"; break;
      case Extent::Kind::half_n: text += "N/2"; break;
      case Extent::Kind::twice_n: text += "2N"; break;
      case Extent::Kind::symbol: text += e.symbol; break;
      case Extent::Kind::number: text += fmt::format("{}", e.number); break;
    }
  }
  return text + "]";
}

std::string spell(const Pairing& p) {
  switch (p.kind) {
    case Pairing::Kind::none: return "none";
    case Pairing::Kind::adjacent: return "adjacent";
    case Pairing::Kind::halves: return "halves";
    case Pairing::Kind::heads:
      return p.rotary == p.head ? fmt::format("heads({})", p.head) : fmt::format("heads({}, {})", p.head, p.rotary);
  }
  return "?";
}

std::string spell(const Over& o) {
  switch (o.kind) {
    case Over::Kind::n: return "over n";
    case Over::Kind::m: return "over m";
    case Over::Kind::mn: return "over mn";
    case Over::Kind::segment: return fmt::format("over segment({})", o.segment);
  }
  return "?";
}

std::string_view spell(Width w) {
  constexpr std::string_view names[] = {"none", "half", "full", "twice"};
  return names[static_cast<int>(w)];
}

}  // namespace language
}  // namespace coda
