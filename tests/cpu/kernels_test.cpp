// The strip loops of every instruction set that this processor has: elementary functions to 2 ulp and right at the
// edges, conversions bit for bit, reductions of part vectors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "coda/convert.hpp"
#include "cpu/kernels.hpp"
#include "cpu/scalar_ops.hpp"

namespace {

using namespace coda;
using cpu::Kernels;

class Loops : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
  std::vector<float> apply(Op op, const std::vector<float>& x) const {
    std::vector<float> y(x.size());
    k().real[static_cast<std::size_t>(op)](y.data(), x.data(), x.data(), x.data(), 0,
                                           static_cast<std::int64_t>(x.size()));
    return y;
  }
};

/// Distance in units of the last place of the exact value.
double ulps(float got, double want) {
  const double step = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  return std::fabs(static_cast<double>(got) - want) / step;
}

std::vector<float> spread(double low, double high, int n) {
  std::mt19937_64 random(7);
  std::vector<float> x;
  for (int i = 0; i < n; ++i)
    x.push_back(static_cast<float>(low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53)));
  return x;
}

TEST_P(Loops, elementary_functions_are_within_two_ulp) {
  struct Case {
    Op op;
    double (*exact)(double);
    double low, high;
  };
  const auto log_of = [](double x) { return std::log(x); };
  const auto rsqrt_of = [](double x) { return 1 / std::sqrt(x); };
  const Case cases[] = {
      {Op::exp, [](double x) { return std::exp(x); }, -87, 88.7},
      {Op::expm1, [](double x) { return std::expm1(x); }, -20, 88.7},
      {Op::expm1, [](double x) { return std::expm1(x); }, -1, 1},
      {Op::log, log_of, 0.5, 2},
      {Op::log, log_of, 1e-38, 1e-30},
      {Op::log, log_of, 2, 1e30},
      {Op::log1p, [](double x) { return std::log1p(x); }, -1, 3},
      {Op::log1p, [](double x) { return std::log1p(x); }, -1e-3, 1e-3},
      {Op::log1p, [](double x) { return std::log1p(x); }, 1, 1e30},
      {Op::sqrt, [](double x) { return std::sqrt(x); }, 0, 1e6},
      {Op::rsqrt, rsqrt_of, 1e-6, 1e6},
      {Op::tanh, [](double x) { return std::tanh(x); }, -10, 10},
      {Op::tanh, [](double x) { return std::tanh(x); }, -0.7, 0.7},
      {Op::erf, [](double x) { return std::erf(x); }, -5, 5},
      {Op::erf, [](double x) { return std::erf(x); }, -0.1, 0.1},
      {Op::sin, [](double x) { return std::sin(x); }, -10, 10},
      {Op::cos, [](double x) { return std::cos(x); }, -10, 10},
      {Op::sin, [](double x) { return std::sin(x); }, 1e5, 1.6e7},
      {Op::cos, [](double x) { return std::cos(x); }, 1e7, 1e9},
  };
  for (const Case& c : cases) {
    const std::vector<float> x = spread(c.low, c.high, 20003);
    const std::vector<float> y = apply(c.op, x);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], c.exact(x[i]));
      if (error > worst) {
        worst = error;
        at = x[i];
      }
    }
    EXPECT_LE(worst, 2) << name_of(c.op) << " at " << at << " on [" << c.low << ", " << c.high << "]";
  }
}

TEST_P(Loops, log1p_and_expm1_are_within_two_ulp_of_every_magnitude_and_softplus_within_four) {
  struct Case {
    Op op;
    double (*exact)(double);
    double ulps, low, high;
  };
  const Case cases[] = {
      {Op::log1p, [](double x) { return std::log1p(x); }, 2, -1, 3.5e38},
      {Op::expm1, [](double x) { return std::expm1(x); }, 2, -3.5e38, 88.7},
      {Op::softplus, [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }, 4, -3.5e38, 3.5e38},
  };
  std::vector<float> all;  // every 331st float
  for (std::uint64_t b = 0; b < 0x100000000; b += 331) all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(b)));
  for (const Case& c : cases) {
    std::vector<float> x;
    std::copy_if(all.begin(), all.end(), std::back_inserter(x), [&](float v) { return v > c.low && v < c.high; });
    const std::vector<float> y = apply(c.op, x);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], c.exact(x[i]));
      if (!(error <= worst)) {
        worst = error;
        at = x[i];
      }
    }
    EXPECT_LE(worst, c.ulps) << name_of(c.op) << " at " << at;
  }
}

TEST_P(Loops, log1p_and_expm1_keep_the_edges) {
  const std::vector<float> x = {-1, -1.5f, -INFINITY, INFINITY, NAN, 0.0f, -0.0f, -0x1.fffffep-1f};
  const std::vector<float> log1p = apply(Op::log1p, x), expm1 = apply(Op::expm1, x);
  EXPECT_EQ(log1p[0], -INFINITY);
  EXPECT_TRUE(std::isnan(log1p[1]) && std::isnan(log1p[2]) && std::isnan(log1p[4]));
  EXPECT_EQ(log1p[3], INFINITY);
  EXPECT_FLOAT_EQ(log1p[7], static_cast<float>(std::log1p(-0x1.fffffep-1)));
  EXPECT_EQ(expm1[2], -1);
  EXPECT_EQ(expm1[3], INFINITY);
  EXPECT_TRUE(std::isnan(expm1[4]));
  for (const std::vector<float>& y : {log1p, expm1}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[5]), 0U);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[6]), 0x80000000U);
  }
}

TEST_P(Loops, every_real_op_sends_special_values_where_its_formula_does) {
  const float inf = INFINITY;
  const std::vector<float> x = {0,     -0.0f,  1,  -1,  inf, -inf, NAN,   1e-45f, -1e-45f,
                                3e38f, -3e38f, 20, -20, 100, -100, 88.8f, -104};
  for (int o = static_cast<int>(Op::add); o < cpu::op_count; ++o) {
    const Op op = static_cast<Op>(o);
    if (k().real[static_cast<std::size_t>(o)] == nullptr || arity_of(op) != 1) continue;
    const std::vector<float> y = apply(op, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      using F = scalar::Formulas<double>;
      double want = 0;
      const double v = x[i];
      switch (op) {
        case Op::neg: want = -v; break;
        case Op::abs: want = F::op_abs(v, v, v); break;
        case Op::exp: want = F::op_exp(v, v, v); break;
        case Op::expm1: want = F::op_expm1(v, v, v); break;
        case Op::log: want = F::op_log(v, v, v); break;
        case Op::log1p: want = F::op_log1p(v, v, v); break;
        case Op::sqrt: want = F::op_sqrt(v, v, v); break;
        case Op::rsqrt: want = F::op_rsqrt(v, v, v); break;
        case Op::tanh: want = F::op_tanh(v, v, v); break;
        case Op::erf: want = F::op_erf(v, v, v); break;
        case Op::sin: want = F::op_sin(v, v, v); break;
        case Op::cos: want = F::op_cos(v, v, v); break;
        case Op::sigmoid: want = F::op_sigmoid(v, v, v); break;
        case Op::silu: want = F::op_silu(v, v, v); break;
        case Op::relu: want = F::op_relu(v, v, v); break;
        case Op::gelu: want = F::op_gelu(v, v, v); break;
        case Op::gelu_tanh: want = F::op_gelu_tanh(v, v, v); break;
        case Op::softplus: want = F::op_softplus(v, v, v); break;
        default: ADD_FAILURE() << "no expectation for " << name_of(op); continue;
      }
      const auto held = static_cast<float>(want);
      if (std::isnan(held)) {
        EXPECT_TRUE(std::isnan(y[i])) << name_of(op) << "(" << v << ") = " << y[i];
      } else if (std::isinf(held)) {
        // 3e38 may overflow inside gelu_tanh's cube, on its way to the same limit.
        EXPECT_EQ(y[i], held) << name_of(op) << "(" << v << ")";
      } else {
        EXPECT_NEAR(y[i], want, std::max(std::fabs(want) * 2e-6, 1e-37)) << name_of(op) << "(" << v << ")";
      }
    }
  }
}

TEST_P(Loops, minimum_maximum_and_clamp_propagate_NaN) {
  const float x[] = {NAN, 1, NAN, 2, -1}, y[] = {1, NAN, NAN, 1, 3};
  float d[5];
  for (const Op op : {Op::min, Op::max}) {
    k().real[static_cast<std::size_t>(op)](d, x, y, y, 0, 5);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(d[i]));
    EXPECT_EQ(d[3], op == Op::min ? 1 : 2);
    EXPECT_EQ(d[4], op == Op::min ? -1 : 3);
  }
  const float low = -1, high = 1;
  k().real[static_cast<std::size_t>(Op::clamp)](d, x, &low, &high, 6, 5);
  EXPECT_TRUE(std::isnan(d[0]));
  EXPECT_EQ(d[3], 1);
  EXPECT_EQ(d[4], -1);
}

TEST_P(Loops, small_floats_load_store_and_round_as_the_scalar_conversions_do) {
  std::mt19937_64 random(3);
  std::vector<float> x;
  for (int i = 0; i < 40000; ++i) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t b = 0; b < 65536; ++b) {  // every bf16, and the tie above it
    x.push_back(std::bit_cast<float>(b << 16));
    x.push_back(std::bit_cast<float>(b << 16 | 0x8000));
    x.push_back(f16_to_float(static_cast<std::uint16_t>(b)));
  }
  for (const float v :
       {6e-8f, 2.98e-8f, 65519.9f, 65520.0f, 448.0f, 464.0f, 464.1f, 57344.0f, 61440.0f, 0.001953125f, 0.0009765625f})
    x.push_back(v);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto check = [&](DType t, auto encode, auto decode) {
    using Code = decltype(encode(0.0f));
    const auto at = static_cast<std::size_t>(t);
    std::vector<Code> code(x.size());
    std::vector<float> back(x.size()), rounded(x.size());
    for (const bool stream : {false, true}) {
      (stream ? k().stream : k().store)[at](code.data(), x.data(), n);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < x.size(); ++i) wrong += code[i] != encode(x[i]) ? 1 : 0;
      EXPECT_EQ(wrong, 0U) << name_of(t);
    }
    k().load[at](back.data(), code.data(), n);
    k().round[at](rounded.data(), x.data(), n);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto want = std::bit_cast<std::uint32_t>(decode(code[i]));
      wrong +=
          std::bit_cast<std::uint32_t>(back[i]) != want || std::bit_cast<std::uint32_t>(rounded[i]) != want ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0U) << name_of(t);
  };
  check(
      DType::bf16, [](float v) { return to_bf16(v); }, bf16_to_float);
  check(
      DType::f16, [](float v) { return to_f16(v); }, f16_to_float);
  check(
      DType::e4m3, [](float v) { return to_e4m3(v); }, e4m3_to_float);
  check(
      DType::e5m2, [](float v) { return to_e5m2(v); }, e5m2_to_float);
}

TEST_P(Loops, touch_no_element_past_the_strip_and_reduce_every_length) {
  for (std::int64_t n = 0; n < 70; ++n) {
    std::vector<float> x(static_cast<std::size_t>(n));  // ends where its allocation ends
    double total = 0, exps = 0;
    float largest = -INFINITY;
    for (std::int64_t i = 0; i < n; ++i) {
      x[static_cast<std::size_t>(i)] = static_cast<float>(-3 - (i * 37 % 11));  // all negative: a stray 0 would win
      total += x[static_cast<std::size_t>(i)];
      largest = std::max(largest, x[static_cast<std::size_t>(i)]);
    }
    for (const float v : x) exps += std::exp(static_cast<double>(v) - largest);
    EXPECT_NEAR(k().sum(x.data(), n), total, 1e-4) << n;
    EXPECT_EQ(k().max(x.data(), n), largest) << n;
    if (n > 0) {
      EXPECT_NEAR(k().sum_exp(x.data(), largest, n), exps, 1e-5 * exps) << n;
    }
    std::vector<float> y(x), want(x);
    k().real[static_cast<std::size_t>(Op::neg)](y.data(), y.data(), nullptr, nullptr, 0, n);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], -want[i]);
  }
}

TEST_P(Loops, integers_wrap_and_divide_towards_minus_infinity) {
  const std::int32_t least = INT32_MIN;
  const std::int32_t x[] = {7, -7, 7, -7, 5, least, 0, INT32_MAX}, y[] = {2, 2, -2, -2, 0, -1, 3, 1};
  std::int32_t d[8];
  const auto apply_integer = [&](Op op) { k().integer[static_cast<std::size_t>(op)](d, x, y, y, 0, 8); };
  apply_integer(Op::floordiv);
  const std::int32_t quotients[] = {3, -4, -4, 3, 0, least, 0, INT32_MAX};
  EXPECT_EQ(std::memcmp(d, quotients, sizeof d), 0);
  apply_integer(Op::mod);
  const std::int32_t rests[] = {1, 1, -1, -1, 0, 0, 0, 0};
  EXPECT_EQ(std::memcmp(d, rests, sizeof d), 0);
  apply_integer(Op::add);
  EXPECT_EQ(d[7], least);
}

INSTANTIATE_TEST_SUITE_P(Sets, Loops,
                         testing::ValuesIn(cpu::available_kernels().begin(), cpu::available_kernels().end()),
                         [](const auto& i) { return std::string(i.param->name); });

}  // namespace
