// The canonical text of a program, and values as they stand in messages.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <unordered_map>

#include "coda/text.hpp"
#include "internal.hpp"
#include "operators.hpp"

namespace coda {
namespace language {
namespace {

Precedence precedence_of(Op op) {
  const Operator* o = operator_of(op);
  return o ? o->precedence : p_atom;
}

std::string spell_constant(const Node& n) {
  if (n.is_integer) return fmt::format("{}", static_cast<std::int64_t>(n.number));
  if (std::isinf(n.number)) return n.number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", static_cast<float>(n.number));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Writes expressions; a value that has a name is written by it.
class Writer {
 public:
  explicit Writer(const Program& p, std::size_t budget = std::numeric_limits<std::size_t>::max())
      : p_(p), budget_(budget) {}

  void name(ValueId v, std::string_view n) { names_.emplace(v, n); }
  bool named(ValueId v) const { return names_.contains(v); }

  void write(ValueId v, int least = p_lowest) {
    if (text.size() > budget_) return;
    if (const auto known = names_.find(v); known != names_.end()) {
      text += known->second;
      return;
    }
    const Node& n = p_.node(v);
    const bool open = precedence(n) < least;
    if (open) text += '(';
    write_open(n);
    if (open) text += ')';
  }

  void write_call(const Node& n) {
    text += name_of(n.op);
    text += '(';
    bool first = true;
    const auto item = [&](auto&& write_item) {
      if (!first) text += ", ";
      first = false;
      write_item();
    };
    if (n.op == Op::lookup) item([&] { text += p_.operands[static_cast<std::size_t>(n.index)].name; });
    const bool over_before_last = n.op == Op::pick;
    for (std::size_t i = 0; i < n.args.size(); ++i) {
      if (over_before_last && i == 2) item([&] { text += spell(n.over); });
      if (n.args[i] != no_value) item([&] { write(n.args[i]); });
    }
    if (n.op == Op::split || n.op == Op::join) item([&] { text += spell(n.pairing); });
    if (n.op == Op::round_to) item([&] { text += name_of(n.dtype); });
    if (n.op == Op::reduce_sum || n.op == Op::reduce_max || n.op == Op::softmax_max || n.op == Op::softmax_sum)
      item([&] { text += spell(n.over); });
    text += ')';
  }

  std::string text;

 private:
  static int precedence(const Node& n) {
    if (n.op == Op::constant && std::signbit(n.number)) return p_unary;
    return precedence_of(n.op);
  }

  void write_open(const Node& n) {
    switch (n.op) {
      case Op::acc:
      case Op::row:
      case Op::col: text += name_of(n.op); return;
      case Op::extent: text += n.index == 0 ? "M" : n.index == 1 ? "N" : "K"; return;
      case Op::operand: text += p_.operands[static_cast<std::size_t>(n.index)].name; return;
      case Op::constant: text += spell_constant(n); return;
      default: break;
    }
    const int own = precedence_of(n.op);
    if (own == p_atom) return write_call(n);
    if (n.op == Op::logical_not) {
      text += "not ";
      write(n.args[0], p_not);
    } else if (n.op == Op::neg) {
      text += '-';
      // -2 is a number; the negation of the number 2 is -(2).
      const bool number = !named(n.args[0]) && p_.node(n.args[0]).op == Op::constant;
      write(n.args[0], number ? p_atom + 1 : p_unary);
    } else {
      write(n.args[0], own == p_comparison ? own + 1 : own);
      text += fmt::format(" {} ", name_of(n.op));
      write(n.args[1], own + 1);
    }
  }

  const Program& p_;
  std::size_t budget_;
  std::unordered_map<ValueId, std::string_view> names_;
};

}  // namespace

std::string spell(const Program& p, ValueId v) {
  constexpr std::size_t longest = 60;
  Writer w(p, longest);
  for (const Let& let : p.lets)
    for (std::size_t i = 0; i < let.values.size(); ++i)
      if (let.values[i] != no_value) w.name(let.values[i], let.names[i]);
  w.write(v);
  if (w.text.size() > longest) w.text = w.text.substr(0, longest - 3) + "...";
  return w.text;
}

}  // namespace language

std::string print(const Program& p) {
  using namespace language;
  Writer w(p);
  std::string& text = w.text;
  for (std::size_t begin = 0; !p.doc.empty() && begin <= p.doc.size();) {
    const std::size_t end = std::min(p.doc.find('\n', begin), p.doc.size());
    std::string line = p.doc.substr(begin, end - begin);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.pop_back();
    text += line.empty() ? "#" : "# " + line;
    text += '\n';
    begin = end + 1;
  }
  text += fmt::format("program {}\n  gemm A: {}[M, K], B: {}[N, K]\n", p.name, name_of(p.a_dtype), name_of(p.b_dtype));
  for (const Operand& o : p.operands)
    text += fmt::format("  in   {}: {}{}\n", o.name, name_of(o.dtype), spell(o.shape));
  for (const std::int32_t s : p.statements) {
    if (s >= 0) {
      const Let& let = p.lets[static_cast<std::size_t>(s)];
      const bool pair = let.names.size() == 2;
      text += fmt::format("  {}{}{} = ", let.names[0], pair ? ", " : "", pair ? let.names[1] : "");
      if (pair)
        w.write_call(p.node(let.values[0] != no_value ? let.values[0] : let.values[1]));
      else
        w.write(let.values[0]);
      for (std::size_t i = 0; i < let.values.size(); ++i)
        if (let.values[i] != no_value) w.name(let.values[i], let.names[i]);
    } else {
      const Output& o = p.outputs[static_cast<std::size_t>(-1 - s)];
      text += fmt::format("  {} {}: {}{} {} ", o.finish ? "finish" : "out ", o.name, name_of(o.dtype), spell(o.shape),
                          o.accumulate ? "+=" : "=");
      w.write(o.value);
    }
    text += '\n';
  }
  return text;
}

}  // namespace coda
