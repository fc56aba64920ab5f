// Cutting the product into tiles.
#include "cpu/tiles.hpp"

#include <algorithm>
#include <numeric>

namespace coda::cpu {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }
std::int64_t divide_up(std::int64_t x, std::int64_t by) { return (x + by - 1) / by; }

/// What a program's pairs and segments ask of a tile's columns.
struct Needs {
  bool split = false;      ///< pairs by halves of a full-width value
  std::int64_t align = 1;  ///< of each run of full-width columns
  std::int64_t twice_halves_segment = 1;
};

Needs needs_of(const Program& p) {
  Needs needs;
  const auto align = [&](std::int64_t columns) { needs.align = std::lcm(needs.align, columns); };
  for (const Node& n : p.nodes) {
    const Width width = n.type.width;
    const Lay lay = lay_of(n.type);
    if (lay == Lay::half_split) needs.split = true;
    if (lay == Lay::half) align(2);
    if (n.op == Op::split || n.op == Op::join) {
      const bool of_full = n.op == Op::split ? width == Width::half : width == Width::full;
      if (n.pairing.kind == Pairing::Kind::heads) align(of_full ? n.pairing.head : n.pairing.head / 2);
      if (n.pairing.kind == Pairing::Kind::halves && of_full) needs.split = true;
    }
    if (n.over.kind == Over::Kind::segment) {
      const std::int64_t d = n.over.segment;
      align(lay == Lay::half ? 2 * d : lay == Lay::twice ? d / std::gcd<std::int64_t>(d, 2) : d);
      if (lay == Lay::twice_split) needs.twice_halves_segment = std::lcm(needs.twice_halves_segment, d);
    }
  }
  for (const Output& o : p.outputs) {
    if (o.shape.width == Width::half) align(2);
  }
  return needs;
}

}  // namespace

Lay lay_of(const Type& t) {
  const bool halves = t.pairing.kind == Pairing::Kind::halves;
  switch (t.width) {
    case Width::none: return Lay::one;
    case Width::half: return halves ? Lay::half_split : Lay::half;
    case Width::full: return Lay::full;
    case Width::twice: return halves ? Lay::twice_split : Lay::twice;
  }
  return Lay::one;
}

Grid::Grid(const Program& p, const Extents& e, bool whole_rows) : extents_(e) {
  if (e.m == 0 || e.n == 0) return;
  const Needs needs = needs_of(p);
  // Without a boundary that suits every pairing and segment at once, a tile takes whole rows.
  const bool whole = whole_rows || (needs.split && e.n % (2 * needs.align) != 0) ||
                     e.n % needs.twice_halves_segment != 0 || needs.align > e.n;
  split_ = needs.split && !whole;
  const std::int64_t columns = split_ ? e.n / 2 : e.n;  // of one run
  // 256 x 512: 512 KiB of product in a 2 MiB L2 beside the panels that oneDNN packs. A matrix that would give fewer
  // than 8 tiles, too few for several threads, is cut finer: by columns first, since oneDNN loses nothing down to 256 x
  // 128 (0.94 of one call's time at 512 x 1024 x 256) and a tenth at 64 rows.
  std::int64_t target_m = 256, target_n = 512;
  const std::int64_t least_n = split_ ? 256 : 128;
  while (divide_up(e.m, target_m) * divide_up(e.n, target_n) < 8 && (target_n > least_n || target_m > 128)) {
    if (target_n > least_n)
      target_n /= 2;
    else
      target_m /= 2;
  }
  if (whole) {
    tile_n_ = columns;
    target_m = std::clamp<std::int64_t>((1 << 17) / columns, 8, target_m);
  } else {
    const std::int64_t run = split_ ? target_n / 2 : target_n;
    const std::int64_t count = std::max<std::int64_t>(1, divide_up(columns, std::max(run, needs.align)));
    tile_n_ = round_up(divide_up(columns, count), std::lcm<std::int64_t>(needs.align, 16));
    if (needs.align > run) tile_n_ = needs.align;
    tile_n_ = std::min(tile_n_, columns);
  }
  tile_m_ = std::min(round_up(divide_up(e.m, divide_up(e.m, target_m)), 8), e.m);
  row_tiles_ = divide_up(e.m, tile_m_);
  column_tiles_ = divide_up(columns, tile_n_);
  const Tile first = tile(0);
  for (std::size_t l = 0; l < lay_count; ++l) capacity_[l] = first.lays[l].count;
}

Tile Grid::columns_at(std::int64_t begin, std::int64_t count, bool whole) const {
  Tile t;
  const std::int64_t n = extents_.n;
  const bool two = split_ && !whole;
  const auto lay = [&](Lay l) -> Columns& { return t.lays[static_cast<std::size_t>(l)]; };
  lay(Lay::one).add(0, 1);
  for (int run = 0; run < (two ? 2 : 1); ++run) {
    const std::int64_t at = begin + run * (n / 2);
    lay(Lay::full).add(at, count);
    lay(Lay::half).add(at / 2, count / 2);
    lay(Lay::twice).add(2 * at, 2 * count);
  }
  lay(Lay::half_split).add(begin, two ? count : count / 2);
  for (int member = 0; member < 2; ++member) {
    for (int run = 0; run < (two ? 2 : 1); ++run) lay(Lay::twice_split).add(member * n + begin + run * (n / 2), count);
  }
  return t;
}

Tile Grid::tile(std::int64_t index) const {
  const std::int64_t i = index / column_tiles_, j = index % column_tiles_;
  const std::int64_t columns = split_ ? extents_.n / 2 : extents_.n;
  const std::int64_t begin = j * tile_n_;
  Tile t = columns_at(begin, std::min(tile_n_, columns - begin), false);
  t.m = i * tile_m_;
  t.rows = std::min(tile_m_, extents_.m - t.m);
  t.row_index = i;
  t.column_index = j;
  return t;
}

Tile Grid::whole() const {
  Tile t = columns_at(0, extents_.n, true);
  t.rows = extents_.m;
  return t;
}

}  // namespace coda::cpu
