// The rules on declarations, and check(): names, element types, shapes, uses. Types of values: types.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda {
namespace language {
namespace {

class Checker {
 public:
  explicit Checker(const Program& p) : p_(p) {}

  void run() {
    check_names();
    check_product();
    for (const Operand& o : p_.operands) check_operand(o);
    for (const Output& o : p_.outputs) check_output(o);
    if (p_.outputs.empty()) refuse({}, "the program has no output: expected an out or a finish");
    if (p_.operands.size() > max_arguments || p_.outputs.size() > max_arguments)
      refuse({}, fmt::format("more than {} operands or outputs", max_arguments));
    for (const Node& n : p_.nodes) check_node(n);
    check_uses();
  }

 private:
  [[noreturn]] void refuse(const Location& where, std::string_view message) {
    fail(ErrorKind::type, where.line > 0 ? where : p_.where, p_.name, message);
  }

  void check_name(std::string_view name, const Location& where) {
    if (!is_name(name) || name == "_")
      refuse(where, fmt::format("the name '{}': expected a letter or _, then letters, digits and _, 64 at most", name));
    if (is_reserved(name))
      refuse(where, fmt::format("'{}' has a meaning of its own in the language: expected another name", name));
    if (name == "A" || name == "B")
      refuse(where, fmt::format("'{0}' is the name of the matrix {0}: expected another name", name));
  }

  void check_names() {
    if (!is_name(p_.name)) refuse({}, fmt::format("the program's name '{}' is no name", p_.name));
    std::map<std::string_view, Location> values, outputs;
    const auto declare = [&](auto& names, std::string_view name, const Location& where) {
      check_name(name, where);
      const auto [old, fresh] = names.emplace(name, where);
      if (!fresh)
        refuse(where, fmt::format("'{}' is defined a second time{}: expected a new name", name,
                                  old->second.line > 0 ? fmt::format(", first on line {}", old->second.line) : ""));
    };
    for (const Operand& o : p_.operands) declare(values, o.name, o.where);
    for (const Let& let : p_.lets) {
      for (std::size_t i = 0; i < let.names.size() && i < let.values.size(); ++i) {
        if (let.values[i] == no_value) continue;
        const bool known = let.values[i] >= 0 && static_cast<std::size_t>(let.values[i]) < p_.nodes.size();
        declare(values, let.names[i], known ? p_.node(let.values[i]).where : Location{});
      }
    }
    for (const Output& o : p_.outputs) {
      declare(outputs, o.name, o.where);
      for (const Operand& in : p_.operands)
        if (in.name == o.name)
          refuse(o.where, fmt::format("'{}' is an operand already: an argument needs a name of its own", o.name));
    }
  }

  void check_product() {
    const DType a = p_.a_dtype, b = p_.b_dtype;
    for (const auto& [name, t] : {std::pair{"A", a}, std::pair{"B", b}})
      if (!is_float(t) || t == DType::f64)
        refuse({}, fmt::format("the matrix {} of {}: expected f32, bf16, f16, e4m3 or e5m2", name, name_of(t)));
    const auto fp8 = [](DType t) { return t == DType::e4m3 || t == DType::e5m2; };
    if (a != b && !(fp8(a) && fp8(b)))
      refuse({}, fmt::format("A is {} and B is {}: expected one element type for both; only e4m3 and e5m2 mix",
                             name_of(a), name_of(b)));
  }

  /// The layout that the extents of a shape say.
  void check_shape(const Shape& s, const Location& where, std::string_view name) {
    if (shape_of(s.extents) != s)
      refuse(where, fmt::format("'{}' has extents {} that don't fit its layout", name, spell(s)));
  }

  void check_operand(const Operand& o) {
    check_shape(o.shape, o.where, o.name);
    const bool table = is_table(o.shape);
    if (o.dtype == DType::f64) refuse(o.where, fmt::format("the operand '{}' of f64: expected f32", o.name));
    if (o.shape.transposed)
      refuse(o.where, fmt::format("the operand '{}' has extents {}: expected {}; only outputs are stored transposed",
                                  o.name, spell(o.shape), "[M, N], [M, N/2] or [M, 2N]"));
    if (is_integer(o.dtype) && (table || o.shape.layout == Layout::matrix))
      refuse(o.where, fmt::format("the operand '{}' of {} has the extents {}: expected a float type; integer operands "
                                  "are scalars, [M] or [N]",
                                  o.name, name_of(o.dtype), spell(o.shape)));
  }

  void check_output(const Output& o) {
    check_shape(o.shape, o.where, o.name);
    if (!is_float(o.dtype) || o.dtype == DType::f64)
      refuse(o.where,
             fmt::format("the output '{}' of {}: expected f32, bf16, f16, e4m3 or e5m2", o.name, name_of(o.dtype)));
    if (o.accumulate && o.dtype != DType::f32 && o.dtype != DType::bf16)
      refuse(o.where, fmt::format("{} '{}' accumulates into {}: expected f32 or bf16; += adds to what is stored",
                                  o.finish ? "finish" : "out", o.name, name_of(o.dtype)));
    if (o.finish) {
      if (o.shape.layout != Layout::scalar && o.shape.layout != Layout::row && o.shape.layout != Layout::column)
        refuse(o.where, fmt::format("finish '{}' has the extents {}: expected [], [M], [N], [N/2] or [2N]; a matrix is "
                                    "an out",
                                    o.name, spell(o.shape)));
      return;
    }
    if (o.shape.layout != Layout::matrix)
      refuse(o.where, fmt::format("out '{}' has the extents {}: expected [M, N], [M, N/2], [M, 2N] or one of these "
                                  "transposed; a value for each row or column is a reduction, stored by finish",
                                  o.name, spell(o.shape)));
  }

  void check_node(const Node& n) {
    if (n.op == Op::constant) {
      if (n.is_integer && (n.number != std::floor(n.number) || n.number < std::numeric_limits<std::int32_t>::min() ||
                           n.number > std::numeric_limits<std::int32_t>::max()))
        refuse(n.where, fmt::format("the integer {}: expected one of 32 bits", n.number));
      if (std::isnan(n.number)) refuse(n.where, "a constant that is NaN: expected a number or inf");
      if (!n.is_integer && static_cast<double>(static_cast<float>(n.number)) != n.number)
        refuse(n.where, fmt::format("the real constant {}: expected the nearest f32", n.number));
    }
    if (n.op == Op::round_to && (!is_float(n.dtype) || n.dtype == DType::f64))
      refuse(n.where, fmt::format("round_to {}: expected f32, bf16, f16, e4m3 or e5m2", name_of(n.dtype)));
    if (n.op == Op::split || n.op == Op::join) {
      const Pairing& p = n.pairing;
      if (p.kind == Pairing::Kind::none) refuse(n.where, "a split or join without a pairing");
      if (p.kind == Pairing::Kind::heads) {
        if (p.head <= 0 || p.head % 2 != 0)
          refuse(n.where,
                 fmt::format("heads of {} columns: expected an even number, since a head's columns pair up", p.head));
        if (p.rotary <= 0 || p.rotary % 2 != 0 || p.rotary > p.head)
          refuse(n.where, fmt::format("{} rotary columns of a head of {}: expected an even number from 2 to {}",
                                      p.rotary, p.head, p.head));
      }
    }
    if (n.over.kind == Over::Kind::segment && n.over.segment <= 0)
      refuse(n.where, fmt::format("a segment of {} columns: expected at least 1", n.over.segment));
    if (n.op == Op::operand || n.op == Op::lookup) {
      if (n.index < 0 || static_cast<std::size_t>(n.index) >= p_.operands.size()) return;  // canonicalise() refuses it
      const Operand& o = p_.operands[static_cast<std::size_t>(n.index)];
      const bool table = is_table(o.shape);
      if (table != (n.op == Op::lookup))
        refuse(n.where,
               table ? fmt::format("'{}' is a table {}: expected a lookup", o.name, spell(o.shape))
                     : fmt::format("'{}' has the extents {}: expected a table to look up", o.name, spell(o.shape)));
    }
  }

  void check_uses() {
    std::vector<bool> used(p_.nodes.size(), false), operand_used(p_.operands.size(), false);
    const auto in_range = [](ValueId v, const auto& c) { return v >= 0 && static_cast<std::size_t>(v) < c.size(); };
    for (const Node& n : p_.nodes) {
      for (ValueId a : n.args)
        if (in_range(a, used)) used[static_cast<std::size_t>(a)] = true;
      if ((n.op == Op::operand || n.op == Op::lookup) && in_range(n.index, operand_used))
        operand_used[static_cast<std::size_t>(n.index)] = true;
    }
    for (const Output& o : p_.outputs)
      if (in_range(o.value, used)) used[static_cast<std::size_t>(o.value)] = true;
    for (std::size_t i = 0; i < operand_used.size(); ++i)
      if (!operand_used[i])
        refuse(p_.operands[i].where,
               fmt::format("the operand '{}' is never used: use it or remove it", p_.operands[i].name));
    for (const Let& let : p_.lets)
      for (std::size_t i = 0; i < let.values.size() && i < let.names.size(); ++i)
        if (in_range(let.values[i], used) && !used[static_cast<std::size_t>(let.values[i])])
          refuse(p_.node(let.values[i]).where,
                 fmt::format("the value '{}' is never used: use it or {}", let.names[i],
                             let.names.size() == 2 ? "write _ in its place" : "remove it"));
  }

  const Program& p_;
};

}  // namespace

const Location& location_of(const Program& p, ValueId v) {
  const Node& n = p.node(v);
  if (n.where.line > 0) return n.where;
  for (ValueId a : n.args)
    if (a != no_value && p.node(a).where.line > 0) return p.node(a).where;
  return n.where;
}

}  // namespace language

void check(Program& p) {
  language::Checker(p).run();
  language::canonicalise(p);
  language::infer_types(p);
}

}  // namespace coda
