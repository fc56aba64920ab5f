#include "cuda/emit_values.hpp"

#include <fmt/format.h>

namespace coda::emission {

// ---------------------------------------------------------------- page

std::string field_name(const std::vector<Slot>& slots, Field::Kind kind, int slot) {
  const std::string name = safe_name(std::string(slots[static_cast<std::size_t>(slot)].name));
  switch (kind) {
    case Field::Kind::pointer: return name;
    case Field::Kind::value: return name + "_value";
    case Field::Kind::extent0: return name + "_extent0";
    case Field::Kind::extent1: return name + "_extent1";
    case Field::Kind::stride0: return name + "_stride0";
    default: return name + "_stride1";
  }
}

std::string Page::field(Field::Kind kind, int slot) {
  fields.insert({kind, slot});
  return "p." + field_name(analysis.slots, kind, slot);
}

namespace {
std::string member_name(Page& page, std::vector<Hoisted>& list, ValueId v, int table, const char* otherwise) {
  for (const Hoisted& h : list)
    if (h == Hoisted{v, table, ""}) return h.member;
  const Node& n = page.analysis.program.node(v);
  std::string name = page.analysis.names[static_cast<std::size_t>(v)];
  if (table >= 0) name = page.analysis.program.operands[static_cast<std::size_t>(table)].name + "_row";
  else if (name.empty() && n.op == Op::operand) name = page.analysis.program.operands[static_cast<std::size_t>(n.index)].name;
  else if (name.empty()) name = fmt::format("{}{}", otherwise, list.size());
  name = safe_name(name);
  while (!page.members.insert(name).second) name += "_";
  list.push_back({v, table, name});
  return name;
}
}  // namespace

std::string Page::scalar(ValueId v) { return member_name(*this, scalars, v, -1, "scalar"); }
std::string Page::row(ValueId v, int table) { return member_name(*this, rows, v, table, "row"); }

// ---------------------------------------------------------------- segments

int segment_count(const Analysis& a, const Reduction& r, int part_columns) {
  const bool both = a.unit == Unit::far && a.pairing.kind == Pairing::Kind::halves && r.width == Width::full;
  return part_columns / a.segment_length(r) * (both ? 2 : 1);
}

std::string segment_element(const Analysis& a, const Reduction& r, int instance) {
  const bool both = a.unit == Unit::far && a.pairing.kind == Pairing::Kind::halves && r.width == Width::full;
  const int length = a.segment_length(r);
  return fmt::format("{}[{}(local + 8 * ({})) / {}][{}]", r.name,
                     both && instance == 1 ? fmt::format("Tile<Config>::COLUMNS / {} + ", length) : "",
                     a.unit == Unit::adjacent ? "i / 2" : "i / 4", length, a.unit == Unit::adjacent ? "i % 2" : "i / 2 % 2");
}

// ---------------------------------------------------------------- writer

Writer::Writer(Page& page, Level level, std::string row_index)
    : page_(page), a_(page.analysis), level_(level), row_index_(std::move(row_index)) {}

std::string Writer::unique(std::string name) {
  name = safe_name(name);
  while (page_.members.count(name) > 0 || !taken_.insert(name).second) name += "_";
  return name;
}

std::string Writer::column(int member) {
  const int k = a_.unit == Unit::single ? 0 : member;
  if (level_ == Level::column) return a_.unit == Unit::single ? "n" : fmt::format("n_{}", k);
  uses_column_[k] = true;
  return a_.unit == Unit::single ? "n" : fmt::format("n_{}", k);
}
std::string Writer::pair() {
  if (level_ == Level::column) return "q";
  uses_pair_ = true;
  if (a_.unit == Unit::adjacent) uses_column_[0] = true;
  return "q";
}
std::string Writer::columns_left() {
  uses_left_ = true;
  return "left";
}
std::string Writer::inside() {
  uses_inside_ = uses_left_ = true;
  if (level_ == Level::element) return "ok";
  if (a_.unit == Unit::far) uses_pair_ = true;
  else uses_column_[0] = true;
  return "ok";
}

std::vector<std::string> Writer::prologue() const {
  std::vector<std::string> out;
  const bool adjacent = a_.unit == Unit::adjacent;
  const std::string x = level_ == Level::columns ? adjacent ? "8 * (first + j) + 2 * (lane & 3)" : "8 * (first + j / 2) + 2 * (lane & 3) + j % 2"
                        : adjacent               ? "8 * (first + i / 2) + 2 * (lane & 3)"
                                                 : "8 * (first + i / 4) + 2 * (lane & 3) + i % 2";
  for (int k = 0; k < 2; k++) {
    if (!uses_column_[k]) continue;
    const std::string name = a_.unit == Unit::single ? "n" : fmt::format("n_{}", k);
    if (adjacent) out.push_back(fmt::format("const int {} = at.n[0] + {}{};", name, x, k == 1 ? " + 1" : ""));
    else out.push_back(fmt::format("const int {} = at.n[{}] + {};", name, k, x));
  }
  if (uses_pair_) out.push_back(adjacent ? "const int q = n_0 / 2;" : fmt::format("const int q = at.p + {};", x));
  if (uses_inside_ && level_ == Level::element)
    out.push_back(adjacent ? "const bool ok = i / 2 * 8 < left;" : "const bool ok = i / 4 * 8 + i % 2 < left;");
  else if (uses_inside_)
    out.push_back(a_.unit == Unit::far ? "const bool ok = q < p.N / 2;"
                                       : fmt::format("const bool ok = {} < p.N;", adjacent ? "n_0" : "n"));
  return out;
}

std::string Writer::remaining() const {
  if (!uses_left_ || level_ != Level::element) return {};
  const bool far = a_.unit == Unit::far;
  return fmt::format("const int left = opaque({} - {} - 8 * first - 2 * (lane & 3));", far ? "p.N / 2" : "p.N", far ? "at.p" : "at.n[0]");
}

std::string Writer::twice_column(const Pairing& q, int instance) {
  const std::string n = column(instance / 2);
  const int t = instance % 2;
  switch (q.kind) {
    case Pairing::Kind::halves: return t == 0 ? n : fmt::format("({} + p.N)", n);
    case Pairing::Kind::heads: return fmt::format("head_column<{}, {}>({}, {})", q.head, q.rotary, t, n);
    default: return t == 0 ? fmt::format("2 * {}", n) : fmt::format("(2 * {} + 1)", n);
  }
}

std::string Writer::element(const std::string& array, Width w, int instance) const {
  std::string s = array + a_.array_suffix(w, instance);
  if (a_.unit != Unit::adjacent || w == Width::half) return s + "[i]";
  return s + fmt::format("[2 * i + {}]", w == Width::twice ? instance / 2 : instance);
}

std::string Writer::column_element(const std::string& array, Width w, int instance) const {
  std::string s = array + a_.array_suffix(w, instance);
  if (level_ == Level::columns)
    return s + (a_.unit != Unit::adjacent || w == Width::half ? "[j]" : fmt::format("[2 * j + {}]", w == Width::twice ? instance / 2 : instance));
  if (a_.unit != Unit::adjacent) return s + "[i / 4 * 2 + i % 2]";
  if (w == Width::half) return s + "[i / 2]";
  return s + fmt::format("[i / 2 * 2 + {}]", w == Width::twice ? instance / 2 : instance);
}

std::string Writer::offset(int slot, const Shape& shape, int instance, const Pairing& twice) {
  const std::string n = shape.width == Width::full   ? column(instance)
                        : shape.width == Width::half ? half_column()
                                                     : twice_column(twice, instance);
  if (shape.layout == Layout::column) return fmt::format("{} * {}", n, page_.field(Field::Kind::stride0, slot));
  const std::string s0 = page_.field(Field::Kind::stride0, slot), s1 = page_.field(Field::Kind::stride1, slot);
  return fmt::format("{} * {} + {} * {}", row_index_, shape.transposed ? s1 : s0, n, shape.transposed ? s0 : s1);
}

std::string Writer::leaf_operand(const Node& n, ValueId v, int instance) {
  const Operand& o = a_.program.operands[static_cast<std::size_t>(n.index)];
  const int slot = a_.operand_slot(n.index);
  const bool direct = a_.direct[static_cast<std::size_t>(slot)] || force_direct || level_ == Level::column;
  const std::string tag = tag_of(o.dtype);
  const auto base = [&] { return page_.field(Field::Kind::pointer, slot); };
  switch (o.shape.layout) {
    case Layout::scalar: return fmt::format("scalar({}(), {}, {})", tag, base(), page_.field(Field::Kind::value, slot));
    case Layout::row:
      return fmt::format("load1_if({}(), {} < p.M, {}, {} * {})", tag, row_index_, base(), row_index_,
                         page_.field(Field::Kind::stride0, slot));
    case Layout::column:
      if (!direct) return column_element(o.name + "_in", o.shape.width, instance);
      if (level_ == Level::column)
        return fmt::format("load1({}(), {}, {})", tag, base(), offset(slot, o.shape, instance, a_.twice_pairing(v)));
      return fmt::format("load1_if({}(), {}, {}, {})", tag, inside(), base(), offset(slot, o.shape, instance, a_.twice_pairing(v)));
    default:
      if (!direct) return element(o.name + "_in", o.shape.width, instance);
      return fmt::format("load1_if({}(), {} && {} < p.M, {}, {})", tag, inside(), row_index_, base(),
                         offset(slot, o.shape, instance, a_.twice_pairing(v)));
  }
}

/// An array over this thread's columns, filled in the loop before this one.
std::string Writer::hoist_column(ValueId v, int instance) {
  const Node& n = a_.program.node(v);
  Writer& w = *columns_;
  const std::pair<ValueId, int> key{v, instance};
  auto known = w.hoisted_.find(key);
  if (known == w.hoisted_.end()) {
    const std::string value = bare(w.definition(v, instance));
    std::string name = a_.names[static_cast<std::size_t>(v)];
    if (name.empty()) name = fmt::format("column{}", v);
    if (a_.instances(n.type.width) > 1) name += fmt::format("_{}", instance);
    name = w.unique(name);
    taken_.insert(name);
    w.arrays_.push_back(fmt::format("{} {}[{}];", c_type(n.type.kind), name, a_.unit == Unit::adjacent ? "E / 4" : "E / 2"));
    w.line(fmt::format("{}[j] = {};", name, value));
    w.know(v, instance, name + "[j]");
    known = w.hoisted_.emplace(key, name).first;
  }
  return known->second + (a_.unit == Unit::adjacent ? "[i / 2]" : "[i / 4 * 2 + i % 2]");
}

namespace {
/// Whether in columns 2j and 2j + 1 (that are neighbours in a unit's member) it is an even number and the next.
bool even_pairs(const Program& p, ValueId v) {
  const Node& n = p.node(v);
  switch (n.op) {
    case Op::col: return true;
    case Op::split: return n.pairing.kind != Pairing::Kind::adjacent && even_pairs(p, n.args[0]);
    case Op::mod: {
      const Node& d = p.node(n.args[1]);
      return d.op == Op::constant && d.number > 0 && static_cast<long long>(d.number) % 2 == 0 && even_pairs(p, n.args[0]);
    }
    default: return false;
  }
}
}  // namespace

/// A name for "the condition holds in one of this thread's columns of the step", worked out before the loop over its elements.
std::string Writer::wanted(ValueId condition) {
  if (const auto known = wanted_.find(condition); known != wanted_.end()) return known->second;
  std::string any;
  for (int k = 0; k < a_.instances(Width::full); k++) {
    const std::string element = hoist_column(condition, k);
    any += fmt::format("{}{}[j]", k > 0 ? " || " : "", element.substr(0, element.find('[')));
  }
  const std::string& of = a_.names[static_cast<std::size_t>(condition)];
  const std::string name = unique(of.empty() ? fmt::format("wanted{}", condition) : of + "_wanted");
  arrays_.push_back(fmt::format("bool {} = false;", name));
  arrays_.push_back("#pragma unroll");
  arrays_.push_back(fmt::format("for (int j = 0; j < {}; j++) {} = {} || {};", a_.unit == Unit::adjacent ? "E / 4" : "E / 2", name, name, any));
  return wanted_[condition] = name;
}

std::string Writer::lookup(const Node& n, ValueId v, int instance) {
  const Operand& o = a_.program.operands[static_cast<std::size_t>(n.index)];
  const int slot = a_.operand_slot(n.index);
  const std::string tag = tag_of(o.dtype);
  const bool table2 = o.shape.layout == Layout::table2;
  const bool dense = !a_.direct[static_cast<std::size_t>(slot)];
  const std::string extent = page_.field(table2 ? Field::Kind::extent1 : Field::Kind::extent0, slot);
  const std::string stride = dense ? "1" : page_.field(table2 ? Field::Kind::stride1 : Field::Kind::stride0, slot);
  const ValueId index = n.args[table2 ? 1 : 0];
  const Type& row_type = a_.program.node(n.args[0]).type;
  std::string row;
  if (!table2) row = page_.field(Field::Kind::pointer, slot);
  else if (level_ == Level::element && row_type.width == Width::none && row_type.rows) row = "r." + page_.row(n.args[0], n.index);
  else
    row = fmt::format("table_row({}(), {}, {}, {}, {})", tag, page_.field(Field::Kind::pointer, slot),
                      page_.field(Field::Kind::extent0, slot), page_.field(Field::Kind::stride0, slot), bare(value(n.args[0], instance)));
  if (level_ == Level::element && columns_ != nullptr && table2 && row_type.rows && guards_[static_cast<std::size_t>(v)] != no_value)
    row = fmt::format("({} ? {} : nullptr)", wanted(guards_[static_cast<std::size_t>(v)]), row);
  const std::string at = bare(value(index, instance));
  const bool loop = level_ == Level::element || level_ == Level::columns;
  if (loop && dense && a_.unit != Unit::adjacent && even_pairs(a_.program, index)) {
    const std::string name = unique(o.name + "_pair"), i = level_ == Level::columns ? "j" : "i";
    arrays_.push_back(fmt::format("float {}[{}];", name, level_ == Level::columns ? "E / 2" : "E"));
    line(fmt::format("if ({0} % 2 == 0) lookup2({1}(), {2}, {3}, {4}, {5}[{0}], {5}[{0} + 1]);", i, tag, row, extent, at, name));
    return fmt::format("{}[{}]", name, i);
  }
  return fmt::format("lookup({}(), {}, {}, {}, {})", tag, row, extent, stride, at);
}

std::string Writer::promoted(ValueId v, int instance, bool to_real) {
  const Node& n = a_.program.node(v);
  if (!to_real || n.type.kind != ValueKind::integer) return value(v, instance);
  if (n.op == Op::constant) return literal(n, true);
  return fmt::format("float({})", bare(value(v, instance)));
}
std::string Writer::real(ValueId v, int instance) { return promoted(v, instance, true); }

std::string Writer::elementwise(const Node& n, int instance) {
  return elementwise_text(a_.program, n, [&](ValueId v, bool to_real) { return promoted(v, instance, to_real); }, page_.ops);
}

std::string Writer::declare(ValueId v, int instance, const std::string& expression) {
  const Node& n = a_.program.node(v);
  std::string name = a_.names[static_cast<std::size_t>(v)];
  if (name.empty()) name = fmt::format("t{}", v);
  if (level_ == Level::element || level_ == Level::column) name += a_.instances(n.type.width) > 1 && n.type.width != Width::half
                                                                       ? fmt::format("_{}", instance)
                                                                       : "";
  name = unique(name);
  line(fmt::format("const {} {} = {};", c_type(n.type.kind), name, bare(expression)));
  return name;
}

std::string Writer::definition(ValueId v, int instance) {
  defining_ = v;
  std::string s = value(v, instance);
  defining_ = no_value;
  return s;
}

std::string Writer::value(ValueId v, int instance) {
  const bool defining = defining_ == v;
  defining_ = no_value;
  const Node& n = a_.program.node(v);
  const Width w = n.type.width;
  if (w == Width::none || w == Width::half) instance = 0;
  if (const auto known = memo_.find({v, instance}); known != memo_.end()) return known->second;
  const auto remember = [&](std::string s) { return memo_[{v, instance}] = std::move(s); };

  if (n.op == Op::constant) return literal(n, false);
  if (n.op == Op::extent) return n.index == 0 ? "p.M" : n.index == 1 ? "p.N" : "p.K";
  const bool tile = n.type.stage == Stage::tile;
  if (tile && w == Width::none && !is_constant(a_.program, v)) {
    if (!n.type.rows && level_ != Level::scalar) return remember(page_.scalar(v));
    if (n.type.rows && level_ == Level::element) return remember(n.op == Op::row ? "r.m" : "r." + page_.row(v));
  }

  // What depends on the column alone, and isn't read from an array or known for nothing, is worked out once a column.
  if (tile && w != Width::none && !n.type.rows && columns_ != nullptr && !defining && n.op != Op::operand && n.op != Op::col &&
      n.op != Op::split && n.op != Op::join)
    return remember(hoist_column(v, instance));

  std::string s;
  switch (n.op) {
    case Op::acc:
      s = a_.unit == Unit::adjacent ? fmt::format("acc[2 * i + {}]", instance)
          : instance == 0           ? "acc[i]"
                                    : "acc[Tile<Config>::COLUMNS / 2 + i]";
      return remember(s);
    case Op::row: return remember(row_index_);
    case Op::col: return remember(column(instance));
    case Op::operand: s = leaf_operand(n, v, instance); break;
    case Op::split:
      s = value(n.args[0], w == Width::half ? n.index : instance * 2 + n.index);
      break;
    case Op::join: s = w == Width::full ? real(n.args[static_cast<std::size_t>(instance)], 0)
                                        : real(n.args[static_cast<std::size_t>(instance % 2)], instance / 2);
      if (n.type.kind == ValueKind::integer) s = w == Width::full ? value(n.args[static_cast<std::size_t>(instance)], 0)
                                                                  : value(n.args[static_cast<std::size_t>(instance % 2)], instance / 2);
      break;
    case Op::lookup: s = lookup(n, v, instance); break;
    case Op::round_to: s = fmt::format("round_to({}(), {})", tag_of(n.dtype), bare(real(n.args[0], instance))); break;
    case Op::reduce_sum: case Op::reduce_max: case Op::softmax_max: case Op::softmax_sum: case Op::pick: {
      if (n.over.kind != Over::Kind::segment)
        throw Error(ErrorKind::internal, fmt::format("{}: a reduction is used before it is complete", a_.program.name));
      const Reduction& r = a_.reductions[static_cast<std::size_t>(a_.reduction_of.at(v))];
      const std::string element = segment_element(a_, r, instance);
      if (n.op == Op::pick) {
        const std::string at = value(n.args[1], instance);
        const std::string ignored = n.args[2] == no_value ? "false" : fmt::format("{} == {}", at, value(n.args[2]));
        s = fmt::format("picked({}.sum(), {}, {}, {})", element, at, n.over.segment, ignored);
      } else {
        s = fmt::format("{}.{}()", element, n.op == Op::reduce_sum || n.op == Op::softmax_sum ? "sum" : "max");
      }
      break;
    }
    default: s = elementwise(n, instance); break;
  }
  const bool named = !a_.names[static_cast<std::size_t>(v)].empty();
  const bool leaf = n.op == Op::operand && s.find('(') == std::string::npos;
  if (!leaf && !defining && (named || a_.uses[static_cast<std::size_t>(v)] > 1)) s = declare(v, instance, s);
  return remember(s);
}

}  // namespace coda::emission
