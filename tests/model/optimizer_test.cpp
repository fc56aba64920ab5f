// AdamW, clipping and the schedule against numbers worked out by hand and a plain fp64 AdamW.
#include "model/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace coda::model {
namespace {

TEST(AdamW, OneStepIsTheHandComputedOne) {
  // p = 1, g = 0.5, lr = 0.1, decay 0.01, step 1: m = 0.05, v = 0.0125 (b2 = 0.95); both corrected to 0.5 and 0.25, so
  // the update is lr * 0.5 / (0.5 + 1e-8) = 0.1 after decay to 1 * (1 - 0.001) = 0.999.
  std::vector<float> p{1}, g{0.5f}, m{0}, v{0};
  adamw_step({.weight_decay = 0.01}, 0.1, 1, 1.0, p, g, m, v);
  EXPECT_FLOAT_EQ(p[0], 0.899f);
  EXPECT_FLOAT_EQ(m[0], 0.05f);
  EXPECT_FLOAT_EQ(v[0], 0.0125f);
  // Step 2 with g = -0.5 scaled by 2 (so -1): m = 0.045 - 0.1 = -0.055, v = 0.011875 + 0.05 = 0.061875;
  // m / (1 - 0.81) = -0.28947, sqrt(v / (1 - 0.9025)) = 0.79663; p = 0.898101 + 0.1 * 0.36337
  g[0] = -0.5f;
  adamw_step({.weight_decay = 0.01}, 0.1, 2, 2.0, p, g, m, v);
  EXPECT_NEAR(p[0], 0.899 * 0.999 + 0.1 * (0.055 / 0.19) / std::sqrt(0.061875 / 0.0975), 1e-6);
}

TEST(AdamW, AHundredStepsFollowFp64) {
  const std::size_t n = 40'000;  // more than one chunk, and not a multiple of any vector
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> p(n), g(n), m(n), v(n);
  std::vector<double> P(n), M(n), V(n);
  for (std::size_t i = 0; i < n; ++i) P[i] = p[i] = normal(random);
  const AdamW o;
  for (int step = 1; step <= 100; ++step) {
    const double lr = 1e-3 * step / 100;
    for (std::size_t i = 0; i < n; ++i) {
      g[i] = normal(random);
      M[i] = o.beta1 * M[i] + (1 - o.beta1) * g[i] * 0.5;
      V[i] = o.beta2 * V[i] + (1 - o.beta2) * g[i] * g[i] * 0.25;
      P[i] -= lr * o.weight_decay * P[i];
      P[i] -= lr * (M[i] / (1 - std::pow(o.beta1, step))) / (std::sqrt(V[i] / (1 - std::pow(o.beta2, step))) + o.eps);
    }
    adamw_step(o, lr, step, 0.5, p, g, m, v);
  }
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], P[i], 1e-5) << i;
}

TEST(Clipping, ScalesToTheLargestNormAndLeavesSmallGradientsAlone) {
  const std::vector<float> g{3, 4};
  EXPECT_DOUBLE_EQ(global_norm(g), 5);
  EXPECT_DOUBLE_EQ(clip_scale(5, 1), 1 / 5.000001);
  EXPECT_DOUBLE_EQ(clip_scale(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_scale(1e9, 0), 1);
  const std::vector<float> ones(100'003, 1.0f);
  EXPECT_DOUBLE_EQ(global_norm(ones), std::sqrt(100'003.0));
  EXPECT_TRUE(std::isnan(global_norm(std::vector<float>{1, NAN})));
}

TEST(CosineSchedule, WarmsUpThenFallsToTheFloor) {
  const CosineSchedule s{1.0, 0.1, 0.1};
  EXPECT_DOUBLE_EQ(s.at(0, 0.01), 0.1);
  EXPECT_DOUBLE_EQ(s.at(0.05, 0.01), 0.6);
  EXPECT_DOUBLE_EQ(s.at(0.1, 0.01), 1.0);
  EXPECT_DOUBLE_EQ(s.at(0.55, 0.01), 0.55);
  EXPECT_DOUBLE_EQ(s.at(1, 0.01), 0.1);
  EXPECT_DOUBLE_EQ((CosineSchedule{1.0, 0.1, 0}.at(0, 0.01)), 1.0) << "no warm-up";
}

}  // namespace
}  // namespace coda::model
