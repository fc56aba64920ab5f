// Reductions over the whole matrix: each tile leaves partial results, which are put together in the order of the grid,
// so that the result is the same whichever thread ran which tile.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu/lower.hpp"

namespace coda::cpu {

/// The partial results of one reduction.
class Partials {
 public:
  Partials(const Reduction& r, const Grid& grid, const Extents& e, const Kernels& kernels);

  /// What one tile keeps while it runs: words per tile of its own (over m: strips; else none).
  std::int64_t workspace() const;
  void begin(const Tile& t, float* own) const;
  /// Takes row `row` of tile `t`, a strip.
  void take(const Tile& t, std::int64_t row, const float* x, float* own);
  void end(const Tile& t, const float* own);

  /// The result: [] or [M] or [W] words; after every tile has ended. `member` 1 is softmax_stats' sum.
  std::vector<std::int32_t> result(int member) const;

 private:
  void keep_picks(const Tile& t, const Range& columns, const float* own);
  bool softmax() const { return r_.op == Op::softmax_sum; }
  std::size_t row_slot(const Tile& t, std::int64_t row) const {
    return static_cast<std::size_t>(t.column_index * e_.m + t.m + row);
  }

  Reduction r_;
  const Kernels& k_;
  Extents e_;
  std::int64_t width_ = 0;     ///< W of a reduction over m
  std::int64_t parts_ = 0;     ///< partial results of each element
  std::int64_t capacity_ = 0;  ///< of a strip
  std::vector<float> first_, second_;  ///< [parts][elements]; second: softmax sums, or what rounding lost
  std::vector<double> totals_;         ///< over mn: one for each tile
  std::int64_t grid_columns_ = 0;
};

}  // namespace coda::cpu
