// What a Program can say of itself: equality, hash, argument slots, and programs made from it.
#include "coda/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "diagnostics.hpp"
#include "internal.hpp"

namespace coda {
namespace {

/// A running 64-bit hash that is the same on every machine.
class Hash {
 public:
  Hash& operator<<(std::uint64_t x) {
    // The finaliser of splitmix64 over the state and the word.
    state_ += 0x9E3779B97F4A7C15u + x;
    state_ = (state_ ^ (state_ >> 30)) * 0xBF58476D1CE4E5B9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94D049BB133111EBu;
    state_ ^= state_ >> 31;
    return *this;
  }
  template <class T>
  requires std::is_enum_v<T> || std::is_integral_v<T> Hash& operator<<(T x) {
    return *this << static_cast<std::uint64_t>(x);
  }
  Hash& operator<<(const Pairing& p) { return *this << p.kind << p.head << p.rotary; }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

}  // namespace

bool Node::operator==(const Node& o) const {
  return op == o.op && args == o.args && index == o.index &&
         std::bit_cast<std::uint64_t>(number) == std::bit_cast<std::uint64_t>(o.number) && is_integer == o.is_integer &&
         pairing == o.pairing && over == o.over && dtype == o.dtype;
}

bool Program::operator==(const Program& o) const {
  return name == o.name && a_dtype == o.a_dtype && b_dtype == o.b_dtype && operands == o.operands && lets == o.lets &&
         outputs == o.outputs && nodes == o.nodes && statements == o.statements;
}

std::vector<Slot> Program::slots() const {
  std::vector<Slot> all;
  all.reserve(2 + operands.size() + outputs.size());
  all.push_back({Slot::Role::a, 0, "A", a_dtype, nullptr});
  all.push_back({Slot::Role::b, 0, "B", b_dtype, nullptr});
  for (std::size_t i = 0; i < operands.size(); ++i)
    all.push_back({Slot::Role::operand, static_cast<int>(i), operands[i].name, operands[i].dtype, &operands[i].shape});
  for (std::size_t i = 0; i < outputs.size(); ++i)
    all.push_back({Slot::Role::output, static_cast<int>(i), outputs[i].name, outputs[i].dtype, &outputs[i].shape});
  return all;
}

std::optional<int> Program::slot(std::string_view argument) const {
  int i = 0;
  if (argument == "A") return 0;
  if (argument == "B") return 1;
  for (const Operand& o : operands) {
    if (o.name == argument) return 2 + i;
    ++i;
  }
  for (const Output& o : outputs) {
    if (o.name == argument) return 2 + i;
    ++i;
  }
  return std::nullopt;
}

Program Program::without(std::string_view output) const {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const Output& o) { return o.name == output; });
  if (found == outputs.end())
    language::fail(ErrorKind::value, {}, name, fmt::format("no output '{}' to leave out", output));
  if (outputs.size() == 1)
    language::fail(ErrorKind::value, {}, name, fmt::format("'{}' is the only output: a program needs one", output));
  const auto index = static_cast<std::int32_t>(found - outputs.begin());
  Program p = *this;
  p.outputs.erase(p.outputs.begin() + index);
  const std::int32_t gone = -1 - index;
  std::erase(p.statements, gone);
  for (std::int32_t& s : p.statements)
    if (s < gone) ++s;
  language::canonicalise(p);
  check(p);
  return p;
}

Program Program::with_dtype(DType t) const {
  Program p = *this;
  p.a_dtype = p.b_dtype = t;
  for (Operand& o : p.operands)
    if (o.dtype == DType::bf16) o.dtype = t;
  for (Output& o : p.outputs)
    if (o.dtype == DType::bf16) o.dtype = t;
  check(p);
  return p;
}

std::uint64_t Program::structural_hash() const {
  std::map<std::string_view, std::uint64_t> symbols;  // free extents count by the order they come in
  const auto add_shape = [&](Hash& h, const Shape& s) {
    h << s.layout << s.width << s.transposed << s.extents.size();
    for (const Extent& e : s.extents) {
      h << e.kind << e.number;
      if (e.kind == Extent::Kind::symbol) h << symbols.try_emplace(e.symbol, symbols.size()).first->second;
    }
  };
  // Each value by what it is made from, so that names and the order of statements play no part.
  std::vector<std::uint64_t> values(nodes.size());
  for (std::size_t v = 0; v < nodes.size(); ++v) {
    const Node& n = nodes[v];
    Hash h;
    h << n.op << n.index << std::bit_cast<std::uint64_t>(n.number) << n.is_integer << n.pairing << n.over.kind
      << n.over.segment << n.dtype;
    for (ValueId a : n.args) h << (a == no_value ? 0 : values[at(a)]);
    values[v] = h.value();
  }
  Hash h;
  h << a_dtype << b_dtype << operands.size();
  for (const Operand& o : operands) {
    h << o.dtype;
    add_shape(h, o.shape);
  }
  h << outputs.size();
  for (const Output& o : outputs) {
    h << o.dtype << o.accumulate << o.finish << values[at(o.value)];
    add_shape(h, o.shape);
  }
  return h.value();
}

}  // namespace coda
