// The cost model and the choice. Constants were measured on an H200 with bf16 operands; each says what it stands for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/error.hpp"
#include "coda/program.hpp"
#include "plan/plan.hpp"

namespace coda {
namespace {

constexpr double macs_per_cycle = 2048;    // 1024 cycles for a 128x256x64 block of bf16: reached within 0.1 %
constexpr double launch_cycles = 3000;     // start, first TMA, barrier set-up, last stores
constexpr double exposed_fixed = 800;      // of a cooperative epilogue, before and after its stores
constexpr double exposed_bytes = 42;       // bytes a cycle of one multiprocessor while all are in their epilogues
constexpr double exposed_loads = 26;       // ... that read operands: co128x256's residual_norm 8-9 thousand cycles a tile, norm_backward's 19
constexpr double hidden_bytes = 12;        // ... of a pingpong warpgroup, under the other's mainloop
constexpr double memory_bytes = 2600;      // bytes a cycle of the whole device: 4.27 TB/s at 1.65 GHz
// A sustained run is bound by power. At equal cycles, a third more L2-to-multiprocessor traffic than 128x256 tiles make
// cost 6-8 % of time, and going from 128x192 to 192x256 (0.78 of it) gained 4-5 %. Of plans within a percent the one
// with fewer cycles is the better guess, since it also wins while the card is cool: the slope is a little under that.
double power_of_traffic(double ratio) { return ratio > 1 ? 0.10 * (ratio - 1) + 0.35 * (ratio - 1) * (ratio - 1) : 0.10 * (ratio - 1); }
constexpr double reference_traffic = 1.0 / 128 + 1.0 / 256;
// Short products leave the card some air between tiles: at K = 2048 pp128x128 beat co128x256 by 0.4-2 % sustained, at 4096
// they were even, at 6144 and 14336 it lost 3-6 %.
double share_of_power(std::int64_t k) { return std::clamp(double(k) / 4096, 0.5, 1.0); }
constexpr double no_cluster = 1.02;        // clusters of two gain 1-4 % sustained
constexpr double three_warpgroups = 1.02;  // 192 x 256 measured 1.01 where the model has 0.99
constexpr double crowded = 1.03;           // column results beside more than 128 accumulators a thread
constexpr double split_doubt = 1.05;       // a split has to promise something before it is preferred
constexpr double split_unmeasured = 0.06;  // ... and more where whole rounds come before it: never timed

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Every tile that measured well somewhere, and smaller ones for shapes with few tiles. Stages and registers come from
// fitted().
std::vector<Config> shapes() {
  std::vector<Config> all;
  auto add = [&](Schedule s, int bm, int bn, int warpgroups) {
    // Clusters along the shorter side of the tile first: they share its longer side's loads.
    for (auto [cm, cn] : {bm > bn ? std::pair(1, 2) : std::pair(2, 1), bm > bn ? std::pair(2, 1) : std::pair(1, 2), std::pair(1, 1)}) {
      Config c;
      c.schedule = s;
      c.bm = bm;
      c.bn = bn;
      c.warpgroups = warpgroups;
      c.cluster_m = cm;
      c.cluster_n = cn;
      all.push_back(c);
    }
  };
  using enum Schedule;
  for (int bn : {128, 160, 192}) add(pingpong, 128, bn, 2);
  add(pingpong, 192, 128, 2);
  for (int bn : {64, 96, 128, 192, 256}) add(pingpong, 64, bn, 2);
  for (int bn : {64, 128, 192, 256, 320}) add(cooperative, 128, bn, 2);
  add(cooperative, 256, 128, 2);
  add(cooperative, 256, 192, 3);
  add(cooperative, 192, 192, 3);
  add(cooperative, 192, 256, 3);
  return all;
}

std::int64_t cluster_tiles_of(const Config& c, const Problem& p) {
  return ceil_div(p.m, std::int64_t{c.bm} * c.cluster_m) * ceil_div(p.n, std::int64_t{c.bn} * c.cluster_n);
}
std::int64_t clusters_of(const Config& c, const Problem& p) { return std::max(1, p.multiprocessors / c.cluster()); }

struct Cycles {
  double total = 0, useful = 0;
};

Cycles cycles_of(const Plan& plan, const Demand& demand, const Problem& p) {
  const Config& c = plan.config;
  const std::int64_t cluster_tiles = cluster_tiles_of(c, p), clusters = clusters_of(c, p);
  // Tiles in a row on the busiest multiprocessor. With a split the last, partial round runs in parts of K.
  const std::int64_t partial = cluster_tiles % clusters;
  const bool splits = c.split > 1 && partial > 0;
  const std::int64_t rounds = splits ? cluster_tiles / clusters : ceil_div(cluster_tiles, clusters);
  const double area = double(c.bm) * c.bn;
  // A block is 128 bytes deep; the tensor cores' rate goes with the element size. An m64nN instruction with N under
  // 128 is bound by reading A from shared memory.
  const auto size = double(size_of(demand.operand));
  const double rate = macs_per_cycle * 2 / size * (c.bn >= 128 ? 1.0 : 0.5 + c.bn / 256.0);
  const double depth = 128 / size, blocks = std::ceil(double(p.k) / depth);
  const double mainloop = area * depth * blocks / rate + 40;
  const double epilogue_bytes = area * p.tile_bytes, epilogue_work = area * p.tile_cycles;
  const double exposed = epilogue_bytes / (demand.loaded.empty() ? exposed_bytes : exposed_loads);
  double total = 0;
  if (splits) {  // parts write and read partial tiles of f32; the last to arrive runs the epilogue
    const double exchange = 2 * 4 * area / exposed_bytes + exposed_fixed;
    total = double(ceil_div(partial * c.split, clusters)) * (mainloop / c.split + exchange) + exposed + epilogue_work;
    total *= split_doubt;
    if (rounds > 0) total += split_unmeasured * double(rounds) * mainloop;
  }
  if (c.schedule == Schedule::cooperative) {
    total += double(rounds) * (mainloop + exposed_fixed + exposed + epilogue_work);
  } else {
    const double epilogue = exposed_fixed + epilogue_bytes / hidden_bytes + epilogue_work;
    const double last = exposed_fixed + exposed + epilogue_work;  // nothing runs over the last one
    // Two warpgroups alternate: a tile takes the longer of its mainloop and half of mainloop + epilogue.
    total += double(rounds) * std::max(mainloop, (mainloop + epilogue) / 2) + (rounds > 1 ? last : rounds > 0 ? epilogue / 2 : 0);
  }
  const double moved = (double(p.m) * double(p.k) + double(p.n) * double(p.k)) * size + double(p.m) * double(p.n) * p.tile_bytes;
  total = std::max(total, moved / memory_bytes) + launch_cycles;
  return {total, double(p.m) * double(p.n) * double(p.k) / (macs_per_cycle * 2 / size) / p.multiprocessors};
}

}  // namespace

double tile_traffic(const Program& p) {
  auto width = [](const Shape& s) {
    if (s.layout != Layout::matrix) return 0.0;
    return s.width == Width::half ? 0.5 : s.width == Width::twice ? 2.0 : 1.0;
  };
  double bytes = 0;
  for (const Operand& o : p.operands) bytes += width(o.shape) * double(size_of(o.dtype));
  for (const Output& o : p.outputs) bytes += width(o.shape) * double(size_of(o.dtype)) * (o.accumulate ? 2 : 1);
  return bytes;
}

double tile_work(const Program& p) {
  // 16 results a cycle from the special-function unit, 128 from everything else; one op is about one instruction and a
  // half, one exp, with its range reduction, a special one and two others.
  constexpr double plain = 1.5 / 128, special = 1.0 / 16 + 2.0 / 128;
  double cycles = 0;
  for (const Node& n : p.nodes) {
    const double width = n.type.stage != Stage::tile ? 0 : n.type.width == Width::full ? 1 : n.type.width == Width::half ? 0.5 : n.type.width == Width::twice ? 2 : 0;
    using enum Op;
    switch (n.op) {
      case constant: case operand: case extent: case row: case col: case acc: case split: case join: break;
      case exp: case expm1: case log: case log1p: case sqrt: case rsqrt: case tanh: case sin: case cos: case div: cycles += width * special; break;
      case erf: case sigmoid: case silu: case gelu: case gelu_tanh: case softplus: cycles += width * 2 * special; break;
      case softmax_sum: cycles += special + 2 * plain; break;  // one exp for each element of what it reduces
      case reduce_sum: case reduce_max: case softmax_max: case pick: cycles += plain; break;
      default: cycles += width * plain;
    }
  }
  return cycles;
}

Problem problem_of(const Program& p, std::int64_t m, std::int64_t n, std::int64_t k, Major a_major, Major b_major) {
  return {.m = m, .n = n, .k = k, .a_major = a_major, .b_major = b_major, .tile_bytes = tile_traffic(p), .tile_cycles = tile_work(p)};
}

Plan with_walk(const Config& config) { return {.config = config, .group = std::max(1, 2048 / (config.bm * config.cluster_m)), .raster = 0}; }

double estimate(const Plan& plan, const Demand& demand, const Problem& problem) {
  const Cycles c = cycles_of(plan, demand, problem);
  const double traffic = (1.0 / plan.config.bm + 1.0 / plan.config.bn) / reference_traffic;
  const double utilisation = std::min(1.0, c.useful / c.total);
  return c.total * (1 + utilisation * share_of_power(problem.k) * power_of_traffic(traffic)) * (plan.config.cluster() == 1 ? 1 + (no_cluster - 1) * utilisation : 1) *
         (plan.config.warpgroups == 3 ? three_warpgroups : 1) *
         (demand.column_values > 0 && plan.config.warpgroup_rows() / 64 * plan.config.bn / 2 > 128 ? crowded : 1);
}

namespace {

// Every depth of the epilogue's pipeline that fits, the best guess first. Sustained on an H200, 8192 rows, of cuBLAS's
// plain product (bench/results/h200_pipelines.csv):
//   stores alone   wide chunks, a second staging slot: co128x256 at 4096 x 4096 e64x2 1.000, e64x1 1.006, e32x2 1.015
//   pairs          narrow chunks, whose code is short and whose registers few: norm_swiglu e16x1 0.975, e32x1 0.993
//   operands       pingpong: 16 KiB of them ahead for a warpgroup, in chunks of 32 columns, before more stages of the main loop
//                  than 160 KiB. Medians of three passes (h200_sweeps.csv, 8501326-dirty): residual_norm 1B o pp128x128
//                  s5_e32x1p4 1.101, s5_e64x1p2 1.125, s5_e16x2p4 1.144; swiglu_backward 1B s4_e32x1p2 1.180, s4_e16x1p4
//                  1.188, s4_e16x2p2 1.214, 8B 1.070, 1.075, 1.076; norm_backward 1B qkv s5_e16x1p4 1.212, s5_e32x1p2
//                  1.220, s5_e16x2p2 1.231. All of a tile prefetched into the L2 early cost 1-10 % more.
//                  cooperative, whose epilogues nothing hides: 48 columns of them, in wide chunks: at equal clocks
//                  residual_norm co128x256 s3_e32x2p3 1.035, s3_e16x2p4 1.050; norm_backward s3_e32x1p2 1.039,
//                  s3_e16x2p4 1.050
std::vector<Config> pipelines_of(Config c, const Demand& demand) {
  const bool loads = !demand.loaded.empty() || !demand.vectors.empty();
  const bool plain = !loads && demand.pair_run == 0 && demand.segment == 0, cooperative = c.schedule == Schedule::cooperative;
  using Shape = std::pair<int, int>;  // chunk, staging
  const std::initializer_list<Shape> wide = {{64, 2}, {64, 1}, {32, 2}, {32, 1}, {16, 2}, {16, 1}}, narrow = {{16, 1}, {16, 2}, {32, 1}, {32, 2}, {64, 1}, {64, 2}},
                                     fed = {{32, 1}, {16, 1}, {16, 2}, {32, 2}, {64, 1}, {64, 2}}, fed_wide = {{32, 2}, {32, 1}, {16, 2}, {16, 1}, {64, 1}, {64, 2}};
  std::vector<Config> all;
  for (auto [chunk, staging] : plain ? wide : loads ? (cooperative ? fed_wide : fed) : narrow)
    for (int i = 0; i < 3; ++i) {
      const int prefetch = cooperative ? 4 - i : 2 + i;
      if (!loads && prefetch != 2) continue;
      c.chunk = chunk;
      c.staging = staging;
      c.prefetch = prefetch;
      if (auto f = fitted(c, demand)) all.push_back(*f);
    }
  const int enough = loads ? std::max(3, 163840 / ((c.bm + c.bn) * 128)) : 6;
  const auto ahead = [&](const Config& x) {
    return !loads ? 0 : cooperative ? std::min(x.prefetch * x.chunk, 48) : std::min(x.prefetch * shared_layout(x, demand).operand_slot, 16384);
  };
  const auto rank = [&](const Config& x) { return std::pair(-std::min(x.stages, enough), -ahead(x)); };
  std::stable_sort(all.begin(), all.end(), [&](const Config& a, const Config& b) { return rank(a) < rank(b); });
  return all;
}

std::vector<Plan> legal_plans(const Demand& demand, const Problem& problem, std::string* reasons) {
  std::vector<Plan> found;
  for (Config c : shapes()) {
    c.a_major = problem.a_major;
    c.b_major = problem.b_major;
    c.direct = problem.direct;
    if (auto fitting = pipelines_of(c, demand); !fitting.empty()) {
      c = fitting.front();
      found.push_back(with_walk(c));
      for (int split : {2, 4}) {
        c.split = split;
        if (std::int64_t{split} * 512 > problem.k) break;  // parts of fewer than eight blocks don't pay
        if (cluster_tiles_of(c, problem) % clusters_of(c, problem) == 0) break;
        if (!why_illegal(c, demand)) found.push_back(with_walk(c));
      }
    } else if (reasons && c.cluster() == 1) {
      const auto why = why_illegal(c, demand);
      *reasons += fmt::format("\n  {}: {}", c.name(), why ? *why : "fewer than two stages fit in shared memory");
    }
  }
  return found;
}

}  // namespace

std::vector<Plan> candidates(const Demand& demand, const Problem& problem) {
  std::vector<std::pair<double, Plan>> costed;
  for (const Plan& p : legal_plans(demand, problem, nullptr)) costed.emplace_back(estimate(p, demand, problem), p);
  std::stable_sort(costed.begin(), costed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Plan> out;
  for (auto& [cost, plan] : costed) out.push_back(plan);
  return out;
}

std::vector<Plan> pipelines(const Plan& plan, const Demand& demand) {
  std::vector<Plan> all;
  for (const Config& c : pipelines_of(plan.config, demand)) all.push_back(with_walk(c));
  return all;
}

Plan choose(const Demand& demand, const Problem& problem) {
  auto all = candidates(demand, problem);
  if (!all.empty()) return all.front();
  std::string reasons;
  legal_plans(demand, problem, &reasons);
  throw Error(ErrorKind::unsupported, "no kernel configuration can run this program:" + reasons);
}

std::optional<Plan> find_plan(const std::string& name, const Demand& demand, const Problem& problem) {
  for (const Plan& p : legal_plans(demand, problem, nullptr)) {
    if (p.config.name() == name) return p;
    for (const Plan& other : pipelines(p, demand))
      if (other.config.name() == name) return other;
  }
  return std::nullopt;
}

}  // namespace coda
