// What of an epilogue is wanted in some columns only: the table entries of a rotary embedding that leaves the values' heads as
// they are, for one. Their loads are then skipped where no column of the step wants them.
#include "cuda/emit_program.hpp"

namespace coda::emission {

std::vector<ValueId> guards_of(const Analysis& a) {
  const Program& p = a.program;
  constexpr ValueId unseen = -2;
  std::vector<ValueId> guard(p.nodes.size(), unseen);
  const auto meet = [&](ValueId v, ValueId g) {
    if (v == no_value) return;
    ValueId& old = guard[static_cast<std::size_t>(v)];
    old = old == unseen || old == g ? g : no_value;
  };
  for (const Output& o : p.outputs) meet(o.value, no_value);
  // An argument stands before what uses it, so that all uses of a value are seen before it is.
  for (std::size_t i = p.nodes.size(); i-- > 0;) {
    const Node& n = p.nodes[i];
    if (a.uses[i] == 0) continue;
    const bool passes = is_elementwise(n.op) || n.op == Op::split || n.op == Op::join || n.op == Op::round_to || n.op == Op::lookup;
    const ValueId own = passes && guard[i] != unseen ? guard[i] : no_value;
    for (std::size_t k = 0; k < std::size(n.args); k++) {
      ValueId g = own;
      if (n.op == Op::where && k == 1 && g == no_value) {
        const Type& t = p.node(n.args[0]).type;
        if (t.stage == Stage::tile && t.width == Width::full && !t.rows && n.type.width == Width::full) g = n.args[0];
      }
      meet(n.args[k], g);
    }
  }
  for (ValueId& g : guard)
    if (g == unseen) g = no_value;
  return guard;
}

}  // namespace coda::emission
