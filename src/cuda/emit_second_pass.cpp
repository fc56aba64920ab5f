#include "cuda/emit_second_pass.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/emit_page.hpp"

namespace coda::emission {
namespace {

using fmt::format;
using Kind = Reduction::Kind;

constexpr Width widths[] = {Width::full, Width::half, Width::twice};

int twice_width(Width w) { return w == Width::half ? 1 : w == Width::full ? 2 : w == Width::twice ? 4 : 0; }
/// The device header's name of what folds it; a pick has none.
const char* type_of(const Reduction& r) { return r.kind == Kind::softmax ? "Softmax" : r.kind == Kind::max ? "Max" : "Sum"; }

/// A product in 64 bits.
std::string times(int count, const std::string& extent) { return format("{}(i64)({})", count == 1 ? "" : format("{} * ", count), extent); }

}  // namespace

// ---------------------------------------------------------------- the rows

/// A warp takes a segment, its lanes the columns of it. A level may use the results of those before it.
std::string SecondPassWriter::segments(Body& row) {
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
std::string SecondPassWriter::columns(Body& row, Width w) {
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
std::string SecondPassWriter::pick(Body& row, const Reduction& r, const std::string& index, const std::string& first, const std::string& extent) {
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
std::string SecondPassWriter::picks(Body& row) {
  std::string s;
  for (const Reduction& r : reductions_)
    if (r.kind == Kind::pick && r.over.kind == Over::Kind::n)
      s += format("    if (thread == 0) {{\n      const int t = {};\n", bare(value(row, r.index, -1))) + pick(row, r, "t", "", extent_of(r.width)) +
           format("      {0}_at[m] = {0};\n    }}\n", r.name);
  return s;
}
std::string SecondPassWriter::pick_of_segment(Body& row, const Reduction& r) {
  Body b = body(r.width, row.scalars, nullptr, &row);  // in the segment's first column: the index is the same in all of them
  const std::string index = bare(value(b, r.index, 0));
  const int d = r.over.segment;
  return format("    for (int s = thread; s < {} / {}; s += THREADS) {{\n      const int {} = s * {};\n", extent_of(r.width), d, index_of(r.width), d) + indented(b.lines, 6) +
         format("      const int t = {};\n", index) + pick(row, r, "t", format("{} + ", index_of(r.width)), std::to_string(d)) + format("      {0}_here[s] = {0};\n    }}\n", r.name);
}

std::string SecondPassWriter::results_of_row() const {
  std::string s;
  for (const Reduction& r : reductions_)
    if (r.over.kind == Over::Kind::n && r.kind != Kind::pick)
      s += format("    {0} = fold_block({0}, warp, lane);\n    if (thread == 0) put_partial({0}_at + m, p.M, {0});\n", r.name);
  return s;
}

// ---------------------------------------------------------------- what is complete

/// The values of a reduction's nodes, in a body where its result has its name.
void SecondPassWriter::know(Body& b, const Reduction& r, int place) {
  for (const auto& [v, index] : reduction_of_) {
    if (&reductions_[static_cast<std::size_t>(index)] != &r) continue;
    const Op op = p_.node(v).op;
    b.known[{v, place}] = op == Op::pick ? r.name : format("{}.{}()", r.name, op == Op::reduce_sum || op == Op::softmax_sum ? "sum" : "max");
  }
}

void SecondPassWriter::finish(Body& b, Width w, bool rows, const std::string& index) {
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
std::string SecondPassWriter::complete(Body& scalars) {
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

void SecondPassWriter::find_scratch(TwoPass& out) const {
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

void SecondPassWriter::write(TwoPass& out) {
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

}  // namespace coda::emission
