#include "cuda/emit_second_pass.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "coda/error.hpp"

namespace coda::emission {

using fmt::format;
using Kind = Reduction::Kind;

const char* extent_of(Width w) { return w == Width::half ? "p.N / 2" : w == Width::full ? "p.N" : "2 * p.N"; }
const char* half_extent_of(Width w) { return w == Width::full ? "p.N / 2" : "p.N"; }
const char* index_of(Width w) { return w == Width::half ? "q" : w == Width::full ? "n" : "j"; }

SecondPassWriter::SecondPassWriter(const Program& p) : p_(p), slots_(p.slots()), names_(p.nodes.size()), uses_(p.nodes.size(), 0) {
  for (const Let& let : p.lets)
    for (std::size_t i = 0; i < let.values.size(); i++)
      if (let.values[i] != no_value && let.names[i] != "_" && names_[static_cast<std::size_t>(let.values[i])].empty())
        names_[static_cast<std::size_t>(let.values[i])] = let.names[i];
  for (const Output& o : p.outputs) count(o.value);
  find_reductions();
}

void SecondPassWriter::count(ValueId v) {
  if (v == no_value || uses_[static_cast<std::size_t>(v)]++ > 0) return;
  for (ValueId a : p_.node(v).args) count(a);
}

void SecondPassWriter::find_reductions() {
  std::vector<int> level(p_.nodes.size(), 0);  // of segment reductions that a value needs
  for (std::size_t i = 0; i < p_.nodes.size(); i++) {
    const Node& n = p_.nodes[i];
    for (ValueId a : n.args)
      if (a != no_value) level[i] = std::max(level[i], level[static_cast<std::size_t>(a)]);
    Reduction r;
    switch (n.op) {
      case Op::reduce_sum: r.kind = Kind::sum; break;
      case Op::reduce_max: r.kind = Kind::max; break;
      case Op::softmax_max: case Op::softmax_sum: r.kind = Kind::softmax; break;
      case Op::pick: r.kind = Kind::pick; break;
      default: continue;
    }
    if (uses_[i] == 0) continue;
    r.over = n.over;
    r.argument = n.args[0];
    if (n.op == Op::pick) { r.index = n.args[1]; r.ignore = n.args[2]; }
    r.width = p_.node(n.args[0]).type.width;
    r.level = level[i];
    const auto same = [&](const Reduction& o) {
      return o.kind == r.kind && o.over == r.over && o.argument == r.argument && o.index == r.index && o.ignore == r.ignore;
    };
    const auto old = std::find_if(reductions_.begin(), reductions_.end(), same);
    const auto at = old - reductions_.begin();
    if (old == reductions_.end()) {
      const char* kinds[] = {"sum", "max", "softmax", "pick"};
      r.name = format("{}{}", kinds[static_cast<int>(r.kind)], reductions_.size());
      reductions_.push_back(r);
    }
    reduction_of_[static_cast<ValueId>(i)] = static_cast<int>(at);
    if (r.over.kind == Over::Kind::segment) level[i]++;
  }
}

// ---------------------------------------------------------------- places

Body SecondPassWriter::body(Width w, Body* scalars, Body* totals, Body* row) const {
  Body b{.scalars = scalars, .totals = totals, .row = row, .lines = {}, .places = {}, .known = {}};
  if (w != Width::none) b.places.push_back({.at = index_of(w), .width = w, .from = -1, .member = -1, .pairing = {}, .second = {}});
  return b;
}

std::string SecondPassWriter::unique(const std::string& wanted) {
  // What the page calls and declares itself, beside what safe_name() knows.
  static const std::set<std::string> page_names = {
      "s", "j", "t", "blocks", "pick", "product_stride", "THREADS", "WARPS", "add", "add_to", "get_partial", "put_partial", "gather_partials", "fold_warp",
      "fold_block", "is_last_block", "load1", "load_L2", "store1", "accumulate1", "table_row", "head_column", "head_member", "head_pair", "threadIdx", "blockIdx", "gridDim", "second_pass"};
  std::string name = safe_name(wanted);
  const auto is_reduction = [&] { return std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return name.starts_with(r.name); }); };
  while (page_names.contains(name) || is_reduction() || !taken_.insert(name).second) name = is_reduction() ? "_" + name : name + "_";
  return name;
}

int SecondPassWriter::member(Body& b, int place, const Pairing& q, int m) {
  for (std::size_t i = 0; i < b.places.size(); i++)
    if (b.places[i].from == place && b.places[i].member == m && b.places[i].pairing == q) return static_cast<int>(i);
  const Place& from = b.places[static_cast<std::size_t>(place)];
  Place to{.at = {}, .width = from.width == Width::half ? Width::full : Width::twice, .from = place, .member = m, .pairing = q, .second = {}};
  to.at = unique(format("{}{}", index_of(to.width), m));
  switch (q.kind) {
    case Pairing::Kind::halves: b.lines.push_back(format("const int {} = {}{};", to.at, from.at, m == 0 ? "" : format(" + {}", half_extent_of(to.width)))); break;
    case Pairing::Kind::heads: b.lines.push_back(format("const int {} = head_column<{}, {}>({}, {});", to.at, q.head, q.rotary, m, from.at)); break;
    default: b.lines.push_back(format("const int {} = 2 * {}{};", to.at, from.at, m == 0 ? "" : " + 1"));
  }
  b.places.push_back(std::move(to));
  return static_cast<int>(b.places.size()) - 1;
}

int SecondPassWriter::pair(Body& b, int place, const Pairing& q) {
  const Place from = b.places[static_cast<std::size_t>(place)];
  for (std::size_t i = 0; i < b.places.size(); i++)
    if (b.places[i].from == place && b.places[i].member < 0 && b.places[i].pairing == q) return static_cast<int>(i);
  Place to{.at = {}, .width = from.width == Width::twice ? Width::full : Width::half, .from = place, .member = -1, .pairing = q, .second = {}};
  // Reserved, so that no value has it; but the loop's own index or another pair may.
  to.at = index_of(to.width);
  if (std::any_of(b.places.begin(), b.places.end(), [&](const Place& o) { return o.at == to.at; })) to.at = unique(format("{}_of_{}", to.at, from.at));
  to.second = unique(format("second_{}", from.at));
  const char* half = half_extent_of(from.width);
  switch (q.kind) {
    case Pairing::Kind::halves:
      b.lines.push_back(format("const bool {} = {} >= {};", to.second, from.at, half));
      b.lines.push_back(format("const int {} = {} ? {} - {} : {};", to.at, to.second, from.at, half, from.at));
      break;
    case Pairing::Kind::heads:
      b.lines.push_back(format("const bool {} = head_member<{}, {}>({}) != 0;", to.second, q.head, q.rotary, from.at));
      b.lines.push_back(format("const int {} = head_pair<{}, {}>({});", to.at, q.head, q.rotary, from.at));
      break;
    default:
      b.lines.push_back(format("const bool {} = {} % 2 != 0;", to.second, from.at));
      b.lines.push_back(format("const int {} = {} / 2;", to.at, from.at));
  }
  b.places.push_back(std::move(to));
  return static_cast<int>(b.places.size()) - 1;
}

// ---------------------------------------------------------------- values

std::string SecondPassWriter::offset(int slot, const Shape& shape, const std::string& column) {
  const std::string s0 = field(Field::Kind::stride0, slot);
  if (shape.layout == Layout::column) return format("{} * {}", column, s0);
  const std::string s1 = field(Field::Kind::stride1, slot);
  return format("m * {} + {} * {}", shape.transposed ? s1 : s0, column, shape.transposed ? s0 : s1);
}

std::string SecondPassWriter::operand(const Node& n, const std::string& column) {
  const Operand& o = p_.operands[static_cast<std::size_t>(n.index)];
  const int slot = 2 + n.index;
  const std::string tag = tag_of(o.dtype), base = field(Field::Kind::pointer, slot);
  switch (o.shape.layout) {
    case Layout::scalar: return format("scalar({}(), {}, {})", tag, base, field(Field::Kind::value, slot));
    case Layout::row: return format("load1({}(), {}, m * {})", tag, base, field(Field::Kind::stride0, slot));
    default: return format("load1({}(), {}, {})", tag, base, offset(slot, o.shape, column));
  }
}

std::string SecondPassWriter::lookup(Body& b, const Node& n, int place) {
  const Operand& o = p_.operands[static_cast<std::size_t>(n.index)];
  const int slot = 2 + n.index;
  const bool table2 = o.shape.layout == Layout::table2;
  std::string row = field(Field::Kind::pointer, slot);
  if (table2)
    row = format("table_row({}(), {}, {}, {}, {})", tag_of(o.dtype), row, field(Field::Kind::extent0, slot), field(Field::Kind::stride0, slot),
                 bare(value(b, n.args[0], place)));
  return format("lookup({}(), {}, {}, {}, {})", tag_of(o.dtype), row, field(table2 ? Field::Kind::extent1 : Field::Kind::extent0, slot),
                field(table2 ? Field::Kind::stride1 : Field::Kind::stride0, slot), bare(value(b, n.args[table2 ? 1 : 0], place)));
}

/// A member of a pair stands in its own columns: where it is known which, the other one isn't worked out.
std::string SecondPassWriter::join(Body& b, const Node& n, int place) {
  const bool to_real = n.type.kind == ValueKind::real;
  const Place at = b.places[static_cast<std::size_t>(place)];
  if (at.member >= 0 && at.pairing == n.pairing) return promoted(b, n.args[static_cast<std::size_t>(at.member)], at.from, to_real);
  const int q = pair(b, place, n.pairing);
  const std::string first = promoted(b, n.args[0], q, to_real), second = promoted(b, n.args[1], q, to_real);
  return format("({} ? {} : {})", b.places[static_cast<std::size_t>(q)].second, second, first);
}

std::string SecondPassWriter::promoted(Body& b, ValueId v, int place, bool to_real) {
  const Node& n = p_.node(v);
  if (!to_real || n.type.kind != ValueKind::integer) return value(b, v, place);
  if (n.op == Op::constant) return literal(n, true);
  return format("float({})", bare(value(b, v, place)));
}

std::string SecondPassWriter::declared(Body& b, ValueId v, int place, const std::string& expression) {
  const Node& n = p_.node(v);
  std::string name = names_[static_cast<std::size_t>(v)];
  if (name.empty()) name = n.op == Op::operand ? p_.operands[static_cast<std::size_t>(n.index)].name : format("t{}", v);
  if (place > 0) name += "_" + b.places[static_cast<std::size_t>(place)].at;
  name = unique(name);
  b.lines.push_back(format("const {} {} = {};", c_type(n.type.kind), name, bare(expression)));
  return b.known[{v, place}] = name;
}

/// Worked out once in `b`, for what is inside it.
std::string SecondPassWriter::hoisted(Body& b, ValueId v) {
  const std::string s = value(b, v, -1);
  const bool is_name = std::all_of(s.begin(), s.end(), [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return is_name ? s : declared(b, v, -1, s);
}

std::string SecondPassWriter::value(Body& b, ValueId v, int place) {
  const Node& n = p_.node(v);
  if (n.op == Op::constant) return literal(n, false);
  if (n.op == Op::extent) return n.index == 0 ? "p.M" : n.index == 1 ? "p.N" : "p.K";
  if (n.op == Op::row) return "m";
  if (n.type.width == Width::none) {
    place = -1;
    Body* home = n.type.rows ? b.row : n.type.stage == Stage::tile ? b.scalars : b.totals;
    if (home != &b && !is_constant(p_, v)) return hoisted(*home, v);
  }
  if (const auto known = b.known.find({v, place}); known != b.known.end()) return known->second;
  const std::string column = place >= 0 ? b.places[static_cast<std::size_t>(place)].at : "";
  std::string s;
  switch (n.op) {
    case Op::acc: s = format("load_L2(acc + {})", column); break;
    case Op::col: return column;
    case Op::operand: s = operand(n, column); break;
    case Op::split: {
      const Node& joined = p_.node(n.args[0]);
      if (joined.op == Op::join && joined.pairing == n.pairing) s = promoted(b, joined.args[static_cast<std::size_t>(n.index)], place, n.type.kind == ValueKind::real);
      else s = value(b, n.args[0], member(b, place, n.pairing, n.index));
      break;
    }
    case Op::join: s = join(b, n, place); break;
    case Op::lookup: s = lookup(b, n, place); break;
    case Op::round_to: s = format("round_to({}(), {})", tag_of(n.dtype), bare(real(b, n.args[0], place))); break;
    case Op::reduce_sum: case Op::reduce_max: case Op::softmax_max: case Op::softmax_sum: case Op::pick: {
      const Reduction& r = reductions_[static_cast<std::size_t>(reduction_of_.at(v))];
      if (r.over.kind != Over::Kind::segment) throw Error(ErrorKind::internal, format("{}: a reduction is used before it is complete", p_.name));
      s = format("load_L2({}_here + {} / {}{})", r.name, column, r.over.segment, n.op == Op::softmax_sum ? format(" + {} / {}", extent_of(r.width), r.over.segment) : "");
      break;
    }
    default: s = elementwise_text(p_, n, [&](ValueId a, bool to_real) { return promoted(b, a, place, to_real); }, ops_);
  }
  if (!names_[static_cast<std::size_t>(v)].empty() || uses_[static_cast<std::size_t>(v)] > 1) return declared(b, v, place, s);
  return b.known[{v, place}] = s;
}

}  // namespace coda::emission
