#include "cuda/emit_two_pass.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "coda/build.hpp"
#include "coda/error.hpp"
#include "cuda/emit_page.hpp"
#include "cuda/emit_values.hpp"

namespace coda {
namespace emission {
namespace {

using fmt::format;
using Kind = Reduction::Kind;

constexpr Width widths[] = {Width::full, Width::half, Width::twice};

int twice_width(Width w) { return w == Width::half ? 1 : w == Width::full ? 2 : w == Width::twice ? 4 : 0; }
/// Columns at a width, and half of them.
const char* extent_of(Width w) { return w == Width::half ? "p.N / 2" : w == Width::full ? "p.N" : "2 * p.N"; }
const char* half_extent_of(Width w) { return w == Width::full ? "p.N / 2" : "p.N"; }
/// The device header's name of what folds it; a pick has none.
const char* type_of(const Reduction& r) { return r.kind == Kind::softmax ? "Softmax" : r.kind == Kind::max ? "Max" : "Sum"; }
const char* index_of(Width w) { return w == Width::half ? "q" : w == Width::full ? "n" : "j"; }

/// A product in 64 bits.
std::string times(int count, const std::string& extent) { return format("{}(i64)({})", count == 1 ? "" : format("{} * ", count), extent); }

std::string indented(const std::vector<std::string>& lines, int indent) {
  std::string s;
  for (const std::string& l : lines) s += std::string(static_cast<std::size_t>(indent), ' ') + l + "\n";
  return s;
}

/// A column that values are evaluated in: the loop's own, a member of a pair, or the pair of a column.
struct Place {
  std::string at;           ///< its index, at its width
  Width width = Width::full;
  int from = -1;            ///< the place it was found from ...
  int member = -1;          ///< ... as this member of the pair there, or, -1, as the pair of the column there
  Pairing pairing;
  std::string second;       ///< of a pair: whether the column is its second member
};

/// Statements that stand together, and what they have worked out. Values that don't depend on the column, or on the row,
/// are worked out outside.
struct Body {
  Body* scalars = nullptr;
  Body* totals = nullptr;   ///< scalars that need reductions over the matrix
  Body* row = nullptr;
  std::vector<std::string> lines;
  std::vector<Place> places;
  std::map<std::pair<ValueId, int>, std::string> known;
};

class PassWriter {
 public:
  explicit PassWriter(const Program& p) : p_(p), slots_(p.slots()), names_(p.nodes.size()), uses_(p.nodes.size(), 0) {
    for (const Let& let : p.lets)
      for (std::size_t i = 0; i < let.values.size(); i++)
        if (let.values[i] != no_value && let.names[i] != "_" && names_[static_cast<std::size_t>(let.values[i])].empty())
          names_[static_cast<std::size_t>(let.values[i])] = let.names[i];
    for (const Output& o : p.outputs) count(o.value);
    find_reductions();
  }

  void write(TwoPass& out);

 private:
  void count(ValueId v) {
    if (v == no_value || uses_[static_cast<std::size_t>(v)]++ > 0) return;
    for (ValueId a : p_.node(v).args) count(a);
  }
  void find_reductions();
  void find_scratch(TwoPass& out) const;

  Body body(Width w, Body* scalars, Body* totals, Body* row) const {
    Body b{.scalars = scalars, .totals = totals, .row = row, .lines = {}, .places = {}, .known = {}};
    if (w != Width::none) b.places.push_back({.at = index_of(w), .width = w, .from = -1, .member = -1, .pairing = {}, .second = {}});
    return b;
  }
  std::string unique(const std::string& name);
  int member(Body& b, int place, const Pairing& q, int m);
  int pair(Body& b, int place, const Pairing& q);
  std::string field(Field::Kind kind, int slot) {
    fields_.insert({kind, slot});
    return "p." + field_name(slots_, kind, slot);
  }
  std::string offset(int slot, const Shape& shape, const std::string& column);

  std::string value(Body& b, ValueId v, int place);
  std::string real(Body& b, ValueId v, int place) { return promoted(b, v, place, true); }
  std::string promoted(Body& b, ValueId v, int place, bool to_real);
  std::string declared(Body& b, ValueId v, int place, const std::string& expression);
  std::string hoisted(Body& b, ValueId v);
  std::string operand(const Node& n, const std::string& column);
  std::string lookup(Body& b, const Node& n, int place);
  std::string join(Body& b, const Node& n, int place);

  std::string segments(Body& row);
  std::string columns(Body& row, Width w);
  std::string pick(Body& row, const Reduction& r, const std::string& index, const std::string& first, const std::string& extent);
  std::string picks(Body& row);
  std::string pick_of_segment(Body& row, const Reduction& r);
  std::string results_of_row() const;
  std::string complete(Body& scalars);
  void finish(Body& b, Width w, bool rows, const std::string& index);
  void know(Body& b, const Reduction& r, int place);

  bool reduces(Over::Kind over, Width w) const {
    return std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return r.over.kind == over && (w == Width::none || r.width == w); });
  }
  bool finishes(Width w, bool rows) const {
    return std::any_of(p_.outputs.begin(), p_.outputs.end(), [&](const Output& o) {
      const Type& t = p_.node(o.value).type;
      return o.finish && t.width == w && t.rows == rows;
    });
  }

  const Program& p_;
  std::vector<Slot> slots_;
  std::vector<std::string> names_;
  std::vector<int> uses_;
  std::vector<Reduction> reductions_;
  std::map<ValueId, int> reduction_of_;
  std::set<std::pair<Field::Kind, int>> fields_;
  std::set<Op> ops_;
  std::set<std::string> taken_;  ///< names of the page: an inner one would hide an outer one
};

void PassWriter::find_reductions() {
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

void PassWriter::find_scratch(TwoPass& out) const {
  for (const Reduction& r : reductions_) {
    Scratch s{.name = r.name, .floats = r.floats()};
    switch (r.over.kind) {
      case Over::Kind::n: s.of = Scratch::Of::row; break;
      case Over::Kind::m:
        s.of = r.kind == Kind::pick ? Scratch::Of::matrix : Scratch::Of::block;
        s.twice_width = twice_width(r.width);
        break;
      case Over::Kind::mn: break;
      case Over::Kind::segment:
        s.twice_width = twice_width(r.width);
        s.divisor = r.over.segment;
        break;
    }
    out.scratch.push_back(std::move(s));
  }
}

// ---------------------------------------------------------------- places

std::string PassWriter::unique(const std::string& wanted) {
  // What the page calls and declares itself, beside what safe_name() knows.
  static const std::set<std::string> page_names = {
      "s", "j", "t", "blocks", "pick", "product_stride", "THREADS", "WARPS", "add", "add_to", "get_partial", "put_partial", "gather_partials", "fold_warp",
      "fold_block", "is_last_block", "load1", "load_L2", "store1", "accumulate1", "table_row", "head_column", "head_member", "head_pair", "threadIdx", "blockIdx", "gridDim", "second_pass"};
  std::string name = safe_name(wanted);
  const auto is_reduction = [&] { return std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return name.starts_with(r.name); }); };
  while (page_names.contains(name) || is_reduction() || !taken_.insert(name).second) name = is_reduction() ? "_" + name : name + "_";
  return name;
}

int PassWriter::member(Body& b, int place, const Pairing& q, int m) {
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

int PassWriter::pair(Body& b, int place, const Pairing& q) {
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

std::string PassWriter::offset(int slot, const Shape& shape, const std::string& column) {
  const std::string s0 = field(Field::Kind::stride0, slot);
  if (shape.layout == Layout::column) return format("{} * {}", column, s0);
  const std::string s1 = field(Field::Kind::stride1, slot);
  return format("m * {} + {} * {}", shape.transposed ? s1 : s0, column, shape.transposed ? s0 : s1);
}

std::string PassWriter::operand(const Node& n, const std::string& column) {
  const Operand& o = p_.operands[static_cast<std::size_t>(n.index)];
  const int slot = 2 + n.index;
  const std::string tag = tag_of(o.dtype), base = field(Field::Kind::pointer, slot);
  switch (o.shape.layout) {
    case Layout::scalar: return format("scalar({}(), {}, {})", tag, base, field(Field::Kind::value, slot));
    case Layout::row: return format("load1({}(), {}, m * {})", tag, base, field(Field::Kind::stride0, slot));
    default: return format("load1({}(), {}, {})", tag, base, offset(slot, o.shape, column));
  }
}

std::string PassWriter::lookup(Body& b, const Node& n, int place) {
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
std::string PassWriter::join(Body& b, const Node& n, int place) {
  const bool to_real = n.type.kind == ValueKind::real;
  const Place at = b.places[static_cast<std::size_t>(place)];
  if (at.member >= 0 && at.pairing == n.pairing) return promoted(b, n.args[static_cast<std::size_t>(at.member)], at.from, to_real);
  const int q = pair(b, place, n.pairing);
  const std::string first = promoted(b, n.args[0], q, to_real), second = promoted(b, n.args[1], q, to_real);
  return format("({} ? {} : {})", b.places[static_cast<std::size_t>(q)].second, second, first);
}

std::string PassWriter::promoted(Body& b, ValueId v, int place, bool to_real) {
  const Node& n = p_.node(v);
  if (!to_real || n.type.kind != ValueKind::integer) return value(b, v, place);
  if (n.op == Op::constant) return literal(n, true);
  return format("float({})", bare(value(b, v, place)));
}

std::string PassWriter::declared(Body& b, ValueId v, int place, const std::string& expression) {
  const Node& n = p_.node(v);
  std::string name = names_[static_cast<std::size_t>(v)];
  if (name.empty()) name = n.op == Op::operand ? p_.operands[static_cast<std::size_t>(n.index)].name : format("t{}", v);
  if (place > 0) name += "_" + b.places[static_cast<std::size_t>(place)].at;
  name = unique(name);
  b.lines.push_back(format("const {} {} = {};", c_type(n.type.kind), name, bare(expression)));
  return b.known[{v, place}] = name;
}

/// Worked out once in `b`, for what is inside it.
std::string PassWriter::hoisted(Body& b, ValueId v) {
  const std::string s = value(b, v, -1);
  const bool is_name = std::all_of(s.begin(), s.end(), [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return is_name ? s : declared(b, v, -1, s);
}

std::string PassWriter::value(Body& b, ValueId v, int place) {
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

// ---------------------------------------------------------------- the rows

/// A warp takes a segment, its lanes the columns of it. A level may use the results of those before it.
std::string PassWriter::segments(Body& row) {
  int levels = 0;
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::segment) levels = std::max(levels, r.level + 1);
  std::string s;
  for (int level = 0; level < levels; level++) {
    bool any = false;
    for (const Reduction& r : reductions_) {
      if (r.over.kind != Over::Kind::segment || r.level != level) continue;
      any = true;
      if (r.kind == Kind::pick) {
        s += pick_of_segment(row, r);
        continue;
      }
      Body b = body(r.width, row.scalars, nullptr, &row);
      const std::string v = bare(real(b, r.argument, 0));
      const int d = r.over.segment;
      const char *x = index_of(r.width), *extent = extent_of(r.width);
      s += format("    for (int s = warp; s < {} / {}; s += WARPS) {{\n      {} {};\n      {}.clear();\n", extent, d, type_of(r), r.name, r.name);
      s += format("      for (int {0} = s * {1} + lane; {0} < (s + 1) * {1}; {0} += 32) {{\n", x, d) + indented(b.lines, 8) +
           format("        add({}, {});\n      }}\n      fold_warp({});\n", r.name, v, r.name);
      s += format("      if (lane == 0) put_partial({0}_here + s, {1} / {2}, {0});\n    }}\n", r.name, extent, d);
    }
    if (any) s += "    __syncthreads();\n";
  }
  return s;
}

/// A thread takes every THREADSth column at one width: the outputs and the reductions there.
std::string PassWriter::columns(Body& row, Width w) {
  Body b = body(w, row.scalars, nullptr, &row);
  for (std::size_t o = 0; o < p_.outputs.size(); o++) {
    const Output& output = p_.outputs[o];
    if (output.finish || output.shape.width != w) continue;
    const int slot = 2 + static_cast<int>(p_.operands.size() + o);
    const std::string v = bare(real(b, output.value, 0));
    b.lines.push_back(format("{}({}(), {}, {}, {});", output.accumulate ? "accumulate1" : "store1", tag_of(output.dtype), field(Field::Kind::pointer, slot),
                             offset(slot, output.shape, index_of(w)), v));
  }
  for (const Reduction& r : reductions_) {
    if (r.width != w || r.over.kind == Over::Kind::segment || (r.kind == Kind::pick && r.over.kind == Over::Kind::n)) continue;
    const std::string v = bare(real(b, r.argument, 0));
    if (r.kind == Kind::pick)
      b.lines.push_back(format("if (m == {}) {}_at[{}] = {};", bare(value(b, r.index, 0)), r.name, index_of(w), v));
    else if (r.over.kind == Over::Kind::m)
      b.lines.push_back(format("add_to<{}>({}_here + {}, {}, m == (int)blockIdx.x, {});", type_of(r), r.name, index_of(w), extent_of(w), v));
    else
      b.lines.push_back(format("add({}, {});", r.name, v));
  }
  if (b.lines.empty()) return {};
  return format("    for (int {0} = thread; {0} < {1}; {0} += THREADS) {{\n", index_of(w), extent_of(w)) + indented(b.lines, 6) + "    }\n";
}

/// "float pick1 = ...", where `index` counts from `first`, "" or "n + ", and below `extent`.
std::string PassWriter::pick(Body& row, const Reduction& r, const std::string& index, const std::string& first, const std::string& extent) {
  Body b = body(r.width, row.scalars, nullptr, &row);
  b.places[0].at = unique("chosen");
  const std::string at = b.places[0].at;
  const std::string v = bare(real(b, r.argument, 0)), ignored = r.ignore == no_value ? "" : bare(value(row, r.ignore, -1));
  std::string s = format("      float {} = not_a_number();\n      ", r.name);
  if (!ignored.empty()) s += format("if ({} == {}) {} = 0.f;\n      else ", index, ignored, r.name);
  return s + format("if ((u32){} < (u32){}) {{\n        const int {} = {}{};\n", index, extent, at, first, index) + indented(b.lines, 8) +
         format("        {} = {};\n      }}\n", r.name, v);
}

/// One thread evaluates what is picked, in its column.
std::string PassWriter::picks(Body& row) {
  std::string s;
  for (const Reduction& r : reductions_)
    if (r.kind == Kind::pick && r.over.kind == Over::Kind::n)
      s += format("    if (thread == 0) {{\n      const int t = {};\n", bare(value(row, r.index, -1))) + pick(row, r, "t", "", extent_of(r.width)) +
           format("      {0}_at[m] = {0};\n    }}\n", r.name);
  return s;
}
std::string PassWriter::pick_of_segment(Body& row, const Reduction& r) {
  Body b = body(r.width, row.scalars, nullptr, &row);  // in the segment's first column: the index is the same in all of them
  const std::string index = bare(value(b, r.index, 0));
  const int d = r.over.segment;
  return format("    for (int s = thread; s < {} / {}; s += THREADS) {{\n      const int {} = s * {};\n", extent_of(r.width), d, index_of(r.width), d) + indented(b.lines, 6) +
         format("      const int t = {};\n", index) + pick(row, r, "t", format("{} + ", index_of(r.width)), std::to_string(d)) + format("      {0}_here[s] = {0};\n    }}\n", r.name);
}

std::string PassWriter::results_of_row() const {
  std::string s;
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::n && r.kind != Kind::pick)
      s += format("    {0} = fold_block({0}, warp, lane);\n    if (thread == 0) put_partial({0}_at + m, p.M, {0});\n", r.name);
  return s;
}

// ---------------------------------------------------------------- what is complete

/// The values of a reduction's nodes, in a body where its result has its name.
void PassWriter::know(Body& b, const Reduction& r, int place) {
  for (const auto& [v, index] : reduction_of_) {
    if (&reductions_[static_cast<std::size_t>(index)] != &r) continue;
    const Op op = p_.node(v).op;
    b.known[{v, place}] = op == Op::pick ? r.name : format("{}.{}()", r.name, op == Op::reduce_sum || op == Op::softmax_sum ? "sum" : "max");
  }
}

void PassWriter::finish(Body& b, Width w, bool rows, const std::string& index) {
  for (std::size_t o = 0; o < p_.outputs.size(); o++) {
    const Output& output = p_.outputs[o];
    const Type& t = p_.node(output.value).type;
    if (!output.finish || t.rows != rows || t.width != w) continue;
    const int slot = 2 + static_cast<int>(p_.operands.size() + o);
    const std::string v = bare(real(b, output.value, w == Width::none ? -1 : 0));
    b.lines.push_back(format("{}({}(), {}, {}, {});", output.accumulate ? "accumulate1" : "store1", tag_of(output.dtype), field(Field::Kind::pointer, slot),
                             index.empty() ? "0" : format("{} * {}", index, field(Field::Kind::stride0, slot)), v));
  }
}

/// The last block to arrive: combines the blocks' results in their order, and stores what is finished.
std::string PassWriter::complete(Body& scalars) {
  Body totals = body(Width::none, &scalars, nullptr, nullptr);
  totals.totals = &totals;
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::mn) {
      totals.lines.push_back(format("{0} = gather_partials<{1}>({0}_at, gridDim.x, 1, lane, gridDim.x, 32);", r.name, type_of(r)));
      totals.lines.push_back(format("fold_warp({});", r.name));
      know(totals, r, -1);
    }
  std::string loops;
  if (finishes(Width::none, true)) {
    Body b = body(Width::none, &scalars, &totals, nullptr);
    b.row = &b;
    for (const Reduction& r : reductions_) {
      if (r.over.kind != Over::Kind::n) continue;
      b.lines.push_back(r.kind == Kind::pick ? format("const float {0} = load_L2({0}_at + m);", r.name)
                                             : format("const {1} {0} = get_partial<{1}>({0}_at + m, p.M);", r.name, type_of(r)));
      know(b, r, -1);
    }
    finish(b, Width::none, true, "m");
    loops += "  for (int m = thread; m < p.M; m += THREADS) {\n" + indented(b.lines, 4) + "  }\n";
  }
  for (const Width w : widths) {
    if (!finishes(w, false)) continue;
    Body b = body(w, &scalars, &totals, nullptr);
    for (const Reduction& r : reductions_) {
      if (r.over.kind != Over::Kind::m || r.width != w) continue;
      if (r.kind == Kind::pick) {
        const std::string index = value(b, r.index, 0), ignored = r.ignore == no_value ? "false" : format("{} == {}", index, value(b, r.ignore, -1));
        b.lines.push_back(format("const float {0} = picked({0}_at + {1}, {2}, p.M, {3});", r.name, index_of(w), bare(index), ignored));
        know(b, r, 0);
        continue;
      }
      b.lines.push_back(format("const {1} {0} = gather_partials<{1}>({0}_at + {2}, {3}, {4}, 0, min((int)gridDim.x, p.M), 1);", r.name, type_of(r), index_of(w), extent_of(w),
                               times(r.floats(), extent_of(w))));
      know(b, r, 0);
    }
    finish(b, w, false, index_of(w));
    loops += format("  for (int {0} = thread; {0} < {1}; {0} += THREADS) {{\n", index_of(w), extent_of(w)) + indented(b.lines, 4) + "  }\n";
  }
  Body last = body(Width::none, &scalars, &totals, nullptr);
  finish(last, Width::none, false, "");
  if (!last.lines.empty()) loops += "  if (thread == 0) {\n" + indented(last.lines, 4) + "  }\n";
  return "  if (!is_last_block(p.counters)) return;\n" + indented(totals.lines, 2) + loops;
}

// ---------------------------------------------------------------- the page

void PassWriter::write(TwoPass& out) {
  find_scratch(out);
  out.completes = std::any_of(p_.outputs.begin(), p_.outputs.end(), [](const Output& o) { return o.finish; });
  Body scalars = body(Width::none, nullptr, nullptr, nullptr), row = body(Width::none, &scalars, nullptr, nullptr);
  scalars.scalars = &scalars;
  row.row = &row;
  const std::string segment_loops = segments(row);
  std::string loops;
  for (const Width w : widths) loops += columns(row, w);
  const std::string pick_blocks = picks(row), results = results_of_row(), completion = out.completes ? complete(scalars) : "";

  std::string s = "DEV void second_pass(const Params& p) {\n"
                  "  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;\n"
                  "  grid_dependency_launch();\n"
                  "  grid_dependency_wait();\n";
  std::string end = "p.partials";
  for (std::size_t i = 0; i < reductions_.size(); i++) {
    const Reduction& r = reductions_[i];
    const Scratch& d = out.scratch[i];
    const std::string one = d.twice_width == 0 ? format("{}", d.floats) : times(d.floats, format("{}{}", extent_of(r.width), d.divisor > 1 ? format(" / {}", d.divisor) : ""));
    s += format("  float* const {}_at = {};\n", r.name, end);
    if (d.of == Scratch::Of::block && d.twice_width != 0) s += format("  float* const {0}_here = {0}_at + blockIdx.x * {1};\n", r.name, one);
    end = d.of == Scratch::Of::row     ? format("{}_at + {}", r.name, times(d.floats, "p.M"))
          : d.of == Scratch::Of::block ? format("{}_at + gridDim.x * {}", r.name, one)
                                       : format("{}_at + {}", r.name, one);
  }
  s += indented(scalars.lines, 2);
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::mn) s += format("  {0} {1};\n  {1}.clear();\n", type_of(r), r.name);
  s += "  for (int m = blockIdx.x; m < p.M; m += gridDim.x) {\n"
       "    const float* const acc = p.product + m * (i64)((p.N + 3) / 4 * 4);\n" +
       indented(row.lines, 4) + segment_loops;
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::n && r.kind != Kind::pick) s += format("    {0} {1};\n    {1}.clear();\n", type_of(r), r.name);
  s += loops + pick_blocks + results;
  if (!segment_loops.empty()) s += "    __syncthreads();\n";
  s += "  }\n";
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::mn) s += format("  {0} = fold_block({0}, warp, lane);\n  if (thread == 0) put_partial({0}_at + blockIdx.x, gridDim.x, {0});\n", r.name);
  s += completion + "}\n";

  Emitted& e = out.epilogue;
  e.threads = 256;
  e.entry = "coda_" + p_.name + "_epilogue";
  ParamsWriter params(e);
  params.add(Field::Kind::m, -1, "int", "M", 4);
  params.add(Field::Kind::n, -1, "int", "N", 4);
  params.add(Field::Kind::k, -1, "int", "K", 4);
  params.add(Field::Kind::product, -1, "const float*", "product", 8);
  params.add(Field::Kind::partials, -1, "float*", "partials", 8);
  params.add(Field::Kind::counters, -1, "u32*", "counters", 8);
  params.add_slots(slots_, fields_);
  const std::string definitions = definitions_of(ops_);
  e.source = format("// The epilogue of {} as a pass over its product.\n", p_.name) + doc_comment(p_) + "#include \"two_pass.cuh\"\n\nnamespace coda {\n\n" + params.text() + "};\n\n" +
             (definitions.empty() ? "" : definitions + "\n") + s + "\n}  // namespace coda\n\n" +
             format("extern \"C\" __global__ void __launch_bounds__(coda::THREADS)\n{}(const __grid_constant__ coda::Params p) {{\n  coda::second_pass(p);\n}}\n", e.entry);
}

}  // namespace
}  // namespace emission

std::int64_t Scratch::count(std::int64_t m, std::int64_t n, std::int64_t blocks) const {
  const std::int64_t each = twice_width == 0 ? 1 : n * twice_width / 2 / divisor;
  return floats * each * (of == Of::row ? m : of == Of::block ? blocks : 1);
}

/// Four blocks fit on a multiprocessor beside each other and keep its loads in flight.
int TwoPass::blocks(std::int64_t m, int multiprocessors) { return static_cast<int>(std::clamp<std::int64_t>(m, 1, 4 * std::max(1, multiprocessors))); }

std::int64_t TwoPass::scratch_floats(std::int64_t m, std::int64_t n, int blocks) const {
  std::int64_t sum = 0;
  for (const Scratch& s : scratch) sum += s.count(m, n, blocks);
  return sum;
}

Program product_alone(const Program& p) {
  return build("product", [&](Epilogue& e) {
    e.gemm(p.a_dtype, p.b_dtype);
    e.output("product", DType::f32, {epilogue::M, epilogue::N}, e.acc());
  });
}

Problem product_problem(const Problem& problem) {
  Problem q = problem;
  q.direct = 0;
  q.tile_bytes = 4;
  q.tile_cycles = 0;
  return q;
}

std::string two_pass_name(const Config& product) { return fmt::format("{}_{}", two_pass_prefix, product.name()); }

TwoPass emit_two_pass(const Program& p, const Config& product) {
  TwoPass out;
  out.product = emit(product_alone(p), product);
  emission::PassWriter(p).write(out);
  return out;
}

std::optional<std::string> why_two_pass(const Program& p, const Problem& problem) {
  for (const Output& o : p.outputs) {
    if (!o.finish) continue;
    // The fused kernel finishes rows, columns and the matrix at different times.
    const Type& t = p.node(o.value).type;
    const Over::Kind own = t.rows ? Over::Kind::n : t.width != Width::none ? Over::Kind::m : Over::Kind::mn;
    std::vector<ValueId> todo{o.value};
    while (!todo.empty()) {
      const Node& n = p.node(todo.back());
      todo.pop_back();
      const bool reduction = n.op >= Op::reduce_sum && n.op <= Op::pick;
      if (reduction && n.over.kind != own) return fmt::format("finish '{}' needs reductions over different extents", o.name);
      if (reduction) continue;
      for (ValueId a : n.args)
        if (a != no_value && p.node(a).type.stage == Stage::finish) todo.push_back(a);
    }
  }
  try {
    const Demand d = demand_of(p, problem.direct);
    if (d.pair_run < 0 && d.segment > 0 && problem.n / 2 % d.segment != 0)
      return fmt::format("columns are paired by halves and reduced over segments of {}, which aren't whole in N/2 = {}", d.segment, problem.n / 2);
    if (d.pair_run < 0 && problem.k > 0 && problem.b_major == Major::mn && problem.n / 2 * static_cast<std::int64_t>(size_of(p.b_dtype)) % 16 != 0)
      return fmt::format("columns are paired by halves of an N-major B, and N/2 = {} elements are not a multiple of 16 bytes", problem.n / 2);
    choose(d, problem);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unsupported) throw;
    return e.what();
  }
  return std::nullopt;
}

}  // namespace coda
