// A product of small f32 blocks that lie in cache: what attention is made of.
#pragma once
#include <cstdint>

namespace coda::ops {

/// A matrix of f32 whose rows or columns may be the contiguous ones.
struct Block {
  const float* data;
  std::int64_t row_stride, column_stride;
};

/// c[i, j] (+)= sum over k of a[i, k] b[k, j], in increasing k. The rows of b and c are contiguous, `b_stride` and
/// `c_stride` apart. Each c is summed in one order, whatever its place in the block.
void small_product(float* c, std::int64_t c_stride, Block a, const float* b, std::int64_t b_stride, std::int64_t rows,
                   std::int64_t columns, std::int64_t depth, bool accumulate);

}  // namespace coda::ops
