// Which sums need no predicate: a program's values where the product and the operands are zeros.
#include "cuda/emit_program.hpp"
#include "language/internal.hpp"

namespace coda::emission {

bool vanishes_outside(const Analysis& a, ValueId v, Over::Kind over) {
  if (over != Over::Kind::n && over != Over::Kind::m) return false;
  // Past N/2, where columns pair up by halves of N, stand columns that exist: those of the second half.
  if (over == Over::Kind::n && a.unit == Unit::far && a.pairing.kind == Pairing::Kind::halves) return false;
  using language::Constant;
  const Constant zero{ValueKind::real, 0};
  const auto at = [](ValueId u) { return static_cast<std::size_t>(u); };
  language::Constants known(at(v) + 1);
  for (ValueId u = 0; u <= v; ++u) {
    const Node& n = a.program.node(u);
    switch (n.op) {
      case Op::acc: known[at(u)] = zero; break;
      case Op::operand: {
        const Operand& o = a.program.operands[at(n.index)];
        const Layout own = over == Over::Kind::n ? Layout::column : Layout::row;
        if (!is_integer(o.dtype) && (o.shape.layout == Layout::matrix || o.shape.layout == own)) known[at(u)] = zero;
        break;
      }
      case Op::split: known[at(u)] = known[at(n.args[0])]; break;
      case Op::join:
        if (const auto &x = known[at(n.args[0])], &y = known[at(n.args[1])]; x && y && x->kind == y->kind && x->value == y->value) known[at(u)] = x;
        break;
      default: known[at(u)] = language::evaluate(n, known);
    }
  }
  return known[at(v)] && known[at(v)]->value == 0;
}

}  // namespace coda::emission
