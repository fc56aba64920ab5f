// q, k and v behind a delayed norm with rotary embedding, and the pass that undoes the rotation of their gradients.
#include <fmt/format.h>

#include <algorithm>

#include "coda/error.hpp"
#include "ops/launch.hpp"
#include "ops/parallel.hpp"
#include "ops/vectorise.hpp"

namespace coda::ops {
namespace {

/// One row: dqkv rotated back, and Σ qkv·dqkv of what it was.
CODA_VECTORISE
float rotate_back(const float* __restrict y, float* __restrict dy, std::int64_t columns, std::int64_t rotated,
                  std::int64_t head_dim, const float* __restrict cos, const float* __restrict sin) {
  constexpr int lanes = 16;
  float lane[lanes] = {};
  std::int64_t j = 0;
  for (; j + lanes <= columns; j += lanes) {
    for (int l = 0; l < lanes; ++l) lane[l] += y[j + l] * dy[j + l];
  }
  for (; j < columns; ++j) lane[0] += y[j] * dy[j];
  float sum = 0;
  for (const float x : lane) sum += x;
  const std::int64_t half = head_dim / 2;
  for (std::int64_t first = 0; first < rotated; first += head_dim) {
    float* const a = dy + first;
    float* const b = a + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float da = a[i] * cos[i] + b[i] * sin[i];
      b[i] = b[i] * cos[i] - a[i] * sin[i];
      a[i] = da;
    }
  }
  return sum;
}

void check_rows(const char* name, const Tensor& t, DType dtype, int rank) {
  if (t.dtype != dtype || t.rank != rank || (rank == 2 && t.shape[1] > 1 && t.stride[1] != 1) ||
      t.device.type != DeviceType::cpu) {
    throw Error(ErrorKind::layout, fmt::format("rotary_backward: {} is {}, expected {} of rank {} in host memory, with "
                                               "rows that are contiguous",
                                               name, describe(t), name_of(dtype), rank));
  }
}

}  // namespace

void linear_norm_rope(const Context& context, const LinearNormRope& t) {
  const auto rotated = static_cast<std::int32_t>(t.rotated_columns);
  launch(context, "norm_rope", {{"D", t.head_dim}},
         {{"A", t.h},
          {"B", t.weight},
          {"rstd", t.rstd},
          {"position", t.position},
          {"cos", t.cos},
          {"sin", t.sin},
          {"rotated", scalar(rotated)},
          {"qkv", t.qkv}});
}

void rotary_backward(const RotaryBackward& t) {
  check_rows("qkv", t.qkv, DType::f32, 2);
  check_rows("dqkv", t.dqkv, DType::f32, 2);
  check_rows("cos", t.cos, DType::f32, 2);
  check_rows("sin", t.sin, DType::f32, 2);
  check_rows("position", t.position, DType::i64, 1);
  check_rows("zdz", t.zdz, DType::f32, 1);
  const std::int64_t rows = t.qkv.shape[0], columns = t.qkv.shape[1];
  if (t.dqkv.shape != t.qkv.shape || t.position.shape[0] != rows || t.zdz.shape[0] != rows || t.head_dim <= 0 ||
      t.head_dim % 2 != 0 || t.cos.shape[1] != t.head_dim / 2 || t.sin.shape != t.cos.shape || t.rotated_columns < 0 ||
      t.rotated_columns > columns || t.rotated_columns % t.head_dim != 0) {
    throw Error(ErrorKind::shape,
                fmt::format("rotary_backward: qkv is {}, dqkv {}, cos {}, sin {}, position {}, zdz {}, heads of {} and "
                            "{} rotated columns: they don't fit each other",
                            describe(t.qkv), describe(t.dqkv), describe(t.cos), describe(t.sin), describe(t.position),
                            describe(t.zdz), t.head_dim, t.rotated_columns));
  }
  for (std::int64_t m = 0; m < rows; ++m) {
    const std::int64_t p = t.position.as<std::int64_t>()[m * t.position.stride[0]];
    if (p < 0 || p >= t.cos.shape[0]) {
      throw Error(ErrorKind::value, fmt::format("rotary_backward: position {} is {}, expected a number from 0 to {}", m,
                                                p, t.cos.shape[0] - 1));
    }
  }
  constexpr std::int64_t chunk = 32;
  parallel_for((rows + chunk - 1) / chunk, [&](std::int64_t c) {
    for (std::int64_t m = c * chunk; m < std::min(rows, (c + 1) * chunk); ++m) {
      const std::int64_t p = t.position.as<std::int64_t>()[m * t.position.stride[0]];
      t.zdz.as<float>()[m * t.zdz.stride[0]] =
          rotate_back(t.qkv.as<float>() + m * t.qkv.stride[0], t.dqkv.as<float>() + m * t.dqkv.stride[0], columns,
                      t.rotated_columns, t.head_dim, t.cos.as<float>() + p * t.cos.stride[0],
                      t.sin.as<float>() + p * t.sin.stride[0]);
    }
  });
}

}  // namespace coda::ops
