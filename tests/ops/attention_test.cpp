// Blocked attention against its formula in fp64, and that formula against finite differences.
#include "ops/attention.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "coda/error.hpp"
#include "ops/attention_plain.hpp"
#include "support/threads.hpp"

namespace coda::ops {
namespace {

std::vector<double> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;  // values of f32, so that both routines read the same numbers
  std::vector<double> x(n);
  for (double& v : x) v = normal(random);
  return x;
}

HostTensor in_f32(const std::vector<double>& x, std::int64_t rows) {
  HostTensor t(DType::f32, {rows, static_cast<std::int64_t>(x.size()) / rows});
  for (std::size_t i = 0; i < x.size(); ++i) t.as<float>()[i] = static_cast<float>(x[i]);
  return t;
}

/// RMS of the difference over RMS of the expected.
double relative_error(const Tensor& found, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = load(found, static_cast<std::int64_t>(i)) - expected[i];
    difference += d * d;
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

double largest_error(const Tensor& found, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(load(found, static_cast<std::int64_t>(i)) - expected[i]);
    worst = !(d <= worst) ? d : worst;
  }
  return worst;
}

struct Case {
  AttentionShape shape;
  std::vector<double> qkv, dout, out, dqkv;

  explicit Case(const AttentionShape& s) : shape(s) {
    const auto tokens = static_cast<std::size_t>(s.tokens());
    qkv = random_values(tokens * static_cast<std::size_t>(s.width()), 1);
    dout = random_values(tokens * static_cast<std::size_t>(s.query_heads * s.head_dim), 2);
    out.resize(dout.size());
    dqkv.resize(qkv.size());
    attention_forward_plain(s, qkv.data(), out.data());
    attention_backward_plain(s, qkv.data(), dout.data(), dqkv.data());
  }
};

class AttentionOfEveryShape : public testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionOfEveryShape, AgreesWithItsFormulaInFp64) {
  const AttentionShape s = GetParam();
  const Case c(s);
  const HostTensor qkv = in_f32(c.qkv, s.tokens()), dout = in_f32(c.dout, s.tokens());
  HostTensor out(DType::f32, {s.tokens(), s.query_heads * s.head_dim}), lse(DType::f32, {s.tokens(), s.query_heads});
  HostTensor dqkv(DType::f32, {s.tokens(), s.width()});
  for (const Tensor& t : {out.view(), lse.view(), dqkv.view()}) {  // every element must be written
    std::fill_n(t.as<float>(), t.numel(), std::numeric_limits<float>::quiet_NaN());
  }
  attention_forward(s, qkv, out, lse);
  EXPECT_LT(relative_error(out, c.out), 5e-7);
  EXPECT_LT(largest_error(out, c.out), 1e-5);
  attention_backward(s, qkv, out, lse, dout, dqkv);
  EXPECT_LT(relative_error(dqkv, c.dqkv), 1e-6);
  EXPECT_LT(largest_error(dqkv, c.dqkv), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionOfEveryShape,
                         testing::Values(AttentionShape{1, 1, 1, 1, 8, 1.0f}, AttentionShape{2, 5, 2, 1, 8, 0.5f},
                                         AttentionShape{2, 63, 2, 2, 16, 0.25f},
                                         AttentionShape{1, 64, 4, 2, 64, 0.125f}, AttentionShape{1, 65, 4, 1, 32, 0.3f},
                                         AttentionShape{2, 130, 6, 2, 20, 0.2f},
                                         AttentionShape{1, 200, 3, 3, 6, 0.4f}));

TEST(Attention, TheFormulasGradientIsThatOfFiniteDifferences) {
  const AttentionShape s{2, 7, 4, 2, 6, 0.4f};
  Case c(s);
  const auto loss = [&] {
    std::vector<double> out(c.out.size());
    attention_forward_plain(s, c.qkv.data(), out.data());
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * c.dout[i];
    return sum;
  };
  for (std::size_t i = 0; i < c.qkv.size(); i += 3) {
    const double kept = c.qkv[i], step = 1e-5;
    c.qkv[i] = kept + step;
    const double above = loss();
    c.qkv[i] = kept - step;
    const double below = loss();
    c.qkv[i] = kept;
    EXPECT_NEAR((above - below) / (2 * step), c.dqkv[i], 1e-8) << i;
  }
}

TEST(Attention, RowsMayLieAnyDistanceApartAndOnlyTheViewIsWritten) {
  const AttentionShape s{1, 70, 2, 1, 16, 0.25f};
  const Case c(s);
  const HostTensor qkv = in_f32(c.qkv, s.tokens()), dout = in_f32(c.dout, s.tokens());
  HostTensor out(DType::f32, {70, 32}), lse(DType::f32, {70, 2}), dqkv(DType::f32, {70, 64});
  attention_forward(s, qkv, out, lse);
  attention_backward(s, qkv, out, lse, dout, dqkv);

  const auto widened = [](const Tensor& t, float fill) {
    HostTensor wide(DType::f32, {t.shape[0], t.shape[1] + 5});
    std::fill_n(wide.as<float>(), wide.numel(), fill);
    for (std::int64_t i = 0; i < t.shape[0]; ++i) {
      std::memcpy(wide.as<float>() + i * (t.shape[1] + 5), t.as<float>() + i * t.shape[1],
                  sizeof(float) * static_cast<std::size_t>(t.shape[1]));
    }
    return wide;
  };
  const auto view = [](const HostTensor& wide) {
    Tensor t = wide.view();
    t.shape[1] -= 5;
    return t;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const HostTensor qkv2 = widened(qkv, nan), dout2 = widened(dout, nan);
  HostTensor out2(DType::f32, {70, 37}), lse2(DType::f32, {70, 7}), dqkv2(DType::f32, {70, 69});
  for (const Tensor& t : {out2.view(), lse2.view(), dqkv2.view()}) std::fill_n(t.as<float>(), t.numel(), 12345.0f);
  attention_forward(s, view(qkv2), view(out2), view(lse2));
  attention_backward(s, view(qkv2), view(out2), view(lse2), view(dout2), view(dqkv2));
  const auto expect_same = [&](const HostTensor& wide, const HostTensor& tight) {
    const HostTensor expected = widened(tight, 12345.0f);
    EXPECT_EQ(
        std::memcmp(wide.view().data, expected.view().data, sizeof(float) * static_cast<std::size_t>(wide.numel())), 0);
  };
  expect_same(out2, out);
  expect_same(lse2, lse);
  expect_same(dqkv2, dqkv);
}

TEST(Attention, ResultsAreBitwiseTheSameForEveryNumberOfThreads) {
  const AttentionShape s{3, 100, 4, 2, 32, 0.2f};
  const Case c(s);
  const HostTensor qkv = in_f32(c.qkv, s.tokens()), dout = in_f32(c.dout, s.tokens());
  const auto run = [&] {
    HostTensor out(DType::f32, {s.tokens(), 128}), lse(DType::f32, {s.tokens(), 4}),
        dqkv(DType::f32, {s.tokens(), s.width()});
    attention_forward(s, qkv, out, lse);
    attention_backward(s, qkv, out, lse, dout, dqkv);
    const auto* bytes = static_cast<const char*>(dqkv.view().data);
    return std::string(bytes, bytes + dqkv.numel() * 4);
  };
  test::set_threads(1);
  const std::string single = run();
  test::set_threads(3);
  const std::string three = run();
  test::set_threads(test::processors());
  EXPECT_EQ(single, three);
  EXPECT_EQ(single, run());
}

TEST(Attention, ExtremeScoresNeitherOverflowNorVanish) {
  // One query of 1e3-sized scores, keys of which the first block is all -inf for it, and NaN in one sequence only.
  const AttentionShape s{2, 130, 1, 1, 2, 1.0f};
  HostTensor qkv(DType::f32, {260, 6}), out(DType::f32, {260, 2}), lse(DType::f32, {260, 1});
  float* x = qkv.as<float>();
  for (int i = 0; i < 260; ++i) {
    const float row[] = {
        1000.0f, 0.0f,           i % 130 < 64 ? -std::numeric_limits<float>::infinity() : float(i % 130),
        0.0f,    float(i % 130), 1.0f};
    std::memcpy(x + i * 6, row, sizeof row);
  }
  x[130 * 6 + 4] = std::numeric_limits<float>::quiet_NaN();  // the second sequence's first value
  attention_forward(s, qkv, out, lse);
  EXPECT_TRUE(std::isnan(out.as<float>()[63 * 2])) << "a softmax over -inf alone is NaN";
  for (int i = 64; i < 130; ++i)
    EXPECT_EQ(out.as<float>()[i * 2], static_cast<float>(i)) << "the largest score takes all";
  EXPECT_FLOAT_EQ(lse.as<float>()[129], 129000.0f);
  EXPECT_TRUE(std::isnan(out.as<float>()[259 * 2]));
  EXPECT_EQ(out.as<float>()[259 * 2 + 1], 1.0f);
}

TEST(Attention, WrongArgumentsAreRefused) {
  const AttentionShape s{1, 4, 2, 1, 8, 1.0f};
  const HostTensor qkv(DType::f32, {4, 32}), out(DType::f32, {4, 16}), lse(DType::f32, {4, 2}),
      half(DType::bf16, {4, 32});
  EXPECT_NO_THROW(attention_forward(s, qkv, out, lse));
  EXPECT_THROW(attention_forward(s, half, out, lse), Error);
  EXPECT_THROW(attention_forward(s, out, out, lse), Error);
  EXPECT_THROW(attention_forward({1, 4, 3, 2, 8, 1.0f}, qkv, out, lse), Error);
  const HostTensor sideways(DType::f32, {32, 4});
  EXPECT_THROW(attention_forward(s, sideways.view().transposed(), out, lse), Error);
}

}  // namespace
}  // namespace coda::ops
