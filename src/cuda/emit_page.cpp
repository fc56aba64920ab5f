#include "cuda/emit_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "coda/text.hpp"
#include "cuda/emit_epilogue.hpp"
#include "cuda/emit_values.hpp"

namespace coda::emission {
namespace {

using fmt::format;

/// A map of one box of A or B, as the device header's Geometry expects it.
MapSpec operand_map(int slot, DType t, Major major, int k_box, int mn_box) {
  MapSpec m;
  m.slot = slot;
  m.dtype = t;
  m.tf32 = t == DType::f32;
  m.inner = major == Major::k ? 1 : 0;
  m.box_inner = major == Major::k ? 128 / static_cast<int>(size_of(t)) : 64;
  m.box_outer = major == Major::k ? mn_box : k_box;
  m.swizzle = 128;
  return m;
}

MapSpec box_map(const Box& b, int rows, int chunk) {
  MapSpec m;
  m.slot = b.slot;
  m.dtype = b.dtype == DType::i32 ? DType::f32 : b.dtype;  // moved as bits
  m.inner = b.vector() ? 0 : 1;
  m.vector = b.vector();
  m.half = b.half;
  const int size = static_cast<int>(size_of(b.dtype));
  if (b.form == Box::Form::transposed) {
    m.outer_half = b.half >= 0;
    m.box_inner = rows;
    m.box_outer = chunk;
  } else {
    m.box_inner = b.vector() ? b.elements(chunk) : std::min(b.elements(chunk), 128 / size);
    m.box_outer = b.vector() ? 1 : rows;
  }
  const int row = m.box_inner * size;
  m.swizzle = b.vector() || row < 32 ? 0 : row;
  return m;
}

std::string constants(const Analysis& a, const Config& c, const Demand& d, const Shape64& s) {
  const SharedLayout l = shared_layout(c, d);
  const bool far = a.unit == Unit::far;
  std::string out = "struct Config {\n";
  const auto line = [&](std::initializer_list<std::pair<const char*, int>> values) {
    out += "  static constexpr int ";
    bool first = true;
    for (const auto& [name, value] : values) {
      out += format("{}{} = {}", first ? "" : ", ", name, value);
      first = false;
    }
    out += ";\n";
  };
  line({{"BM", c.bm}, {"BN", c.bn}, {"WARPGROUPS", c.warpgroups}, {"PINGPONG", c.schedule == Schedule::pingpong}, {"CLUSTER_M", c.cluster_m},
        {"CLUSTER_N", c.cluster_n}, {"STAGES", c.stages}, {"SPLIT", c.split}});
  line({{"ELEMENT", static_cast<int>(size_of(d.operand))}, {"N1", s.first_columns}, {"A_MN", c.a_major == Major::mn}, {"B_MN", c.b_major == Major::mn}, {"B_BOX", s.b_box}});
  line({{"PARTS", far ? 2 : 1}, {"HEAD", far ? a.pairing.head : 0}, {"ROTARY", far ? a.pairing.rotary : 0}});
  line({{"CHUNK", c.chunk}, {"GROUP", s.group}, {"STAGING", c.staging}, {"PREFETCH", c.prefetch}, {"STAGING_SLOT", l.staging_slot},
        {"OPERAND_SLOT", l.operand_slot}, {"SLICE_SLOT", l.slice_slot}, {"COLUMN_BYTES", s.column_bytes}});
  line({{"OFFSET_STAGING", l.staging}, {"OFFSET_OPERANDS", l.operands}, {"OFFSET_SLICES", l.slices}, {"OFFSET_COLUMNS", l.columns}, {"OFFSET_BARRIERS", l.barriers}});
  line({{"PRODUCER_REGISTERS", c.producer_registers}, {"CONSUMER_REGISTERS", c.consumer_registers}});
  return out + "};\n";
}

std::string params(const Page& page, const EpilogueWriter& epilogue, const Config& c, Emitted& e) {
  ParamsWriter w(e);
  w.add(Field::Kind::m, -1, "int", "M", 4);
  w.add(Field::Kind::n, -1, "int", "N", 4);
  w.add(Field::Kind::k, -1, "int", "K", 4);
  w.add(Field::Kind::group, -1, "int", "group", 4);
  w.add(Field::Kind::raster, -1, "int", "raster", 4);
  w.add(Field::Kind::split_from, -1, "int", "split_from", 4);
  w.add(Field::Kind::partials, -1, "float*", "partials", 8);
  w.add(Field::Kind::counters, -1, "u32*", "counters", 8);
  w.add_slots(page.analysis.slots, page.fields);
  std::string out = w.text();
  std::string where = epilogue.partials_methods();
  const std::string rows = e.row_values + e.row_picks > 0 ? "(M + 15) / 16" : "0", columns = e.column_values + e.column_picks > 0 ? " + tiles_n()" : "",
                    totals = e.total_values > 0 ? " + 1" : "";
  if (e.column_values + e.column_picks > 0) where += format("  DEV i64 column_counters() const {{ return {}; }}\n", rows);
  if (e.total_values > 0) where += format("  DEV i64 total_counter() const {{ return {}{}; }}\n", rows, columns);
  if (c.split > 1) where += format("  DEV i64 split_counters() const {{ return {}{}{}; }}\n", rows, columns, totals);
  if (e.row_values + e.row_picks + e.column_values + e.column_picks > 0) out += "\n  DEV int tiles_n() const { return (N + Config::BN - 1) / Config::BN; }\n";
  if (e.column_values > 0) out += format("  DEV int blocks_m() const {{ return (M + {0} - 1) / {0}; }}\n", c.warpgroup_rows());
  if (e.total_values > 0) out += "  DEV int warps() const { return gridDim.x * Config::WARPGROUPS * 4; }\n";
  if (!where.empty()) out += "  // where partial results and counters stand in the workspace\n" + where;
  return out + "};\n";
}

}  // namespace

std::string doc_comment(const Program& p) {
  std::string out;
  for (std::size_t from = 0; from < p.doc.size();) {
    const std::size_t end = std::min(p.doc.find('\n', from), p.doc.size());
    const std::string line = p.doc.substr(from, end - from);
    out += line.empty() ? "//\n" : format("// {}{}\n", line, line.back() == '\\' ? "." : "");  // no line continuation
    from = end + 1;
  }
  return out;
}

void ParamsWriter::add(Field::Kind kind, int slot, const char* type, const std::string& name, int size) {
  at_ = (at_ + size - 1) / size * size;
  e_.fields.push_back({kind, slot, at_, size});
  text_ += format("  {} {};\n", type, name);
  at_ += size;
  e_.params_bytes = (at_ + 7) / 8 * 8;
}

void ParamsWriter::add_slots(const std::vector<Slot>& slots, const std::set<std::pair<Field::Kind, int>>& fields) {
  for (int slot = 0; slot < static_cast<int>(slots.size()); slot++) {
    const Slot& s = slots[static_cast<std::size_t>(slot)];
    for (const Field::Kind kind : {Field::Kind::pointer, Field::Kind::stride0, Field::Kind::stride1, Field::Kind::extent0, Field::Kind::extent1, Field::Kind::value}) {
      if (fields.count({kind, slot}) == 0) continue;
      const std::string name = field_name(slots, kind, slot);
      switch (kind) {
        case Field::Kind::pointer: add(kind, slot, s.role == Slot::Role::output ? "void*" : "const void*", name, 8); break;
        case Field::Kind::stride0: case Field::Kind::stride1: add(kind, slot, "i64", name, 8); break;
        case Field::Kind::extent0: case Field::Kind::extent1: add(kind, slot, "int", name, 4); break;
        default: add(kind, slot, is_integer(s.dtype) ? "int" : "float", name, 4); break;
      }
    }
  }
}

Shape64 shape_of(const Config& c, const Demand& d) {
  Shape64 s;
  // An instruction's registers must fit the launch bound even under setmaxnreg: m64n256 doesn't with 512 threads.
  const int limit = c.warpgroups == 3 ? 208 : 256;
  s.first_columns = c.bn;
  if (c.bn > limit) s.first_columns = c.b_major == Major::mn ? (c.bn / 2 + 63) / 64 * 64 : (c.bn / 2 + 7) / 8 * 8;
  // Where nothing is moved there is room for more columns at once, which rescale softmax statistics less often.
  const bool moves = d.column_values > 0 || !d.staged.empty() || !d.loaded.empty() || !d.vectors.empty();
  s.group = !moves ? c.chunk : d.wide && c.chunk % 32 == 0 ? 32 : 16;
  s.part_columns = d.pair_run != 0 ? c.bn / 2 : c.bn;
  if (d.pair_run != 0) s.b_box = d.pair_run > 0 ? std::gcd(s.part_columns, d.pair_run) : s.part_columns;
  else s.b_box = c.bn / (c.cluster_m > 1 || c.bn > 256 ? 2 : 1);
  s.column_bytes = d.column_values * s.part_columns * 4;
  return s;
}

Emitted write_page(const Analysis& a, const Config& c, const Demand& d, const Shape64& s) {
  Emitted e;
  e.config = c;
  e.threads = c.threads();
  e.shared_bytes = shared_layout(c, d).total;
  e.entry = "coda_" + a.program.name;

  Page page(a);
  EpilogueWriter epilogue(page, c, s);
  const std::string epilogue_text = epilogue.write();
  e.row_values = epilogue.row_floats();
  e.row_picks = epilogue.row_picks();
  e.column_values = epilogue.column_floats();
  e.column_picks = epilogue.column_picks();
  e.total_values = epilogue.total_floats();
  const std::string params_text = params(page, epilogue, c, e);

  const int k = 128 / static_cast<int>(size_of(a.program.a_dtype));
  e.maps.push_back(operand_map(0, a.program.a_dtype, c.a_major, k / c.cluster_n, c.bm / c.cluster_n));
  e.maps.push_back(operand_map(1, a.program.b_dtype, c.b_major, k / c.cluster_m, s.b_box));
  std::string names = "A, &B", parameters = "const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B", arguments = "A, B";
  const auto add = [&](const Box& b, int rows) {
    e.maps.push_back(box_map(b, rows, c.chunk));
    const std::string name = safe_name(b.map);
    names += ", &" + name;
    parameters += ",\n    const __grid_constant__ coda::TensorMap " + name;
    arguments += ", " + name;
  };
  for (const Box& b : a.loads) add(b, 64);
  for (const Box& b : a.stores) add(b, 16);

  e.source = format("// {} as {}.\n", a.program.name, c.name()) + doc_comment(a.program);
  const std::string definitions = page.definitions();
  e.source += "#include \"gemm.cuh\"\n\nnamespace coda {\n\n" + constants(a, c, d, s) + "\n" + params_text + "\n" +
              format("struct Maps {{ const TensorMap &{}; }};\n\n", names) + (definitions.empty() ? "" : definitions + "\n") + epilogue_text +
              "\n}  // namespace coda\n\n" +
              format("extern \"C\" __global__ void __cluster_dims__({}, 1, 1) __launch_bounds__({}, 1)\n"
                     "{}({},\n    const __grid_constant__ coda::Params p) {{\n"
                     "  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{{{}}});\n}}\n",
                     c.cluster(), c.threads(), e.entry, parameters, arguments);
  return e;
}

}  // namespace coda::emission
