#include "plan/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace coda {
namespace {

int round_up(int x, int to) { return (x + to - 1) / to * to; }

/// Columns of one part of a tile: half of it where pairs lie far apart.
int part_columns(const Config& c, const Demand& d) { return d.pair_run != 0 ? c.bn / 2 : c.bn; }

}  // namespace

std::string Config::name() const {
  std::string s = fmt::format("{}{}x{}_c{}{}_s{}_e{}x{}p{}_{}{}", schedule == Schedule::pingpong ? "pp" : "co", bm, bn,
                              cluster_m, cluster_n, stages, chunk, staging, prefetch, a_major == Major::k ? 'k' : 'm',
                              b_major == Major::k ? 'k' : 'm');
  const int usual = schedule == Schedule::pingpong ? 2 : bm % 128 == 0 ? 2 : bm % 192 == 0 ? 3 : 1;
  if (warpgroups != usual) s += fmt::format("_w{}", warpgroups);
  if (split > 1) s += fmt::format("_k{}", split);
  if (direct != 0) s += fmt::format("_d{:x}", direct);
  return s;
}

SharedLayout shared_layout(const Config& c, const Demand& d) {
  SharedLayout l;
  l.a_stage = c.bm * 128;
  l.b_stage = c.bn * 128;
  // Boxes start at multiples of 1024 bytes, where the swizzle pattern does.
  for (int bytes : d.staged) l.staging_slot += round_up(16 * c.chunk * bytes, 1024);
  for (int bytes : d.loaded) l.operand_slot += round_up(64 * c.chunk * bytes, 1024);
  for (int bytes : d.vectors) l.slice_slot += round_up(c.chunk * bytes, 128);
  l.a = 0;
  l.b = l.a + c.stages * l.a_stage;
  l.staging = l.b + c.stages * l.b_stage;
  l.operands = l.staging + c.warpgroups * 4 * c.staging * l.staging_slot;
  l.slices = l.operands + c.warpgroups * c.prefetch * l.operand_slot;
  l.columns = l.slices + c.warpgroups * c.prefetch * l.slice_slot;
  const int column_bytes = d.column_values * part_columns(c, d) * 4;
  l.barriers = l.columns + (column_bytes > 0 || d.column_picks ? c.warpgroups * (4 * column_bytes + 16) : 0);
  l.barriers = round_up(l.barriers, 8);
  l.total = l.barriers + 8 * (2 * c.stages + (l.operand_slot + l.slice_slot > 0 ? 2 * c.warpgroups * c.prefetch : 0));
  return l;
}

std::optional<std::string> why_illegal(const Config& c, const Demand& d) {
  using fmt::format;
  const bool pingpong = c.schedule == Schedule::pingpong;
  const std::size_t element = size_of(d.operand);
  if (pingpong ? c.warpgroups != 2 : c.warpgroups < 1 || c.warpgroups > 3)
    return format("{} consumer warpgroups: pingpong has 2, cooperative 1 to 3", c.warpgroups);
  if (c.bm <= 0 || c.bm > 256 || c.warpgroup_rows() % 64 != 0 || (!pingpong && c.bm % (64 * c.warpgroups) != 0))
    return format("{} rows don't split into warpgroups of whole 64s", c.bm);
  if (c.bn < 16 || c.bn > 512 || c.bn % 16 != 0) return format("{} columns: a tile has a multiple of 16, at most 512", c.bn);
  const int accumulators = c.warpgroup_rows() / 64 * c.bn / 2;
  const int room = c.warpgroups == 3 ? 128 : 192;
  if (accumulators > room) return format("{} accumulators a thread: {} fit", accumulators, room);
  if (c.cluster_m < 1 || c.cluster_n < 1 || c.cluster() > 2)
    return format("cluster {}x{}: 1x1, 2x1 and 1x2 are built", c.cluster_m, c.cluster_n);
  if ((c.a_major == Major::mn || c.b_major == Major::mn) && element != 2)
    return format("{} operands must be K-major: wgmma transposes 16-bit elements only", name_of(d.operand));
  if (c.a_major == Major::k && c.bm / c.cluster_n % 8 != 0) return format("{} rows of A a block", c.bm / c.cluster_n);
  if (c.split < 1 || c.split > 16) return format("a split in {}: 1 to 16 are built", c.split);

  const int columns = part_columns(c, d);
  int run = columns;
  if (d.pair_run != 0) {
    if (d.pair_run > 0) run = std::gcd(run, d.pair_run);
  } else {
    run = c.bn / c.cluster_m;
  }
  if (run % 8 != 0) return format("runs of {} columns: B is filled 8 rows at a time", run);
  if (c.b_major == Major::mn && (c.bn % 64 != 0 || (d.pair_run != 0 && run % 64 != 0)))
    return format("an N-major B is filled 64 columns at a time, and this tile has runs of {}", run);
  if (c.chunk % 16 != 0 || columns % c.chunk != 0 || d.chunk_run % c.chunk != 0)
    return format("a chunk of {} columns doesn't divide runs of {}", c.chunk, std::gcd(columns, d.chunk_run));
  if (d.segment > 0 && columns % d.segment != 0)
    return format("segments of {} columns aren't whole in {}", d.segment, columns);
  if (const int left = c.warpgroups == 3 ? 96 : 128; d.crowded && accumulators > left)
    return format("{} accumulators a thread: {} fit beside what this epilogue keeps", accumulators, left);
  for (const auto* boxes : {&d.staged, &d.loaded, &d.vectors})
    for (int bytes : *boxes)
      if (c.chunk * bytes % 16 != 0) return format("a chunk of {} columns makes boxes of {} bytes", c.chunk, c.chunk * bytes);
  if (c.stages < 2 || c.stages > 8) return format("{} stages: 2 to 8 are built", c.stages);
  if (c.staging < 1 || c.staging > 4 || c.prefetch < 1 || c.prefetch > 8)
    return format("{} staging and {} operand slots: 1 to 4 and 1 to 8 are built", c.staging, c.prefetch);
  if (c.warpgroups > 1) {
    const int pool = 65536 / c.threads() / 8 * 8 * (c.warpgroups + 1);
    if (c.producer_registers + c.warpgroups * c.consumer_registers > pool || c.producer_registers % 8 != 0 || c.consumer_registers % 8 != 0)
      return format("{} + {} x {} registers: the warpgroups share {} in multiples of 8", c.producer_registers, c.warpgroups, c.consumer_registers, pool);
  }
  const int total = shared_layout(c, d).total;
  if (total > max_shared_bytes) return format("{} bytes of shared memory: a block has {}", total, max_shared_bytes);
  return std::nullopt;
}

std::optional<Config> fitted(Config c, const Demand& d) {
  // A block starts with 168 registers a thread (2 consumer warpgroups) or 128 (3); setmaxnreg may only share these out
  // again. One more and the consumers wait for registers for ever.
  c.producer_registers = c.warpgroups == 3 ? 32 : 24;
  c.consumer_registers = c.warpgroups == 3 ? 160 : 240;
  for (c.stages = 8; c.stages >= 2; c.stages--)
    if (!why_illegal(c, d)) return c;
  return std::nullopt;
}

}  // namespace coda
