#include "cuda/emit_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace coda::emission {
namespace {

[[noreturn]] void unsupported(const Program& p, const std::string& message) {
  throw Error(ErrorKind::unsupported, fmt::format("{}: {}", p.name, message));
}

int run_of(const Pairing& p) {
  const int first = p.rotary / 2, rest = (p.head - p.rotary) / 2;
  return rest == 0 ? first : std::gcd(first, rest);
}

}  // namespace

const char* tag_of(DType t) {
  switch (t) {
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    case DType::i32: return "i32";
    case DType::i64: return "i64_";
    default: return "f32";
  }
}

int Box::column_bytes() const {
  const int size = static_cast<int>(size_of(dtype));
  switch (form) {
    case Form::half: case Form::half_columns: return size / 2;
    case Form::twice: return 2 * size;
    default: return size;
  }
}
int Box::elements(int chunk) const {
  return form == Form::half || form == Form::half_columns ? chunk / 2 : form == Form::twice ? 2 * chunk : chunk;
}

Analysis::Analysis(const Program& p, std::uint32_t direct_mask) : program(p), slots(p.slots()) {
  for (std::size_t s = 0; s < slots.size(); s++) direct.push_back(s >= 32 || (direct_mask >> s & 1));
  names.resize(p.nodes.size());
  for (const Let& let : p.lets)
    for (std::size_t i = 0; i < let.values.size(); i++)
      if (let.values[i] != no_value && let.names[i] != "_" && names[static_cast<std::size_t>(let.values[i])].empty())
        names[static_cast<std::size_t>(let.values[i])] = let.names[i];
  uses.assign(p.nodes.size(), 0);
  for (const Output& o : p.outputs) count(o.value);
  find_pairing();
  find_reductions();
  find_boxes();
}

void Analysis::count(ValueId v) {
  if (v == no_value || uses[static_cast<std::size_t>(v)]++ > 0) return;
  for (ValueId a : program.node(v).args) count(a);
}

int Analysis::instances(Width w) const {
  const int full = unit == Unit::single ? 1 : 2;
  return w == Width::full ? full : w == Width::twice ? 2 * full : 1;
}

std::string Analysis::array_suffix(Width w, int instance) const {
  const int member = w == Width::twice ? instance / 2 : instance;
  std::string s;
  if (unit == Unit::far && w != Width::half) s += fmt::format("_{}", member);
  if (w == Width::twice) s += fmt::format("_{}", instance % 2);
  return s;
}

int Analysis::segment_length(const Reduction& r) const {
  const bool heads = unit == Unit::far && pairing.kind == Pairing::Kind::heads;
  if (heads && r.width == Width::full) return r.over.segment / 2;
  return unit == Unit::adjacent && r.width == Width::half ? 2 * r.over.segment : r.over.segment;
}

Pairing Analysis::twice_pairing(ValueId v) const {
  const Pairing p = program.node(v).type.pairing;
  return p.kind == Pairing::Kind::none ? Pairing{Pairing::Kind::adjacent, 0, 0} : p;
}

Pairing Analysis::twice_pairing_of_operand(int operand) const {
  for (std::size_t v = 0; v < program.nodes.size(); v++)
    if (program.nodes[v].op == Op::operand && program.nodes[v].index == operand) return twice_pairing(static_cast<ValueId>(v));
  return {Pairing::Kind::adjacent, 0, 0};
}

void Analysis::find_pairing() {
  bool half = false;
  for (std::size_t v = 0; v < program.nodes.size(); v++) {
    const Node& n = program.nodes[v];
    half = half || n.type.width == Width::half;
    const bool splits = n.op == Op::split && program.node(n.args[0]).type.width == Width::full;
    const bool joins = n.op == Op::join && n.type.width == Width::full;
    if (!splits && !joins) continue;
    if (pairing.kind != Pairing::Kind::none && pairing != n.pairing)
      unsupported(program, "columns are paired in two ways, and the CUDA engine lays a tile out for one: expected one kind "
                           "of pairing, or two programs");
    pairing = n.pairing;
  }
  if (half && pairing.kind == Pairing::Kind::none) pairing = {Pairing::Kind::adjacent, 0, 0};
  if (pairing.kind == Pairing::Kind::adjacent) unit = Unit::adjacent;
  if (pairing.kind == Pairing::Kind::halves || pairing.kind == Pairing::Kind::heads) unit = Unit::far;
  if (pairing.kind == Pairing::Kind::heads) {
    chunk_run = run_of(pairing);
    if (chunk_run % 16 != 0)
      unsupported(program, fmt::format("heads of {} columns of which {} rotate pair up in runs of {}: the CUDA engine takes "
                                       "multiples of 16",
                                       pairing.head, pairing.rotary, chunk_run));
  }
}

/// Where it stands among `reductions`; an equal one is there once.
int Analysis::add_reduction(Reduction r) {
  const auto same = [&](const Reduction& o) {
    return o.kind == r.kind && o.over == r.over && o.argument == r.argument && o.index == r.index && o.ignore == r.ignore;
  };
  const auto old = std::find_if(reductions.begin(), reductions.end(), same);
  if (old != reductions.end()) return static_cast<int>(old - reductions.begin());
  const char* kinds[] = {"sum", "max", "softmax", "pick"};
  r.name = fmt::format("{}{}", kinds[static_cast<int>(r.kind)], reductions.size());
  if (r.over.kind == Over::Kind::segment) {
    const bool heads = unit == Unit::far && pairing.kind == Pairing::Kind::heads && r.width == Width::full;
    if (segment_length(r) % 8 != 0 || r.width == Width::twice)
      unsupported(program, fmt::format("a reduction over segment({}){}: the CUDA engine takes multiples of 8 columns, of 16 in "
                                       "heads, of full or half width",
                                       r.over.segment, r.width == Width::twice ? " at twice the width" : ""));
    if (heads && r.over.segment != pairing.head)
      unsupported(program, fmt::format("a reduction over segment({}) beside heads of {}: the CUDA engine takes segments that are "
                                       "heads",
                                       r.over.segment, pairing.head));
  }
  reductions.push_back(r);
  return static_cast<int>(reductions.size()) - 1;
}

void Analysis::find_reductions() {
  std::vector<int> level(program.nodes.size(), 0);  // of segment reductions that a value needs
  for (std::size_t i = 0; i < program.nodes.size(); i++) {
    const Node& n = program.nodes[i];
    const ValueId v = static_cast<ValueId>(i);
    for (ValueId a : n.args)
      if (a != no_value) level[i] = std::max(level[i], level[static_cast<std::size_t>(a)]);
    const bool segment = n.over.kind == Over::Kind::segment;
    Reduction r;
    switch (n.op) {
      case Op::reduce_sum: r.kind = Reduction::Kind::sum; break;
      case Op::reduce_max: r.kind = Reduction::Kind::max; break;
      case Op::softmax_max: r.kind = segment ? Reduction::Kind::max : Reduction::Kind::softmax; break;
      case Op::softmax_sum: r.kind = Reduction::Kind::softmax; break;
      case Op::pick: r.kind = Reduction::Kind::pick; break;
      default: continue;
    }
    if (uses[i] == 0) continue;
    r.over = n.over;
    r.argument = n.args[0];
    if (n.op == Op::pick) { r.index = n.args[1]; r.ignore = n.args[2]; }
    r.width = program.node(n.args[0]).type.width;
    if (segment) {
      r.level = level[i];
      if (r.kind == Reduction::Kind::softmax) {  // a sum of exp(x - maximum), in the pass after the maximum's
        Reduction maximum = r;
        maximum.kind = Reduction::Kind::max;
        r.maximum = add_reduction(maximum);
        r.level++;
      }
    }
    reduction_of[v] = add_reduction(r);
    if (segment) level[i] = reductions[static_cast<std::size_t>(reduction_of[v])].level + 1;
  }
}

void Analysis::add_matrix(std::vector<Box>& to, int slot, const Shape& shape, DType dtype, Pairing twice,
                          const std::string& array) {
  const std::string name(slots[static_cast<std::size_t>(slot)].name);
  const bool vector = shape.layout == Layout::column;
  const auto add = [&](Box::Form form, int instance, std::string x, int half, const std::string& map_suffix) {
    Box b;
    b.form = vector ? form == Box::Form::half ? Box::Form::half_columns : Box::Form::columns : form;
    b.slot = slot;
    b.dtype = dtype;
    b.map = name + map_suffix;
    b.array = array + array_suffix(shape.width, instance);
    b.x = std::move(x);
    b.half = half;  // of a vector too: where the second half starts needn't be a multiple of 16 bytes
    to.push_back(std::move(b));
  };
  const int members = instances(Width::full);
  const bool halves = unit == Unit::far && pairing.kind == Pairing::Kind::halves;
  const auto column = [&](int k) { return fmt::format("at.n[{}]", unit == Unit::far ? k : 0); };
  switch (shape.width) {
    case Width::full:
      for (int k = 0; k < (unit == Unit::far ? 2 : 1); k++)
        add(Box::Form::full, k, halves ? "at.p" : column(k), halves ? k : -1, unit == Unit::far ? fmt::format("_{}", k) : "");
      break;
    case Width::half:
      if (unit == Unit::far) add(Box::Form::full, 0, "at.p", -1, "");
      else add(Box::Form::half, 0, "at.n[0] / 2", -1, "");
      break;
    case Width::twice:
      for (int k = 0; k < (unit == Unit::far ? members : 1); k++) {
        const std::string part = unit == Unit::far ? fmt::format("_{}", k) : "";
        if (twice.kind == Pairing::Kind::adjacent) {
          add(Box::Form::twice, 2 * k, fmt::format("2 * {}", column(k)), -1, part);
        } else {
          for (int t = 0; t < 2; t++) {
            const bool h = twice.kind == Pairing::Kind::halves;
            std::string x = h ? column(k) : fmt::format("head_column<{}, {}>({}, {})", twice.head, twice.rotary, t, column(k));
            add(Box::Form::full, 2 * k + t, std::move(x), h ? t : -1, fmt::format("{}_{}", part, t));
          }
        }
      }
      break;
    case Width::none: break;
  }
}

void Analysis::find_boxes() {
  const auto twice_run = [&](const Shape& s, const Pairing& q) {
    if (s.width != Width::twice || q.kind != Pairing::Kind::heads) return true;
    const int run = run_of(q);
    if (run % 16 != 0) return false;
    chunk_run = chunk_run == 0 ? run : std::gcd(chunk_run, run);
    return chunk_run % 16 == 0;
  };
  // A slot whose boxes TMA can't take goes direct whatever the layout of its tensor.
  const auto keep = [&](std::vector<Box>& boxes, std::size_t from, int slot) {
    for (std::size_t i = from; i < boxes.size(); i++)
      if (boxes[i].column_bytes() == 0 || (boxes[i].vector() && boxes[i].form == Box::Form::columns && boxes[i].column_bytes() != static_cast<int>(size_of(boxes[i].dtype)))) {
        boxes.resize(from);
        direct[static_cast<std::size_t>(slot)] = true;
        return;
      }
  };
  for (std::size_t o = 0; o < program.operands.size(); o++) {
    const Operand& operand = program.operands[o];
    const int slot = operand_slot(static_cast<int>(o));
    const bool vector = operand.shape.layout == Layout::column;
    if (operand.shape.layout != Layout::matrix && !vector) continue;
    bool used = false;
    for (std::size_t v = 0; v < program.nodes.size(); v++)
      used = used || (program.nodes[v].op == Op::operand && program.nodes[v].index == static_cast<int>(o) && uses[v] > 0);
    const Pairing q = twice_pairing_of_operand(static_cast<int>(o));
    // The partners' columns start at N/2, which needn't be a multiple of 16 bytes in a tensor of 2N.
    const bool uneven = operand.shape.width == Width::twice && unit == Unit::far && pairing.kind == Pairing::Kind::halves;
    if (operand.dtype == DType::i64 || uneven || !twice_run(operand.shape, q) || (vector && operand.shape.width == Width::twice))
      direct[static_cast<std::size_t>(slot)] = true;
    if (!used || direct[static_cast<std::size_t>(slot)]) continue;
    const std::size_t from = loads.size();
    add_matrix(loads, slot, operand.shape, operand.dtype, q, operand.name + "_in");
    keep(loads, from, slot);
  }
  for (std::size_t o = 0; o < program.outputs.size(); o++) {
    const Output& output = program.outputs[o];
    const int slot = output_slot(static_cast<int>(o));
    if (output.finish) continue;
    const Pairing q = output.shape.width == Width::twice ? twice_pairing(output.value) : Pairing{};
    // A transposed output is staged a column a row: neighbours that are not columns of one box go direct.
    const bool odd = output.shape.transposed && (output.accumulate || (output.shape.width == Width::half && unit != Unit::far) ||
                                                 (output.shape.width == Width::twice && q.kind == Pairing::Kind::adjacent));
    // Where a ragged tile's first members end, their box would go on into the columns of the second.
    const bool overlap = output.shape.width == Width::twice && pairing.kind == Pairing::Kind::halves;
    if (odd || overlap || !twice_run(output.shape, q)) direct[static_cast<std::size_t>(slot)] = true;
    if (direct[static_cast<std::size_t>(slot)]) continue;
    const std::size_t from = stores.size(), loads_from = loads.size();
    add_matrix(stores, slot, output.shape, output.dtype, q, "out_" + output.name);
    keep(stores, from, slot);
    if (direct[static_cast<std::size_t>(slot)]) continue;
    for (std::size_t i = from; i < stores.size(); i++) {
      if (output.shape.transposed) stores[i].form = Box::Form::transposed;
      stores[i].add = output.accumulate && output.dtype == DType::f32;
    }
    if (output.accumulate && output.dtype != DType::f32) {
      add_matrix(loads, slot, output.shape, output.dtype, q, "old_" + output.name);
      for (std::size_t i = loads_from; i < loads.size(); i++) loads[i].map = "old_" + loads[i].map;
    }
  }
  std::stable_partition(loads.begin(), loads.end(), [](const Box& b) { return !b.vector(); });
}

Demand Analysis::demand() const {
  Demand d;
  d.operand = program.a_dtype;
  if (unit == Unit::far) {
    d.pair_run = pairing.kind == Pairing::Kind::halves ? -1 : run_of(pairing);
  }
  d.chunk_run = chunk_run;
  for (const Reduction& r : reductions) {
    if (r.over.kind == Over::Kind::segment) d.segment = std::lcm(std::max(d.segment, 1), segment_length(r));
    if (r.over.kind == Over::Kind::m && r.kind == Reduction::Kind::pick) d.column_picks = true;
    else if (r.over.kind == Over::Kind::m)
      d.column_values += r.floats() * (unit == Unit::far ? instances(r.width) : r.width == Width::twice ? 2 : 1);
  }
  // Beside 192 accumulators the compiler spilled 450-520 bytes of several results of segments and 150-200 of tables read an
  // element at a time, as adjacent pairs do, or beside tile operands (rope_backward); up to 64 elsewhere.
  d.crowded = std::count_if(reductions.begin(), reductions.end(), [](const Reduction& r) { return r.over.kind == Over::Kind::segment; }) > 1;
  for (const Node& n : program.nodes)
    if (n.op == Op::lookup && (unit == Unit::adjacent || !loads.empty()) && program.node(n.args[0]).type.rows) d.crowded = true;
  for (const Box& b : stores) d.staged.push_back(b.column_bytes());
  for (const Box& b : loads) (b.vector() ? d.vectors : d.loaded).push_back(b.column_bytes());
  for (const auto* boxes : {&stores, &loads})
    for (const Box& b : *boxes) d.wide = d.wide || (!b.vector() && b.form != Box::Form::transposed && b.column_bytes() == 4);
  return d;
}

}  // namespace coda::emission
