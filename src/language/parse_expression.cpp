// Expressions, by precedence climbing.
#include <fmt/format.h>

#include <limits>

#include "diagnostics.hpp"
#include "internal.hpp"
#include "operators.hpp"
#include "parser.hpp"

namespace coda::language {
namespace {

const Operator* binary_at(const Token& t) {
  for (const Operator& o : operators)
    if (o.binary && t.is(o.spelling)) return &o;
  return nullptr;
}

struct Function {
  std::string_view name;
  Op op;
  int arity;
};
constexpr Function functions[] = {
#define CODA_OP(name, arity, rule, formula) {#name, Op::name, arity},
#include "coda/ops.def"
#undef CODA_OP
};

const Function* function_named(std::string_view name) {
  for (const Function& f : functions)
    if (f.name == name && !operator_of(f.op)) return &f;
  return nullptr;
}
constexpr std::string_view structural[] = {"split", "join", "lookup", "round_to", "sum", "softmax_stats", "pick"};

}  // namespace

Parser::Level::Level(Parser& p) : p_(p) {
  constexpr int max_nesting = 4 * max_depth;  // a level of an expression takes at most four calls of the parser
  if (++p_.nesting_ > max_nesting)
    p_.fail_at(p_.lexer_.peek().where,
               fmt::format("parentheses and signs nest deeper than {}: name a part", max_nesting));
}

ValueId Parser::add(Node n) {
  if (program_.nodes.size() == max_nodes) fail_at(n.where, fmt::format("more than {} values", max_nodes));
  int depth = 0;
  for (ValueId a : n.args)
    if (a != no_value) depth = std::max(depth, depth_[static_cast<std::size_t>(a)] + 1);
  if (depth > max_depth)
    fail_at(n.where, fmt::format("an expression of more than {} levels: give a part of it a name", max_depth));
  depth_.push_back(depth);
  program_.nodes.push_back(std::move(n));
  return static_cast<ValueId>(program_.nodes.size() - 1);
}

ValueId Parser::leaf(Op op, int index, const Location& where) {
  const auto [old, fresh] = leaves_.try_emplace({op, index}, no_value);
  if (!fresh) return old->second;
  Node n;
  n.op = op;
  n.index = index;
  n.where = where;
  const ValueId v = add(std::move(n));
  leaves_[{op, index}] = v;
  return v;
}

ValueId Parser::literal(const Token& number, bool negative) {
  Node n;
  n.op = Op::constant;
  n.where = number.where;
  n.is_integer = number.kind == Token::Kind::integer;
  n.number = number.kind == Token::Kind::real ? number.real : static_cast<double>(number.integer);
  if (negative && !(n.is_integer && number.integer == 0)) n.number = -n.number;
  if (n.is_integer &&
      (n.number < std::numeric_limits<std::int32_t>::min() || n.number > std::numeric_limits<std::int32_t>::max()))
    fail_type(number.where, fmt::format("the integer {}{}: expected one of 32 bits; write {}{}.0 for a real number",
                                        negative ? "-" : "", number.integer, negative ? "-" : "", number.integer));
  return add(std::move(n));
}

ValueId Parser::parse_expression() { return parse_binary(0); }

ValueId Parser::parse_binary(int least) {
  const Level level(*this);
  ValueId left = no_value;
  if (at("not")) {
    if (least > p_not) fail_expected("a value; put 'not' and what follows it in parentheses");
    Node n;
    n.op = Op::logical_not;
    n.where = lexer_.take().where;
    n.args[0] = parse_binary(p_not);
    left = add(std::move(n));
  } else {
    left = parse_unary();
  }
  bool compared = false;
  while (const Operator* b = binary_at(lexer_.peek())) {
    if (b->precedence < least) break;
    const bool comparison = b->precedence == p_comparison;
    if (comparison && compared) fail_expected("one comparison; join two with 'and', as in a < b and b < c");
    compared = comparison;
    Node n;
    n.op = b->op;
    n.where = lexer_.take().where;
    n.args[0] = left;
    n.args[1] = parse_binary(b->precedence + 1);
    left = add(std::move(n));
  }
  return left;
}

ValueId Parser::parse_unary() {
  if (!at("-")) return parse_primary();
  const Level level(*this);
  Node n;
  n.op = Op::neg;
  n.where = lexer_.take().where;
  // A sign before a number belongs to the number.
  Token next = lexer_.peek();
  if (next.kind == Token::Kind::integer || next.kind == Token::Kind::real) return literal(lexer_.take(), true);
  if (next.is("inf")) {
    next.kind = Token::Kind::real;
    next.real = std::numeric_limits<double>::infinity();
    lexer_.take();
    return literal(next, true);
  }
  if (const auto known = names_.find(next.text);
      next.kind == Token::Kind::name && known != names_.end() && known->second.kind == Binding::Kind::param) {
    known->second.used = true;
    lexer_.take();
    next.kind = Token::Kind::integer;
    next.integer = known->second.number;
    return literal(next, true);
  }
  n.args[0] = parse_unary();
  return add(std::move(n));
}

ValueId Parser::parse_primary() {
  const Token& t = lexer_.peek();
  switch (t.kind) {
    case Token::Kind::integer:
    case Token::Kind::real: {
      const Token number = lexer_.take();
      const ValueId v = literal(number, false);
      const Token& next = lexer_.peek();
      if (next.kind == Token::Kind::name && next.where.line == number.where.line && !binary_at(next) && !next.is("if"))
        fail_expected("an operator after the number");
      return v;
    }
    case Token::Kind::name: {
      const Token name = lexer_.take();
      return at("(") ? parse_call(name) : read_name(name);
    }
    case Token::Kind::symbol:
      if (t.text == "(") {
        const Token open = lexer_.take();
        const ValueId v = parse_expression();
        expect(")", fmt::format("to close the '(' of line {}", open.where.line));
        return v;
      }
      [[fallthrough]];
    default: fail_expected("a value");
  }
}

ValueId Parser::read_name(const Token& name) {
  if (name.is("acc")) return leaf(Op::acc, 0, name.where);
  if (name.is("row")) return leaf(Op::row, 0, name.where);
  if (name.is("col")) return leaf(Op::col, 0, name.where);
  if (name.is("M")) return leaf(Op::extent, 0, name.where);
  if (name.is("N")) return leaf(Op::extent, 1, name.where);
  if (name.is("K")) return leaf(Op::extent, 2, name.where);
  if (name.is("inf")) {
    Token infinity = name;
    infinity.kind = Token::Kind::real;
    infinity.real = std::numeric_limits<double>::infinity();
    return literal(infinity, false);
  }
  const auto known = names_.find(name.text);
  if (known == names_.end()) {
    if (outputs_.contains(name.text))
      fail_type(name.where, fmt::format("'{0}' is an output, and outputs can't be read: expected a value; name what is "
                                        "stored ({0} = ...) and use that name in both places",
                                        name.text));
    if (is_reserved(name.text)) fail_at(name.where, fmt::format("expected a value, found '{}'", name.text));
    if (function_named(name.text)) fail_at(name.where, fmt::format("expected '(' after the function '{}'", name.text));
    fail_type(name.where,
              fmt::format("expected a name that is defined above, found '{}'{}", name.text, suggest(name.text, false)));
  }
  Binding& b = known->second;
  b.used = true;
  switch (b.kind) {
    case Binding::Kind::param: {
      Token number = name;
      number.kind = Token::Kind::integer;
      number.integer = b.number;
      return literal(number, false);
    }
    case Binding::Kind::operand: {
      const Operand& o = program_.operands[static_cast<std::size_t>(b.index)];
      if (is_table(o.shape))
        fail_type(name.where, fmt::format("'{0}' is a table {1}: expected lookup({0}, {2})", name.text, spell(o.shape),
                                          o.shape.layout == Layout::table1 ? "index" : "index, column"));
      return leaf(Op::operand, b.index, name.where);
    }
    default: return b.value;
  }
}

ValueId Parser::parse_call(const Token& name) {
  lexer_.take();
  if (name.is("split") || name.is("softmax_stats"))
    fail_at(name.where, fmt::format("{0} gives two values: expected a line of its own, 'a, b = {0}(...)'", name.text));
  if (name.is("lookup")) return parse_lookup(name);

  Node n;
  n.where = name.where;
  const auto close = [&] { expect(")", fmt::format("to close '{}('", name.text)); };
  if (name.is("join")) {
    n.op = Op::join;
    n.args[0] = parse_expression();
    expect(",", "and the second half");
    n.args[1] = parse_expression();
    expect(",", "and a pairing: adjacent, halves or heads(D)");
    n.pairing = parse_pairing();
    close();
    return add(std::move(n));
  }
  if (name.is("round_to")) {
    n.op = Op::round_to;
    n.args[0] = parse_expression();
    expect(",", "and the element type to round to");
    n.dtype = parse_dtype();
    close();
    return add(std::move(n));
  }
  if (name.is("sum") || name.is("pick")) {
    const ValueId x = parse_expression();
    return parse_reduction(name, x);
  }
  const Function* f = function_named(name.text);
  if (!f)
    fail_at(name.where, names_.contains(name.text)
                            ? fmt::format("'{}' is a value, not a function: expected an operator, found '('", name.text)
                            : fmt::format("expected a function of the language, found '{}'{}", name.text,
                                          suggest(name.text, true)));
  n.op = f->op;
  int count = 0;
  if (!at(")")) {
    do {
      if (f->op == Op::max && count == 1 && at("over")) return parse_reduction(name, n.args[0]);
      const ValueId v = parse_expression();
      if (count < 3) n.args[static_cast<std::size_t>(count)] = v;
      ++count;
    } while (accept(","));
  }
  close();
  if (count != f->arity)
    fail_type(name.where,
              fmt::format("'{}' takes {} argument{}, found {}", name.text, f->arity, f->arity == 1 ? "" : "s", count));
  return add(std::move(n));
}

ValueId Parser::parse_reduction(const Token& name, ValueId x) {
  Node n;
  n.where = name.where;
  n.args[0] = x;
  n.op = name.is("sum") ? Op::reduce_sum : name.is("max") ? Op::reduce_max : Op::pick;
  if (n.op != Op::reduce_max) expect(",", n.op == Op::pick ? "and the index to pick" : "and what it runs over: over n");
  if (n.op == Op::pick) {
    n.args[1] = parse_expression();
    expect(",", "and what it runs over: over n");
  }
  n.over = parse_over();
  if (n.op == Op::pick && accept(",")) n.args[2] = parse_expression();
  expect(")", fmt::format("to close '{}('", name.text));
  return add(std::move(n));
}

ValueId Parser::parse_lookup(const Token& name) {
  const Token table = expect_name("the name of a table operand");
  const auto known = names_.find(table.text);
  if (known == names_.end())
    fail_type(table.where, fmt::format("expected a table operand, found '{}', which isn't defined{}", table.text,
                                       suggest(table.text, false)));
  known->second.used = true;
  if (known->second.kind != Binding::Kind::operand)
    fail_type(table.where, fmt::format("expected a table operand, found '{}', which is no operand", table.text));
  const Operand& o = program_.operands[static_cast<std::size_t>(known->second.index)];
  if (!is_table(o.shape))
    fail_type(table.where, fmt::format("'{}' has the extents {}: expected a table, whose extents are other than M and "
                                       "N; use the operand by its name alone",
                                       table.text, spell(o.shape)));
  Node n;
  n.op = Op::lookup;
  n.where = name.where;
  n.index = known->second.index;
  std::size_t count = 0;
  const std::size_t rank = o.shape.extents.size();
  while (accept(",")) {
    const ValueId v = parse_expression();
    if (count < rank) n.args[count] = v;
    ++count;
  }
  expect(")", "to close 'lookup('");
  if (count != rank)
    fail_type(name.where, fmt::format("the table '{}' has the extents {}: expected {} {}, found {}", table.text,
                                      spell(o.shape), rank, rank == 1 ? "index" : "indices", count));
  return add(std::move(n));
}

std::string Parser::suggest(std::string_view name, bool calls) const {
  std::vector<std::string_view> candidates;
  if (calls) {
    for (const Function& f : functions)
      if (!operator_of(f.op)) candidates.push_back(f.name);
    candidates.insert(candidates.end(), std::begin(structural), std::end(structural));
  } else {
    for (const auto& [known, binding] : names_) candidates.push_back(known);
    candidates.insert(candidates.end(), {"acc", "row", "col"});
  }
  return did_you_mean(name, candidates);
}

}  // namespace coda::language
