// A Program: one matrix product and its epilogue, as checked data. Engines read it; nothing here computes.
// The text form and its grammar: docs/language.md. The meaning of each op: ops.def.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.hpp"
#include "coda/error.hpp"

namespace coda {

using ValueId = std::int32_t;  ///< index into Program::nodes
inline constexpr ValueId no_value = -1;

// ---------------------------------------------------------------- extents and shapes

/// One extent of a declared shape. The extents of a table are free symbols, bound by the tensor that is passed, or
/// numbers.
struct Extent {
  enum class Kind : std::uint8_t { m, n, half_n, twice_n, symbol, number };
  Kind kind = Kind::m;
  std::string symbol;        ///< kind == symbol: its name, e.g. "P"
  std::int64_t number = 0;   ///< kind == number
  bool operator==(const Extent&) const = default;
};

/// How many columns a value has. A value of width `half` has one element for each pair of columns.
enum class Width : std::uint8_t { none, half, full, twice };

/// Which columns form a pair.
///   none      no pairing (every full-width value), or, on a half- or twice-width operand, whatever it meets
///   adjacent  2j and 2j+1
///   halves    j and j + W/2, W the width that is split
///   heads     in each run of `head` columns the first `rotary` pair half-split, and so do the remaining ones;
///             pair h*head/2 + i is columns h*head + i and h*head + i + rotary/2 for i < rotary/2, and
///             h*head + rotary + (i - rotary/2) and that plus (head - rotary)/2 for the rest
struct Pairing {
  enum class Kind : std::uint8_t { none, adjacent, halves, heads };
  Kind kind = Kind::none;
  std::int32_t head = 0;    ///< heads: D, even
  std::int32_t rotary = 0;  ///< heads: R <= D, even; D when all of the head rotates
  bool operator==(const Pairing&) const = default;
};

/// Where an operand's or output's elements lie.
enum class Layout : std::uint8_t { scalar, row, column, matrix, table1, table2 };

/// A declared shape. [] scalar; [M] row; [N], [N/2], [2N] column; [M,N], [M,N/2], [M,2N] matrix;
/// the same reversed (outputs only) with `transposed`; anything without M and N is a table.
struct Shape {
  Layout layout = Layout::scalar;
  Width width = Width::none;      ///< column and matrix
  bool transposed = false;        ///< matrix outputs stored [N, M]
  std::vector<Extent> extents;    ///< as written
  bool operator==(const Shape&) const = default;
};

// ---------------------------------------------------------------- values

/// Every op: structural ones first, then the element-wise ones of ops.def.
enum class Op : std::uint8_t {
  acc,           ///< the product, real, rows x full
  constant,      ///< Node::number; integer or real
  operand,       ///< operands[Node::index], not a table
  extent,        ///< Node::index 0, 1, 2 = M, N, K; integer
  row,           ///< row index m, integer
  col,           ///< column index n, integer, width full
  split,         ///< member Node::index (0 or 1) of args[0] split by Node::pairing: twice -> full or full -> half
  join,          ///< args[0], args[1] joined by Node::pairing: half -> full or full -> twice
  lookup,        ///< operands[Node::index], a table, at integer args[0] (and args[1]); NaN out of range
  round_to,      ///< args[0] rounded to Node::dtype and back
  reduce_sum,    ///< args[0] over Node::over
  reduce_max,    ///< args[0] over Node::over; NaN wins; -inf when there is nothing
  softmax_max,   ///< the max of args[0] (NaN ignored only if there is none: NaN wins) ...
  softmax_sum,   ///< ... and sum of exp(args[0] - that max); both members of one softmax_stats share args and over
  pick,          ///< args[0] at integer index args[1]; args[2] (or no_value): the index that means "ignored", giving 0
#define CODA_OP(name, arity, rule, formula) name,
#include "coda/ops.def"
#undef CODA_OP
};

/// What a reduction runs over. n yields one value a row, m one a column, mn a scalar: all three are *complete* only
/// after the whole product, so they may be used in `finish` alone. A segment's result stands in every column of the
/// segment and may be used again at once.
struct Over {
  enum class Kind : std::uint8_t { n, m, mn, segment };
  Kind kind = Kind::n;
  std::int32_t segment = 0;  ///< kind == segment: its number of columns D
  bool operator==(const Over&) const = default;
};

enum class ValueKind : std::uint8_t { real, integer, boolean };

/// When a value is known: for each element of a tile, or only when the reductions are complete.
enum class Stage : std::uint8_t { tile, finish };

/// What the verifier infers of a value. A scalar has rows == false and width == none; a row vector rows == true and
/// width == none; a column vector rows == false.
struct Type {
  ValueKind kind = ValueKind::real;
  bool rows = false;
  Width width = Width::none;
  Pairing pairing;           ///< of a half- or twice-width value
  Stage stage = Stage::tile;
  bool operator==(const Type&) const = default;
};

/// One value. Arguments come before their users. Fields that an op doesn't use keep their defaults.
struct Node {
  Op op = Op::acc;
  std::array<ValueId, 3> args{no_value, no_value, no_value};
  std::int32_t index = 0;
  double number = 0;       ///< constant; every real constant is used as the nearest f32
  bool is_integer = false; ///< constant written without a point
  Pairing pairing;
  Over over;
  DType dtype = DType::f32;
  Type type;               ///< inferred by check()
  Location where;          ///< not part of equality
  bool operator==(const Node& o) const;
};

// ---------------------------------------------------------------- declarations

/// A compile-time integer. parse() replaces its uses by its value, so that a Program holds numbers alone; this is
/// the record of what it was set to. Not part of equality, not printed.
struct Param {
  std::string name;
  std::int64_t value = 0;
  bool operator==(const Param&) const = default;
};

struct Operand {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Location where;
  bool operator==(const Operand& o) const { return name == o.name && dtype == o.dtype && shape == o.shape; }
};

/// A named value: `name = value`, or `a, b = split(...)` / `m, s = softmax_stats(...)` with two names. The name "_"
/// drops a member.
struct Let {
  std::vector<std::string> names;
  std::vector<ValueId> values;
  bool operator==(const Let&) const = default;
};

/// `out` (value of stage tile, one per element) or `finish` (stage finish, scalar, row or column vector).
struct Output {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  bool accumulate = false;  ///< `+=`: the stored value is the old one plus the new, added in f32, rounded once
  bool finish = false;
  ValueId value = no_value;
  Location where;
  bool operator==(const Output& o) const {
    return name == o.name && dtype == o.dtype && shape == o.shape && accumulate == o.accumulate &&
           finish == o.finish && value == o.value;
  }
};

/// One argument of a program, in call order: A, B, operands, outputs.
struct Slot {
  enum class Role : std::uint8_t { a, b, operand, output };
  Role role = Role::a;
  int index = 0;  ///< into operands or outputs
  std::string_view name;
  DType dtype = DType::f32;
  const Shape* shape = nullptr;  ///< null for A ([M, K]) and B ([N, K])
};

/// A checked program. Make one with parse(), load_program() or build(); they throw Error and never return one that
/// doesn't check. Value type: copy freely, share between threads.
class Program {
 public:
  std::string name;
  std::string doc;              ///< the head comment, without '#'
  std::vector<Param> params;
  DType a_dtype = DType::bf16;  ///< A[M, K]
  DType b_dtype = DType::bf16;  ///< B[N, K]
  Location where;               ///< of the gemm statement; not part of equality
  std::vector<Operand> operands;
  std::vector<Let> lets;        ///< in order; every Let stands before its first use
  std::vector<Output> outputs;  ///< `out` and `finish`, in order
  std::vector<Node> nodes;      ///< canonical order: post-order over lets and outputs as they stand in the text
  /// The order of statements in the text: index >= 0 is lets[index], index < 0 is outputs[-1 - index].
  std::vector<std::int32_t> statements;

  const Node& node(ValueId v) const { return nodes[static_cast<std::size_t>(v)]; }
  std::vector<Slot> slots() const;
  /// Slot index by argument name ("A", "B", an operand, an output), or nullopt.
  std::optional<int> slot(std::string_view name) const;

  /// This program less an output, and less the values and operands that only it used.
  Program without(std::string_view output) const;
  /// This program with other element types: A and B, and every bf16 operand and output, become `t`.
  Program with_dtype(DType t) const;

  /// Equal text: names, declarations, values. Locations don't count.
  bool operator==(const Program& other) const;
  /// A 64-bit hash of what the program computes and of its arguments' order and types; names don't count.
  std::uint64_t structural_hash() const;
};

/// The spelling of an op in messages and texts ("sigmoid", "+", "softmax_stats").
std::string_view name_of(Op op);
/// Arity and formula of an element-wise op of ops.def; arity 0 for structural ops.
int arity_of(Op op);
std::string_view formula_of(Op op);
constexpr bool is_elementwise(Op op) { return op >= Op::add; }

/// Infers types and checks every rule of the language on `p`, filling Node::type. Throws Error.
void check(Program& p);

}  // namespace coda
