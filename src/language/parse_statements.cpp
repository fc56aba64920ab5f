// Statements: declarations, lets, outputs.
#include <fmt/format.h>

#include <algorithm>

#include "diagnostics.hpp"
#include "internal.hpp"
#include "parser.hpp"

namespace coda::language {
namespace {

/// The comment lines above `program`, without '#' and one blank after it.
std::string head_comment(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string doc;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.remove_suffix(1);
    while (!line.empty() && (line[0] == ' ' || line[0] == '\t' || line[0] == '\r')) line.remove_prefix(1);
    if (line.empty()) continue;
    if (line[0] != '#') break;
    line.remove_prefix(1);
    if (!line.empty() && line[0] == ' ') line.remove_prefix(1);
    if (!doc.empty()) doc += '\n';
    doc += line;
  }
  return doc;
}

}  // namespace

Parser::Parser(std::string_view text, const ParamValues& params, std::string_view file)
    : lexer_(text, file), given_(params) {
  program_.doc = head_comment(text);
}

Program Parser::parse() {
  while (lexer_.peek().kind == Token::Kind::newline) lexer_.take();
  if (!at("program")) fail_expected("'program' and its name");
  lexer_.take();
  if (lexer_.peek().kind == Token::Kind::name) lexer_.name_program(lexer_.peek().text);
  program_.name = expect_name("the program's name").text;
  expect_end_of_line();

  bool have_gemm = false;
  while (lexer_.peek().kind != Token::Kind::end) {
    const Token& t = lexer_.peek();
    if (t.kind == Token::Kind::newline) {
      lexer_.take();
      continue;
    }
    if (t.is("param")) {
      parse_param();
    } else if (t.is("gemm")) {
      if (have_gemm) fail_at(t.where, "a second gemm line: expected one product, say A: bf16[M, K], B: bf16[N, K]");
      parse_gemm();
      have_gemm = true;
    } else if (t.is("program")) {
      fail_at(t.where, "a second program: expected one program in a text");
    } else if (!have_gemm) {
      fail_expected("'gemm A: DTYPE[M, K], B: DTYPE[N, K]' before any other statement");
    } else if (t.is("in")) {
      parse_operand();
    } else if (t.is("out") || t.is("finish")) {
      parse_output(t.is("finish"));
    } else {
      parse_let();
    }
    expect_end_of_line();
  }
  if (!have_gemm) fail_expected("'gemm A: DTYPE[M, K], B: DTYPE[N, K]'");
  if (program_.outputs.empty()) fail_expected("an 'out' or 'finish' statement: the program has no output");
  check_all_used();
  for (const auto& given : given_) {
    const auto known = [&](const Param& p) { return p.name == given.first; };
    if (std::any_of(program_.params.begin(), program_.params.end(), known)) continue;
    std::string all;
    for (const Param& p : program_.params) all += (all.empty() ? "" : ", ") + p.name;
    fail(ErrorKind::value, {}, program_.name,
         fmt::format("a value {} was given for param '{}', which the program doesn't have; its params: {}",
                     given.second, given.first, all.empty() ? "none" : all));
  }
  return std::move(program_);
}

void Parser::parse_param() {
  lexer_.take();
  const Token name = expect_name("the param's name");
  expect("=", "after the param's name");
  std::int64_t value = parse_integer();
  if (const auto given = given_.find(name.text); given != given_.end()) value = given->second;
  if (program_.params.size() == max_arguments) fail_at(name.where, "more than 256 params");
  Binding b;
  b.kind = Binding::Kind::param;
  b.number = value;
  declare(name, b);
  program_.params.push_back({std::string(name.text), value});
}

void Parser::parse_gemm() {
  program_.where = lexer_.take().where;
  const auto matrix = [&](std::string_view name, std::string_view rows) {
    expect(name, fmt::format("as in {}: bf16[{}, K]", name, rows));
    expect(":", "and an element type");
    const DType t = parse_dtype();
    expect("[", "and the extents");
    expect(rows, fmt::format("in {}[{}, K]", name, rows));
    expect(",", fmt::format("in {}[{}, K]", name, rows));
    expect("K", fmt::format("in {}[{}, K]", name, rows));
    expect("]", fmt::format("after {}[{}, K", name, rows));
    return t;
  };
  program_.a_dtype = matrix("A", "M");
  expect(",", "and the declaration of B");
  program_.b_dtype = matrix("B", "N");
}

void Parser::parse_operand() {
  lexer_.take();
  const Token name = expect_name("the operand's name");
  expect(":", "and an element type");
  Operand o;
  o.name = name.text;
  o.where = name.where;
  o.dtype = parse_dtype();
  o.shape = parse_shape(false);
  if (program_.operands.size() == max_arguments) fail_at(name.where, "more than 256 operands");
  if (const auto out = outputs_.find(name.text); out != outputs_.end())
    fail_type(name.where, fmt::format("'{}' is an output already, of line {}: an argument needs a name of its own",
                                      name.text, out->second.line));
  Binding b;
  b.kind = Binding::Kind::operand;
  b.index = static_cast<int>(program_.operands.size());
  declare(name, b);
  program_.operands.push_back(std::move(o));
}

void Parser::parse_output(bool finish) {
  lexer_.take();
  const Token name = expect_name("the output's name");
  declare_output(name);
  expect(":", "and an element type");
  Output o;
  o.name = name.text;
  o.where = name.where;
  o.finish = finish;
  o.dtype = parse_dtype();
  o.shape = parse_shape(!finish);
  o.accumulate = accept("+=");
  if (!o.accumulate) expect("=", "or '+=', and the value to store");
  o.value = parse_expression();
  if (const Token when = lexer_.peek(); accept("if")) {
    const ValueId condition = parse_expression();
    const auto known = constant_boolean(program_, condition);
    if (!known)
      fail_type(when.where, fmt::format("'{}' after if: expected a condition on params and numbers alone, which is "
                                        "known when the program is read",
                                        spell(program_, condition)));
    if (!*known) return;
  }
  if (program_.outputs.size() == max_arguments) fail_at(name.where, "more than 256 outputs");
  program_.outputs.push_back(std::move(o));
  program_.statements.push_back(-static_cast<std::int32_t>(program_.outputs.size()));
}

void Parser::parse_let() {
  std::vector<Token> names;
  if (lexer_.peek().kind != Token::Kind::name) fail_expected("a statement: in, out, finish, param or 'name = value'");
  names.push_back(expect_name("a name"));
  while (accept(",")) names.push_back(expect_name("a name, or _"));
  if (!at("="))
    fail_expected(
        fmt::format("'=' after '{}'; a statement is in, out, finish, param or 'name = value'", names.back().text));
  lexer_.take();
  if (names.size() > 2) fail_at(names[2].where, "expected one name, or two before split or softmax_stats, found more");
  if (names.size() == 2) return parse_pair(names);

  if (names[0].is("_")) fail_at(names[0].where, "'_' drops one of two values: expected a name");
  Binding b;
  b.value = parse_expression();
  depth_[static_cast<std::size_t>(b.value)] = 0;
  declare(names[0], b);
  program_.statements.push_back(static_cast<std::int32_t>(program_.lets.size()));
  program_.lets.push_back({{std::string(names[0].text)}, {b.value}});
}

void Parser::parse_pair(const std::vector<Token>& names) {
  const Token call = lexer_.peek();
  if (!(call.is("split") || call.is("softmax_stats")) || !lexer_.peek(1).is("("))
    fail_expected("split(value, PAIRING) or softmax_stats(value, over n) after two names");
  if (names[0].is("_") && names[1].is("_")) fail_at(names[0].where, "both values are dropped: expected a name");
  lexer_.take(), lexer_.take();
  Node first, second;
  first.args[0] = parse_expression();
  expect(",", call.is("split") ? "and a pairing: adjacent, halves or heads(D)" : "and what it runs over: over n");
  if (call.is("split")) {
    first.op = Op::split;
    first.pairing = parse_pairing();
  } else {
    first.op = Op::softmax_max;
    first.over = parse_over();
  }
  expect(")", fmt::format("to close '{}('", call.text));
  first.where = call.where;
  second = first;
  if (first.op == Op::split)
    second.index = 1;
  else
    second.op = Op::softmax_sum;

  Let let;
  for (int i : {0, 1}) {
    const Token& name = names[static_cast<std::size_t>(i)];
    let.names.emplace_back(name.text);
    let.values.push_back(no_value);
    if (name.is("_")) continue;
    Binding b;
    b.value = let.values.back() = add(i == 0 ? first : second);
    depth_[static_cast<std::size_t>(b.value)] = 0;
    declare(name, b);
  }
  program_.statements.push_back(static_cast<std::int32_t>(program_.lets.size()));
  program_.lets.push_back(std::move(let));
}

DType Parser::parse_dtype() {
  const Token& t = lexer_.peek();
  for (int i = 0; i < static_cast<int>(DType::f64); ++i)
    if (t.is(name_of(static_cast<DType>(i)))) {
      lexer_.take();
      return static_cast<DType>(i);
    }
  fail_expected("an element type: f32, bf16, f16, e4m3, e5m2, i32 or i64");
}

Shape Parser::parse_shape(bool transposable) {
  const Token open = expect("[", "and the extents, as in [M, N]; [] is a scalar");
  Shape s;
  while (!at("]")) {
    if (s.extents.size() == 2) fail_at(lexer_.peek().where, "a third extent: expected at most two");
    s.extents.push_back(parse_extent());
    if (!accept(",")) break;
  }
  expect("]", "to close the extents");

  const auto shape = shape_of(s.extents);
  if (shape && shape->transposed && !transposable)
    fail_type(open.where,
              fmt::format("extents {}: expected them the other way round; only an out is stored transposed", spell(s)));
  if (!shape) {
    fail_type(open.where,
              fmt::format("extents {}: expected {}", spell(s),
                          transposable ? "[], [M], [N], [N/2], [2N], [M, N], [M, N/2], [M, 2N], or a matrix with its "
                                         "two extents exchanged, stored transposed"
                                       : "[], [M], [N], [N/2], [2N], [M, N], [M, N/2], [M, 2N], or a table: [P] or "
                                         "[P, W] of extents other than M, N and K"));
  }
  return *shape;
}

Extent Parser::parse_extent() {
  const Token& t = lexer_.peek();
  Extent e;
  if (t.is("M")) {
    lexer_.take();
    e.kind = Extent::Kind::m;
  } else if (t.is("N")) {
    lexer_.take();
    e.kind = Extent::Kind::n;
    if (accept("/")) {
      const Token two = lexer_.peek();
      if (two.kind != Token::Kind::integer || two.integer != 2) fail_expected("2: N/2 is half width");
      lexer_.take();
      e.kind = Extent::Kind::half_n;
    }
  } else if (t.kind == Token::Kind::integer && t.integer == 2 && lexer_.peek(1).is("N")) {
    lexer_.take(), lexer_.take();
    e.kind = Extent::Kind::twice_n;
  } else if (t.is("K")) {
    fail_type(t.where, "the extent K: expected M, N, N/2, 2N, a number, a param or a free name; only A and B have K");
  } else if (t.kind == Token::Kind::name && !names_.contains(t.text)) {
    if (is_reserved(t.text)) fail_expected("an extent: M, N, N/2, 2N, a number, a param or a free name");
    e.kind = Extent::Kind::symbol;
    const Token name = lexer_.take();
    e.symbol = name.text;
    for (std::string_view op : {"+", "-", "*", "/", "//", "%"})
      if (at(op))
        fail_type(name.where, fmt::format("arithmetic on the free extent '{0}': expected a param; declare it with "
                                          "'param {0} = ...' above",
                                          name.text));
  } else {
    const Location where = t.where;
    e.kind = Extent::Kind::number;
    e.number = parse_integer();
    if (e.number < 0) fail_type(where, fmt::format("the extent {}: expected one that isn't negative", e.number));
  }
  return e;
}

void Parser::check_free(const Token& name) {
  if (is_reserved(name.text) || name.is("_"))
    fail_type(name.where,
              fmt::format("'{}' has a meaning of its own in the language: expected another name", name.text));
  if (name.is("A") || name.is("B"))
    fail_type(name.where, fmt::format("'{0}' is the name of the matrix {0}: expected another name", name.text));
}

void Parser::declare(const Token& name, Binding b) {
  check_free(name);
  b.where = name.where;
  const auto [old, fresh] = names_.emplace(name.text, b);
  if (!fresh)
    fail_type(name.where, fmt::format("'{}' is defined a second time, first on line {}: expected a new name", name.text,
                                      old->second.where.line));
}

void Parser::declare_output(const Token& name) {
  check_free(name);
  if (const auto known = names_.find(name.text); known != names_.end() && known->second.kind == Binding::Kind::operand)
    fail_type(name.where, fmt::format("'{}' is an operand already, of line {}: an argument needs a name of its own",
                                      name.text, known->second.where.line));
  const auto [old, fresh] = outputs_.emplace(name.text, name.where);
  if (!fresh)
    fail_type(name.where, fmt::format("the output '{}' is defined a second time, first on line {}: expected a new name",
                                      name.text, old->second.line));
}

void Parser::check_all_used() const {
  const std::pair<const std::string_view, Binding>* first = nullptr;
  for (const auto& entry : names_) {
    const Binding& b = entry.second;
    if (b.used) continue;
    if (!first ||
        std::pair(b.where.line, b.where.column) < std::pair(first->second.where.line, first->second.where.column))
      first = &entry;
  }
  if (!first) return;
  const std::string_view name = first->first;
  const Binding& b = first->second;
  const bool of_pair = std::any_of(program_.lets.begin(), program_.lets.end(), [&](const Let& l) {
    return l.names.size() == 2 && (l.names[0] == name || l.names[1] == name);
  });
  fail(ErrorKind::type, b.where, program_.name,
       fmt::format("{} '{}' is never used: {}",
                   b.kind == Binding::Kind::param     ? "the param"
                   : b.kind == Binding::Kind::operand ? "the operand"
                                                      : "the value",
                   name, of_pair ? "use it or write _ in its place" : "use it or remove the line"));
}

bool Parser::accept(std::string_view spelling) {
  if (!at(spelling)) return false;
  lexer_.take();
  return true;
}

Token Parser::expect(std::string_view spelling, std::string_view why) {
  if (!at(spelling)) fail_expected(fmt::format("'{}' {}", spelling, why));
  return lexer_.take();
}

Token Parser::expect_name(std::string_view what) {
  if (lexer_.peek().kind != Token::Kind::name) fail_expected(what);
  return lexer_.take();
}

void Parser::expect_end_of_line() {
  const Token& t = lexer_.peek();
  if (t.kind != Token::Kind::newline && t.kind != Token::Kind::end) fail_expected("an operator or the end of the line");
}

void Parser::fail_expected(std::string_view expected) {
  const Token& t = lexer_.peek();
  fail_at(t.where, fmt::format("expected {}, found {}", expected, describe(t)));
}

void Parser::fail_at(const Location& where, std::string_view message) {
  fail(ErrorKind::syntax, where, program_.name, message);
}

void Parser::fail_type(const Location& where, std::string_view message) {
  fail(ErrorKind::type, where, program_.name, message);
}

}  // namespace coda::language
