// What the parts of the language layer share: limits, spellings, canonical order.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program.hpp"

namespace coda::language {

// Limits that keep any input's cost small. A program of the size people write is far below each.
inline constexpr std::size_t max_text = std::size_t{1} << 20;   ///< bytes of a program text
inline constexpr std::size_t max_nodes = std::size_t{1} << 14;  ///< values of a program
inline constexpr std::size_t max_arguments = 256;               ///< operands and outputs of a program
inline constexpr int max_depth = 100;                           ///< levels of one expression, between names

/// Words that no value, operand or output may be called.
bool is_reserved(std::string_view name);
/// Whether `name` is a name as the text form takes it: a letter or _, then letters, digits and _; at most 64.
bool is_name(std::string_view name);

bool is_leaf(Op op);  ///< acc, row, col, an extent, an operand: stands once in Program::nodes
bool is_pair(Op op);  ///< a member of a two-valued op: split, softmax_max, softmax_sum

/// What extents declare, as on Shape; nullopt when they are no shape.
std::optional<Shape> shape_of(std::vector<Extent> extents);
inline bool is_table(const Shape& s) { return s.layout == Layout::table1 || s.layout == Layout::table2; }

std::string spell(const Shape& s);
std::string spell(const Pairing& p);
std::string spell(const Over& o);
std::string_view spell(Width w);

/// A value for a message: its name, or its expression, cut to a readable length.
std::string spell(const Program& p, ValueId v);

/// A location for a value: its own, or that of an argument that has one.
const Location& location_of(const Program& p, ValueId v);

/// Rewrites `p` into the one form that a text of it has: `where` with a constant condition becomes the branch taken;
/// what no output needs is dropped, operands too; leaves stand once; an unnamed value used twice gets a name (t0,
/// t1, ...), as does an expression deeper than max_depth; nodes are in post-order. Throws Error(internal) on indices
/// that point nowhere.
void canonicalise(Program& p);

/// A value known when the program is read.
struct Constant {
  ValueKind kind = ValueKind::real;
  double value = 0;  ///< booleans are 0 and 1
};
using Constants = std::vector<std::optional<Constant>>;
/// The value of a node whose arguments are known; nullopt where one isn't, or is of a kind that the verifier refuses.
std::optional<Constant> evaluate(const Node& n, const Constants& known);

/// Whether a condition made of constants alone holds; nullopt when it isn't one.
std::optional<bool> constant_boolean(const Program& p, ValueId v);

/// Infers Node::type; throws Error(type | locality). Expects canonical form.
void infer_types(Program& p);

}  // namespace coda::language
