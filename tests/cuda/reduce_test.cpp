// Softmax statistics as the device headers compute them, on the host: against fp64, at magnitudes far from 0 too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "emulation/emulate.hpp"

namespace coda::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

class SoftmaxStatistics : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!HostLibrary::possible()) return;
    library = std::make_unique<HostLibrary>(R"(
#include "reduce.cuh"
// 16 at a time, in two halves that are combined at the end.
extern "C" void statistics(const float* x, int groups, float* max, float* sum) {
  coda::Softmax s[2];
  s[0].clear();
  s[1].clear();
  for (int g = 0; g < groups; g++) {
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = x[16 * g + i];
    s[g % 2].add(v);
  }
  s[0].combine(s[1]);
  *max = s[0].max();
  *sum = s[0].sum();
}
)");
  }
  static void TearDownTestSuite() { library.reset(); }
  void SetUp() override {
    if (!library) GTEST_SKIP() << "no C++ compiler at " << CODA_CXX;
  }
  static std::pair<float, float> statistics(const std::vector<float>& x) {
    float max = 0, sum = 0;
    reinterpret_cast<void (*)(const float*, int, float*, float*)>(library->symbol("statistics"))(x.data(), static_cast<int>(x.size() / 16), &max, &sum);
    return {max, sum};
  }
  static inline std::unique_ptr<HostLibrary> library;
};

TEST_F(SoftmaxStatistics, are_those_of_fp64_at_any_magnitude) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const float centre : {0.0F, 1.0F, -5.0F, 88.0F, 100.0F, -1000.0F, 1e5F, 1048575.0F, 1048577.0F, -1e7F, 3e9F, 1e30F, 3e38F, -3e38F}) {
    std::vector<float> x(16 * 64);
    for (float& v : x) v = centre + normal(random);
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(double(v) - max);
    const auto [m, s] = statistics(x);
    EXPECT_EQ(m, max) << centre;
    EXPECT_NEAR(s / sum, 1, 2e-6) << centre;
  }
}

TEST_F(SoftmaxStatistics, leave_out_what_is_minus_infinity) {
  std::vector<float> x(64, -inf);
  EXPECT_EQ(statistics(x), std::pair(-inf, 0.0F));
  x[37] = -7;
  EXPECT_EQ(statistics(x), std::pair(-7.0F, 1.0F));
}

TEST_F(SoftmaxStatistics, have_no_value_beside_infinity_or_nan) {
  std::vector<float> x(64, 2.0F);
  x[20] = inf;
  EXPECT_EQ(statistics(x).first, inf);
  EXPECT_TRUE(std::isnan(statistics(x).second));
  x[20] = nan;
  EXPECT_TRUE(std::isnan(statistics(x).first));
  EXPECT_TRUE(std::isnan(statistics(x).second));
}

}  // namespace
}  // namespace coda::test
