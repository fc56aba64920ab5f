#include "cuda/emit_epilogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coda::emission {
namespace {

using fmt::format;
using Kind = Reduction::Kind;
using Level = Writer::Level;

std::string indented(const std::vector<std::string>& lines, int indent) {
  std::string s;
  for (const std::string& l : lines) s += std::string(static_cast<std::size_t>(indent), ' ') + l + "\n";
  return s;
}

std::string address(const char* base, int offset) { return offset == 0 ? base : format("{} + {}", base, offset); }

/// One TMA operation for each 128 bytes of a box's rows.
struct Piece { int offset; std::string x; };
std::vector<Piece> pieces(const Placed& b, int rows, int chunk) {
  const int bytes = chunk * b.box->column_bytes(), size = static_cast<int>(size_of(b.box->dtype));
  if (b.box->form == Box::Form::transposed || b.box->vector()) return {{b.offset, b.box->x}};
  std::vector<Piece> out;
  for (int x = 0; x < bytes; x += 128)
    out.push_back({b.offset + x * rows, x == 0 ? b.box->x : format("{} + {}", b.box->x, x / size)});
  return out;
}

}  // namespace

std::vector<Placed> place(const std::vector<Box>& boxes, int rows, int chunk) {
  std::vector<Placed> out;
  int box = 0, slice = 0;
  for (const Box& b : boxes) {
    const int bytes = chunk * b.column_bytes();
    out.push_back({&b, b.vector() ? slice : box});
    if (b.vector()) slice += (bytes + 127) / 128 * 128;
    else box += (rows * bytes + 1023) / 1024 * 1024;
  }
  return out;
}

EpilogueWriter::EpilogueWriter(Page& page, const Config& c, const Shape64& s)
    : page_(page), a_(page.analysis), p_(page.analysis.program), c_(c), s_(s),
      stores_(place(a_.stores, 16, c.chunk)), loads_(place(a_.loads, 64, c.chunk)) {
  for (const auto* boxes : {&a_.stores, &a_.loads})
    for (const Box& b : *boxes) page_.members.insert(b.array);
  for (const Reduction& r : a_.reductions) page_.members.insert(r.name);
}

bool EpilogueWriter::has(Over::Kind over) const {
  return std::any_of(a_.reductions.begin(), a_.reductions.end(), [&](const Reduction& r) { return r.over.kind == over; });
}

int EpilogueWriter::floats(Over::Kind over, bool picks) const {
  int n = 0;
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == over && (r.kind == Kind::pick) == picks)
      n += r.floats() * (over == Over::Kind::m && r.width == Width::twice ? 2 : 1);
  return n;
}

std::vector<std::string> EpilogueWriter::column_arrays(const Reduction& r) const {
  std::vector<std::string> out;
  for (int k = 0; k < a_.instances(r.width); k++) {
    const std::string s = a_.array_suffix(r.width, k);
    if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  }
  return out;
}

int EpilogueWriter::column_extent(const Reduction& r) const {
  return a_.unit == Unit::adjacent && r.width == Width::half ? s_.part_columns / 2 : s_.part_columns;
}

// ---------------------------------------------------------------- a group of columns

void EpilogueWriter::stores(Writer& w) {
  for (std::size_t o = 0; o < p_.outputs.size(); o++) {
    const Output& output = p_.outputs[o];
    if (output.finish) continue;
    const int slot = a_.output_slot(static_cast<int>(o));
    const Width width = output.shape.width;
    const Pairing q = width == Width::twice ? a_.twice_pairing(output.value) : Pairing{};
    for (int k = 0; k < a_.instances(width); k++) {
      const std::string v = bare(w.real(output.value, k));
      if (a_.direct[static_cast<std::size_t>(slot)]) {
        w.line(format("if ({} && r.m < p.M) {}({}(), {}, {}, {});", w.inside(), output.accumulate ? "accumulate1" : "store1",
                      tag_of(output.dtype), page_.field(Field::Kind::pointer, slot), w.offset(slot, output.shape, k, q), v));
      } else if (output.accumulate && output.dtype != DType::f32) {
        w.line(format("{} = {} + {};", w.element("out_" + output.name, width, k), w.element("old_" + output.name, width, k), v));
      } else {
        w.line(format("{} = {};", w.element("out_" + output.name, width, k), v));
      }
    }
  }
  for (const Placed& placed : stores_) {
    const Box& b = *placed.box;
    const std::string at = address("staged", placed.offset), tag = tag_of(b.dtype);
    if (b.form == Box::Form::twice) {
      const std::string second = b.array.substr(0, b.array.size() - 1) + "1";
      arrays_.push_back(format("float {}[E], {}[E];", b.array, second));
      after_.push_back(format("write_twice<{}, CHUNK>({}, lane, first, {}, {});", tag, at, b.array, second));
    } else {
      arrays_.push_back(format("float {}[{}];", b.array, b.form == Box::Form::half ? "E / 2" : "E"));
      const char* write = b.form == Box::Form::half ? "write_half" : b.form == Box::Form::transposed ? "write_transposed" : "write_full";
      after_.push_back(format("{}<{}, CHUNK>({}, lane, first, {});", write, tag, at, b.array));
    }
  }
}

/// An element's part in a reduction that goes on past the tile. (Segments are folded before.)
void EpilogueWriter::reduce(Writer& w, const Reduction& r) {
  const bool adjacent = a_.unit == Unit::adjacent, softmax = r.kind == Kind::softmax;
  const int instances = a_.instances(r.width);
  if (folds_columns(r))
    for (const std::string& suffix : column_arrays(r)) {
      const std::string size = adjacent && r.width == Width::half ? "E / 4" : "E / 2";
      arrays_.push_back(format("{} {}{}[{}];", r.type(), r.name, suffix, size));
      arrays_.push_back(format("for (auto& v : {}{}) v.clear();", r.name, suffix));
    }
  for (int k = 0; k < instances; k++) {
    const std::string v = bare(w.real(r.argument, k));
    const std::string in = r.name + "_in" + (instances > 1 ? format("_{}", k) : "");
    const bool zero_outside = r.kind == Kind::sum && vanishes_outside(a_, r.argument, r.over.kind);
    switch (r.over.kind) {
      case Over::Kind::n:
        if (const std::string index = r.kind == Kind::pick ? w.value(r.index) : ""; index.starts_with("r.") && a_.unit == Unit::single) {
          arrays_.push_back(format("float {}[2][E / 2];", in));
          w.line(format("{}[{}][i / 4 * 2 + i % 2] = {};", in, row_half(), v));
          for (int h = 0; h < 2; h++)  // first: what follows may change the accumulators' registers
            after_.insert(after_.begin(), format("{0}[{1}].scan(rows[{1}]{2} - at.n[0] - 8 * first - 2 * (lane & 3), {3}[{1}]);", r.name, h, index.substr(1), in));
        } else if (r.kind == Kind::pick) {
          w.line(format("{}[{}].add({} && {} == {}, {});", r.name, row_half(), w.inside(), w.column(k), w.value(r.index), v));
        } else if (softmax) {
          arrays_.push_back(format("float {}[2][{}];", in, adjacent ? "E / 4" : "E / 2"));
          w.line(format("{}[{}][{}] = {};", in, row_half(), adjacent ? "i / 2" : "i / 4 * 2 + i % 2", v));
          for (int h = 0; h < 2; h++) {
            after_.push_back(format("mask<{}>({}, {}[{}]);", adjacent ? 1 : 2, w.columns_left(), in, h));
            after_.push_back(format("{0}[{1}].add({2}[{1}]);", r.name, h, in));
          }
        } else {
          w.line(format("{}[{}].add({}{});", r.name, row_half(), zero_outside ? "" : w.inside() + ", ", v));
        }
        break;
      case Over::Kind::m: {
        if (r.kind == Kind::pick) {  // one thread of the grid has it
          w.line(format("if ({0} && r.m < p.M && r.m == {1}) p.{2}_partials()[{3}] = {4};", w.inside(), w.value(r.index, k), r.name, w.column(k), v));
          break;
        }
        const std::string at = w.column_element(r.name, r.width, k);
        if (softmax) w.line(format("{}.add(r.m < p.M ? {} : -infinity());", at, v));
        else w.line(format("{}.add({}{});", at, zero_outside ? "" : "r.m < p.M, ", v));
        break;
      }
      case Over::Kind::mn: w.line(format("{}.add({} && r.m < p.M, {});", r.name, w.inside(), v)); break;
      case Over::Kind::segment: break;
    }
  }
}

std::string EpilogueWriter::loop(const Writer& w, const Writer& columns, int indent) const {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  std::string s = indented(columns.arrays(), indent);
  if (!columns.lines().empty()) {
    s += pad + "#pragma unroll\n" + pad + format("for (int j = 0; j < {}; j++) {{\n", a_.unit == Unit::adjacent ? "E / 4" : "E / 2");
    s += indented(columns.prologue(), indent + 2) + indented(columns.lines(), indent + 2) + pad + "}\n";
  }
  s += indented(w.arrays(), indent);
  if (const std::string left = w.remaining(); !left.empty()) s += pad + left + "\n";
  s += pad + "#pragma unroll\n";
  s += pad + format("for (int i = 0; i < {}; i++) {{\n", a_.unit == Unit::adjacent ? "E / 2" : "E");
  std::vector<std::string> lines = w.prologue();
  lines.insert(lines.end(), w.lines().begin(), w.lines().end());
  const bool row = std::any_of(lines.begin(), lines.end(), [](const std::string& l) {
    for (std::size_t at = l.find("r."); at != std::string::npos; at = l.find("r.", at + 1))
      if (at == 0 || !(std::isalnum(static_cast<unsigned char>(l[at - 1])) || l[at - 1] == '_')) return true;
    return false;
  });
  if (row) s += pad + format("  const Row& r = rows[{}];\n", row_half());
  return s + indented(lines, indent + 2) + pad + "}\n";
}

std::string EpilogueWriter::group() {
  Writer w(page_, Level::element), columns(page_, Level::columns);
  w.hoist_columns_to(&columns);
  stores(w);
  for (const Reduction& r : a_.reductions)
    if (r.over.kind != Over::Kind::segment) reduce(w, r);
  // Column results need the bytes of the regions before them.
  int region = 0;
  for (const Reduction& r : a_.reductions) {
    if (!folds_columns(r)) continue;
    for (const std::string& suffix : column_arrays(r)) {
      const bool pairs = a_.unit == Unit::adjacent && r.width == Width::half;
      after_.push_back(format("fold_columns_into<{}, {}, {}>({}, {}, fresh, {}{}, lane);", r.type(), column_extent(r), pairs ? 1 : 2,
                              address("columns", 4 * region), pairs ? "local / 2" : "local", r.name, suffix));
      region += r.floats() * s_.part_columns;
    }
  }

  std::vector<std::string> reads;
  for (const Placed& placed : loads_) {
    const Box& b = *placed.box;
    const bool integer = b.dtype == DType::i32;
    const std::string at = address(b.vector() ? "slices" : "loaded", placed.offset), tag = tag_of(b.dtype), type = integer ? "int" : "float";
    switch (b.form) {
      case Box::Form::columns:
        reads.push_back(format("{} {}[E / 2];", type, b.array));
        reads.push_back(format("read_columns<{}>({}, lane, first, {});", tag, at, b.array));
        break;
      case Box::Form::half_columns:
        reads.push_back(format("{} {}[E / 4];", type, b.array));
        reads.push_back(format("read_half_columns<{}>({}, lane, first, {});", tag, at, b.array));
        break;
      case Box::Form::twice: {
        const std::string second = b.array.substr(0, b.array.size() - 1) + "1";
        reads.push_back(format("{} {}[E], {}[E];", type, b.array, second));
        reads.push_back(format("read_twice<{}, CHUNK>({}, warp * 16, lane, first, {}, {});", tag, at, b.array, second));
        break;
      }
      default: {
        const bool half = b.form == Box::Form::half;
        reads.push_back(format("{} {}[{}];", type, b.array, half ? "E / 2" : "E"));
        reads.push_back(format("{}<{}, CHUNK>({}, warp * 16, lane, first, {});", half ? "read_half" : "read_full", tag, at, b.array));
      }
    }
  }
  return "  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.\n"
         "  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {\n"
         "    const int first = local % CHUNK / 8;\n" +
         indented(reads, 4) + indented(arrays_, 4) + loop(w, columns, 4) + indented(after_, 4) + "  }\n";
}

// ---------------------------------------------------------------- segments

std::string EpilogueWriter::segments() {
  std::string s;
  int levels = 0;
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == Over::Kind::segment) levels = std::max(levels, r.level + 1);
  s += "  /// Reductions over segments of the columns, before the chunks that use them.\n"
       "  DEV void segments(const float* acc0, int m, int p0) {\n";
  for (int level = 0; level < levels; level++) {
    Writer w(page_, Level::element), columns(page_, Level::columns);
    w.hoist_columns_to(&columns);
    w.force_direct = columns.force_direct = true;
    std::string before, after;
    bool any = false;
    for (const Reduction& r : a_.reductions) {
      if (r.over.kind != Over::Kind::segment || r.level != level) continue;
      any = true;
      before += format("    for (auto& s : {}) {{ s[0].clear(); s[1].clear(); }}\n", r.name);
      after += format("    for (auto& s : {}) {{ fold_row(s[0]); fold_row(s[1]); }}\n", r.name);
      for (int k = 0; k < a_.instances(r.width); k++) {
        const std::string element = segment_element(a_, r, k), ok = w.inside(), v = bare(w.real(r.argument, k));
        if (r.kind == Kind::softmax)
          w.line(format("{}.add({}, exp({} - Softmax::base({}.max())));", element, ok, w.real(r.argument, k),
                        segment_element(a_, a_.reductions[static_cast<std::size_t>(r.maximum)], k)));
        else if (r.kind == Kind::pick)
          w.line(format("{}.add({} && int(u32({}) % {}u) == {}, {});", element, ok, w.column(k), r.over.segment, w.value(r.index, k), v));
        else
          w.line(format("{}.add({}, {});", element, ok, v));
      }
    }
    if (!any) continue;
    s += before +
         "    #pragma unroll\n"
         "    for (int local = 0; local < Tile<Config>::COLUMNS; local += GROUP) {\n"
         "      const float* acc = acc0 + local / 2;\n"
         "      const Place<Config> at(m, p0 + local, p.N);\n"
         "      const int first = 0;\n" +
         loop(w, columns, 6) + "    }\n" + after;
  }
  return s + "  }\n";
}

// ---------------------------------------------------------------- rows

std::string EpilogueWriter::begin_rows() {
  Writer w(page_, Level::row, "r.m");
  for (std::size_t i = 0; i < page_.rows.size(); i++) {  // grows while rows are written
    const Hoisted h = page_.rows[i];
    if (h.table >= 0) {
      const int slot = a_.operand_slot(h.table);
      w.line(format("r.{} = table_row({}(), {}, {}, {}, {});", h.member, tag_of(p_.operands[static_cast<std::size_t>(h.table)].dtype),
                    page_.field(Field::Kind::pointer, slot), page_.field(Field::Kind::extent0, slot),
                    page_.field(Field::Kind::stride0, slot), bare(w.value(h.value))));
    } else {
      w.line(format("r.{} = {};", h.member, bare(w.definition(h.value))));
      w.know(h.value, 0, "r." + h.member);
    }
  }
  std::string s =
      "  DEV void begin_rows(int m0) {\n"
      "    #pragma unroll\n"
      "    for (int h = 0; h < 2; h++) {\n"
      "      Row& r = rows[h];\n"
      "      r.m = m0 + warp * 16 + lane / 4 + 8 * h;\n" +
      indented(w.lines(), 6);
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == Over::Kind::n) s += format("      {}[h].clear();\n", r.name);
  return s + "    }\n  }\n";
}

std::string EpilogueWriter::put_rows() const {
  std::string fold, picks, puts;
  for (const Reduction& r : a_.reductions) {
    if (r.over.kind != Over::Kind::n) continue;
    if (r.kind == Kind::pick) {
      picks += format("      if ({0}[h].found) p.{0}_partials()[m] = {0}[h].v;\n", r.name);
    } else {
      fold += format("      fold_row({}[h]);\n", r.name);
      puts += format("      put_partial(p.{0}_partials() + (i64)nb * p.M + m, (i64)p.tiles_n() * p.M, {0}[h]);\n", r.name);
    }
  }
  if (!puts.empty()) puts = "      if (lane % 4 != 0) continue;\n" + puts;
  return "  /// This tile's results of the rows go to the workspace.\n"
         "  DEV void put_rows(int nb) {\n"
         "    #pragma unroll\n"
         "    for (int h = 0; h < 2; h++) {\n" +
         fold +
         "      const int m = rows[h].m;\n"
         "      if (m >= p.M || nb >= p.tiles_n()) continue;\n" +
         picks + puts + "    }\n  }\n";
}

/// The values of a reduction's nodes are what `name` (a folded Sum, Max, Softmax; where a pick is) holds.
void EpilogueWriter::know_results(Writer& w, const Reduction& r, int instance, const std::string& name) {
  for (const auto& [v, index] : a_.reduction_of) {
    if (&a_.reductions[static_cast<std::size_t>(index)] != &r) continue;
    const Op op = p_.node(v).op;
    if (op == Op::pick) {
      const std::string at = w.value(r.index, instance);
      const std::string ignored = r.ignore == no_value ? "false" : format("{} == {}", at, w.value(r.ignore));
      w.know(v, instance, format("picked({}, {}, {}, {})", name, at, r.over.kind == Over::Kind::n ? "p.N" : "p.M", ignored));
    } else {
      w.know(v, instance, format("{}.{}()", name, op == Op::reduce_sum || op == Op::softmax_sum ? "sum" : "max"));
    }
  }
}

/// Stores of the finish outputs of one kind: a row's, a column's of one width, or scalars.
void EpilogueWriter::finish(Writer& w, Width width, bool rows, int instance, const std::string& index) {
  for (std::size_t o = 0; o < p_.outputs.size(); o++) {
    const Output& output = p_.outputs[o];
    const Type& t = p_.node(output.value).type;
    if (!output.finish || t.rows != rows || t.width != width) continue;
    const int slot = a_.output_slot(static_cast<int>(o));
    const std::string v = bare(w.real(output.value, instance));
    const std::string at = index.empty() ? "0" : format("{} * {}", index, page_.field(Field::Kind::stride0, slot));
    w.line(format("{}({}(), {}, {}, {});", output.accumulate ? "accumulate1" : "store1", tag_of(output.dtype), page_.field(Field::Kind::pointer, slot), at, v));
  }
}

std::string EpilogueWriter::finish_rows() {
  std::string s =
      "  /// All tiles of the row have arrived: lanes `part` 0 and 1 combine every second partial result, 0 goes on.\n"
      "  DEV void finish_rows(int m, int part, int tiles_n) {\n"
      "    const int at = m < p.M ? m : 0;\n";
  Writer w(page_, Level::row, "m");
  for (const Reduction& r : a_.reductions) {
    if (r.over.kind != Over::Kind::n) continue;
    if (r.kind != Kind::pick) {
      s += format("    {0} {1} = gather_partials<{0}>(p.{1}_partials() + at, (i64)tiles_n * p.M, p.M, part, tiles_n, 2);\n", r.type(), r.name);
      s += format("    {0}.combine(shuffle_xor({0}, 16));\n", r.name);
    }
  }
  s += "    if (part != 0 || m >= p.M) return;\n";
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == Over::Kind::n) know_results(w, r, 0, r.kind == Kind::pick ? format("p.{}_partials() + m", r.name) : r.name);
  finish(w, Width::none, true, 0, "m");
  return s + indented(w.lines(), 4) + "  }\n";
}

// ---------------------------------------------------------------- columns

std::string EpilogueWriter::put_columns() {
  std::string s =
      "  /// The warpgroup's results of the columns, its four warps' in order, go to the workspace.\n"
      "  DEV void put_columns(u32 all, int thread, int p0, int block, int blocks) {\n"
      "    for (int c = thread; c < Tile<Config>::COLUMNS; c += 128) {\n"
      "      const int q = p0 + c;\n"
      "      if (q >= p.N / Config::PARTS) return;\n";
  int region = 0;
  for (const Reduction& r : a_.reductions) {
    if (!folds_columns(r)) continue;
    const std::vector<std::string> arrays = column_arrays(r);
    for (std::size_t k = 0; k < arrays.size(); k++) {
      const bool pairs = a_.unit == Unit::adjacent && r.width == Width::half;
      const int member = r.width == Width::twice ? static_cast<int>(k) / 2 : static_cast<int>(k);
      const int t = r.width == Width::twice ? static_cast<int>(k) % 2 : 0;
      std::string n = r.width == Width::half ? "q" : format("Tile<Config>::column({}, q, p.N)", a_.unit == Unit::far ? member : 0);
      if (pairs) n = "p0 / 2 + c";
      if (pairs) s += "      if (c < Tile<Config>::COLUMNS / 2 && p0 / 2 + c < p.N / 2)\n  ";
      s += format("      put_partial(p.{0}_partials() + ((i64)block * {4} + {5}) * p.N + {1}, (i64)blocks * {4} * p.N, gather_warps<{2}, {6}>({3}, c, "
                  "Config::COLUMN_BYTES));\n",
                  r.name, n, r.type(), address("all", 4 * region), r.width == Width::twice ? 2 : 1, t, column_extent(r));
      region += r.floats() * s_.part_columns;
    }
  }
  return s + "    }\n  }\n";
}

std::string EpilogueWriter::finish_columns() {
  std::string s =
      "  /// All blocks of rows of these columns have arrived.\n"
      "  DEV void finish_columns(int thread, int p0, int blocks) {\n"
      "    for (int c = thread; c < Tile<Config>::COLUMNS; c += 128) {\n"
      "      const int q = p0 + c;\n"
      "      if (q >= p.N / Config::PARTS) return;\n";
  for (const Width width : {Width::full, Width::half, Width::twice}) {
    const bool wanted = std::any_of(p_.outputs.begin(), p_.outputs.end(), [&](const Output& o) {
      const Type& t = p_.node(o.value).type;
      return o.finish && !t.rows && t.width == width;
    });
    if (!wanted) continue;
    // A thread has one column here, or, where columns are paired, the members of a pair.
    const int members = width == Width::half || a_.unit == Unit::single ? 1 : 2;
    const bool adjacent = a_.unit == Unit::adjacent;
    for (int member = 0; member < members; member++)
      for (int t = 0; t < (width == Width::twice ? 2 : 1); t++) {
        const int instance = width == Width::twice ? 2 * member + t : member;
        s += adjacent ? "      if (c < Tile<Config>::COLUMNS / 2 && p0 / 2 + c < p.N / 2) {\n        const int q = p0 / 2 + c;\n" : "      {\n";
        const std::string n = width == Width::half ? "q" : a_.unit == Unit::single ? "n" : format("n_{}", member);
        if (width != Width::half)
          s += format("        const int {} = {};\n", n, adjacent ? format("2 * q + {}", member) : format("Tile<Config>::column({}, q, p.N)", member));
        Writer w(page_, Level::column);
        for (const Reduction& r : a_.reductions) {
          if (r.over.kind != Over::Kind::m || r.width != width) continue;
          if (r.kind == Kind::pick) {
            know_results(w, r, instance, format("p.{}_partials() + {}", r.name, n));
            continue;
          }
          const int planes = r.width == Width::twice ? 2 : 1;
          s += format("        const {0} {1} = gather_partials<{0}>(p.{1}_partials() + {2} * p.N + {3}, (i64)blocks * {4} * p.N, {4} * (i64)p.N, "
                      "0, blocks, 1);\n",
                      r.type(), r.name, t, n, planes);
          know_results(w, r, instance, r.name);
        }
        const Pairing q = width == Width::twice ? twice_output_pairing() : Pairing{};
        finish(w, width, false, instance, width == Width::half ? "q" : width == Width::full ? n : w.twice_column(q, instance));
        s += indented(w.lines(), 8) + "      }\n";
      }
  }
  return s + "    }\n  }\n";
}

Pairing EpilogueWriter::twice_output_pairing() const {
  for (const Output& o : p_.outputs)
    if (o.finish && p_.node(o.value).type.width == Width::twice) return a_.twice_pairing(o.value);
  return {};
}

// ---------------------------------------------------------------- totals

std::string EpilogueWriter::totals() {
  std::string s = "  /// This warp's results of all its tiles go to the workspace.\n  DEV void put_totals(int id, int warps) {\n";
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == Over::Kind::mn)
      s += format("    fold_warp({0});\n    if (lane == 0) put_partial(p.{0}_partials() + id, warps, {0});\n", r.name);
  s += "  }\n  /// All warps of the grid have arrived.\n  DEV void finish_totals(int warps) {\n";
  Writer w(page_, Level::scalar);
  for (const Reduction& r : a_.reductions) {
    if (r.over.kind != Over::Kind::mn) continue;
    s += format("    {0} = gather_partials<{1}>(p.{0}_partials(), warps, 1, lane, warps, 32);\n    fold_warp({0});\n", r.name, r.type());
    know_results(w, r, 0, r.name);
  }
  s += "    if (lane != 0) return;\n";
  finish(w, Width::none, false, 0, "");
  return s + indented(w.lines(), 4) + "  }\n";
}

// ---------------------------------------------------------------- moves

std::string EpilogueWriter::moves() const {
  std::string s =
      "  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...\n"
      "  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {\n";
  for (const Placed& b : loads_)
    for (const Piece& piece : pieces(b, 64, c_.chunk))
      s += format("    tma_load(&maps.{}, bar, {}, {}, {});\n", safe_name(b.box->map), address(b.box->vector() ? "slices" : "dst", piece.offset), piece.x,
                  b.box->vector() ? "0" : "at.m");
  s += "  }\n  /// ... and of the outputs (16 rows, from row `m` on).\n"
       "  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {\n";
  for (const Placed& b : stores_)
    for (const Piece& piece : pieces(b, 16, c_.chunk)) {
      const bool transposed = b.box->form == Box::Form::transposed;
      s += format("    {}(&maps.{}, {}, {}, {});\n", b.box->add ? "tma_reduce_add" : "tma_store", safe_name(b.box->map),
                  address("src", piece.offset), transposed ? "m" : piece.x, transposed ? piece.x : "m");
    }
  return s + "  }\n";
}

// ---------------------------------------------------------------- the struct

std::string EpilogueWriter::write() {
  const std::string group_text = group();
  const bool segmented = has(Over::Kind::segment);
  const std::string segments_text = segmented ? segments() : "";
  const bool by_row = has(Over::Kind::n), by_column = has(Over::Kind::m), in_all = has(Over::Kind::mn);
  std::string results;
  if (by_row) results += put_rows() + finish_rows();
  if (by_column) results += put_columns() + finish_columns();
  if (in_all) results += totals();
  const std::string rows_text = begin_rows();

  Writer w(page_, Level::scalar);
  std::vector<std::string> scalars;
  for (std::size_t i = 0; i < page_.scalars.size(); i++) {
    const Hoisted h = page_.scalars[i];
    w.line(format("{} = {};", h.member, bare(w.definition(h.value))));
    w.know(h.value, 0, h.member);
  }

  int loaded = 0;
  for (const Placed& b : loads_) loaded += c_.chunk * b.box->column_bytes() * (b.box->vector() ? 1 : 64);
  std::string s = format(
      "struct Epilogue {{\n"
      "  static constexpr int LOADED = {};         // bytes of tile operands a chunk\n"
      "  static constexpr bool STAGED = {}, SEGMENTS = {}, ROWS = {}, COLUMNS = {}, TOTALS = {};\n"
      "  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;\n"
      "  const Params& p;\n"
      "  const int warp, lane;\n",
      loaded, !stores_.empty(), segmented, by_row, by_column, in_all);
  if (by_column) s += "  const u32 columns;                          // this warp's column results in shared memory\n";
  for (const Hoisted& h : page_.scalars) s += format("  {} {};\n", c_type(p_.node(h.value).type.kind), h.member);
  s += "  struct Row {\n    int m;\n";
  for (const Hoisted& h : page_.rows) s += format("    {}{};\n", h.table >= 0 ? "const void* " : format("{} ", c_type(p_.node(h.value).type.kind)), h.member);
  s += "  } rows[2];\n";
  for (const Reduction& r : a_.reductions) {
    if (r.over.kind == Over::Kind::n) s += format("  {} {}[2];\n", r.type(), r.name);
    if (r.over.kind == Over::Kind::mn) s += format("  {} {};\n", r.type(), r.name);
    if (r.over.kind == Over::Kind::segment) s += format("  {} {}[{}][2];\n", r.type(), r.name, segment_count(a_, r, s_.part_columns));
  }
  s += format("\n  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32{}) : p(p), warp(warp), lane(lane){} {{\n",
              by_column ? " columns" : "", by_column ? ", columns(columns)" : "");
  s += indented(w.lines(), 4);
  for (const Reduction& r : a_.reductions)
    if (r.over.kind == Over::Kind::mn) s += format("    {}.clear();\n", r.name);
  s += "  }\n" + rows_text + segments_text + group_text + results + moves() + "};\n";
  return s;
}

std::string EpilogueWriter::partials_methods() const {
  std::string s;
  int rows = 0, picks = 0, columns = 0, column_picks = 0, totals = 0;
  const auto offset = [&] {
    std::string sum;
    const auto term = [&](int count, const char* extent) {
      if (count > 0) sum += format("{}{}{}", sum.empty() ? "" : " + ", count > 1 ? format("{} * ", count) : "", extent);
    };
    term(rows, "(i64)tiles_n() * M");
    term(picks, "(i64)M");
    term(columns, "(i64)blocks_m() * N");
    term(column_picks, "(i64)N");
    term(totals, "(i64)warps()");
    return sum.empty() ? "0" : sum;
  };
  const auto each = [&](Over::Kind over, bool pick, int& count) {
    for (const Reduction& r : a_.reductions) {
      if (r.over.kind != over || (r.kind == Kind::pick) != pick) continue;
      s += format("  DEV float* {}_partials() const {{ return partials + {}; }}\n", r.name, offset());
      count += r.floats() * (over == Over::Kind::m && r.width == Width::twice ? 2 : 1);
    }
  };
  each(Over::Kind::n, false, rows);
  each(Over::Kind::n, true, picks);
  each(Over::Kind::m, false, columns);
  each(Over::Kind::m, true, column_picks);
  each(Over::Kind::mn, false, totals);
  if (c_.split > 1) s += format("  DEV i64 split_partials() const {{ return ({} + 3) / 4 * 4; }}\n", offset());
  return s;
}

}  // namespace coda::emission
