// The grid of tiles that a program's product is cut into, and which columns each kind of strip has in a tile.
#pragma once
#include <array>
#include <cstdint>

#include "coda/engine.hpp"

namespace coda::cpu {

/// Which columns a strip holds, by the width of its value and, at half and twice the width, by whether its pairs are
/// `halves` (partners half a matrix apart) or local (adjacent, heads).
enum class Lay : std::uint8_t { one, half, half_split, full, twice, twice_split };
inline constexpr int lay_count = 6;

Lay lay_of(const Type& t);

struct Range {
  std::int64_t begin = 0, count = 0;
};

/// The columns of one strip: at most four runs, one after another.
struct Columns {
  std::array<Range, 4> range;
  int ranges = 0;
  std::int64_t count = 0;
  void add(std::int64_t begin, std::int64_t n) {
    range[static_cast<std::size_t>(ranges++)] = {begin, n};
    count += n;
  }
};

/// One tile: rows [m, m + rows), and for each lay its columns.
struct Tile {
  std::int64_t m = 0, rows = 0;
  std::int64_t row_index = 0, column_index = 0;  ///< in the grid
  std::array<Columns, lay_count> lays;
  const Columns& columns(Lay l) const { return lays[static_cast<std::size_t>(l)]; }
};

/// The grid depends on the program and the extents alone, never on the number of threads: results don't either.
class Grid {
 public:
  /// `whole_rows`: tiles of a few whole rows, as a pass over a stored matrix wants them.
  Grid(const Program& p, const Extents& e, bool whole_rows = false);
  std::int64_t rows() const { return row_tiles_; }
  std::int64_t columns() const { return column_tiles_; }
  std::int64_t size() const { return row_tiles_ * column_tiles_; }
  Tile tile(std::int64_t index) const;
  /// All of the matrix as one tile: what finish expressions are evaluated on.
  Tile whole() const;
  std::int64_t largest_rows() const { return tile_m_; }
  /// The most elements a strip of this lay has in any tile.
  std::int64_t capacity(Lay l) const { return capacity_[static_cast<std::size_t>(l)]; }
  /// Whether strips of this lay are one run of columns in every tile.
  bool contiguous(Lay l) const { return l != Lay::twice_split && (!split_ || l == Lay::one || l == Lay::half_split); }

 private:
  Tile columns_at(std::int64_t begin, std::int64_t count, bool whole) const;

  Extents extents_;
  bool split_ = false;                    ///< tiles take two runs of columns, half the matrix apart
  std::int64_t tile_m_ = 0, tile_n_ = 0;  ///< tile_n: columns of one run
  std::int64_t row_tiles_ = 0, column_tiles_ = 0;
  std::array<std::int64_t, lay_count> capacity_{};
};

}  // namespace coda::cpu
