// The part of the Epilogue struct about results: what a row starts with, how reductions leave a tile, where their partial
// results stand, and what finishes them.
#include <fmt/format.h>

#include "cuda/emit_epilogue.hpp"

namespace coda::emission {
namespace {

using fmt::format;
using Kind = Reduction::Kind;
using Level = Writer::Level;

}  // namespace

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

// ---------------------------------------------------------------- partial results

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
