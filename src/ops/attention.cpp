// Blocked attention with online softmax: see attention.hpp. One task is one (sequence, kv head) with all of its query
// heads, so that dk and dv have one writer and one order of summation.
#include "ops/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "coda/error.hpp"
#include "ops/parallel.hpp"
#include "ops/small_product.hpp"
#include "ops/vector_math.hpp"
#include "ops/vectorise.hpp"

namespace coda::ops {
namespace {

constexpr std::int64_t block = 64;  // queries and keys to a block: scores of 16 KiB stay in the first cache

void check(const char* name, const Tensor& t, std::int64_t rows, std::int64_t columns) {
  if (t.dtype != DType::f32) {
    throw Error(ErrorKind::dtype, fmt::format("attention: {} is {}, expected f32", name, describe(t)));
  }
  if (t.rank != 2 || t.shape[0] != rows || t.shape[1] != columns) {
    throw Error(ErrorKind::shape,
                fmt::format("attention: {} is {}, expected f32[{}, {}]", name, describe(t), rows, columns));
  }
  if (columns > 1 && t.stride[1] != 1) {
    throw Error(ErrorKind::layout, fmt::format("attention: {} is {}, expected a column stride of 1; copy it to a "
                                               "row-major tensor first",
                                               name, describe(t)));
  }
  if (t.device.type != DeviceType::cpu) {
    throw Error(ErrorKind::unsupported, fmt::format("attention: {} is not in host memory", name));
  }
}

void check(const AttentionShape& s) {
  if (s.batch < 0 || s.sequence < 0 || s.query_heads <= 0 || s.kv_heads <= 0 || s.head_dim <= 0 ||
      s.query_heads % s.kv_heads != 0) {
    throw Error(ErrorKind::shape,
                fmt::format("attention: {} sequences of {} tokens, {} query heads, {} kv heads of {}: extents must be "
                            "positive and the query heads a multiple of the kv heads",
                            s.batch, s.sequence, s.query_heads, s.kv_heads, s.head_dim));
  }
}

/// One head's rows of a matrix of tokens.
struct Rows {
  float* data;
  std::int64_t stride;
  float* at(std::int64_t i) const { return data + i * stride; }
};

Rows head(const Tensor& t, std::int64_t first_row, std::int64_t first_column) {
  return {t.as<float>() + first_row * t.stride[0] + first_column, t.stride[0]};
}

/// x^T, [head_dim, sequence rounded up to whole blocks], the surplus 0.
std::vector<float> transposed(Rows x, std::int64_t sequence, std::int64_t width, std::int64_t padded) {
  std::vector<float> out(static_cast<std::size_t>(width * padded));
  for (std::int64_t i = 0; i < sequence; ++i) {
    for (std::int64_t d = 0; d < width; ++d) out[static_cast<std::size_t>(d * padded + i)] = x.at(i)[d];
  }
  return out;
}

/// In place over one block of scores: the running maximum and sum of each row are brought up to date, scores become
/// exp(scale * score - max), and the row's output so far is scaled to the new maximum. Keys after the query count 0.
CODA_VECTORISE
void online_softmax(float* scores, std::int64_t rows, std::int64_t i0, std::int64_t j0, float scale, float* maximum,
                    float* sum, float* out, std::int64_t width) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * block;
    const auto last = static_cast<std::int32_t>(i0 + r - j0);
    // Sums and maxima run in 16 lanes of fixed order, which the compiler may not choose by itself.
    float lane[16];
    std::fill_n(lane, 16, -infinity);
    for (std::int32_t j = 0; j < block; j += 16) {
      for (std::int32_t l = 0; l < 16; ++l) {
        s[j + l] = j + l <= last ? s[j + l] * scale : -infinity;
        lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
      }
    }
    float m = maximum[r];
    for (const float x : lane) m = x > m ? x : m;
    // A row of -inf so far must not become -inf - (-inf).
    const float origin = m == -infinity ? 0.0f : m;
    std::fill_n(lane, 16, 0.0f);
    for (std::int32_t j = 0; j < block; j += 16) {
      for (std::int32_t l = 0; l < 16; ++l) {
        s[j + l] = fast_exp(s[j + l] - origin);
        lane[l] += s[j + l];
      }
    }
    float total = 0;
    for (const float x : lane) total += x;
    const float keep = fast_exp(maximum[r] - origin);
    maximum[r] = m;
    sum[r] = sum[r] * keep + total;
    for (std::int64_t d = 0; d < width; ++d) out[r * width + d] *= keep;
  }
}

/// Scores become p, and `dp` becomes ds.
CODA_VECTORISE
void softmax_backward(float* scores, float* dp, std::int64_t rows, std::int64_t i0, std::int64_t j0, float scale,
                      const float* lse, const float* delta) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* s = scores + r * block;
    float* g = dp + r * block;
    const auto last = static_cast<std::int32_t>(i0 + r - j0);
    for (std::int32_t j = 0; j < block; ++j) {
      const float p = fast_exp(s[j] * scale - lse[r]);
      const float ds = p * (g[j] - delta[r]) * scale;
      s[j] = j <= last ? p : 0.0f;
      g[j] = j <= last ? ds : 0.0f;
    }
  }
}

}  // namespace

void attention_forward(const AttentionShape& s, const Tensor& qkv, const Tensor& out, const Tensor& lse) {
  check(s);
  check("qkv", qkv, s.tokens(), s.width());
  check("out", out, s.tokens(), s.query_heads * s.head_dim);
  check("lse", lse, s.tokens(), s.query_heads);
  const std::int64_t group = s.query_heads / s.kv_heads, width = s.head_dim;
  const std::int64_t padded = (s.sequence + block - 1) / block * block;

  parallel_for(s.batch * s.kv_heads, [&](std::int64_t task) {
    const std::int64_t row = task / s.kv_heads * s.sequence, kv = task % s.kv_heads;
    const Rows keys = head(qkv, row, (s.query_heads + kv) * width);
    const Rows values = head(qkv, row, (s.query_heads + s.kv_heads + kv) * width);
    const std::vector<float> keys_t = transposed(keys, s.sequence, width, padded);
    std::vector<float> scores(block * block), sums(static_cast<std::size_t>(block * width));
    float maximum[block], sum[block];

    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Rows queries = head(qkv, row, h * width), result = head(out, row, h * width), log_sum = head(lse, row, h);
      for (std::int64_t i0 = 0; i0 < s.sequence; i0 += block) {
        const std::int64_t rows = std::min(block, s.sequence - i0);
        std::fill(sums.begin(), sums.end(), 0.0f);
        std::fill(maximum, maximum + block, -std::numeric_limits<float>::infinity());
        std::fill(sum, sum + block, 0.0f);
        for (std::int64_t j0 = 0; j0 <= i0; j0 += block) {
          const std::int64_t count = std::min(block, s.sequence - j0);
          small_product(scores.data(), block, {queries.at(i0), queries.stride, 1}, keys_t.data() + j0, padded, rows,
                        block, width, false);
          online_softmax(scores.data(), rows, i0, j0, s.scale, maximum, sum, sums.data(), width);
          small_product(sums.data(), width, {scores.data(), block, 1}, values.at(j0), values.stride, rows, width, count,
                        true);
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t d = 0; d < width; ++d) {
            result.at(i0 + r)[d] = sums[static_cast<std::size_t>(r * width + d)] / sum[r];
          }
          *log_sum.at(i0 + r) = maximum[r] + std::log(sum[r]);
        }
      }
    }
  });
}

void attention_backward(const AttentionShape& s, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const Tensor& dqkv) {
  check(s);
  check("qkv", qkv, s.tokens(), s.width());
  check("out", out, s.tokens(), s.query_heads * s.head_dim);
  check("lse", lse, s.tokens(), s.query_heads);
  check("dout", dout, s.tokens(), s.query_heads * s.head_dim);
  check("dqkv", dqkv, s.tokens(), s.width());
  const std::int64_t group = s.query_heads / s.kv_heads, width = s.head_dim;
  const std::int64_t padded = (s.sequence + block - 1) / block * block;

  parallel_for(s.batch * s.kv_heads, [&](std::int64_t task) {
    const std::int64_t row = task / s.kv_heads * s.sequence, kv = task % s.kv_heads;
    const std::int64_t k_column = (s.query_heads + kv) * width, v_column = k_column + s.kv_heads * width;
    const Rows keys = head(qkv, row, k_column), values = head(qkv, row, v_column);
    const Rows dkeys = head(dqkv, row, k_column), dvalues = head(dqkv, row, v_column);
    const std::vector<float> keys_t = transposed(keys, s.sequence, width, padded);
    const std::vector<float> values_t = transposed(values, s.sequence, width, padded);
    std::vector<float> scores(block * block), dp(block * block);
    float row_lse[block], delta[block];
    for (std::int64_t i = 0; i < s.sequence; ++i) {
      std::fill_n(dkeys.at(i), width, 0.0f);
      std::fill_n(dvalues.at(i), width, 0.0f);
    }

    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Rows queries = head(qkv, row, h * width), dqueries = head(dqkv, row, h * width);
      const Rows result = head(out, row, h * width), dresult = head(dout, row, h * width), log_sum = head(lse, row, h);
      for (std::int64_t i0 = 0; i0 < s.sequence; i0 += block) {
        const std::int64_t rows = std::min(block, s.sequence - i0);
        for (std::int64_t r = 0; r < rows; ++r) {
          row_lse[r] = *log_sum.at(i0 + r);
          delta[r] = 0;
          for (std::int64_t d = 0; d < width; ++d) delta[r] += result.at(i0 + r)[d] * dresult.at(i0 + r)[d];
        }
        for (std::int64_t j0 = 0; j0 <= i0; j0 += block) {
          const std::int64_t count = std::min(block, s.sequence - j0);
          small_product(scores.data(), block, {queries.at(i0), queries.stride, 1}, keys_t.data() + j0, padded, rows,
                        block, width, false);
          small_product(dp.data(), block, {dresult.at(i0), dresult.stride, 1}, values_t.data() + j0, padded, rows,
                        block, width, false);
          softmax_backward(scores.data(), dp.data(), rows, i0, j0, s.scale, row_lse, delta);
          small_product(dvalues.at(j0), dvalues.stride, {scores.data(), 1, block}, dresult.at(i0), dresult.stride,
                        count, width, rows, true);
          small_product(dkeys.at(j0), dkeys.stride, {dp.data(), 1, block}, queries.at(i0), queries.stride, count, width,
                        rows, true);
          small_product(dqueries.at(i0), dqueries.stride, {dp.data(), block, 1}, keys.at(j0), keys.stride, rows, width,
                        count, j0 > 0);
        }
      }
    }
  });
}

}  // namespace coda::ops
