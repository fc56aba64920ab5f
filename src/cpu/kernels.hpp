// Loops over strips: contiguous runs of 4-byte elements in cache, the only thing the epilogue's inner loops are made
// of. One table of function pointers for each instruction set, chosen at run time.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "coda/program.hpp"

namespace coda::cpu {

inline constexpr int op_count = static_cast<int>(Op::softplus) + 1;
inline constexpr int dtype_count = 8;

/// Reals are f32; integers i32; booleans i32, 0 or -1. No strip is read or written past its n elements. A destination
/// may be one of the sources, but may not overlap it otherwise.
struct Kernels {
  /// d[i] = op(x[i], y[i], z[i]); bit 0, 1, 2 of `repeat`: x, y, z is one element, repeated. Arguments past the op's
  /// arity aren't read.
  using Apply = void (*)(void* d, const void* x, const void* y, const void* z, int repeat, std::int64_t n);

  const char* name = "";
  std::array<Apply, op_count> real{};     ///< null where the op takes no reals
  std::array<Apply, op_count> integer{};  ///< integers and booleans; null where it takes neither
  Apply to_real = nullptr;                ///< i32 -> f32
  /// Elements of a dtype, contiguous in memory -> a strip (f32, or i32 with i64 saturated), and back, rounded once.
  std::array<void (*)(void* d, const void* x, std::int64_t n), dtype_count> load{};
  std::array<void (*)(void* d, const float* x, std::int64_t n), dtype_count> store{};
  /// store(), past the caches where the processor can; end_stream() after the last, before others may read.
  std::array<void (*)(void* d, const float* x, std::int64_t n), dtype_count> stream{};
  void (*end_stream)() = nullptr;
  /// x rounded to a dtype and back.
  std::array<void (*)(float* d, const float* x, std::int64_t n), dtype_count> round{};

  float (*sum)(const float* x, std::int64_t n) = nullptr;
  float (*max)(const float* x, std::int64_t n) = nullptr;                 ///< NaN wins; -inf of nothing
  float (*sum_exp)(const float* x, float max, std::int64_t n) = nullptr;  ///< sum of exp(x - max)
  /// d[i] += x[i]; d[i] = maximum(d[i], x[i]).
  void (*add_to)(float* d, const float* x, std::int64_t n) = nullptr;
  /// (d[i], lost[i]) += x[i], compensated: d - lost is the sum to about twice f32's precision.
  void (*sum_to)(float* d, float* lost, const float* x, std::int64_t n) = nullptr;
  void (*max_to)(float* d, const float* x, std::int64_t n) = nullptr;
  /// (m[i], s[i]) <- the softmax statistics of what they hold and x[i].
  void (*softmax_to)(float* m, float* s, const float* x, std::int64_t n) = nullptr;
  /// d[i] = x[i] where index[i] == value.
  void (*pick_to)(float* d, const float* x, const std::int32_t* index, std::int32_t value, std::int64_t n) = nullptr;
  /// d[i] = x[2i + member], and d[2i] = x[i], d[2i + 1] = y[i]; n counts d's, respectively x's, elements.
  void (*deinterleave)(void* d, const void* x, int member, std::int64_t n) = nullptr;
  void (*interleave)(void* d, const void* x, const void* y, std::int64_t n) = nullptr;
};

/// The best table for this processor.
const Kernels& kernels();
/// Every table that this processor can run, the portable one first.
std::span<const Kernels* const> available_kernels();

}  // namespace coda::cpu
