// linear_cross_entropy and cross_entropy_backward: every option against the definition, by hand, and by differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formulas.hpp"
#include "harness.hpp"

namespace coda::test {
namespace {

constexpr std::int64_t M = 6, V = 13, K = 4, ignored = -100;
const std::vector<std::int64_t> targets{0, 7, 12, ignored, 8, 3};

struct Options {
  CrossEntropy formula = {};
  bool norm = false, bias = false;
  ParamValues params() const {
    return {{"with_norm", norm},
            {"with_bias", bias},
            {"with_softcap", formula.cap != 0},
            {"smoothing", formula.smooth == 0 ? 0
                          : formula.megatron  ? 2
                                              : 1},
            {"with_z_loss", formula.z_weight != 0}};
  }
};

/// Draws a case; `z` gets the logits before the softcap, `linear` the part of them that the bias doesn't touch.
struct Case {
  Arguments in;
  Options options;
  Matrix z{0, 0}, linear{0, 0};

  explicit Case(Options o) : options(o) {
    linear = product(in.matrix("A", M, K, -3, 3), in.matrix("B", V, K));
    const Vector rstd = in.vector("rstd", M, 0.5, 2), bias = in.vector("bias", V), scale = in.vector("scale", M);
    if (o.norm)
      for (std::int64_t i = 0; i < M; ++i)
        for (std::int64_t j = 0; j < V; ++j) linear(i, j) *= rstd[static_cast<std::size_t>(i)];
    z = linear;
    if (o.bias)
      for (std::int64_t i = 0; i < M; ++i)
        for (std::int64_t j = 0; j < V; ++j) z(i, j) += bias[static_cast<std::size_t>(j)];
    in.integers("target", targets), in.integer("ignore", ignored);
    options.formula.cap = in.scalar("cap", o.formula.cap);
    options.formula.smooth = in.scalar("smooth", o.formula.smooth);
    options.formula.z_weight = in.scalar("z_weight", o.formula.z_weight);
    upstream = scale;
  }

  Program forward() const { return standard("linear_cross_entropy", options.params()); }
  Program backward() const { return standard("cross_entropy_backward", options.params()); }

  Results forward_formula() const {
    Results r;
    const CrossEntropy& o = options.formula;
    for (std::int64_t i = 0; i < M; ++i) {
      Vector row = row_of(z, i);
      const std::int64_t target = targets[static_cast<std::size_t>(i)];
      CrossEntropy no_z_loss = o;
      no_z_loss.z_weight = 0;
      const double all = target == ignored ? 0 : cross_entropy(row, static_cast<std::size_t>(target), o);
      const double main = target == ignored ? 0 : cross_entropy(row, static_cast<std::size_t>(target), no_z_loss);
      r["loss"].push_back(all);
      if (o.z_weight != 0) r["z_loss"].push_back(all - main);
      if (o.cap != 0)
        for (double& x : row) x = o.cap * std::tanh(x / o.cap);
      const double top = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double x : row) sum += std::exp(x - top);
      r["zmax"].push_back(top);
      r["zsum"].push_back(sum);
      r["logits"].insert(r["logits"].end(), row.begin(), row.end());
    }
    return r;
  }

  /// The gradient of Σ_m scale[m]·loss[m] by z, by differences.
  Results backward_formula() const {
    Results r;
    if (options.bias) r["dbias"].assign(V, 0);
    for (std::int64_t i = 0; i < M; ++i) {
      const std::int64_t target = targets[static_cast<std::size_t>(i)];
      const auto loss = [&](const Vector& row) {
        return target == ignored ? 0
                                 : upstream[static_cast<std::size_t>(i)] *
                                       cross_entropy(row, static_cast<std::size_t>(target), options.formula);
      };
      const Vector dz = gradient(loss, row_of(z, i));
      double zdz = 0;
      for (std::int64_t j = 0; j < V; ++j) {
        const auto c = static_cast<std::size_t>(j);
        zdz += linear(i, j) * dz[c];
        if (options.bias) r["dbias"][c] += dz[c];
      }
      r["dz"].insert(r["dz"].end(), dz.begin(), dz.end());
      if (options.norm) r["zdz"].push_back(zdz);
    }
    return r;
  }

  Vector upstream;
};

void expect_forward_and_backward(const Options& options) {
  Case c(options);
  const Results want = c.forward_formula();
  expect_outputs(c.forward(), c.in, want, 1e-11);
  Results statistics_only = want;
  statistics_only.erase("logits");
  expect_outputs(c.forward().without("logits"), c.in, statistics_only, 1e-11);
  c.in.set("zmax", want.at("zmax"));  // rounded to f32, as the backward pass finds them
  c.in.set("zsum", want.at("zsum"));
  expect_outputs(c.backward(), c.in, c.backward_formula(), 1e-6);
}

TEST(CrossEntropy, Plain) { expect_forward_and_backward({}); }
TEST(CrossEntropy, DelayedNorm) { expect_forward_and_backward({.norm = true}); }
TEST(CrossEntropy, Bias) { expect_forward_and_backward({.bias = true}); }
TEST(CrossEntropy, Softcap) { expect_forward_and_backward({.formula = {.cap = 2}}); }
TEST(CrossEntropy, SmoothingOfPyTorch) { expect_forward_and_backward({.formula = {.smooth = 0.3}}); }
TEST(CrossEntropy, SmoothingOfMegatron) { expect_forward_and_backward({.formula = {.smooth = 0.3, .megatron = true}}); }
TEST(CrossEntropy, ZLoss) { expect_forward_and_backward({.formula = {.z_weight = 0.1}}); }
TEST(CrossEntropy, AllOptionsAtOnce) {
  expect_forward_and_backward(
      {.formula = {.cap = 3, .smooth = 0.2, .megatron = true, .z_weight = 0.05}, .norm = true, .bias = true});
  expect_forward_and_backward({.formula = {.cap = 3, .smooth = 0.2, .z_weight = 0.05}, .norm = true, .bias = true});
}

/// One row of logits [0, ln 3] with target 1: p = [1/4, 3/4].
Arguments by_hand() {
  Arguments in;
  Matrix a(1, 1), b(2, 1);
  a(0, 0) = 1, b(0, 0) = 0, b(1, 0) = std::log(3);
  in.set("A", a), in.set("B", b), in.integers("target", {1}), in.integer("ignore", ignored), in.set("scale", Vector{1});
  in.set("bias", Vector{std::log(3), 0}), in.set("rstd", Vector{2});
  in.scalar("cap", std::log(3)), in.scalar("smooth", 0.2), in.scalar("z_weight", 0.5);
  in.set("zmax", Vector{std::log(3)}), in.set("zsum", Vector{4.0 / 3});
  return in;
}

double loss_of(const ParamValues& params) {
  return evaluate(standard("linear_cross_entropy", params), by_hand()).at("loss")[0];
}
Vector dz_of(const ParamValues& params) {
  return evaluate(standard("cross_entropy_backward", params), by_hand()).at("dz");
}

TEST(CrossEntropy, EachOptionByHand) {
  const double ln3 = std::log(3), ln4 = std::log(4), plain = ln4 - ln3;
  EXPECT_NEAR(loss_of({}), plain, 1e-7);
  EXPECT_NEAR(loss_of({{"with_norm", 1}}), std::log(10.0 / 9), 1e-7);  // logits [0, ln 9]
  EXPECT_NEAR(loss_of({{"with_bias", 1}}), std::log(2), 1e-7);         // logits [ln 3, ln 3]
  const double capped = ln3 * std::tanh(1);
  EXPECT_NEAR(loss_of({{"with_softcap", 1}}), std::log1p(std::exp(-capped)), 1e-7);
  EXPECT_NEAR(loss_of({{"smoothing", 1}}), 0.9 * plain + 0.1 * ln4, 1e-7);  // 1 - 0.2 + 0.2/2 on the target
  EXPECT_NEAR(loss_of({{"smoothing", 2}}), 0.8 * plain + 0.2 * ln4, 1e-7);  // 0.2 on the other class
  EXPECT_NEAR(loss_of({{"with_z_loss", 1}}), plain + 0.5 * ln4 * ln4, 1e-7);
}

TEST(CrossEntropyBackward, EachOptionByHand) {
  const double ln4 = std::log(4);
  expect_close(dz_of({}), {0.25, -0.25}, 1e-7, "plain");
  expect_close(dz_of({{"smoothing", 1}}), {0.15, -0.15}, 1e-7, "PyTorch's smoothing");
  expect_close(dz_of({{"smoothing", 2}}), {0.05, -0.05}, 1e-7, "Megatron's smoothing");
  expect_close(dz_of({{"with_z_loss", 1}}), {0.25 + ln4 / 4, -0.25 + 3 * ln4 / 4}, 1e-7, "z-loss");
}

TEST(CrossEntropy, StaysAccurateWhereLogitsAreLarge) {
  // Logits 1000 and 999, target 0: loss = log(1 + 1/e). In f32 lse itself is only good to 6e-5.
  Arguments in;
  Matrix a(1, 1), b(2, 1);
  a(0, 0) = 1, b(0, 0) = 1000, b(1, 0) = 999;
  in.set("A", a), in.set("B", b), in.integers("target", {0}), in.integer("ignore", ignored);
  const double loss = run_on_cpu(standard("linear_cross_entropy").without("logits"), in).at("loss")[0];
  EXPECT_NEAR(loss, std::log1p(std::exp(-1.0)), 2e-7);
}

TEST(CrossEntropy, AllLogitsNegativeAndALastLoneColumn) {
  // The largest of ragged tiles must come from columns that exist.
  Arguments in;
  const std::int64_t n = 1025;
  Matrix a(2, 1), b(n, 1);
  a(0, 0) = a(1, 0) = 1;
  for (std::int64_t j = 0; j < n; ++j) b(j, 0) = -50 - static_cast<double>(j % 7);
  in.set("A", a), in.set("B", b), in.integers("target", {n - 1, 6}), in.integer("ignore", ignored);
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += std::exp(-static_cast<double>(j % 7));
  const Results r = run_on_cpu(standard("linear_cross_entropy").without("logits"), in);
  expect_close(r.at("zmax"), {-50, -50}, 0, "zmax");
  expect_close(r.at("loss"), {std::log(sum) + static_cast<double>((n - 1) % 7), std::log(sum) + 6}, 1e-5, "loss");
}

TEST(CrossEntropy, PicksTargetsOnBothSidesOfEveryBoundary) {
  // Vectors, tiles, and 16-bit column numbers end between these.
  const std::vector<std::int64_t> boundaries{0,   7,   8,    15,   16,    127,   128,   255,  256,
                                             511, 512, 1023, 1024, 32767, 32768, 40959, 40960};
  const std::int64_t n = 40961, m = static_cast<std::int64_t>(boundaries.size());
  Arguments in;
  in.set("A", [&] {
    Matrix a(m, 1);
    std::fill(a.values.begin(), a.values.end(), 1);
    return a;
  }());
  const Matrix b = in.matrix("B", n, 1);
  in.integers("target", boundaries), in.integer("ignore", ignored);
  double sum = 0;
  for (const double z : b.values) sum += std::exp(z);
  Vector want;
  for (const std::int64_t t : boundaries) want.push_back(std::log(sum) - b(t, 0));
  expect_close(run_on_cpu(standard("linear_cross_entropy").without("logits"), in).at("loss"), want, 1e-6, "loss");
}

TEST(CrossEntropy, InfiniteLogitsCountAsProbabilityZero) {
  // Logits [-inf, 2, -inf]: the lone finite class has loss 0, another one loss +inf.
  Arguments in;
  Matrix a(2, 1), b(3, 1);
  a(0, 0) = a(1, 0) = 1, b(0, 0) = b(2, 0) = -INFINITY, b(1, 0) = 2;
  in.set("A", a), in.set("B", b), in.integers("target", {1, 2}), in.integer("ignore", ignored);
  const Program p = standard("linear_cross_entropy").without("logits");
  for (const Results& r : {evaluate(p, in), run_on_cpu(p, in)}) {
    expect_close(r.at("zmax"), {2, 2}, 0, "zmax");
    expect_close(r.at("zsum"), {1, 1}, 0, "zsum");
    expect_close(r.at("loss"), {0, INFINITY}, 0, "loss");
  }
}

TEST(CrossEntropy, NaNLogitsReachTheirRowsStatisticsAndNoOther) {
  Arguments in;
  Matrix a(2, 1), b(3, 1);
  a(0, 0) = 1, a(1, 0) = NAN, b(0, 0) = 1, b(1, 0) = 2, b(2, 0) = 3;
  in.set("A", a), in.set("B", b), in.integers("target", {1, 2}), in.integer("ignore", ignored);
  const Results r = run_on_cpu(standard("linear_cross_entropy"), in);
  for (const char* name : {"zmax", "zsum", "loss"}) {
    EXPECT_FALSE(std::isnan(r.find(name)->second[0])) << name;
    EXPECT_TRUE(std::isnan(r.find(name)->second[1])) << name;
  }
}

TEST(CrossEntropy, AnIgnoredClassMayBeARealOne) {
  for (const std::int64_t ignore : {std::int64_t{0}, V - 1}) {
    Case c({});
    c.in.integer("ignore", ignore);
    c.in.integers("target", {0, V - 1, 3, 4, 5, 6});
    const Vector loss = run_on_cpu(c.forward(), c.in).at("loss");
    for (std::size_t i = 0; i < loss.size(); ++i) {
      const bool is_ignored = (i == 0 && ignore == 0) || (i == 1 && ignore == V - 1);
      EXPECT_EQ(loss[i] == 0, is_ignored) << "row " << i << ", ignoring " << ignore;
    }
  }
}

TEST(CrossEntropy, AnIgnoredRowOfNaNGivesZeroLossAndZeroGradient) {
  Case c({.formula = {.z_weight = 0.1}});
  Matrix a = c.in.matrix("A", M, K);
  for (std::int64_t k = 0; k < K; ++k) a(3, k) = NAN;
  c.in.set("A", a);
  const Results r = run_on_cpu(c.forward(), c.in);
  EXPECT_EQ(r.at("loss")[3], 0);
  EXPECT_EQ(r.at("z_loss")[3], 0);
  c.in.set("zmax", r.at("zmax")), c.in.set("zsum", r.at("zsum"));
  const Vector dz = run_on_cpu(c.backward(), c.in).at("dz");
  for (std::int64_t j = 0; j < V; ++j) EXPECT_EQ(dz[static_cast<std::size_t>(3 * V + j)], 0);
}

TEST(CrossEntropy, ATargetThatIsNoClassIsRefusedForwardAndNaNBackward) {
  for (const std::int64_t wrong : {std::int64_t{-1}, V, std::int64_t{1} << 40}) {
    Case c({});
    std::vector<std::int64_t> t = targets;
    t[2] = wrong;
    c.in.integers("target", t);
    EXPECT_THROW(run_on_cpu(c.forward(), c.in), Error) << wrong;
    const Results want = c.forward_formula();
    c.in.set("zmax", want.at("zmax")), c.in.set("zsum", want.at("zsum"));
    const Vector dz = run_on_cpu(c.backward(), c.in).at("dz");
    for (std::int64_t i = 0; i < M; ++i)
      EXPECT_EQ(std::isnan(dz[static_cast<std::size_t>(i * V)]), i == 2) << "row " << i << ", target " << wrong;
  }
}

TEST(CrossEntropyBackward, RowsSumToZeroAndScaleWithTheUpstreamGradient) {
  Case c({.formula = {.smooth = 0.1}});
  const Results want = c.forward_formula();
  c.in.set("zmax", want.at("zmax")), c.in.set("zsum", want.at("zsum"));
  const Vector dz = evaluate(c.backward(), c.in).at("dz");
  c.in.set("scale", Vector(M, 0));
  const Vector none = evaluate(c.backward(), c.in).at("dz");
  for (std::int64_t i = 0; i < M; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < V; ++j) sum += dz[static_cast<std::size_t>(i * V + j)];
    EXPECT_NEAR(sum, 0, 1e-6) << "row " << i;
  }
  for (const double x : none) EXPECT_EQ(x, 0);
}

}  // namespace
}  // namespace coda::test
