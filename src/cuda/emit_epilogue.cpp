#include "cuda/emit_epilogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coda::emission {
namespace {

using fmt::format;
using Kind = Reduction::Kind;
using Level = Writer::Level;

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

std::string address(const char* base, int offset) { return offset == 0 ? base : fmt::format("{} + {}", base, offset); }

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

/// What a sum without predicates adds up: its argument, or, of two products, each by itself, a multiply-add instead of a
/// product and two additions.
std::vector<ValueId> EpilogueWriter::terms_of(const Reduction& r) const {
  const Node& n = p_.node(r.argument);
  const bool two = n.op == Op::add && std::all_of(n.args.begin(), n.args.begin() + 2, [&](ValueId v) {
    const Node& term = p_.node(v);
    return term.op == Op::mul && term.type.kind == ValueKind::real && term.type.width == n.type.width && vanishes_outside(a_, v, r.over.kind);
  });
  return two ? std::vector<ValueId>{n.args[0], n.args[1]} : std::vector<ValueId>{r.argument};
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
  const bool zero_outside = r.kind == Kind::sum && vanishes_outside(a_, r.argument, r.over.kind);
  zeroed_ = zeroed_ || zero_outside;
  for (int k = 0; k < instances; k++) {
    if (zero_outside) {
      const std::string at = r.over.kind == Over::Kind::n ? format("{}[{}]", r.name, row_half()) : w.column_element(r.name, r.width, k);
      for (const ValueId term : terms_of(r)) w.line(format("{}.add({});", at, bare(w.real(term, k))));
      continue;
    }
    const std::string v = bare(w.real(r.argument, k));
    const std::string in = r.name + "_in" + (instances > 1 ? format("_{}", k) : "");
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
          w.line(format("{}[{}].add({}, {});", r.name, row_half(), w.inside(), v));
        }
        break;
      case Over::Kind::m: {
        if (r.kind == Kind::pick) {  // one thread of the grid has it
          w.line(format("if ({0} && r.m < p.M && r.m == {1}) p.{2}_partials()[{3}] = {4};", w.inside(), w.value(r.index, k), r.name, w.column(k), v));
          break;
        }
        const std::string at = w.column_element(r.name, r.width, k);
        if (softmax) w.line(format("{}.add(r.m < p.M ? {} : -infinity());", at, v));
        else w.line(format("{}.add(r.m < p.M, {});", at, v));
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
      "  static constexpr bool STAGED = {}, SEGMENTS = {}, ROWS = {}, COLUMNS = {}, TOTALS = {}, ZEROED = {};\n"
      "  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;\n"
      "  const Params& p;\n"
      "  const int warp, lane;\n",
      loaded, !stores_.empty(), segmented, by_row, by_column, in_all, zeroed_);
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

}  // namespace coda::emission
