#include "cuda/emit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "coda/error.hpp"
#include "cuda/emit_page.hpp"
#include "cuda/emit_wgmma.hpp"

namespace coda {
namespace {

std::int64_t up(std::int64_t x, std::int64_t by) { return (x + by - 1) / by; }

}  // namespace

std::int64_t Emitted::cluster_tiles(std::int64_t m, std::int64_t n) const {
  return up(m, config.bm * config.cluster_m) * up(n, config.bn * config.cluster_n);
}

Emitted::Work Emitted::work(std::int64_t m, std::int64_t n, int multiprocessors) const {
  const std::int64_t tiles = cluster_tiles(m, n), clusters = std::max(1, multiprocessors / config.cluster());
  Work w{m, n, 0, tiles};
  std::int64_t units = tiles;
  if (config.split > 1) {
    w.split_from = tiles / clusters * clusters;
    units = w.split_from + (tiles - w.split_from) * config.split;
  }
  w.grid = static_cast<int>(std::min(units, clusters)) * config.cluster();
  return w;
}

std::int64_t Emitted::workspace_bytes(const Work& w) const {
  const std::int64_t rows = config.warpgroup_rows();
  std::int64_t floats = row_values * up(w.n, config.bn) * w.m + row_picks * w.m + column_values * up(w.m, rows) * w.n +
                        column_picks * w.n + std::int64_t{total_values} * w.grid * config.warpgroups * 4;
  floats = up(floats, 4) * 4;
  const std::int64_t split_tiles = (cluster_tiles(w.m, w.n) - w.split_from) * config.cluster();
  if (config.split > 1) floats += split_tiles * (config.split - 1) * config.bm * config.bn;
  return floats * 4;
}

std::int64_t Emitted::counter_count(const Work& w) const {
  std::int64_t count = 0;
  if (row_values + row_picks > 0) count += up(w.m, 16);
  if (column_values + column_picks > 0) count += up(w.n, config.bn);
  if (total_values > 0) count += 1;
  if (config.split > 1)
    count += (cluster_tiles(w.m, w.n) - w.split_from) * config.cluster() * (config.bm / 16) /
             (config.warpgroup_rows() / 64);
  return count;
}

Demand demand_of(const Program& p, std::uint32_t direct) { return emission::Analysis(p, direct).demand(); }

Emitted emit(const Program& p, const Config& c) {
  const emission::Analysis analysis(p, c.direct);
  const Demand demand = analysis.demand();
  if (const auto why = why_illegal(c, demand))
    throw Error(ErrorKind::unsupported, fmt::format("{}: the configuration {} is not legal: {}", p.name, c.name(), *why));
  const emission::Shape64 shape = emission::shape_of(c, demand);
  Emitted e = emission::write_page(analysis, c, demand, shape);
  std::vector<int> columns{shape.first_columns};
  if (c.bn > shape.first_columns && c.bn - shape.first_columns != shape.first_columns) columns.push_back(c.bn - shape.first_columns);
  e.wgmma = emission::wgmma_header(p.a_dtype, p.b_dtype, columns);
  return e;
}

}  // namespace coda
