// Register-blocked product: 4 rows by 32 columns of c are held in registers while k runs. See small_product.hpp.
#include "ops/small_product.hpp"

#include <cstring>

#include "ops/vectorise.hpp"

namespace coda::ops {
namespace {

typedef float Lanes __attribute__((vector_size(64)));
constexpr std::int64_t lanes = 16;

template <int Rows, int Vectors>
[[gnu::always_inline]] inline void tile(float* c, std::int64_t c_stride, const Block& a, const float* b,
                                        std::int64_t b_stride, std::int64_t depth, bool accumulate) {
  Lanes sum[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      if (accumulate) {
        std::memcpy(&sum[r][v], c + r * c_stride + v * lanes, sizeof(Lanes));
      } else {
        sum[r][v] = Lanes{};
      }
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Lanes row[Vectors];
    for (int v = 0; v < Vectors; ++v) std::memcpy(&row[v], b + k * b_stride + v * lanes, sizeof(Lanes));
    for (int r = 0; r < Rows; ++r) {
      const float x = a.data[r * a.row_stride + k * a.column_stride];
      for (int v = 0; v < Vectors; ++v) sum[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) std::memcpy(c + r * c_stride + v * lanes, &sum[r][v], sizeof(Lanes));
  }
}

template <int Rows>
[[gnu::always_inline]] inline void strip(float* c, std::int64_t c_stride, const Block& a, const float* b,
                                         std::int64_t b_stride, std::int64_t columns, std::int64_t depth,
                                         bool accumulate) {
  std::int64_t j = 0;
  for (; j + 2 * lanes <= columns; j += 2 * lanes)
    tile<Rows, 2>(c + j, c_stride, a, b + j, b_stride, depth, accumulate);
  for (; j + lanes <= columns; j += lanes) tile<Rows, 1>(c + j, c_stride, a, b + j, b_stride, depth, accumulate);
  for (; j < columns; ++j) {
    for (int r = 0; r < Rows; ++r) {
      float sum = accumulate ? c[r * c_stride + j] : 0.0f;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += a.data[r * a.row_stride + k * a.column_stride] * b[k * b_stride + j];
      }
      c[r * c_stride + j] = sum;
    }
  }
}

}  // namespace

CODA_VECTORISE
void small_product(float* c, std::int64_t c_stride, Block a, const float* b, std::int64_t b_stride, std::int64_t rows,
                   std::int64_t columns, std::int64_t depth, bool accumulate) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    strip<4>(c + i * c_stride, c_stride, {a.data + i * a.row_stride, a.row_stride, a.column_stride}, b, b_stride,
             columns, depth, accumulate);
  }
  for (; i < rows; ++i) {
    strip<1>(c + i * c_stride, c_stride, {a.data + i * a.row_stride, a.row_stride, a.column_stride}, b, b_stride,
             columns, depth, accumulate);
  }
}

}  // namespace coda::ops
