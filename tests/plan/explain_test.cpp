// Traffic counts against sums worked out by hand.
#include "coda/explain.hpp"

#include <gtest/gtest.h>

#include "coda/text.hpp"

namespace coda::test {
namespace {

Explanation explain_standard(std::string_view name, const Sizes& sizes, const ParamValues& params = {}) {
  return explain(load_program(name, params), sizes);
}

std::vector<std::string> names_of(const std::vector<Pass>& passes) {
  std::vector<std::string> names;
  for (const Pass& pass : passes) names.push_back(pass.name);
  return names;
}

TEST(Explain, FusedMovesEveryArgumentOnce) {
  // M=10, N=20, K=30 in bf16: A 600, B 1200, rstd 40 in f32, z 400, y 200.
  const Explanation e = explain_standard("norm_swiglu", {{"M", 10}, {"N", 20}, {"K", 30}});
  EXPECT_EQ(e.flops, 12000);
  EXPECT_EQ(names_of(e.fused), (std::vector<std::string>{"A", "B", "rstd", "z", "y"}));
  EXPECT_EQ(total_bytes(e.fused), 600 + 1200 + 40 + 400 + 200);
}

TEST(Explain, UnfusedStoresTheProductAndReadsItAgain) {
  const Explanation e = explain_standard("norm_swiglu", {{"M", 10}, {"N", 20}, {"K", 30}});
  // Product 600 + 1200 + 400; one pass reads it (400) and rstd (40), writes z and y.
  EXPECT_EQ(total_bytes(e.one_pass), 2200 + 440 + 600);
  // Operator by operator: z from the product and rstd, then y from z, which already is an output.
  EXPECT_EQ(names_of(e.eager), (std::vector<std::string>{"product", "z", "y"}));
  EXPECT_EQ(total_bytes(e.eager), 2200 + (400 + 40 + 400) + (400 + 200));
}

TEST(Explain, AReductionIsAPassOfItsOwnOperatorByOperator) {
  const Explanation e = explain_standard("residual_norm", {{"M", 10}, {"N", 20}, {"K", 30}});
  EXPECT_EQ(names_of(e.eager), (std::vector<std::string>{"product", "x", "h", "sum"}));
}

TEST(Explain, AccumulationReadsWhatItWrites) {
  const Explanation e = explain_standard("weight_grad", {{"M", 10}, {"N", 20}, {"K", 30}});
  EXPECT_EQ(e.fused.back().read, 800);
  EXPECT_EQ(e.fused.back().written, 800);
}

TEST(Explain, SoftmaxStatisticsAreOnePass) {
  const Explanation e =
      explain(load_program("linear_cross_entropy").without("logits"), {{"M", 10}, {"N", 20}, {"K", 30}});
  EXPECT_EQ(names_of(e.eager), (std::vector<std::string>{"product", "softmax_stats", "pick"}));
}

TEST(Explain, ATablesRowsAreMUnlessGiven) {
  Sizes sizes{{"M", 10}, {"N", 8}, {"K", 30}};
  EXPECT_EQ(explain_standard("norm_rope", sizes, {{"D", 4}}).fused[4].read, 10 * 2 * 4);
  sizes["P"] = 1000;
  EXPECT_EQ(explain_standard("norm_rope", sizes, {{"D", 4}}).fused[4].read, 1000 * 2 * 4);
}

TEST(Explain, AFloorIsArithmeticOrBytesOfTheProductPlusThePasses) {
  const Gpu machine{"unit", 100, 200, 50, 10, "by hand"};
  Explanation e;
  e.flops = 1000;
  const std::vector<Pass> passes{{"product", 30, 20}, {"epilogue", 60, 40}};
  EXPECT_DOUBLE_EQ(floor_seconds(e, passes, false, DType::bf16, machine), 10 + 10);  // 1000/100, hides 50/10
  EXPECT_DOUBLE_EQ(floor_seconds(e, passes, false, DType::f32, machine), 20 + 10);
  EXPECT_DOUBLE_EQ(floor_seconds(e, passes, false, DType::e4m3, machine), 5 + 10);  // 1000/200 and 50/10 alike
  EXPECT_DOUBLE_EQ(floor_seconds(e, passes, true, DType::e4m3, machine), 15);       // 150 bytes outlast 5
}

TEST(Explain, FusionNeverMovesMoreOnAnyStandardProgram) {
  for (const std::string& name : standard_programs()) {
    const Explanation e = explain_standard(name, {{"M", 300}, {"N", 512}, {"K", 70}});
    EXPECT_LE(total_bytes(e.fused), total_bytes(e.one_pass)) << name;
    EXPECT_LE(total_bytes(e.one_pass), total_bytes(e.eager)) << name;
  }
}

TEST(Explain, KnowsItsGpusByName) {
  EXPECT_EQ(gpu("h200").bandwidth, 4.8e12);
  EXPECT_THROW(gpu("abacus"), Error);
}

}  // namespace
}  // namespace coda::test
