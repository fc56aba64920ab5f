#include "cuda/emit_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

namespace coda::emission {
namespace {

enum class Rule { real, arith, integer, compare, logic, where };

struct OpLine { Op op; Rule rule; };
constexpr OpLine op_lines[] = {
#define CODA_OP(name, arity, rule, formula) {Op::name, Rule::rule},
#include "coda/ops.def"
#undef CODA_OP
};

Rule rule_of(Op op) { return op_lines[static_cast<int>(op) - static_cast<int>(Op::add)].rule; }

/// The identifier that an op has in ops.def, which is not always its spelling in the language.
std::string identifier_of(Op op) {
  constexpr const char* names[] = {
#define CODA_OP(name, arity, rule, formula) #name,
#include "coda/ops.def"
#undef CODA_OP
  };
  return names[static_cast<int>(op) - static_cast<int>(Op::add)];
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Calls f(word) for each identifier of a formula and puts what it returns in its place.
template <class F>
std::string replace_words(std::string_view text, F f) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (!is_word(text[i])) { out += text[i++]; continue; }
    std::size_t end = i;
    while (end < text.size() && (is_word(text[end]) || text[end] == '.')) end++;
    out += f(std::string(text.substr(i, end - i)));
    i = end;
  }
  return out;
}

/// Whether arguments can be put into the formula: none stands in it twice.
bool substitutes(Op op) {
  int count[3] = {0, 0, 0};
  replace_words(formula_of(op), [&](std::string w) {
    if (w.size() == 1 && w[0] >= 'x' && w[0] <= 'z') count[w[0] - 'x']++;
    return w;
  });
  return count[0] <= 1 && count[1] <= 1 && count[2] <= 1;
}

bool is_call(const std::string& s) {
  const std::size_t open = s.find('(');
  if (open == 0 || open == std::string::npos || s.back() != ')') return false;
  if (!std::all_of(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(open), is_word)) return false;
  int depth = 0;
  for (std::size_t i = open; i < s.size(); i++) {
    depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == s.size();
  }
  return false;
}

std::string real_literal(double v) {
  const float f = static_cast<float>(v);
  if (std::isinf(f)) return f > 0 ? "infinity()" : "(-infinity())";
  std::string s = fmt::format("{:.9g}", f);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  s += "f";
  return f < 0 || std::signbit(f) ? "(" + s + ")" : s;
}
std::string integer_literal(double v) {
  const long long i = static_cast<long long>(v);
  if (i == -2147483648LL) return "(-2147483647 - 1)";
  return i < 0 ? fmt::format("({})", i) : fmt::format("{}", i);
}

}  // namespace

std::string indented(const std::vector<std::string>& lines, int indent) {
  std::string s;
  for (const std::string& l : lines) s += std::string(static_cast<std::size_t>(indent), ' ') + l + "\n";
  return s;
}

const char* c_type(ValueKind k) { return k == ValueKind::real ? "float" : k == ValueKind::integer ? "int" : "bool"; }

std::string literal(const Node& n, bool to_real) { return n.is_integer && !to_real ? integer_literal(n.number) : real_literal(n.number); }

bool is_constant(const Program& p, ValueId v) {
  const Node& n = p.node(v);
  if (n.op == Op::constant) return true;
  if (!is_elementwise(n.op) && n.op != Op::round_to) return false;
  return std::all_of(n.args.begin(), n.args.end(), [&](ValueId a) { return a == no_value || is_constant(p, a); });
}

std::string bare(const std::string& s) {
  if (s.size() < 2 || s.front() != '(') return s;
  int depth = 0;
  for (std::size_t i = 0; i < s.size(); i++) {
    depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == s.size() ? s.substr(1, s.size() - 2) : s;
  }
  return s;
}

std::string safe_name(const std::string& name) {
  // Names that a page, the device headers or C++ use themselves.
  static const std::set<std::string> reserved = {
      "p", "r", "i", "h", "c", "e", "m", "n", "q", "n_0", "n_1", "at", "acc", "local", "first", "fresh", "staged", "loaded", "slices",
      "lane", "warp", "rows", "row", "columns", "maps", "ok", "E", "C", "P", "in", "put_rows", "begin_rows", "finish_rows", "put_columns", "finish_columns", "put_totals", "finish_totals", "segments", "fetch", "ship", "half", "part", "group", "raster",
      "M", "N", "K", "partials", "counters", "split_from", "thread", "block", "bar", "dst", "src", "id", "last",
      "Row", "Config", "Params", "Maps", "Epilogue", "Sum", "Max", "Softmax", "Box", "Place", "Tile", "Word", "Value",
      "real", "exp", "expm1", "log", "log1p", "log1p_exp", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "abs", "select", "maximum", "minimum",
      "infinity", "not_a_number", "f32", "i32", "f16", "bf16", "e4m3", "e5m2", "u8", "u16", "u32", "u64", "i64", "i64_", "lookup", "round_to", "scalar",
      "alignas", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "continue", "default",
      "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
      "inline", "int", "long", "mutable", "namespace", "new", "not", "and", "or", "xor", "operator", "private", "protected",
      "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw",
      "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
      "while", "concept", "requires", "char8_t", "char16_t", "char32_t", "bitand", "bitor", "compl", "not_eq", "and_eq", "or_eq", "xor_eq",
      "nullptr", "noexcept", "decltype", "static_assert", "static_cast", "dynamic_cast", "const_cast", "reinterpret_cast",
      "thread_local", "alignof", "co_await", "co_return", "co_yield", "consteval", "constinit", "min", "max", "DEV"};
  for (const OpLine& l : op_lines)
    if (identifier_of(l.op) == name) return name + "_";
  return reserved.count(name) > 0 ? name + "_" : name;
}

namespace {
/// Whether an integer is never negative.
bool not_negative(const Program& p, ValueId v) {
  const Node& n = p.node(v);
  const auto arg = [&](std::size_t i) { return not_negative(p, n.args[i]); };
  switch (n.op) {
    case Op::constant: return n.number >= 0;
    case Op::extent: case Op::row: case Op::col: return true;
    case Op::split: return arg(0);
    case Op::floordiv: return arg(0) && arg(1);
    case Op::mod: return p.node(n.args[1]).op == Op::constant && p.node(n.args[1]).number > 0;
    case Op::min: return arg(0) && arg(1);
    case Op::max: return arg(0) || arg(1);
    default: return false;
  }
}
}  // namespace

std::string elementwise_text(const Program& p, const Node& n, const std::function<std::string(ValueId, bool)>& argument, std::set<Op>& ops) {
  const int arity = arity_of(n.op);
  const auto kind = [&](int i) { return p.node(n.args[static_cast<std::size_t>(i)]).type.kind; };
  bool any_real = false;
  const Rule rule = rule_of(n.op);
  for (int i = rule == Rule::where ? 1 : 0; i < arity; i++) any_real = any_real || kind(i) == ValueKind::real;
  const bool to_real = rule == Rule::real || ((rule == Rule::arith || rule == Rule::compare || rule == Rule::where) && any_real);
  std::string args[3];
  for (int i = 0; i < arity; i++)
    args[i] = argument(n.args[static_cast<std::size_t>(i)], to_real && !(rule == Rule::where && i == 0));
  const std::string formula(formula_of(n.op));
  if (!substitutes(n.op)) {
    ops.insert(n.op);
    return fmt::format("{}({})", identifier_of(n.op), bare(args[0]));
  }
  // A remainder of what is never negative by a constant: one instruction for powers of two.
  if (n.op == Op::mod && p.node(n.args[1]).op == Op::constant && p.node(n.args[1]).number > 0 && not_negative(p, n.args[0]))
    return fmt::format("int(u32({}) % {}u)", bare(args[0]), args[1]);
  const bool call = is_call(formula), plain = call && formula.find_first_of("+-*/?<") == std::string::npos;  // arguments stand alone
  const std::string s = replace_words(formula, [&](std::string w) {
    return w.size() == 1 && w[0] >= 'x' && w[0] <= 'z' ? plain ? bare(args[w[0] - 'x']) : args[w[0] - 'x'] : w;
  });
  return call ? s : "(" + s + ")";
}

std::string definitions_of(const std::set<Op>& ops) {
  std::set<std::string> wanted;
  for (Op op : ops) wanted.insert(identifier_of(op));
  // An op calls only ops above it, so one pass from the bottom finds all that are called.
  for (auto l = std::rbegin(op_lines); l != std::rend(op_lines); ++l) {
    if (wanted.count(identifier_of(l->op)) == 0) continue;
    replace_words(formula_of(l->op), [&](std::string w) {
      for (const OpLine& other : op_lines)
        if (identifier_of(other.op) == w && !formula_of(other.op).starts_with(w + "(")) wanted.insert(w);  // not maths.cuh's own
      return w;
    });
  }
  std::string out;
  for (const OpLine& l : op_lines)
    if (wanted.count(identifier_of(l.op)) > 0)
      out += fmt::format("DEV float {}(float x) {{ return {}; }}\n", identifier_of(l.op), formula_of(l.op));
  return out;
}

}  // namespace coda::emission
