// Recursive descent over the lexer's tokens, straight to the nodes of a Program. Grammar: docs/language.md.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/text.hpp"
#include "lexer.hpp"

namespace coda::language {

/// Reads one program. The result has names resolved and params replaced; it is neither canonical nor typed yet.
class Parser {
 public:
  Parser(std::string_view text, const ParamValues& params, std::string_view file);
  Program parse();

 private:
  /// What a name stands for.
  struct Binding {
    enum class Kind : std::uint8_t { param, operand, value };
    Kind kind = Kind::value;
    std::int64_t number = 0;   ///< param
    int index = 0;             ///< operand
    ValueId value = no_value;  ///< value
    Location where;
    bool used = false;
  };

  // parse_statements.cpp
  void parse_param();
  void parse_gemm();
  void parse_operand();
  void parse_output(bool finish);
  void parse_let();
  void parse_pair(const std::vector<Token>& names);
  Shape parse_shape(bool transposable);
  Extent parse_extent();
  DType parse_dtype();
  void check_free(const Token& name);  ///< refuses words that have a meaning
  void declare(const Token& name, Binding b);
  void declare_output(const Token& name);
  void check_all_used() const;

  // parse_expression.cpp
  ValueId parse_expression();
  ValueId parse_binary(int least);
  ValueId parse_unary();
  ValueId parse_primary();
  ValueId parse_call(const Token& name);
  ValueId parse_lookup(const Token& name);
  ValueId parse_reduction(const Token& name, ValueId x);
  ValueId read_name(const Token& name);
  ValueId literal(const Token& number, bool negative);
  ValueId leaf(Op op, int index, const Location& where);
  ValueId add(Node n);

  // parse_integer.cpp
  Over parse_over();
  Pairing parse_pairing();
  std::int64_t parse_integer();  ///< an expression of numbers and params
  std::int64_t parse_integer_sum();
  std::int64_t parse_integer_product();
  std::int64_t parse_integer_atom();
  std::int32_t parse_columns(std::string_view what);

  /// Counts one level of recursion for as long as it lives; refuses too many.
  class Level {
   public:
    explicit Level(Parser& p);
    ~Level() { --p_.nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& p_;
  };

  // Tokens.
  bool at(std::string_view spelling) const { return lexer_.peek().is(spelling); }
  bool accept(std::string_view spelling);
  Token expect(std::string_view spelling, std::string_view why);
  Token expect_name(std::string_view what);
  void expect_end_of_line();
  [[noreturn]] void fail_expected(std::string_view expected);
  [[noreturn]] void fail_at(const Location& where, std::string_view message);
  [[noreturn]] void fail_type(const Location& where, std::string_view message);
  std::string suggest(std::string_view name, bool functions) const;

  Lexer lexer_;
  const ParamValues& given_;
  std::map<std::string_view, Binding> names_;
  std::map<std::string_view, Location> outputs_;
  std::map<std::pair<Op, int>, ValueId> leaves_;
  std::vector<int> depth_;  ///< of each node, from the names below it
  int nesting_ = 0;
  Program program_;
};

}  // namespace coda::language
