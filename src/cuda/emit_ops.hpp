// The formulas of ops.def as CUDA text, and the names and literals in it. Internal to src/cuda/emit*.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "coda/program.hpp"

namespace coda::emission {

/// Lines of text as one, each indented.
std::string indented(const std::vector<std::string>& lines, int indent);
/// The CUDA type of a value, and a constant's spelling in it or, with `to_real`, as a real number.
const char* c_type(ValueKind);
std::string literal(const Node& constant, bool to_real);
/// Whether nothing but constants is under `v`.
bool is_constant(const Program&, ValueId v);
/// An element-wise op as an expression; `argument(v, to_real)` writes its arguments. An op that has to be a function goes
/// into `ops`.
std::string elementwise_text(const Program&, const Node&, const std::function<std::string(ValueId, bool)>& argument, std::set<Op>& ops);
/// Definitions of `ops` and of what they call, in the order of ops.def.
std::string definitions_of(const std::set<Op>& ops);
/// Without the parentheses around all of it.
std::string bare(const std::string& expression);
/// `name`, or with a _ behind it where it means something else in a page.
std::string safe_name(const std::string& name);

}  // namespace coda::emission
