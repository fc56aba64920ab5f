// What an unfused implementation keeps in memory between its passes.
#include "cpu/stored.hpp"

namespace coda::cpu {

std::vector<bool> stored_values(const Program& p) {
  std::vector<bool> repeats(p.nodes.size()), stored(p.nodes.size());
  std::vector<bool> named(p.nodes.size());
  for (const Let& let : p.lets) {
    for (const ValueId v : let.values) {
      if (v != no_value) named[static_cast<std::size_t>(v)] = true;
    }
  }
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    const Node& n = p.nodes[i];
    const bool matrix = n.type.rows && n.type.width != Width::none;
    if (!matrix || n.over.kind == Over::Kind::segment) {
      repeats[i] = true;
    } else if (is_elementwise(n.op)) {
      repeats[i] = true;
      for (int a = 0; a < arity_of(n.op); ++a) {
        const auto arg = static_cast<std::size_t>(n.args[static_cast<std::size_t>(a)]);
        // A column vector varies within a segment.
        repeats[i] = repeats[i] && repeats[arg] && (p.nodes[arg].type.rows || p.nodes[arg].type.width == Width::none);
      }
    }
    stored[i] = matrix && !repeats[i] && n.type.kind == ValueKind::real && n.type.stage == Stage::tile &&
                n.op != Op::operand && n.op != Op::lookup && (n.op == Op::acc || named[i]);
  }
  return stored;
}

}  // namespace coda::cpu
