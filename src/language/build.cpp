// The C++ builder: every function appends a node; program() checks the whole.
#include "coda/build.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda::epilogue {
namespace {

Location location(Here here) { return {here.file, here.line, 0}; }

Extent extent_of(const Dim& d) {
  Extent e;
  switch (d.kind) {
    case Dim::Kind::m: e.kind = Extent::Kind::m; break;
    case Dim::Kind::n: e.kind = Extent::Kind::n; break;
    case Dim::Kind::half_n: e.kind = Extent::Kind::half_n; break;
    case Dim::Kind::twice_n: e.kind = Extent::Kind::twice_n; break;
    case Dim::Kind::k: e.kind = Extent::Kind::symbol, e.symbol.assign(1, 'K'); break;  // refused as a reserved name
    case Dim::Kind::symbol: e.kind = Extent::Kind::symbol, e.symbol = d.symbol; break;
    case Dim::Kind::number: e.kind = Extent::Kind::number, e.number = d.number; break;
  }
  return e;
}

}  // namespace

Dim operator/(Dim n, int two) {
  if (n.kind != Dim::Kind::n || two != 2)
    throw Error(ErrorKind::type, "an extent divided: expected N / 2, the half width");
  return Dim(Dim::Kind::half_n);
}

Dim operator*(int two, Dim n) {
  if (n.kind != Dim::Kind::n || two != 2)
    throw Error(ErrorKind::type, "a multiple of an extent: expected 2 * N, twice the width");
  return Dim(Dim::Kind::twice_n);
}

Epilogue::Epilogue(std::string name) { program_.name = std::move(name); }

void Epilogue::refuse(Here here, std::string_view message) const {
  language::fail(ErrorKind::type, location(here), program_.name, message);
}

void Epilogue::gemm(DType a, DType b, Here here) {
  program_.a_dtype = a;
  program_.b_dtype = b;
  program_.where = location(here);
}

Value Epilogue::add(Node n) {
  if (program_.nodes.size() == language::max_nodes)
    language::fail(ErrorKind::type, n.where, program_.name, fmt::format("more than {} values", language::max_nodes));
  program_.nodes.push_back(std::move(n));
  return Value(this, static_cast<ValueId>(program_.nodes.size() - 1));
}

Value Epilogue::leaf(Op op, int index, Here here) {
  Node n;
  n.op = op;
  n.index = index;
  n.where = location(here);
  return add(std::move(n));
}

Value Epilogue::acc(Here here) { return leaf(Op::acc, 0, here); }
Value Epilogue::row(Here here) { return leaf(Op::row, 0, here); }
Value Epilogue::col(Here here) { return leaf(Op::col, 0, here); }

ValueId Epilogue::resolve(const Arg& a) {
  if (a.kind_ == Arg::Kind::value) {
    if (a.owner_ != this) refuse(a.here_, "a value of another program: expected one of this epilogue");
    return a.value_;
  }
  if (a.kind_ == Arg::Kind::dim) {
    const Dim& d = a.dim_;
    switch (d.kind) {
      case Dim::Kind::m: return leaf(Op::extent, 0, a.here_).id();
      case Dim::Kind::n: return leaf(Op::extent, 1, a.here_).id();
      case Dim::Kind::k: return leaf(Op::extent, 2, a.here_).id();
      case Dim::Kind::half_n: return make(Op::div, {Arg(leaf(Op::extent, 1, a.here_), a.here_), Arg(2, a.here_)}).id();
      case Dim::Kind::twice_n: return make(Op::mul, {Arg(2, a.here_), Arg(leaf(Op::extent, 1, a.here_), a.here_)}).id();
      default: refuse(a.here_, "a table's extent as a value: expected M, N or K");
    }
  }
  Node n;
  n.op = Op::constant;
  n.where = location(a.here_);
  n.is_integer = a.kind_ == Arg::Kind::integer;
  n.number = n.is_integer ? a.number_ : static_cast<double>(static_cast<float>(a.number_));
  if (n.is_integer ? std::abs(n.number) > std::numeric_limits<std::int32_t>::max()
                   : std::isinf(n.number) && !std::isinf(a.number_))
    refuse(a.here_, fmt::format("the number {}: expected {}", a.number_,
                                n.is_integer ? "an integer of 32 bits" : "one in the range of f32"));
  return add(std::move(n)).id();
}

Value Epilogue::make(Op op, std::initializer_list<Arg> args, Node fields) {
  Epilogue* owner = nullptr;
  Here here;
  for (const Arg& a : args) {
    if (a.owner_ && !owner) owner = a.owner_;
    if (here.line == 0) here = a.here_;
  }
  if (!owner)
    language::fail(ErrorKind::type, location(here), "",
                   fmt::format("'{}' of numbers alone: expected a value of an epilogue", name_of(op)));
  fields.op = op;
  fields.where = location(here);
  std::size_t i = 0;
  for (const Arg& a : args) fields.args[i++] = owner->resolve(a);
  return owner->add(std::move(fields));
}

Pair Epilogue::make_pair(Op first, Op second, const Arg& x, Node fields) {
  const Value a = make(first, {x}, fields);
  fields.index = second == Op::split ? 1 : 0;
  const Value b = make(second, {x}, fields);
  // Numbers are written anew wherever they stand; what a pair shares must be one node.
  Program& p = a.epilogue_->program_;
  p.nodes[static_cast<std::size_t>(b.id())].args = p.nodes[static_cast<std::size_t>(a.id())].args;
  return {a, b};
}

int Epilogue::declare(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here) {
  std::vector<Extent> all;
  for (const Dim& d : extents) all.push_back(extent_of(d));
  Shape wrong;
  wrong.extents = all;
  const auto shape = language::shape_of(std::move(all));
  if (!shape)
    refuse(here, fmt::format("operand '{}' with the extents {}: expected {{}}, {{M}}, {{N}}, {{N / 2}}, {{2 * N}}, "
                             "{{M, N}}, {{M, N / 2}}, {{M, 2 * N}} or a table",
                             name, language::spell(wrong)));
  program_.operands.push_back({std::string(name), t, *shape, location(here)});
  return static_cast<int>(program_.operands.size()) - 1;
}

Value Epilogue::input(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here) {
  const int index = declare(name, t, extents, here);
  const Shape& s = program_.operands.back().shape;
  if (language::is_table(s))
    refuse(here,
           fmt::format("input '{}' has the extents {} of a table: expected Epilogue::table", name, language::spell(s)));
  return leaf(Op::operand, index, here);
}

Table Epilogue::table(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here) {
  const int index = declare(name, t, extents, here);
  const Shape& s = program_.operands.back().shape;
  if (!language::is_table(s))
    refuse(here,
           fmt::format("table '{}' has the extents {}: expected extents other than M and N", name, language::spell(s)));
  return Table(this, index);
}

Value Epilogue::let(std::string_view name, const Arg& value) {
  const ValueId v = resolve(value);
  if (language::is_pair(program_.node(v).op))
    refuse(value.here_, fmt::format("'{}' for one of two values: expected let(first, second, pair)", name));
  program_.statements.push_back(static_cast<std::int32_t>(program_.lets.size()));
  program_.lets.push_back({{std::string(name)}, {v}});
  return Value(this, v);
}

Pair Epilogue::let(std::string_view first, std::string_view second, const Pair& values) {
  Let let;
  for (const auto& [name, value] : {std::pair(first, values.first), std::pair(second, values.second)}) {
    if (value.epilogue_ != this) refuse({}, "a value of another program: expected one of this epilogue");
    let.names.emplace_back(name);
    let.values.push_back(name == "_" ? no_value : value.id());
  }
  program_.statements.push_back(static_cast<std::int32_t>(program_.lets.size()));
  program_.lets.push_back(std::move(let));
  return values;
}

void Epilogue::store(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value,
                     bool accumulate, bool finish) {
  std::vector<Extent> all;
  for (const Dim& d : extents) all.push_back(extent_of(d));
  Shape wrong;
  wrong.extents = all;
  const auto shape = language::shape_of(std::move(all));
  if (!shape) refuse(value.here_, fmt::format("output '{}' with the extents {}", name, language::spell(wrong)));
  Output o;
  o.name = name;
  o.dtype = t;
  o.shape = *shape;
  o.accumulate = accumulate;
  o.finish = finish;
  o.value = resolve(value);
  o.where = location(value.here_);
  program_.outputs.push_back(std::move(o));
  program_.statements.push_back(-static_cast<std::int32_t>(program_.outputs.size()));
}

void Epilogue::output(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value) {
  store(name, t, extents, value, false, false);
}
void Epilogue::accumulate(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value) {
  store(name, t, extents, value, true, extents.size() < 2);
}
void Epilogue::finish(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value) {
  store(name, t, extents, value, false, true);
}

Program Epilogue::program() const {
  Program p = program_;
  // An input makes its node at once, used or not; what counts as a use is an argument or an output.
  std::vector<bool> used(p.operands.size(), false);
  const auto use = [&](ValueId v) {
    if (v == no_value) return;
    const Node& n = p.node(v);
    if (n.op == Op::operand) used[static_cast<std::size_t>(n.index)] = true;
  };
  for (const Node& n : p.nodes) {
    for (ValueId a : n.args) use(a);
    if (n.op == Op::lookup) used[static_cast<std::size_t>(n.index)] = true;
  }
  for (const Output& o : p.outputs) use(o.value);
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      language::fail(ErrorKind::type, p.operands[i].where, p.name,
                     fmt::format("the operand '{}' is never used: use it or remove it", p.operands[i].name));
  check(p);
  return p;
}

Pair split(const Arg& x, Pairing p) {
  Node n;
  n.pairing = p;
  return Epilogue::make_pair(Op::split, Op::split, x, n);
}

Value join(const Arg& x, const Arg& y, Pairing p) {
  Node n;
  n.pairing = p;
  return Epilogue::make(Op::join, {x, y}, n);
}

Value round_to(const Arg& x, DType t) {
  Node n;
  n.dtype = t;
  return Epilogue::make(Op::round_to, {x}, n);
}

Value lookup(const Table& table, const Arg& i) {
  Node n;
  n.op = Op::lookup;
  n.index = table.operand_;
  n.args[0] = table.epilogue_->resolve(i);
  n.where = table.epilogue_->program_.node(n.args[0]).where;
  if (table.epilogue_->program_.operands[static_cast<std::size_t>(n.index)].shape.extents.size() != 1)
    language::fail(ErrorKind::type, n.where, table.epilogue_->program_.name,
                   "lookup with one index: expected two, since the table has two extents");
  return table.epilogue_->add(std::move(n));
}

Value lookup(const Table& table, const Arg& i, const Arg& j) {
  Node n;
  n.op = Op::lookup;
  n.index = table.operand_;
  n.args[0] = table.epilogue_->resolve(i);
  n.args[1] = table.epilogue_->resolve(j);
  n.where = table.epilogue_->program_.node(n.args[0]).where;
  if (table.epilogue_->program_.operands[static_cast<std::size_t>(n.index)].shape.extents.size() != 2)
    language::fail(ErrorKind::type, n.where, table.epilogue_->program_.name,
                   "lookup with two indices: expected one, since the table has one extent");
  return table.epilogue_->add(std::move(n));
}

Value sum(const Arg& x, Over over) {
  Node n;
  n.over = over;
  return Epilogue::make(Op::reduce_sum, {x}, n);
}

Value max(const Arg& x, Over over) {
  Node n;
  n.over = over;
  return Epilogue::make(Op::reduce_max, {x}, n);
}

Pair softmax_stats(const Arg& x, Over over) {
  Node n;
  n.over = over;
  return Epilogue::make_pair(Op::softmax_max, Op::softmax_sum, x, n);
}

Value pick(const Arg& x, const Arg& index, Over over) {
  Node n;
  n.over = over;
  return Epilogue::make(Op::pick, {x, index}, n);
}

Value pick(const Arg& x, const Arg& index, Over over, const Arg& ignore) {
  Node n;
  n.over = over;
  return Epilogue::make(Op::pick, {x, index, ignore}, n);
}

}  // namespace coda::epilogue
