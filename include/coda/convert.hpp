// Scalar conversions between the float formats, exact: round to nearest, ties to even, one rounding from the
// source value. Formats: bf16; IEEE f16; fp8 e4m3 and e5m2 as in the OCP 8-bit floating point specification
// (e4m3 is the "fn" form: no Inf, NaN is S.1111.111, largest finite 448; e5m2 has Inf and NaN, largest 57344).
// fp8 saturates: a value past the largest finite one, Inf included, becomes the largest finite one of its sign.
// NaN stays NaN, with its sign.
#pragma once
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "coda/dtype.hpp"

namespace coda {
namespace detail {

/// A binary float format below f32: 1 sign bit, then exponent, then mantissa.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t largest_finite;  ///< bits, without the sign
  std::uint32_t infinity;        ///< 0: the format has none
  std::uint32_t nan;
  std::uint32_t overflow;  ///< what a value past the largest finite one becomes: that one, or Inf
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
};

inline constexpr SmallFloat bf16_format{8, 7, 0x7F7F, 0x7F80, 0x7FC0, 0x7F80};
inline constexpr SmallFloat f16_format{5, 10, 0x7BFF, 0x7C00, 0x7E00, 0x7C00};
inline constexpr SmallFloat e4m3_format{4, 3, 0x7E, 0, 0x7F, 0x7E};
inline constexpr SmallFloat e5m2_format{5, 2, 0x7B, 0x7C, 0x7F, 0x7B};

/// The bits of `value` (float or double) rounded once to format `f`. Inf becomes f.overflow as well.
template <SmallFloat f, std::floating_point Float>
constexpr std::uint32_t round_to_bits(Float value) {
  using Bits = std::conditional_t<sizeof(Float) == 8, std::uint64_t, std::uint32_t>;
  constexpr int mantissa = sizeof(Float) == 8 ? 52 : 23;
  constexpr int bias = sizeof(Float) == 8 ? 1023 : 127;
  constexpr Bits sign_mask = Bits{1} << (8 * sizeof(Float) - 1);
  constexpr Bits infinity = static_cast<Bits>(2 * bias + 1) << mantissa;
  constexpr int drop = mantissa - f.mantissa_bits;

  const Bits bits = std::bit_cast<Bits>(value);
  const std::uint32_t sign = (bits & sign_mask) ? f.sign_bit() : 0;
  const Bits magnitude = bits & ~sign_mask;
  if (magnitude > infinity) return sign | f.nan;
  if (magnitude == infinity) return sign | f.overflow;

  // Rounding may carry into the exponent, which is what the encoding wants: the next binade, or overflow.
  const auto round_shift = [](Bits x, int shift) {
    const Bits kept = x >> shift;
    const Bits rest = x & ((Bits{1} << shift) - 1);
    const Bits half = Bits{1} << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
  };
  const int exponent = static_cast<int>(magnitude >> mantissa) - bias + f.bias();  // biased as f has it
  Bits rounded;
  if (exponent >= 1) {
    rounded = round_shift(magnitude - (static_cast<Bits>(bias - f.bias()) << mantissa), drop);
  } else if constexpr (f.exponent_bits == 8 && sizeof(Float) == 4) {
    rounded = round_shift(magnitude, drop);  // bf16 from f32: the same exponents, subnormals too
  } else {
    // A subnormal of f, or less: the significand with its leading one, shifted to f's fixed lowest exponent.
    // A subnormal source is below half of f's smallest and becomes 0, as does any shift past the significand.
    const int shift = drop + 1 - exponent;
    if (shift > mantissa + 1) return sign;
    rounded = round_shift((magnitude & ((Bits{1} << mantissa) - 1)) | (Bits{1} << mantissa), shift);
  }
  return sign | (rounded > f.largest_finite ? f.overflow : static_cast<std::uint32_t>(rounded));
}

/// The value that bits of format `f` stand for; exact. NaN comes out quiet, with its sign.
template <SmallFloat f>
constexpr float bits_to_float(std::uint32_t bits) {
  const std::uint32_t sign = (bits & f.sign_bit()) ? 0x8000'0000U : 0;
  const std::uint32_t magnitude = bits & (f.sign_bit() - 1);
  if (magnitude > f.largest_finite) {
    return std::bit_cast<float>(sign | (magnitude == f.infinity ? 0x7F80'0000U : 0x7FC0'0000U));
  }
  if constexpr (f.exponent_bits == 8) return std::bit_cast<float>(bits << (23 - f.mantissa_bits));
  const std::uint32_t exponent = magnitude >> f.mantissa_bits;
  if (exponent == 0) {
    // mantissa * 2^(1 - bias - mantissa_bits), a power of two that f32 holds as a normal number
    constexpr float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - f.bias() - f.mantissa_bits) << 23);
    const float value = static_cast<float>(magnitude) * unit;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(
      sign | ((magnitude << (23 - f.mantissa_bits)) + (static_cast<std::uint32_t>(127 - f.bias()) << 23)));
}

}  // namespace detail

// Each takes a float or a double, and rounds it once.
template <class Float>
constexpr std::uint16_t to_bf16(Float x) {
  return static_cast<std::uint16_t>(detail::round_to_bits<detail::bf16_format>(x));
}
template <class Float>
constexpr std::uint16_t to_f16(Float x) {
  return static_cast<std::uint16_t>(detail::round_to_bits<detail::f16_format>(x));
}
template <class Float>
constexpr std::uint8_t to_e4m3(Float x) {
  return static_cast<std::uint8_t>(detail::round_to_bits<detail::e4m3_format>(x));
}
template <class Float>
constexpr std::uint8_t to_e5m2(Float x) {
  return static_cast<std::uint8_t>(detail::round_to_bits<detail::e5m2_format>(x));
}

constexpr float bf16_to_float(std::uint16_t b) { return detail::bits_to_float<detail::bf16_format>(b); }
constexpr float f16_to_float(std::uint16_t b) { return detail::bits_to_float<detail::f16_format>(b); }
constexpr float e4m3_to_float(std::uint8_t b) { return detail::bits_to_float<detail::e4m3_format>(b); }
constexpr float e5m2_to_float(std::uint8_t b) { return detail::bits_to_float<detail::e5m2_format>(b); }

/// `x` rounded once to a float dtype and back, as storing it would: round_to(x, bf16). f32 of a float is itself.
constexpr float round_to(float x, DType t) {
  switch (t) {
    case DType::bf16: return bf16_to_float(to_bf16(x));
    case DType::f16: return f16_to_float(to_f16(x));
    case DType::e4m3: return e4m3_to_float(to_e4m3(x));
    case DType::e5m2: return e5m2_to_float(to_e5m2(x));
    default: return x;
  }
}

}  // namespace coda
