// Scalar conversions, exhaustively: every bit pattern, and every tie between two neighbouring values with the
// doubles and floats on either side of it. Expected values come from the definition of each format in double.
#include "coda/convert.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace coda {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool has_infinity;           // as an encoding
  bool saturates;              // on overflow
  std::uint32_t largest, nan;  // bits, positive
  float (*decode)(std::uint32_t);
  std::uint32_t (*from_float)(float);
  std::uint32_t (*from_double)(double);

  std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
  std::uint32_t overflow() const { return saturates ? largest : largest + 1; }
  /// The value of finite bits by the definition of a binary float.
  double value(std::uint32_t bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>((bits & (sign() - 1)) >> mantissa_bits);
    const double fraction = std::ldexp(bits & ((1U << mantissa_bits) - 1), -mantissa_bits);
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return bits & sign() ? -magnitude : magnitude;
  }
};

void PrintTo(const Format& f, std::ostream* out) { *out << f.name; }

const Format formats[] = {
    {"bf16", 8, 7, true, false, 0x7F7F, 0x7FC0,
     [](std::uint32_t b) { return bf16_to_float(static_cast<std::uint16_t>(b)); },
     [](float x) { return std::uint32_t{to_bf16(x)}; }, [](double x) { return std::uint32_t{to_bf16(x)}; }},
    {"f16", 5, 10, true, false, 0x7BFF, 0x7E00,
     [](std::uint32_t b) { return f16_to_float(static_cast<std::uint16_t>(b)); },
     [](float x) { return std::uint32_t{to_f16(x)}; }, [](double x) { return std::uint32_t{to_f16(x)}; }},
    {"e4m3", 4, 3, false, true, 0x7E, 0x7F, [](std::uint32_t b) { return e4m3_to_float(static_cast<std::uint8_t>(b)); },
     [](float x) { return std::uint32_t{to_e4m3(x)}; }, [](double x) { return std::uint32_t{to_e4m3(x)}; }},
    {"e5m2", 5, 2, true, true, 0x7B, 0x7F, [](std::uint32_t b) { return e5m2_to_float(static_cast<std::uint8_t>(b)); },
     [](float x) { return std::uint32_t{to_e5m2(x)}; }, [](double x) { return std::uint32_t{to_e5m2(x)}; }},
};

class Convert : public testing::TestWithParam<Format> {};

TEST_P(Convert, EveryBitPatternDecodesToItsDefinitionAndBack) {
  const Format& f = GetParam();
  for (std::uint32_t bits = 0; bits < 2 * f.sign(); ++bits) {
    const std::uint32_t magnitude = bits & (f.sign() - 1);
    const float x = f.decode(bits);
    ASSERT_EQ(std::signbit(x), (bits & f.sign()) != 0) << bits;
    if (magnitude <= f.largest) {
      ASSERT_EQ(static_cast<double>(x), f.value(bits)) << bits;
      ASSERT_EQ(f.from_float(x), bits);
      ASSERT_EQ(f.from_double(x), bits);
    } else if (f.has_infinity && magnitude == f.largest + 1) {
      ASSERT_TRUE(std::isinf(x)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_EQ(f.from_float(x), (bits & f.sign()) | f.nan);
    }
  }
}

TEST_P(Convert, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  const Format& f = GetParam();
  for (std::uint32_t low = 0; low < f.largest; ++low) {
    const std::uint32_t high = low + 1;
    const double middle = (f.value(low) + f.value(high)) / 2;  // exact: one bit more
    const std::uint32_t even = low % 2 == 0 ? low : high;
    for (const std::uint32_t sign : {0U, f.sign()}) {
      const double s = sign ? -1 : 1;
      ASSERT_EQ(f.from_double(s * middle), sign | even) << low;
      // A double a hair off the tie: rounding through f32 first would land on the tie.
      ASSERT_EQ(f.from_double(s * std::nextafter(middle, 0.0)), sign | low) << low;
      ASSERT_EQ(f.from_double(s * std::nextafter(middle, HUGE_VAL)), sign | high) << low;
      const auto narrow = static_cast<float>(middle);
      ASSERT_EQ(narrow, middle);
      const auto fs = static_cast<float>(s);
      ASSERT_EQ(f.from_float(fs * narrow), sign | even) << low;
      ASSERT_EQ(f.from_float(fs * std::nextafter(narrow, 0.0F)), sign | low) << low;
      ASSERT_EQ(f.from_float(fs * std::nextafter(narrow, HUGE_VALF)), sign | high) << low;
    }
  }
}

TEST_P(Convert, OverflowBeginsHalfAStepPastTheLargestValue) {
  const Format& f = GetParam();
  const double largest = f.value(f.largest);
  const double edge = largest + (largest - f.value(f.largest - 1)) / 2;
  for (const std::uint32_t sign : {0U, f.sign()}) {
    const double s = sign ? -1 : 1;
    EXPECT_EQ(f.from_double(s * std::nextafter(edge, 0.0)), sign | f.largest);
    EXPECT_EQ(f.from_double(s * std::nextafter(edge, HUGE_VAL)), sign | f.overflow());
    for (const double x : {2 * edge, 1e300, std::numeric_limits<double>::infinity()}) {
      EXPECT_EQ(f.from_double(s * x), sign | f.overflow()) << x;
    }
    for (const float x : {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
      EXPECT_EQ(f.from_float(static_cast<float>(s) * x), sign | f.overflow()) << x;
    }
  }
}

TEST_P(Convert, TinyValuesAndZerosKeepTheirSign) {
  const Format& f = GetParam();
  for (const std::uint32_t sign : {0U, f.sign()}) {
    const double s = sign ? -1 : 1;
    for (const double x : {0.0, 5e-324, 1e-310, 1e-300, 1e-60}) EXPECT_EQ(f.from_double(s * x), sign) << x;
    EXPECT_EQ(f.from_float(static_cast<float>(s) * 0.0F), sign);
    EXPECT_EQ(f.from_float(static_cast<float>(s) * std::numeric_limits<float>::denorm_min()), sign);
  }
}

TEST_P(Convert, NanStaysNan) {
  const Format& f = GetParam();
  // Payload in the lowest bit only: dropping mantissa bits without care would make it Inf.
  for (const std::uint32_t sign : {0U, 1U}) {
    EXPECT_EQ(f.from_float(std::bit_cast<float>(sign << 31 | 0x7F80'0001U)), sign * f.sign() | f.nan);
    EXPECT_EQ(f.from_double(std::bit_cast<double>(std::uint64_t{sign} << 63 | 0x7FF0'0000'0000'0001U)),
              sign * f.sign() | f.nan);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Convert, testing::ValuesIn(formats),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ConvertTo, KnownEncodings) {
  static_assert(to_bf16(1.0F) == 0x3F80 && to_f16(1.0F) == 0x3C00 && to_e4m3(1.0F) == 0x38 && to_e5m2(1.0F) == 0x3C);
  EXPECT_EQ(to_e4m3(448.0F), 0x7E);
  EXPECT_EQ(to_e4m3(1e9F), 0x7E);
  EXPECT_EQ(to_e5m2(57344.0), 0x7B);
  EXPECT_EQ(to_f16(65504.0), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0), 0x7C00);
  EXPECT_EQ(round_to(3.14159265F, DType::bf16), 3.140625F);
  EXPECT_EQ(round_to(0.1F, DType::f32), 0.1F);
}

}  // namespace
}  // namespace coda
