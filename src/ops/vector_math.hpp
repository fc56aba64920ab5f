// Elementary functions in f32 as straight-line code, so that loops over them become vector loops.
#pragma once
#include <bit>
#include <cstdint>

namespace coda::ops {

/// e^x to 2 ulp where the result is a normal number; 0 below, +inf above; NaN stays NaN.
[[gnu::always_inline]] inline float fast_exp(float x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to the integer n and leaves it in the low bits.
  constexpr float shift = 12582912.0f;
  const float clamped = x > 88.8f ? 88.8f : (x < -87.3f ? -87.3f : x);
  const float shifted = clamped * 1.44269504f + shift;
  const float n = shifted - shift;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;  // Cephes expf: minimax on this interval
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // Two halves of the exponent, since 2^128 is no f32 though e^88.7 is.
  const std::int32_t bits = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(shift);
  const std::int32_t half = bits >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((bits - half + 127) << 23);
  const float y = p * a * b;
  return x < -87.3f ? 0.0f : (x > 88.8f ? __builtin_inff() : y);
}

}  // namespace coda::ops
